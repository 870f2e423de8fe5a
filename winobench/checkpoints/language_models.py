"""Language models from transformers folders and hub ids: network, tokenizer, and where their parts live.

Weights go from the files straight to the devices, tensor after tensor: the host holds a few tensors at a time, and a
device its own part of each, so that a model may be larger than either.
"""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import functools
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from winobench import parallel
from winobench.base import hub, options
from winobench.base.errors import InputError
from winobench.checkpoints import fast_tokenizers, models, sources, weights
from winobench.checkpoints.loaded import Loaded, spread_by_default
from winobench.models import decoder, snapshots
from winobench.models.decoder import Decoder
from winobench.models.decoder_config import MODEL_TYPES, DecoderConfig

DTYPES = ("float32", "bfloat16")
"""Dtypes that language models compute in. Float16 has too small a range for the states of many of them."""

KINDS: dict[str, str] = {
    **dict.fromkeys((*MODEL_TYPES, "llava"), "decoder"),
    "t5": "t5",
    "bert": "bert",
    "clip": "clip",
    "clip_text_model": "clip",
}
"""``model_type`` of a ``config.json`` -> the kind of network that reads it."""

# Tensors that are read before the devices ask for them. With the one that is on its way, the host holds one more.
_AHEAD = 3
# One of these is in every folder with a tokenizer. Without any, transformers may make up an empty one.
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "vocab.txt")


@dataclasses.dataclass(frozen=True)
class LoadedLanguageModel(Loaded):
    """A language model, ready to be computed with."""

    network: tuple[Any, Any]  # (graph, state) of `flax.nnx.split`, the state on the devices of `mesh`
    config: Any
    tokenizer: Any  # of transformers
    # 64 hexadecimal digits, of everything that answers depend on: values in the weight files, dtype, 8-bit weights,
    # config, tokenizer, chat template. `identity` follows the arrays that are there now.
    fingerprint: str
    mesh: Mesh
    stop_ids: tuple[int, ...]  # tokens that end an answer, sorted
    origin: snapshots.WeakSnapshot | None = None  # the arrays that the fingerprint is of; None where they are not known


def language_model_kind(source: str | os.PathLike[str] | sources.Source, revision: str | None = None) -> str:
    """Kind of network of a language model."""
    source = sources.resolve(source, revision=revision)
    path = source.find("config.json")
    model_type = sources.read_json(path).get("model_type") if path is not None else None
    if model_type is None and source.find("open_clip_config.json") is not None:
        return "clip"
    if path is None:
        source.require("config.json", "so it is not a language model: name a folder or hub id in transformers' layout")
    if not isinstance(model_type, str) or model_type not in KINDS:
        fault = "names no model_type" if model_type is None else f"has the model_type {options.quote(model_type)}"
        message = f"{path} {fault}, but the supported language models are {', '.join(KINDS)}"
        raise InputError(message, code="wrong-kind-of-model")
    return KINDS[model_type]


@spread_by_default
def load_decoder(
    source: str | os.PathLike[str] | sources.Source,
    dtype: Any = "float32",
    *,
    mesh: Mesh | None = None,
    int8: bool = False,
    revision: str | None = None,
    allow_pickle: bool = False,
) -> LoadedLanguageModel:
    """Loads a LLaMA, a Qwen2 or 3, or the language side of a LLaVA-1.5, float32 or bfloat16, straight onto the devices.

    Args:
      mesh: the devices. When None, all of this process, or as many CPUs as have memory for copies of the
        parameters for. Devices of an axis ``model`` share one copy, and none ever holds more than its part.
      int8: the projections of the layers, most of the parameters, hold numbers of 8 bits with a scale for each output
        channel, which takes half of bfloat16's memory. Logits of random networks, 2 to 8 layers deep and up to 512
        wide, change by 2 to 4% (root mean square, of the logits'), twice as much as by computing in bfloat16.
    """

    def build(config: DecoderConfig, tensors: Mapping[str, weights.FileTensor], **options: Any) -> tuple[Any, Any, str]:
        return config, *build_decoder(config, tensors, **options)

    return load(Decoder, build, source, dtype, mesh=mesh, int8=int8, revision=revision, allow_pickle=allow_pickle)


