"""Devices that are not available, as their compilers describe them: enough to compile a program for them.

TPUs need the package libtpu, NVIDIA GPUs JAX's CUDA plugin. Neither needs a chip. Call `prepare` before JAX has looked
for devices.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import os
import re

import jax
from jax.experimental import topologies

from winobench.base.accelerators import ACCELERATORS, Accelerator
from winobench.base.errors import InputError

# A program of a hundred thousand devices takes long to write down, and nobody has as many.
_MAX_DEVICES = 8192
# TPU v5e and v6e come as a plane of chips, v5p as a block.
_AXES = {"v5e": 2, "v6e": 2, "v5p": 3}


@dataclasses.dataclass(frozen=True)
class Target:
    """Some devices of one kind, as JAX describes them to compilers."""

    text: str  # as given, e.g. ``v5e:4x4``
    accelerator: Accelerator
    devices: tuple[jax.Device, ...]


def prepare() -> None:
    """Sets what the compilers read from the environment. Call it before JAX has looked for devices.

    This process then has CPU devices only, on every machine: no compiler may look for a chip.
    """
    os.environ["JAX_PLATFORMS"] = "cpu,cuda" if _has_cuda_plugin() else "cpu"
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"
    # libtpu would otherwise ask Google Cloud's metadata server about its machine.
    os.environ["TPU_SKIP_MDS_QUERY"] = "1"
    # Nor is there a chip for two processes to fight for.
    os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
    os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v5litepod-4")
    jax.config.update("jax_platforms", os.environ["JAX_PLATFORMS"])
    # JAX's cache keeps programs for described devices, but cannot read them without such a device.
    jax.config.update("jax_enable_compilation_cache", False)


def find(text: str) -> Target:
    """Devices by a short text (see `parse`)."""
    accelerator, shape = parse(text)
    is_tpu = accelerator.platform == "tpu"
    return Target(text, accelerator, _tpus(accelerator, shape, text) if is_tpu else _gpus(accelerator, shape))


def parse(text: str) -> tuple[Accelerator, tuple[int, ...]]:
    """An accelerator and how many there are along each axis, from ``v5e:4x4``, ``v5p:2x2x1``, ``h100:8`` or ``l4``."""
    name, _, shape = text.partition(":")
    if name not in ACCELERATORS:
        raise InputError(
            f"the accelerator {text!r} is unknown: name one of {', '.join(ACCELERATORS)}, as in v5e:4x4 or h100:8",
            code="unknown-accelerator",
        )
    accelerator = ACCELERATORS[name]
    axes = _AXES.get(name, 1)
    shape = shape or "x".join("1" * axes)
    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", shape) or len(shape.split("x")) != axes:
        example = "x".join("2" * (axes - 1) + "1") if axes == 3 else "x".join("4" * axes) if axes == 2 else "8"
        raise InputError(
            f"the accelerator {text!r} has no shape that is known: write it as in {name}:{example}",
            code="unknown-accelerator",
        )
    sizes = tuple(int(size) for size in shape.split("x"))
    if math.prod(sizes) > _MAX_DEVICES:
        raise InputError(f"the accelerator {text!r} has more than {_MAX_DEVICES:,} devices", code="too-many-devices")
    return accelerator, sizes


def _tpus(accelerator: Accelerator, shape: tuple[int, ...], text: str) -> tuple[jax.Device, ...]:
    if importlib.util.find_spec("libtpu") is None:
        raise InputError(
            f"compiling for {text} needs the package libtpu, which is not installed: pip install 'winobench[tpu]'",
            code="missing-package",
        )
    # libtpu ends the process over flags of other platforms, such as CPUs' flags. Its own are in LIBTPU_INIT_ARGS.
    os.environ.pop("XLA_FLAGS", None)
    # Chips come on boards of four: fewer are some of a board's.
    larger = tuple(max(2, size) if axis < 2 else size for axis, size in enumerate(shape))
    name = f"{accelerator.name}:{'x'.join(map(str, larger))}"
    try:
        described = topologies.get_topology_desc(platform="tpu", topology_name=name)
    except jax.errors.JaxRuntimeError as error:
        raise InputError(
            f"the TPU compiler knows no {text}: {str(error).splitlines()[0][:200]}", code="unknown-accelerator"
        ) from error
    return tuple(described.devices[: math.prod(shape)])


def _has_cuda_plugin() -> bool:
    return importlib.util.find_spec("jax_plugins") is not None and any(
        importlib.util.find_spec(f"jax_plugins.xla_cuda{version}") is not None for version in (12, 13, 14)
    )


def _gpus(accelerator: Accelerator, shape: tuple[int, ...]) -> tuple[jax.Device, ...]:
    if not _has_cuda_plugin():
        raise InputError(
            f"compiling for {accelerator.name} needs JAX's CUDA plugin, which is not installed: pip install"
            " 'winobench[cuda]'",
            code="missing-package",
        )
    config = _gpu_description(accelerator)
    topology = f"1x1x{math.prod(shape)}"
    described = topologies.get_topology_desc(platform="cuda", topology_name="", target_config=config, topology=topology)
    return tuple(described.devices)


def _gpu_description(gpu: Accelerator) -> str:
    """A GPU for XLA (the text form of its ``GpuTargetConfigProto``)."""
    major, minor = gpu.compute_capability
    shared, shared_of_block = gpu.core_memory
    # Hopper and later add instructions to the architecture's.
    extension = "ACCELERATED_FEATURES" if major >= 9 else "NONE"
    device = (
        "threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152"
        f" shared_memory_per_core: {shared} shared_memory_per_block_optin: {shared_of_block}"
        f" threads_per_core_limit: {gpu.core_threads} core_count: {gpu.cores} fpus_per_core: {gpu.units_per_core}"
        " block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535"
        " thread_dim_limit_x: 1024 thread_dim_limit_y: 1024 thread_dim_limit_z: 64"
        " registers_per_core_limit: 65536 registers_per_block_limit: 65536"
        f" memory_bandwidth: {int(gpu.memory_rate)} l2_cache_size: {gpu.l2_cache}"
        f" clock_rate_ghz: {gpu.clock / 1e9} device_memory_size: {gpu.memory} device_address_bits: 64"
        f" cuda_compute_capability {{ major: {major} minor: {minor} feature_extension: {extension} }}"
        f' device_vendor: "NVIDIA Corporation" name: "{gpu.device_kind}" driver_version: "13.0.0"'
        ' runtime_version: "13.0.0" compile_time_toolkit_version: "13.0.0" dnn_version: "9.10.0"'
    )
    return (
        f'gpu_device_info {{ {device} }} platform_name: "CUDA"'
        f' dnn_version_info {{ major: 9 minor: 10 patch: 0 }} device_description_str: "{gpu.device_kind}"'
    )
