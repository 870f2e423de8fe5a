"""Networks from weight files and back: the key table, and the two functions that walk it.

The attribute paths of the networks in ``winobench.models`` equal the key names of the published torch weights, so the
table holds only what differs: the names of leaves, their layout, older names, and known buffers.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from winobench import parallel
from winobench.base import options
from winobench.base.errors import InputError
from winobench.base.files import write_json
from winobench.checkpoints import sources, weights
from winobench.models import base, lora, snapshots
from winobench.models.base import KeyTable

Model = TypeVar("Model", bound=nnx.Module)
Path = tuple[str | int, ...]

_THREADS = min(8, os.cpu_count() or 1)
DTYPES = ("float32", "bfloat16", "float16")

# Options of networks' configs that state how many layers there are.
_DEPTHS = (
    *("layers_per_block", "transformer_layers_per_block", "num_hidden_layers", "num_layers", "num_single_layers"),
    *("num_decoder_layers", "layers", "depth", "n_layers", "n_refiner_layers"),
)

# Leaf names of Flax -> torch. Others are the same in both. The order of axes follows from the leaf and its rank.
_LEAF_NAMES = {"kernel": "weight", "scale": "weight", "embedding": "weight", "bias": "bias"}


def torch_names(module: nnx.Module) -> dict[str, tuple[Path, tuple[int, ...]]]:
    """A network's parameters as torch names them: torch key -> (attribute path in the network, torch's shape)."""
    return _torch_names(_leaves(module))


def _torch_names(leaves: Iterable[tuple[Path, Any]]) -> dict[str, tuple[Path, tuple[int, ...]]]:
    return {_torch_key(path): (path, _torch_shape(path, leaf.shape)) for path, leaf in leaves}


def load_model(
    cls: type[Model],
    source: str | os.PathLike | sources.Source,
    *,
    subfolder: str | None = None,
    dtype: Any = jnp.float32,
    variant: str | None = None,
    revision: str | None = None,
    allow_pickle: bool = False,
    on_host: bool = False,
) -> Model:
    """Builds a network from a ``config.json`` and its weight files, in float32, bfloat16 or float16.

    No random weights are made. Every tensor of the files is used exactly once and every parameter is filled.
    """
    source = sources.resolve(source, revision=revision)
    config = read_config(cls, source, subfolder)
    paths = weights.find_weights(source, subfolder, cls.weights_name, variant=variant, allow_pickle=allow_pickle)
    return build_model(cls, config, weights.read_weights(paths), dtype=dtype, on_host=on_host)


def read_config(cls: type[Model], source: sources.Source, subfolder: str | None = None) -> Any:
    """Reads and checks the config of a network."""
    name = sources.join(subfolder, "config.json")
    path = source.require(name, f"so it holds no {cls.__name__}")
    content = sources.read_json(path)
    refuse_quantised(path, content)
    with sources.blame(path):
        return cls.config_class.from_dict(content)


def refuse_quantised(path: str, content: dict[str, Any]) -> None:
    """Takes the option out of a config. Refuses it where the weights are quantised in a form that is not read."""
    quantised = content.pop("quantization_config", None)
    if quantised:
        method = quantised.get("quant_method", "an unnamed method") if isinstance(quantised, dict) else quantised
        if method == "bitsandbytes":  # the part `quantised` reads the rest
            return
        raise InputError(
            f"{path} has a quantization_config ({options.quote(method)}): take the unquantised model, or save it so"
            " with the library that quantised it",
            code="unsupported-checkpoint",
        )


def build_model(
    cls: type[Model],
    config: Any,
    tensors: Mapping[str, weights.FileTensor],
    *,
    dtype: Any = jnp.float32,
    config_name: str = "config.json",
    on_host: bool = False,
) -> Model:
    """Builds a network and fills it with tensors."""
    dtype = as_dtype(dtype)
    _check_depth(cls.__name__, config, tensors, config_name)
    graph, state = abstract_parts(cls, config, dtype=dtype)
    leaves = list(nnx.to_flat_state(state))
    named = rename(cls.__name__, tensors, cls.file_keys)
    expected = _torch_names(leaves)
    _check_fit(cls.__name__, expected, named, config_name)

    def fill(item: tuple[Path, Any]) -> tuple[Path, Any]:
        path, leaf = item
        key = _torch_key(path)
        values = named[key].floats().reshape(expected[key][1])
        values = _from_torch(path, values)
        # A copy in order: what the file's reader returns may be the file itself, or be turned around.
        filled = np.array(values, dtype, order="C")
        filled.flags.writeable = False  # what identifies them holds as long as they are there
        # Put there as it is: `jnp.asarray` would compile a program for each shape.
        return path, leaf.replace(filled if on_host else jax.device_put(filled))

    # NumPy releases the interpreter while it copies, and copying is all the work.
    with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
        filled = dict(pool.map(fill, leaves))
    return nnx.merge(graph, nnx.from_flat_state(filled))


def as_dtype(dtype: Any) -> jnp.dtype:
    """Returns the dtype of a name or type. Raises InputError unless it is float32, bfloat16 or float16."""
    try:
        known = jnp.dtype(dtype)
    except TypeError:
        known = None
    if known is None or known.name not in DTYPES:
        raise InputError(f"the dtype {dtype!r} is not one of {', '.join(DTYPES)}", code="unsupported-dtype")
    return known


def abstract_model(cls: type[Model], config: Any, *, dtype: Any = jnp.float32, **options: Any) -> Model:
    """A network whose parameters are shapes and dtypes, without values: a full-size one takes a second."""
    return nnx.merge(*abstract_parts(cls, config, dtype=dtype, **options))


def abstract_parts(cls: type[nnx.Module], config: Any, *, dtype: Any = jnp.float32, **options: Any) -> tuple[Any, Any]:
    """The graph definition and the state of an `abstract_model`."""

    def build() -> nnx.Module:
        return cls(config, dtype=dtype, param_dtype=dtype, rngs=_SameKey(jax.random.key(0)), **options)

    with base.only_shapes():
        return nnx.split(nnx.eval_shape(build))


def in_dtype(network: Model, dtype: Any) -> Model:
    """A network with the same weights, rounded, that computes in another dtype."""
    dtype = as_dtype(dtype)
    if not isinstance(network, base.Network):
        raise InputError(
            f"this {type(network).__name__} has one dtype, in which it was made: leave out another one",
            code="unsupported-option",
        )
    graph, shapes = abstract_parts(type(network), network.config, dtype=dtype)
    arrays, tree = jax.tree.flatten(nnx.state(network))
    if tree != jax.tree.structure(shapes):
        raise InputError(
            f"this {type(network).__name__} has other layers than its config: leave out another dtype",
            code="unsupported-option",
        )
    if any(isinstance(array, jax.ShapeDtypeStruct) for array in arrays):
        return nnx.merge(graph, shapes)
    return nnx.merge(graph, jax.tree.unflatten(tree, [array.astype(dtype) for array in arrays]))


class _SameKey:
    """Replaces ``nnx.Rngs`` where the random values do not matter.

    ``nnx.Rngs`` counts its keys in a variable, which costs a traced UNet half a minute.
    """

    def __init__(self, key: jax.Array):
        self._key = key

    def __call__(self) -> jax.Array:
        return self._key

    def __getattr__(self, name: str) -> _SameKey:
        return self


def save_model(module: nnx.Module, folder: str | os.PathLike, *, dtype: Any = jnp.float32) -> None:
    """Writes ``config.json`` and the weights as diffusers and transformers read them. Each file whole or not at all."""
    dtype = as_dtype(dtype)
    network = type(module).__name__
    has_8_bits = any(leaf.get_value().dtype.itemsize == 1 for _, leaf in _leaves(module))
    for names, what, advice in (
        (has_8_bits, "weights in 8 bits", "save the network that it was made from"),
        (lora.adapters(module), "LoRA adapters", "fuse them first, or save them alone (checkpoints.save_lora)"),
    ):
        if names:
            message = f"this {network} has {what}, which its files have no place for: {advice}"
            raise InputError(message, code="cannot-be-saved")

    def convert(item: tuple[Path, Any]) -> tuple[str, np.ndarray]:
        path, leaf = item
        key = _torch_key(path)
        with np.errstate(over="ignore", invalid="ignore"):
            values = np.asarray(leaf.get_value()).astype(dtype, copy=False)
        if not np.isfinite(values).all():
            message = f"{network}: {key} is not finite in {dtype.name}: save float32, or find the step of divergence"
            raise InputError(message, code="not-finite")
        # Unlike `ascontiguousarray`, this leaves a single number without an axis.
        return key, np.asarray(np.transpose(values, _axes(path, values.ndim)), order="C")

    with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
        arrays = dict(pool.map(convert, _leaves(module)))
    os.makedirs(folder, exist_ok=True)
    weights.write_weights(os.path.join(folder, f"{type(module).weights_name}.safetensors"), arrays)
    write_json(os.path.join(folder, "config.json"), module.config.to_dict())


def weights_sha256(*modules: nnx.Module) -> str:
    """Identifies the weights that are in memory: names, dtypes, shapes and values.

    The same file loaded in another dtype gives another hash, since it gives other errors. Buffers and key names of
    other vintages do not matter. Computed once for the same arrays (`winobench.models.snapshots.once`).
    """
    named = [
        (type(module).__name__, sorted((_torch_key(path), leaf.get_value()) for path, leaf in _leaves(module)))
        for module in modules
    ]
    names = tuple((kind, tuple(key for key, _ in leaves)) for kind, leaves in named)
    return snapshots.once(names, [array for _, leaves in named for _, array in leaves], lambda: _sha256(named))


def _sha256(named: list[tuple[str, list[tuple[str, Any]]]]) -> str:
    digest = hashlib.sha256()
    for kind, leaves in named:
        digest.update(f"{kind}\n".encode())
        for key, array in leaves:
            values = np.ascontiguousarray(parallel.fetch(array) if isinstance(array, jax.Array) else array)
            digest.update(f"{key} {values.dtype.name} {values.shape}\n".encode())
            digest.update(values.view(np.uint8).data if values.size else b"")
    return digest.hexdigest()


def _leaves(module: nnx.Module) -> list[tuple[Path, Any]]:
    return list(nnx.to_flat_state(nnx.state(module)))


def _torch_key(path: Path) -> str:
    return ".".join(map(str, (*path[:-1], _LEAF_NAMES.get(path[-1], path[-1]))))


def _axes(path: Path, ndim: int) -> tuple[int, ...]:
    """Axes of Flax's layout in the order of torch's: [in, out] -> [out, in], HWIO -> OIHW."""
    if path[-1] == "kernel":
        return (ndim - 1, ndim - 2, *range(ndim - 2))
    return tuple(range(ndim))


def _torch_shape(path: Path, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(shape[axis] for axis in _axes(path, len(shape)))


def _from_torch(path: Path, values: np.ndarray) -> np.ndarray:
    return np.asarray(np.transpose(values, np.argsort(_axes(path, values.ndim))), order="C")


def rename(
    network: str, tensors: Mapping[str, weights.FileTensor], table: KeyTable, prefix: str = ""
) -> dict[str, weights.FileTensor]:
    """Applies a network's key table to the keys of its files, which may have a prefix."""
    named: dict[str, weights.FileTensor] = {}
    for key, tensor in tensors.items():
        key = key.removeprefix(prefix)
        for pattern, replacement in table.renames:
            if match := re.match(pattern, key):
                key = match.expand(replacement) + key[match.end() :]
        if any(re.fullmatch(pattern, key) for pattern in table.ignored):
            continue
        if key in named:
            message = f"{tensor.file}: {tensor.name} and {named[key].name} are two names of one parameter of {network}"
            raise InputError(message, code="repeated-tensor")
        named[key] = tensor
    for second, first in table.copies.items():
        if second in named:
            named.setdefault(first, named.pop(second))
    return named