def load(
    cls: type[nnx.Module],
    build: Callable[..., tuple[Any, Any, str]],
    source: str | os.PathLike[str] | sources.Source,
    dtype: Any,
    *,
    mesh: Mesh,
    int8: bool,
    revision: str | None,
    allow_pickle: bool,
) -> LoadedLanguageModel:
    """Loads a language model whose ``build`` makes (config, network, digest) of config and tensors."""
    dtype = language_model_dtype(dtype)
    source = sources.resolve(source, revision=revision)
    config = models.read_config(cls, source)
    tokenizer = load_tokenizer(source, config.vocab_size)
    paths = weights.find_weights(source, None, "model", allow_pickle=allow_pickle)
    config, network, digest = build(config, weights.read_weights(paths), dtype=dtype, mesh=mesh, int8=int8)
    fingerprint = model_fingerprint(digest, config, tokenizer, dtype=dtype.name, int8=int8)
    stop_ids = find_stop_ids(source, config.eos_token_id, tokenizer)
    return LoadedLanguageModel(network, config, tokenizer, fingerprint, mesh, stop_ids).as_loaded()


def language_model_dtype(dtype: Any) -> jnp.dtype:
    """Returns the dtype of a name or type. Raises InputError unless it is float32 or bfloat16."""
    known = models.as_dtype(dtype)
    if known.name not in DTYPES:
        message = f"language models compute in {' or '.join(DTYPES)}, not in {known.name}"
        raise InputError(message, code="unsupported-dtype")
    return known


def abstract_network(
    cls: type[models.Model], config: Any, dtype: Any = jnp.bfloat16, *, int8: bool = False
) -> models.Model:
    """A language model whose parameters are shapes and dtypes, without values."""
    return models.abstract_model(cls, config, dtype=language_model_dtype(dtype), int8=int8)


def abstract_decoder(config: DecoderConfig, dtype: Any = jnp.bfloat16, *, int8: bool = False) -> Decoder:
    """A decoder whose parameters are shapes and dtypes, without values."""
    return abstract_network(Decoder, config, dtype, int8=int8)


def build_decoder(
    config: DecoderConfig,
    tensors: Mapping[str, weights.FileTensor],
    dtype: Any = "float32",
    *,
    mesh: Mesh | None = None,
    int8: bool = False,
) -> tuple[tuple[Any, Any], str]:
    """Builds a decoder and fills it with tensors. Returns (graph, state), and a digest of the tensors."""
    models._check_depth(Decoder.__name__, config, tensors, "config.json")
    named = models.rename(Decoder.__name__, tensors, Decoder.file_keys)
    if config.tie_word_embeddings:
        _drop_tied_copy(named)
    shardings = decoder.parameter_shardings
    return build_network(Decoder, config, named, shardings, dtype, mesh=mesh, int8=int8, prefix=("model",))


def build_network(
    cls: type[nnx.Module],
    config: Any,
    named: Mapping[str, weights.FileTensor],
    parameter_shardings: Callable[[Any, Mesh], Any],
    dtype: Any,
    *,
    mesh: Mesh | None,
    int8: bool,
    prefix: tuple[str, ...] = (),
) -> tuple[tuple[Any, Any], str]:
    """Fills a network with tensors, keys in torch's naming. Returns (graph, state), and a digest of the tensors."""
    graph, state = nnx.split(abstract_network(cls, config, dtype, int8=int8))
    # The scales of 8-bit kernels are made with their kernels.
    paths = [path for path, _ in nnx.to_flat_state(state) if path[-1] != "kernel_scale"]
    keys = {path: models._torch_key(path if path[0] == "lm_head" else (*prefix, *path)) for path in paths}
    state, digest = _fill(cls.__name__, state, keys, named, parameter_shardings(state, parallel.as_mesh(mesh)))
    return (graph, state), digest


