"""The kind of device that a computation will run on, while it is traced: by its mesh, not by the process's default.

That is right for programs compiled ahead for other devices, and for some of several kinds.
"""

from __future__ import annotations

import collections
import contextlib
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh

from winobench.base import accelerators

# Platform -> options of XLA's compiler for the programs that take the time: the scorer's step and the training step.
# CPUs: vectors as wide as the processor has. XLA's own choice is at most 256 bits, which takes exponential functions
# half as long again on processors with 512.
# GPUs: XLA would make one product of several with the same input, such as queries, keys and values, and write out the
# parts of its result again, and the parts of its weights at each step. SDXL's step of 8 passes on an H100 moves 6 of
# 131 GB more with it, and has 0.7 GB more of temporaries (by its compiler). Its own products, in Triton, cannot add to
# an array, as cuBLAS' can: sums around layers would be separate kernels. XLA also compiles several of them for each
# shape, to try them out.
COMPILER_OPTIONS: dict[str, dict[str, Any] | None] = {
    "cpu": {"xla_cpu_prefer_vector_width": 512},
    "gpu": {"xla_gpu_dot_merger_threshold_mb": 0, "xla_gpu_enable_triton_gemm": False},
    "tpu": None,
}


class Device(NamedTuple):
    """A kind of device."""

    platform: str  # cpu, gpu or tpu
    kind: str = ""  # as the platform names it, such as "NVIDIA H100 80GB HBM3" or "TPU v5 lite". Empty where unknown


def traced_device() -> Device | None:
    """The device of the mesh around the function that is being traced; None without a mesh.

    Functions under `map_over_data`, `jax.set_mesh` or `traced_on` have one. JAX traces again for another mesh. Where
    this is None, `jax.lax.platform_dependent` chooses between forms when the function is lowered.
    """
    device = jax.sharding.get_abstract_mesh().abstract_device
    return None if device is None else Device(device.platform, device.device_kind)


def is_traced_for(platform: str) -> bool:
    """Whether the function is being traced for devices of this platform (cpu, gpu, tpu). False without a mesh."""
    device = traced_device()
    return device is not None and device.platform == platform


def describe_mesh(mesh: Mesh) -> str:
    """The devices of a mesh for a person, such as ``2 x cpu`` or ``1 x NVIDIA H100 80GB HBM3``."""
    counts = collections.Counter(device.device_kind for device in mesh.devices.flat)
    return ", ".join(f"{count} x {kind}" for kind, count in counts.items())


def runs_on_one_device() -> bool:
    """Whether one device's own part of a program is being traced, as it is under `map_over_data`. False without a mesh.

    Kernels that the compiler cannot divide among devices, such as Pallas', may be called there, and nowhere else.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        return False
    kinds = zip(mesh.axis_types, mesh.axis_sizes, strict=True)
    return all(kind == jax.sharding.AxisType.Manual or size == 1 for kind, size in kinds)


def traced_on(mesh: Mesh | None) -> Any:
    """A context in which tracing takes place for a mesh, if any, inside of `jax.jit`, which forbids `jax.set_mesh`."""
    return contextlib.nullcontext() if mesh is None else jax.sharding.use_abstract_mesh(mesh.abstract_mesh)


def on_each_device(function: Callable[..., Any], rows: int) -> Callable[..., Any] | None:
    """A function of arrays with so many rows, so that each device calls it with its own rows, also for gradients.

    For kernels that the compiler cannot divide among devices, in a training step under `traced_on`. Returns the
    function itself where it `runs_on_one_device`; None where the devices cannot share the rows equally, or are unknown.
    """
    if runs_on_one_device():
        return function
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or rows % mesh.size or any(kind != jax.sharding.AxisType.Auto for kind in mesh.axis_types):
        return None
    split = jax.sharding.PartitionSpec(mesh.axis_names)
    return jax.shard_map(function, in_specs=split, out_specs=split, check_vma=False)


def shared_axes() -> tuple[str, ...]:
    """The axes of devices that share one part of the data, in a function that is traced under `map_over_data`."""
    mesh = jax.sharding.get_abstract_mesh()
    return tuple(axis for axis in mesh.auto_axes if mesh.shape[axis] > 1) if mesh.manual_axes else ()


@functools.cache
def compute_capability(kind: str = "") -> tuple[int, int] | None:
    """(major, minor) of a kind of NVIDIA GPU, or of this process's GPU; None without one."""
    for known in accelerators.ACCELERATORS.values():
        if kind and known.device_kind == kind:
            return known.compute_capability
    try:
        devices = jax.local_devices(backend="gpu")
    except RuntimeError:  # This process has no GPU.
        return None
    for device in devices:
        # "9.0" on NVIDIA GPUs, another form or nothing elsewhere.
        major, _, minor = str(getattr(device, "compute_capability", "")).partition(".")
        if kind in ("", device.device_kind) and major.isdigit() and minor.isdigit():
            return int(major), int(minor)
    return None
