"""Meshes and where arrays live on them.

One mesh has up to two axes. ``data`` splits a batch: each device works on its own rows, and no rows travel. ``model``,
an option, splits the parameters of networks that do not fit on one device; XLA inserts the communication. Meshes are
made here and nowhere else, because the axes of `jax.make_mesh` ask every operation for its sharding.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from winobench.base import memory
from winobench.base.errors import InputError

DATA_AXIS = "data"
MODEL_AXIS = "model"

# For copies of the parameters where the devices are the cores of one CPU.
_CPU_COPIES_BYTES = 1 << 31


def one_device_per_core(limit: int = 8) -> None:
    """Has JAX see each core of this machine as a separate CPU device, unless ``XLA_FLAGS`` names a number of devices.

    XLA runs many convolutions on a single core. Two devices with half of the batch each keep two cores busy: 15 to 25%
    more work than one device with two cores. Call it before JAX has looked for devices. With an accelerator, CPU
    devices lie idle.
    """
    if "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", ""):
        return
    with contextlib.suppress(RuntimeError):  # JAX has started.
        jax.config.update("jax_num_cpu_devices", min(memory.num_cores(), limit))


def is_multihost(mesh: Mesh | None) -> bool:
    """Whether some of a mesh's devices belong to other processes, so that these have to make the same calls."""
    return mesh is not None and any(device.process_index != jax.process_index() for device in mesh.devices.flat)


def make_mesh(devices: Sequence[jax.Device] | None = None, *, model_parallel: int = 1) -> Mesh:
    """Makes the mesh that scorers and training run on."""
    devices = list(jax.devices() if devices is None else devices)
    if not devices:
        message = "a mesh needs at least one device, but the list of devices is empty: leave it out to use all"
        raise InputError(message, code="empty-list")
    if model_parallel < 1 or len(devices) % model_parallel:
        message = f"model_parallel is {model_parallel}, but it must divide the number of devices, {len(devices)}"
        raise InputError(message, code="indivisible-devices")
    if model_parallel == 1:
        return Mesh(np.asarray(devices), (DATA_AXIS,), axis_types=(AxisType.Auto,))
    grid = np.asarray(devices).reshape(-1, model_parallel)
    return Mesh(grid, (DATA_AXIS, MODEL_AXIS), axis_types=(AxisType.Auto, AxisType.Auto))


def default_mesh(params: Any) -> Mesh:
    """All devices of this process. Of a CPU's cores only as many as there is memory for copies of the parameters.

    In a program of several processes each has its own work, and waits for no other.
    """
    devices = jax.local_devices()
    if devices[0].platform == "cpu":
        copies = _CPU_COPIES_BYTES // max(1, memory.array_bytes(params))
        devices = devices[: max(1, copies)]
    return make_mesh(devices)


def as_mesh(mesh: Mesh | None, batch_axis: str | Sequence[str] | None = None) -> Mesh:
    """Returns a mesh of the same devices with the axes that scorers, training and generation work with.

    Args:
      batch_axis: the axes that split a batch, which become ``data``. All others become ``model``, and split the
        parameters. When None, ``data``, or the only axis.
    """
    if mesh is None:
        return make_mesh()
    if not isinstance(mesh, Mesh):
        message = f"a mesh is a jax.sharding.Mesh, as winobench.parallel.make_mesh makes it, not {mesh!r:.80}"
        raise InputError(message, code="wrong-type")
    names = mesh.axis_names
    if batch_axis is None:
        is_only = len(names) == 1 and names != (MODEL_AXIS,)
        batch = names if is_only or set(names) - {DATA_AXIS, MODEL_AXIS} else (DATA_AXIS,)
        is_clear = is_only or batch == (DATA_AXIS,)
    else:
        batch, is_clear = (batch_axis,) if isinstance(batch_axis, str) else tuple(batch_axis), True
    if not is_clear or set(batch) - set(names):
        raise InputError(
            f"the mesh has the axes {', '.join(map(repr, names))}: name those that split a batch, as in"
            " winobench.parallel.as_mesh(mesh, batch_axis='data')",
            code="wrong-axes",
        )
    others = [name for name in names if name not in batch]
    devices = mesh.devices.transpose([names.index(name) for name in (*batch, *others)])
    rows = math.prod(mesh.shape[name] for name in batch)
    if not others:
        return Mesh(devices.reshape(rows), (DATA_AXIS,), axis_types=(AxisType.Auto,))
    return Mesh(devices.reshape(rows, -1), (DATA_AXIS, MODEL_AXIS), axis_types=(AxisType.Auto, AxisType.Auto))