def _check_depth(network: str, config: Any, tensors: Mapping[str, weights.FileTensor], config_name: str) -> None:
    """Refuses a config that describes more layers than its files have tensors, before so many layers are made."""
    for part in [config, *vars(config).values()] if dataclasses.is_dataclass(config) else []:
        for key in _DEPTHS:
            value = getattr(part, key, None)
            counts = value if isinstance(value, tuple) else (value,)
            layers = max((count for count in counts if isinstance(count, int)), default=0)
            if layers > max(len(tensors), 1):
                raise sources.mismatch(
                    f"{_files(tensors)} has {len(tensors):,} tensors, too few for the {network} that its {config_name}"
                    f" describes, with {key}={options.quote(layers)}"
                )


def _files(tensors: Mapping[str, weights.FileTensor]) -> str:
    return sources.shorten(sorted({tensor.file for tensor in tensors.values()}), 1) or "the weight file"


def _check_fit(
    network: str,
    expected: Mapping[str, tuple[Path, tuple[int, ...]]],
    tensors: Mapping[str, weights.FileTensor],
    config_name: str,
) -> None:
    """Raises one error that lists every kind of difference between parameters and tensors."""
    differences = []
    if missing := sorted(expected.keys() - tensors.keys()):
        differences.append(f"{len(missing)} missing ({sources.shorten(missing)})")
    if unexpected := sorted(tensors[key].name for key in tensors.keys() - expected.keys()):
        differences.append(f"{len(unexpected)} unexpected ({sources.shorten(unexpected)})")
    wrong = [
        f"{tensors[key].name} is {list(tensors[key].shape)} instead of {list(shape)}"
        for key, (_, shape) in sorted(expected.items())
        if key in tensors and not _same_map(tensors[key].shape, shape)
    ]
    if wrong:
        differences.append(f"{len(wrong)} of another shape ({sources.shorten(wrong)})")
    if differences:
        raise sources.mismatch(
            f"{_files(tensors)} does not fit the {network} that its {config_name} describes: {'; '.join(differences)}"
        )


def _same_map(found: tuple[int, ...], expected: tuple[int, ...]) -> bool:
    """True for equal shapes, and for a dense layer and the 1 x 1 convolution that computes the same: both are found."""
    longer, shorter = (found, expected) if len(found) > len(expected) else (expected, found)
    return found == expected or (len(shorter) == 2 and longer == (*shorter, 1, 1))