def is_copy(head: weights.FileTensor | None, embeddings: weights.FileTensor | None) -> bool:
    """Whether a head is left out of the file, or holds the same as the embeddings."""
    if head is None or embeddings is None:
        return head is None
    return head.shape == embeddings.shape and np.array_equal(head.read(), embeddings.read())


def _drop_tied_copy(named: dict[str, weights.FileTensor]) -> None:
    """Leaves out an output matrix that the config states is the embedding."""
    copy, embedding = named.get("lm_head.weight"), named.get("model.embed_tokens.weight")
    if copy is None or embedding is None:
        return
    if not is_copy(copy, embedding):
        raise sources.mismatch(
            f"{copy.file}: {copy.name} and {embedding.name} differ, but config.json has tie_word_embeddings"
        )
    del named["lm_head.weight"]


def _fill(
    name: str, state: Any, keys: Mapping[models.Path, str], tensors: Mapping[str, weights.FileTensor], shardings: Any
) -> tuple[Any, str]:
    """Fills a network's state, straight onto the devices and tensor after tensor.

    Matrices called ``kernel`` are [inputs, outputs] here and [outputs, inputs] in files. So are kernels of convolutions
    within [height, width]. Kernels of the dtype int8 are rounded on the devices, with their ``kernel_scale``.
    """
    leaves = dict(nnx.to_flat_state(state))
    targets = {path: leaf.get_value() for path, leaf in nnx.to_flat_state(shardings)}
    expected = {key: (path, models._torch_shape(path, leaves[path].shape)) for path, key in keys.items()}
    models._check_fit(name, expected, tensors, "config.json")

    values: dict[models.Path, jax.Array] = {}
    digests: dict[str, str] = {}
    try:
        for (path, key), (array, digest) in _ahead(list(keys.items()), lambda item: _read(tensors[item[1]])):
            digests[key] = digest
            _place(values, leaves, targets, path, array.reshape(expected[key][1]))
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        needed = sum(
            math.prod(targets[path].shard_shape(leaf.shape)) * leaf.dtype.itemsize for path, leaf in leaves.items()
        )
        raise InputError(
            f"the parameters of this {name} take {needed / 2**30:.1f} GiB on each device, which is more than there is:"
            " share them among more devices (model_parallel), or load them in bfloat16 or int8",
            code="out-of-memory",
        ) from error
    digest = hashlib.sha256("".join(f"{key} {digests[key]}\n" for key in sorted(digests)).encode()).hexdigest()
    return nnx.from_flat_state([(path, leaf.replace(values[path])) for path, leaf in leaves.items()]), digest


def _read(tensor: weights.FileTensor) -> tuple[np.ndarray, str]:
    """The values of a tensor and their digest."""
    array = np.ascontiguousarray(tensor.floats()).reshape(tensor.shape)
    if not weights.are_finite(array):
        message = f"{tensor.file}: the tensor {tensor.name} holds NaN or infinity: get another checkpoint"
        raise InputError(message, code="not-finite")
    digest = hashlib.sha256(f"{array.dtype.name} {array.shape}\n".encode())
    if array.size:
        digest.update(array.reshape(-1).view(np.uint8).data)
    return array, digest.hexdigest()


def _ahead(items: list[Any], function: Callable[[Any], Any]) -> Iterator[tuple[Any, Any]]:
    """Applies a function to items in other threads, a few of them ahead of the caller."""
    with concurrent.futures.ThreadPoolExecutor(_AHEAD) as pool:
        waiting: collections.deque[concurrent.futures.Future] = collections.deque()
        for number, item in enumerate(items):
            waiting.extend(pool.submit(function, each) for each in items[number + len(waiting) : number + 1 + _AHEAD])
            yield item, waiting.popleft().result()