def without_mesh(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a function that runs programs on its own mesh: the caller's `jax.set_mesh` does not reach into it."""

    @functools.wraps(function, (*functools.WRAPPER_ASSIGNMENTS, "lower"))
    def called(*arguments: Any, **keywords: Any) -> Any:
        with _no_mesh():
            return function(*arguments, **keywords)

    @functools.wraps(function)
    def iterated(*arguments: Any, **keywords: Any) -> Iterator[Any]:
        with contextlib.closing(function(*arguments, **keywords)) as items:
            while True:
                with _no_mesh():
                    item = next(items, items)
                if item is items:
                    return
                yield item

    return iterated if inspect.isgeneratorfunction(function) else called


def _no_mesh() -> contextlib.AbstractContextManager[Any]:
    return contextlib.nullcontext() if jax.sharding.get_abstract_mesh().empty else jax.set_mesh(None)


def automatically(function: Callable[..., Any], rows: jax.Array) -> Callable[..., Any]:
    """A function of arrays for the caller's mesh, whose explicit axes are automatic in it. ``rows`` are [n, ...]."""
    explicit = jax.sharding.get_abstract_mesh().explicit_axes
    if not explicit:
        return function
    split = PartitionSpec(*jax.typeof(rows).sharding.spec[:1])
    return jax.sharding.auto_axes(function, axes=explicit, out_sharding=split)


def data_parallelism(mesh: Mesh) -> int:
    """The number of parts that the mesh splits a batch into."""
    return mesh.shape[DATA_AXIS]


def replicated(mesh: Mesh) -> NamedSharding:
    """The sharding of an array that every device holds whole."""
    return NamedSharding(mesh, PartitionSpec())


def split_axis(mesh: Mesh, axis: int = 0) -> NamedSharding:
    """The sharding of an array whose axis number ``axis`` is split over the data axis of the mesh."""
    return NamedSharding(mesh, PartitionSpec(*(None,) * axis, DATA_AXIS))


def split_rows(mesh: Mesh, axis: int = 0) -> NamedSharding:
    """The sharding of a training batch, whose axis number ``axis`` is split over all devices of the mesh.

    Devices that share one copy of the parameters work on their own rows, too: they exchange a layer's parameters when
    its turn comes (fully sharded data parallelism).
    """
    return NamedSharding(mesh, PartitionSpec(*(None,) * axis, mesh.axis_names))


def parameter_shardings(parameters: Any, mesh: Mesh) -> Any:
    """Shardings of a pytree's parameters.

    Without a ``model`` axis every device holds everything. With one, each array is split along its last axis that the
    number of devices divides, because the last axis of kernels is the output's. Arrays without such an axis, which are
    small, stay whole.
    """
    parts = mesh.shape.get(MODEL_AXIS, 1)

    def sharding(leaf: Any) -> NamedSharding:
        shape = np.shape(leaf)
        if parts > 1:
            for axis in reversed(range(len(shape))):
                if shape[axis] and shape[axis] % parts == 0:
                    return NamedSharding(mesh, PartitionSpec(*(None,) * axis, MODEL_AXIS))
        return replicated(mesh)

    return jax.tree.map(sharding, parameters)


def place_parameters(parameters: Any, mesh: Mesh) -> Any:
    """Puts parameters on the devices of the mesh, with `parameter_shardings`."""
    return jax.tree.map(put, parameters, parameter_shardings(parameters, mesh))


def put(array: Any, sharding: NamedSharding) -> jax.Array:
    """Copies an array to the devices of a sharding."""
    if is_on(array, sharding.mesh) and array.sharding.is_equivalent_to(sharding, array.ndim):
        return array
    if sharding.is_fully_addressable:
        return jax.device_put(array, sharding)
    # `device_put` would have all processes compare their values first, at every call.
    if isinstance(array, jax.Array) and jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(put(jax.random.key_data(array), sharding), impl=jax.random.key_impl(array))
    array = np.asarray(array)
    return jax.make_array_from_callback(array.shape, sharding, lambda part: array[part])


def is_on(array: Any, mesh: Mesh | AbstractMesh) -> bool:
    """Whether an array lives on a mesh, shared or not.

    One without a mesh does not, even on the same devices: other kinds of sharding compile functions again.
    """
    return isinstance(array, jax.Array) and isinstance(array.sharding, NamedSharding) and array.sharding.mesh == mesh


def map_over_data(function: Any, mesh: Mesh, in_specs: Any, out_specs: Any) -> Any:
    """`jax.shard_map` over the data axis alone. A ``model`` axis is left to XLA."""
    # Without the check of values that vary over the mesh: it finds missing communication, of which this has none, and
    # rejects networks whose loops start from constants.
    return jax.shard_map(
        function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, axis_names={DATA_AXIS}, check_vma=False
    )


def held_by_all(tree: Any, mesh: Mesh, spec: PartitionSpec = PartitionSpec()) -> list[Any]:  # noqa: B008
    """Hands the results of the devices of a mesh, each a part, to all of them.

    Parts are copied from device to device. A program that gathers them would have every device wait for all others:
    where the devices are threads of one CPU, some of which are still at earlier work, such programs can starve each
    other, and wait for ever. Two kinds need such a program: devices of other processes cannot be reached, and devices
    that share one copy of the parameters may hold parts along other axes.
    """

    leaves, structure = jax.tree.flatten(tree)
    whole = replicated(mesh)
    if is_multihost(mesh) or mesh.shape.get(MODEL_AXIS, 1) > 1:
        parts = [wait_if_cpu(mesh, _gathered(NamedSharding(mesh, spec), wait_if_cpu(mesh, leaves)))]
    elif mesh.size == 1:
        parts = [leaves]
    else:
        parts = [
            [jax.device_put(part, whole) for part in of_leaf] for of_leaf in zip(*map(_parts, leaves), strict=True)
        ]
    return [jax.tree.unflatten(structure, part) for part in parts]


def _parts(array: jax.Array) -> list[jax.Array]:
    """One copy of each of the parts that an array's first axis is split into, in order, on its device."""
    copies = {shard.index[0].start or 0: shard.data for shard in array.addressable_shards}
    return [copies[start] for start in sorted(copies)]


@functools.partial(jax.jit, static_argnames="sharding")
def _gathered(sharding: NamedSharding, leaves: list[jax.Array]) -> list[jax.Array]:
    return jax.lax.with_sharding_constraint(leaves, sharding)


def wait_if_cpu(mesh: Mesh, arrays: Any, *, communicates: bool | None = None) -> Any:
    """Waits for a program's results, if its devices wait for each other and are threads of one CPU.

    An accelerator runs programs in the order in which they were dispatched: its devices come to the same one sooner or
    later. CPU devices share a pool of threads. They begin a program while another one runs, and a device that waits for
    others keeps a thread that these may need. Call this on the results of every program that communicates: by default
    (None), where devices share the parameters or belong to several processes.
    """
    if communicates is None:
        communicates = mesh.shape.get(MODEL_AXIS, 1) > 1 or is_multihost(mesh)
    if communicates and mesh.size > 1 and mesh.devices.flat[0].platform == "cpu":
        jax.block_until_ready(arrays)
    return arrays


def fetch(array: jax.Array) -> np.ndarray:
    """Copies an array to the host, from all processes where several hold its parts."""
    if array.is_fully_addressable or array.is_fully_replicated:
        return np.asarray(jax.device_get(array))
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(array, tiled=True))
