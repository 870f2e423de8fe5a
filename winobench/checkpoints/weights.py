"""Weight files as named tensors, read one at a time: safetensors, and PyTorch pickles where they are allowed."""

from __future__ import annotations

import collections
import contextlib
import functools
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

import ml_dtypes  # registers bfloat16 with NumPy, which safetensors relies on
import numpy as np
import safetensors
import safetensors.numpy

from winobench.base import extensions, files, json_files, options
from winobench.base.errors import InputError
from winobench.base.files import atomic_path
from winobench.checkpoints import pickles
from winobench.checkpoints.sources import ADAPTER_CONFIG, Source, join, read_json, shorten
from winobench.checkpoints.tensors import FileTensor

# The library's own limit.
_LARGEST_HEADER = 100_000_000
# Where the header of a file that is written here keeps the digest of its tensors. Other tools drop it when they write a
# file, so that weights which are changed on purpose are not taken for damaged ones.
_DIGEST = "winobench.sha256"
_OF_SEVERAL_DEVICES = "module."
# Names of dtypes in safetensors files that NumPy lacks.
_EIGHT_BITS = {"F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2}
# Values that are checked together, which bounds the memory.
_AT_ONCE = 2**22

# The stems of weight files that differ between safetensors and pickles: transformers' and OpenCLIP's.
PICKLE_STEMS = {"model": "pytorch_model", "open_clip_model": "open_clip_pytorch_model"}


def find_weights(
    source: Source, subfolder: str | None, stem: str, *, variant: str | None = None, allow_pickle: bool = False
) -> list[str]:
    """Finds a network's weight files: one file, or all the shards that an index names."""
    if source.find(join(subfolder, ADAPTER_CONFIG)) is not None:
        raise InputError(
            f"{source} has an adapter next to its weights ({join(subfolder, ADAPTER_CONFIG)}), which is not applied"
            " here: merge it into the weights (peft's merge_and_unload), or move it to another folder, which a"
            " diffusion model takes as its LoRA",
            code="adapter-next-to-weights",
        )
    if paths := _find_either(source, subfolder, stem, variant, allow_pickle):
        return paths
    pickle_stem = PICKLE_STEMS.get(stem, stem)
    wanted = join(subfolder, _with_variant(f"{stem}.safetensors", variant))
    names = [name for name in source.names(subfolder or "") if name not in ("config.json", "model_index.json")]
    names = [name for name in names if not name.endswith((".txt", ".md", ".gitattributes"))]
    pickled = [name for name in names if name.startswith(pickle_stem) and name.endswith(".bin")]
    if pickled and not any("safetensors" in name for name in names):
        raise pickles.not_allowed(f"{join(subfolder, pickled[0])} of {source}", pickles.conversion_command(source))
    content = f". It has {shorten(names)}: {_advice(names)}" if names else ""
    if hint := source.hint():
        raise InputError(f"{wanted} of {source} is not available: {hint}", code="hub-not-reached")
    raise InputError(f"{source} has no {wanted}{content}", code="no-weights")


def variants(
    source: Source, stems: Mapping[str, str], variant: str | None, *, allow_pickle: bool = False
) -> dict[str, str | None]:
    """The variant of each of a pipeline's networks: as in diffusers, those without files of it have the usual ones."""
    if not variant:
        return dict.fromkeys(stems)
    having = [name for name, stem in stems.items() if _find_either(source, name, stem, variant, allow_pickle)]
    # Where the hub cannot be asked, files may be there that the cache lacks.
    if not having or source.hint():
        having = stems
    return {name: variant if name in having else None for name in stems}


def _find_either(
    source: Source, subfolder: str | None, stem: str, variant: str | None, allow_pickle: bool
) -> list[str]:
    paths = _find(source, subfolder, stem, "safetensors", variant)
    if not paths and allow_pickle:
        paths = _find(source, subfolder, PICKLE_STEMS.get(stem, stem), "bin", variant)
    return paths


def _advice(names: list[str]) -> str:
    """The advice for a folder that has these files, but no supported weights."""
    endings = {os.path.splitext(name)[1] for name in names}
    if ".gguf" in endings and ".safetensors" not in endings:
        return "a GGUF file is read as a single file (BASE+FILE.gguf), so name it with this folder as its base"
    if endings & {".pt", ".pth", ".ckpt"} and not endings & {".safetensors", ".bin"}:
        return (
            "a file of torch.save that holds weights by name, or a state_dict of them, is read as"
            " pytorch_model.bin (open_clip_pytorch_model.bin of OpenCLIP) where pickles are allowed, so rename it"
        )
    return "check the variant"


def _find(source: Source, subfolder: str | None, stem: str, extension: str, variant: str | None) -> list[str]:
    single = source.find(join(subfolder, _with_variant(f"{stem}.{extension}", variant)))
    if single is not None:
        return [single]
    index_name = join(subfolder, _with_variant(f"{stem}.{extension}.index.json", variant))
    index = source.find(index_name)
    if index is None:
        return []
    weight_map = read_json(index).get("weight_map")
    named = list(weight_map.values()) if isinstance(weight_map, dict) else []
    if not named or any(not isinstance(shard, str) or os.path.basename(shard) != shard for shard in named):
        message = f"{index} does not name shards in its folder (weight_map): the index is damaged, get it again"
        raise InputError(message, code="damaged-index")
    shards = sorted(set(named))
    if missing := [shard for shard in shards if source.find(join(subfolder, shard)) is None]:
        hint = f" ({source.hint()})" if source.hint() else ""
        message = f"{index} names shards that {source} does not have: {shorten(missing)}{hint}"
        raise InputError(message, code="missing-shards")
    return [source.require(join(subfolder, shard), "") for shard in shards]


def _with_variant(name: str, variant: str | None) -> str:
    """``a.safetensors.index.json`` -> ``a.safetensors.index.fp16.json``."""
    if not variant:
        return name
    root, extension = name.rsplit(".", 1)
    return f"{root}.{variant}.{extension}"


def read_weights(paths: list[str]) -> dict[str, FileTensor]:
    """Lists the tensors of some weight files, key -> tensor. Values are read later, one tensor at a time."""
    tensors: dict[str, FileTensor] = {}
    for path in paths:
        files.refuse_pointer(path)
        if path.endswith(".safetensors"):
            new = _read_safetensors(path)
        elif path.endswith(".gguf"):
            new = extensions.find(extensions.PARTS, "gguf_files").read(path)
        else:
            pickled = pickles.read(path).items()
            new = {name: FileTensor(name, tensor.shape, path, tensor.read) for name, tensor in pickled}
        if twice := sorted(new.keys() & tensors.keys()):
            message = f"{path} repeats {len(twice)} tensors of another shard: {shorten(twice)}"
            raise InputError(message, code="repeated-tensor")
        tensors |= new
    # torch puts this in front of every key where several devices have trained.
    if all(name.startswith(_OF_SEVERAL_DEVICES) for name in tensors):
        tensors = {name.removeprefix(_OF_SEVERAL_DEVICES): tensor for name, tensor in tensors.items()}
    is_quantised = any(
        tensor.stored in _EIGHT_BITS or name.endswith(".SCB") or ".quant_state.bitsandbytes__" in name
        for name, tensor in tensors.items()
    )
    return extensions.find(extensions.PARTS, "quantised").dequantised(tensors) if is_quantised else tensors


def metadata(path: str) -> dict[str, str]:
    """The texts in a safetensors file's header. Empty for a pickle."""
    if not path.endswith(".safetensors"):
        return {}
    with safetensors.safe_open(path, framework="np") as file:
        return file.metadata() or {}


def _read_safetensors(path: str) -> dict[str, FileTensor]:
    _check_names(path)
    try:
        # The handle maps the file into memory and lives as long as the tensors that refer to it.
        handle = safetensors.safe_open(path, framework="np")
        slices = {name: handle.get_slice(name) for name in handle.keys()}  # noqa: SIM118  # not a dictionary
        shapes = {name: tuple(part.get_shape()) for name, part in slices.items()}
        kinds = {name: part.get_dtype() for name, part in slices.items()}
        written = (handle.metadata() or {}).get(_DIGEST)
    except (safetensors.SafetensorError, OSError) as error:
        reason = str(error).splitlines()[0]
        message = f"{path} is not a complete safetensors file ({reason}): it may have been cut off, so get it again"
        raise InputError(message, code="incomplete-file") from error

    header, start = _header(path) if _EIGHT_BITS.keys() & kinds.values() else ({}, 0)

    def read(name: str) -> np.ndarray:
        if kinds[name] in _EIGHT_BITS:
            first, end = header[name]["data_offsets"]
            content = np.fromfile(path, np.uint8, end - first, offset=start + first)
            return content.view(_EIGHT_BITS[kinds[name]]).reshape(shapes[name])
        try:
            return handle.get_tensor(name)
        # NumPy has no attribute of the dtype's name.
        except (safetensors.SafetensorError, AttributeError, TypeError, KeyError) as error:
            message = f"{path}: the tensor {name} has a dtype that is not supported: {error}"
            raise InputError(message, code="unsupported-dtype") from error

    if written is not None and written != _digest((name, read(name)) for name in sorted(shapes)):
        raise InputError(
            f"{path} is damaged: its tensors are not those that were written into it (SHA-256). Get it again, or, if"
            f" a tool has changed them on purpose, save them without {_DIGEST} in the metadata",
            code="damaged-file",
        )

    def floats(name: str) -> np.ndarray:
        values = read(name)
        # float32 holds each 8-bit float exactly.
        return values.astype(np.float32) if kinds[name] in _EIGHT_BITS else values

    return {
        name: FileTensor(name, shape, path, functools.partial(floats, name), kinds[name])
        for name, shape in shapes.items()
    }


def _header(path: str, **parsing: Any) -> tuple[Any, int]:
    """The header of a safetensors file, and the offset of its values."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = file.read(size) if size <= _LARGEST_HEADER else b""
    return json_files.parse(header, largest=_LARGEST_HEADER, **parsing), 8 + size


def _digest(tensors: Iterable[tuple[str, np.ndarray]]) -> str:
    """SHA-256 of names, types, shapes and bytes, wherever in a file they lie. Takes a second per GB or so."""
    digest = hashlib.sha256()
    for name, array in tensors:
        digest.update(json.dumps([name, array.dtype.name, array.shape]).encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    return digest.hexdigest()


def _check_names(path: str) -> None:
    """Refuses a safetensors file whose header has a name twice: the library would take one of the two in silence."""
    twice: list[str] = []

    def collect(pairs: list[tuple[str, Any]]) -> None:
        twice.extend(name for name, count in collections.Counter(name for name, _ in pairs).items() if count > 1)

    # The library describes all other faults better.
    with contextlib.suppress(OSError, ValueError):
        _header(path, pairs=collect)
    if twice:
        message = f"{path} has the name {options.quote(twice[0])} twice in its header: get the file from a safe place"
        raise InputError(message, code="repeated-tensor")


def are_finite(array: np.ndarray) -> bool:
    """Whether all values of a tensor, floats of any shape, are finite.

    Floats of 16 bits are compared by their exponents' bits, which takes NumPy a tenth of the time.
    """
    exponent = {"bfloat16": 0x7F80, "float16": 0x7C00}.get(array.dtype.name)
    flat = np.ascontiguousarray(array).reshape(-1)
    for start in range(0, flat.size, _AT_ONCE):
        part = flat[start : start + _AT_ONCE]
        bits = None if exponent is None else part.view(np.uint16) & np.uint16(exponent)
        if not (np.isfinite(part) if bits is None else bits != exponent).all():
            return False
    return True


def write_weights(
    path: str | os.PathLike, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None
) -> None:
    """Writes a safetensors file, whole or not at all, with a digest that `read_weights` checks."""
    arrays = {name: np.asarray(values, order="C") for name, values in sorted(tensors.items())}
    with atomic_path(path) as temporary:
        # transformers refuses a file without this mark.
        marks = {**(metadata or {}), "format": "pt", _DIGEST: _digest(arrays.items())}
        safetensors.numpy.save_file(arrays, temporary, metadata=marks)
        _order_metadata(temporary)


def _order_metadata(path: str | os.PathLike) -> None:
    """Gives equal weights equal files: the library writes its metadata in an order that changes from call to call."""
    with open(path, "r+b") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json_files.parse(file.read(length))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        ordered = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
        if len(ordered) <= length:
            file.seek(8)
            file.write(ordered.ljust(length))