@parallel.without_mesh
def _place(
    values: dict[models.Path, jax.Array],
    leaves: Mapping[models.Path, Any],
    targets: Mapping[models.Path, NamedSharding],
    path: models.Path,
    array: np.ndarray,
) -> None:
    """Puts one tensor where it belongs."""
    paths = [path]
    if leaves[path].dtype == jnp.int8:
        paths.append((*path[:-1], "kernel_scale"))
    axes = models._axes(path, array.ndim)
    # On its way the tensor is split as the parameter is.
    spec = (*targets[path].spec, *(None,) * array.ndim)
    sent = parallel.put(array, NamedSharding(targets[path].mesh, PartitionSpec(*(spec[axis] for axis in axes))))
    order = tuple(map(axes.index, range(array.ndim)))
    results = _convert(sent, order=order, dtype=leaves[path].dtype, shardings=tuple(targets[part] for part in paths))
    # Otherwise many tensors might be under way at once, on the host and on the devices.
    jax.block_until_ready(results)
    values.update(zip(paths, results, strict=True))


@functools.partial(jax.jit, static_argnames=("order", "dtype", "shardings"))
def _convert(
    values: jax.Array, *, order: tuple[int, ...], dtype: Any, shardings: tuple[NamedSharding, ...]
) -> tuple[jax.Array, ...]:
    values = values.transpose(order)
    arrays = decoder.quantise(values) if dtype == jnp.int8 else (values.astype(dtype),)
    return tuple(map(jax.lax.with_sharding_constraint, arrays, shardings))


def load_tokenizer(source: sources.Source, vocab_size: int) -> Any:
    """Loads the tokenizer next to a language model."""
    import transformers

    if not any(source.find(name) for name in _TOKENIZER_FILES):
        source.require("tokenizer.json", "so its texts cannot be made tokens: save the model's tokenizer there")
    fast_tokenizers.check_class(source.find("tokenizer_config.json"))
    folder, options = (
        (source.repo_id, {"revision": source.revision, "local_files_only": not hub.is_reachable()})
        if isinstance(source, sources.HubRepository)
        else (str(source.path), {"local_files_only": True})
    )
    with fast_tokenizers.reading(str(source)):
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=False, **options)
    fast_tokenizers.check_kind(tokenizer, source.find("tokenizer.json"))
    fast_tokenizers.check_ids(tokenizer, vocab_size, f"of {source}")
    return tokenizer


def find_stop_ids(source: sources.Source, eos_token_id: Any, tokenizer: Any) -> tuple[int, ...]:
    """The tokens that end an answer in ``generation_config.json``, in the config or in the tokenizer."""
    path = source.find("generation_config.json")
    generation = sources.read_json(path).get("eos_token_id") if path is not None else None
    stops: set[int] = set()
    for ids in (generation, eos_token_id, tokenizer.eos_token_id):
        ids = ids if isinstance(ids, list | tuple) else [ids]
        for number in ids:
            if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 0):
                raise InputError(
                    f"{source} has the eos_token_id {options.quote(number)}, which is not the number of a token:"
                    " correct it in config.json or generation_config.json",
                    code="wrong-type",
                )
        stops |= set(ids) - {None}
    return tuple(sorted(stops))


def model_fingerprint(digest: str, config: Any, tokenizer: Any, **options: Any) -> str:
    """Identifies a language model by everything that its answers depend on."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    tokens = backend.to_str() if backend is not None else json.dumps(tokenizer.get_vocab(), sort_keys=True)
    parts = {
        "weights": digest,
        "config": config.to_dict(),
        "tokenizer": hashlib.sha256(tokens.encode()).hexdigest(),
        "chat_template": getattr(tokenizer, "chat_template", None),
        **options,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
