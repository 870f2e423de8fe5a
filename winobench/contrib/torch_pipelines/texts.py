"""Conditions of texts by a pipeline's own `encode_prompt`, in arrays of fixed shapes.

Tokenizers run on the host. GPUs and TPUs hold the text encoders only while they encode. On CPUs, torch encodes texts.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import hashlib
import inspect
import itertools
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from winobench import parallel
from winobench.base import files
from winobench.base.errors import InputError
from winobench.base.texts import log_truncated
from winobench.contrib.torch_pipelines import compiled
from winobench.contrib.torch_pipelines.families import Family
from winobench.models import snapshots, states
from winobench.models.states import State
from winobench.torch_modules.network import TorchConfig, TorchNetwork

# Entries of a config that change no results: a version and the storage of the weights. `_weights` covers their dtype.
_NOT_IDENTITY = ("transformers_version", "quantization_config", "dtype", "torch_dtype")

Conditions = dict[str, np.ndarray]


class TextEncoding:
    """A pipeline's text encoders and tokenizers.

    Attributes:
      pipe: diffusers' pipeline. Its denoiser and autoencoder have no weights.
      call: keywords of ``__call__`` that change the conditions, such as the most tokens.
      on_host: whether torch encodes texts on the host. On CPUs it is as fast, and compiles nothing.
      state: the parts of the pipeline as they are here. `check_unchanged` compares them.
    """

    state: State

    def __init__(
        self,
        pipe: Any,
        family: Family,
        call: Mapping[str, Any],
        batch_size: int = 4,
        before: TextEncoding | None = None,
    ):
        """Args: ``before``: of the same pipeline, before it changed."""
        self.pipe, self._family, self.call = pipe, family, dict(call)
        self.batch_size = batch_size if family.together else 1
        self.on_host = jax.default_backend() == "cpu" or not family.encodes_by_forward
        if before is not None:
            self.batch_size, self.on_host = before.batch_size, before.on_host
        self._are_placed = False
        not_of_texts = (family.denoiser, family.autoencoder, "scheduler", *family.without)
        parts = {name: part for name, part in pipe.components.items() if name not in not_of_texts}
        self._networks = {name: part for name, part in parts.items() if hasattr(part, "state_dict")}
        for network in self._networks.values():
            network.eval()
        rest = {name: part for name, part in parts.items() if name not in self._networks}
        # Tokenizers also save the lengths of their last call. Their files have the lengths at first sight instead.
        self._first_lengths = {} if before is None else before._first_lengths
        for name, part in rest.items():
            self._first_lengths.setdefault(name, _lengths(part))
        saved = {name: part for name, part in rest.items() if hasattr(part, "save_pretrained")}
        self._files = {name: _files(part, self._first_lengths[name]) for name, part in saved.items()}

    def take_state(self, before: TextEncoding | None = None) -> None:
        """Reads the state, once the denoiser and the autoencoder have no weights."""
        self.state = read_state(self.pipe, self._family)
        self._first: State = self.state if before is None else before._first

    def check_unchanged(self) -> None:
        """Raises InputError where the pipeline has changed: its texts would get another model's name."""
        states.check_same(self.state, read_state(self.pipe, self._family), type(self.pipe).__name__)

    @functools.cached_property
    def _encoders(self) -> dict[str, TorchNetwork]:
        modules = {name: part for name, part in self.pipe.components.items() if name.startswith("text_encoder")}
        return {
            name: TorchNetwork(module, TorchConfig(module.config.to_dict()), keep=True)
            for name, module in modules.items()
            if module is not None
        }

    @contextlib.contextmanager
    def placed(self, mesh: Mesh | None = None, make_room: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Keeps the text encoders on devices, each from its first call, unless the host encodes.

        The first row of the mesh in this process holds one copy: texts are few. ``make_room`` is called before.
        """
        if self.on_host or self._are_placed:
            yield
            return
        from winobench.torch_modules.bridge import replaced

        make_room()
        mesh = _one_row(mesh)
        with contextlib.ExitStack() as stack:
            for name, network in self._encoders.items():
                placed = functools.cache(functools.partial(_placed, network, mesh))
                stack.callback(placed.cache_clear)
                module = compiled.stand_in(network, placed, mesh, self.batch_size, pads=True)
                stack.enter_context(replaced(self.pipe, name, module))
            stack.enter_context(replaced(self, "_are_placed", True))
            yield

    @functools.cached_property
    def _keywords(self) -> dict[str, Any]:
        """Keywords of `encode_prompt`. Keywords that `__call__` has, too, take its defaults."""
        taken = inspect.signature(self.pipe.encode_prompt).parameters
        of_call = inspect.signature(type(self.pipe).__call__).parameters
        defaults = {name: of_call[name].default for name in taken if name in of_call and name != "prompt"}
        keywords = {name: value for name, value in defaults.items() if value is not inspect.Parameter.empty}
        keywords |= {"device": "cpu", "do_classifier_free_guidance": False, "num_images_per_prompt": 1}
        keywords |= {**self._family.encode, **self.call}
        return {name: value for name, value in keywords.items() if name in taken}

    @property
    def tokens(self) -> int | None:
        """The most tokens of a text."""
        return {**self._keywords, **self._family.encode, **self.call}.get(self._family.tokens)

    def _limited(self) -> contextlib.AbstractContextManager[None]:
        return self._family.limit(self.pipe, self.tokens) if self._family.limit else contextlib.nullcontext()

    def results(self, texts: Sequence[str]) -> tuple[Any, ...]:
        """Results of `encode_prompt` for at most a batch of texts: tensors [n, ...] of fixed shapes, or None."""
        results = self._results(texts)
        return results if self._family.fill is None else self._family.fill(results, self.tokens)

    def _results(self, texts: Sequence[str]) -> tuple[Any, ...]:
        import torch

        from winobench.torch_modules.bridge import replaced

        keywords = {**self._keywords, **self._family.prompts(list(texts))}
        encode = functools.partial(type(self.pipe).encode_prompt, self.pipe)
        if "batch_size" in inspect.signature(encode).parameters:
            keywords["batch_size"] = len(texts)
        # A pipeline would take its denoiser's device, which is another one.
        on_host = replaced(type(self.pipe), "device", torch.device("cpu"))
        with torch.no_grad(), self.placed(), self._limited(), on_host:
            calls = [encode(**{**keywords, **more}) for more in ({}, *self._family.further)]
        return tuple(itertools.chain(*(call if isinstance(call, tuple) else (call,) for call in calls)))

    @functools.cached_property
    def _plain(self) -> tuple[Any, ...]:
        return self._results([""])

    def as_called(self, mesh: Mesh, make_room: Callable[[], None], *arguments: Any, **keywords: Any) -> Any:
        """Results of `encode_prompt` for the pipeline's arguments, with fixed shapes."""
        encode = type(self.pipe).encode_prompt
        with self.placed(mesh, make_room), self._limited() if self._fills_as_called else contextlib.nullcontext():
            results = encode(self.pipe, *arguments, **keywords)
        if not self._fills_as_called:
            return results
        bound = inspect.signature(encode).bind(self.pipe, *arguments, **keywords)
        bound.apply_defaults()
        if not bound.arguments.get("do_classifier_free_guidance"):
            return self._fixed(results)
        # Results of negative texts fill the places that are empty without guidance, in the same order.
        plain = self._plain
        empty = [n for n, result in enumerate(plain) if result is None or len(result) == 0]
        others = iter([results[n] for n in empty])
        positive = self._fixed(tuple(plain[n] if n in empty else result for n, result in enumerate(results)))
        negative = self._fixed(tuple(result if n in empty else next(others) for n, result in enumerate(plain)))
        others = iter([result for n, result in enumerate(negative) if n not in empty])
        return tuple(next(others) if n in empty else result for n, result in enumerate(positive))

    def repeated(self, rows: int) -> Iterator[Any]:
        """Results of each call of `encode_prompt` for this many empty texts."""

        def of_rows(number: int, result: Any) -> Any:
            if rows == 1 or result is None or number in self._family.constants:
                return result
            return result * rows if isinstance(result, list) else result.expand(rows, *result.shape[1:])

        results = tuple(of_rows(number, result) for number, result in enumerate(self._fixed(self._plain)))
        size = len(results) // (1 + len(self._family.further))
        calls = (results[start : start + size] for start in range(0, len(results), size))
        return (call if size > 1 else call[0] for call in calls)

    @property
    def _fills_as_called(self) -> bool:
        """True where generation pads texts. With `during`, only a traced call masks the padding."""
        return self._family.fill is not None and self._family.during is None

    def _fixed(self, results: tuple[Any, ...]) -> tuple[Any, ...]:
        if not self._fills_as_called:
            return results
        filled = self._family.fill(results, self.tokens)
        return self._family.restore(filled) if self._family.restore else filled

    @functools.cached_property
    def _example(self) -> tuple[Any, ...]:
        return self._plain if self._family.fill is None else self._family.fill(self._plain, self.tokens)

    @functools.cached_property
    def constants(self) -> dict[int, np.ndarray | None]:
        """Number of a result -> the array that all texts share, or None."""
        from winobench.torch_modules import bridge

        return {
            number: None if result is None else bridge.to_numpy(result)
            for number, result in enumerate(self._example)
            if result is None or number in self._family.constants
        }

    def example(self, dtype: Any) -> Conditions:
        """Conditions of the empty text."""
        from winobench.torch_modules import bridge

        examples = {str(number): result for number, result in enumerate(self._example) if number not in self.constants}
        return rounded({name: bridge.to_numpy(tensor) for name, tensor in examples.items()}, dtype)

    def encode(self, texts: Sequence[str]) -> Conditions:
        """Conditions ``{number: [n, ...]}`` of at most a batch of texts."""
        from winobench.torch_modules import bridge

        # All batches have the same size, so that each text is encoded in the same way.
        results = self.results([*texts, *[""] * (self.batch_size - len(texts))])
        conditions = {}
        for number, (result, example) in enumerate(zip(results, self._example, strict=True)):
            if number in self.constants:
                continue
            if result is None or result.shape[1:] != example.shape[1:] or len(result) != self.batch_size:
                raise InputError(
                    f"{type(self.pipe).__name__} made {None if result is None else list(result.shape)} of"
                    f" {self.batch_size} texts, but {list(example.shape)} of the empty text: its family needs fixed"
                    " shapes (winobench.contrib.torch_pipelines.families)",
                    code="wrong-shape",
                )
            conditions[str(number)] = bridge.to_numpy(result)[: len(texts)]
        return conditions

    def encode_all(self, texts: Sequence[str], dtype: Any = None) -> Conditions:
        """Conditions of any number of texts. Floats are rounded to ``dtype`` unless it is None."""
        starts = range(0, len(texts), self.batch_size)
        with self.placed(), _log_truncated(len(texts)):
            batches = [self.encode(texts[start : start + self.batch_size]) for start in starts]
        conditions = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
        return conditions if dtype is None else rounded(conditions, dtype)

    @functools.cached_property
    def identity(self) -> dict[str, Any]:
        """All that determines the conditions of a text: weights, configs, tokenizers and keywords."""
        self.check_unchanged()
        changed = self.state.changed(self._first)
        return {
            "weights": {name: _weights(module) for name, module in self._networks.items()},
            "configs": {name: _without_place(_options(module.config)) for name, module in self._networks.items()},
            "files": self._files,
            "keywords": {name: str(value) for name, value in self._keywords.items()},
            # Only then, so that other models keep their identity.
            **({"changed": changed} if changed else {}),
        }


@contextlib.contextmanager
def _log_truncated(total: int) -> Iterator[None]:
    """Logs how many of the texts the tokenizers cut off, in a line for each length."""
    from winobench.torch_modules import bridge

    kind = bridge.transformers.PreTrainedTokenizerBase
    call, cut = kind.__call__, collections.defaultdict(set)

    def counted(self: Any, text: Any = None, *others: Any, **keywords: Any) -> Any:
        encoded = call(self, text, *others, **keywords)
        texts = [text] if isinstance(text, str) else text
        for number, encoding in enumerate(encoded.encodings or ()):
            if encoding.overflowing:
                cut[len(encoding.ids)].add(str(texts[number]))
        return encoded

    with bridge.replaced(kind, "__call__", counted):
        yield
    for longest, texts in sorted(cut.items()):
        log_truncated(len(texts), total, longest)


def read_state(pipe: Any, family: Family) -> State:
    """All that decides what a pipeline predicts and generates."""
    state = State()
    for name, part in pipe.components.items():
        if part is not None and name not in family.without:
            state.read(name, part)
    state.read("pipeline", own_options(pipe))
    return state


def own_options(pipe: Any) -> list[Any]:
    """A pipeline's class, config and public attributes, without its parts."""
    own = {name: value for name, value in vars(pipe).items() if name[0] != "_" and name not in pipe.components}
    return [type(pipe), pipe.config, own]


def rounded(conditions: Conditions, dtype: Any) -> Conditions:
    return {
        name: array.astype(dtype) if jnp.issubdtype(array.dtype, jnp.floating) else array
        for name, array in conditions.items()
    }


def _one_row(mesh: Mesh | None) -> Mesh:
    devices = jax.local_devices()[:1]
    if mesh is None:
        return parallel.make_mesh(devices)
    rows = mesh.devices.reshape(parallel.data_parallelism(mesh), -1)
    here = [row for row in rows if all(device.process_index == jax.process_index() for device in row)]
    row = list(here[0]) if here else devices
    return parallel.make_mesh(row, model_parallel=len(row))


def _placed(network: TorchNetwork, mesh: Mesh) -> list[jax.Array]:
    return parallel.place_parameters(snapshots.split(network)[1], mesh)


def _options(config: Any) -> dict[str, Any]:
    return config.to_dict() if hasattr(config, "to_dict") else dict(config)


def _without_place(config: Any) -> Any:
    """A config of transformers as JSON values, without the entries that change no results."""
    if isinstance(config, Mapping):
        kept = {str(name): value for name, value in config.items() if not str(name).startswith("_")}
        return {name: _without_place(value) for name, value in kept.items() if name not in _NOT_IDENTITY}
    return [_without_place(value) for value in config] if isinstance(config, list | tuple) else str(config)


def _weights(module: Any) -> str:
    from winobench.torch_modules import bridge

    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        array = bridge.to_numpy(tensor)
        digest.update(f"{name} {array.dtype.name} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).view(np.uint8).data if array.size else b"")
    return digest.hexdigest()


def _files(part: Any, lengths: Any) -> str:
    """A hash of the files that a tokenizer or processor saves, with these lengths."""
    before = _lengths(part)
    with tempfile.TemporaryDirectory() as folder:
        _set_lengths(part, lengths)
        part.save_pretrained(folder)
        _set_lengths(part, before)
        names = sorted(path for path in pathlib.Path(folder).rglob("*") if path.is_file())
        return files.digest([[os.path.relpath(path, folder), path.read_bytes().hex()] for path in names])


def _backend(part: Any) -> Any:
    return getattr(getattr(part, "tokenizer", part), "backend_tokenizer", None)


def _lengths(part: Any) -> tuple[Any, Any]:
    """Truncation and padding of a tokenizer's last call."""
    backend = _backend(part)
    return (None, None) if backend is None else (backend.truncation, backend.padding)


def _set_lengths(part: Any, lengths: tuple[Any, Any]) -> None:
    backend, (truncation, padding) = _backend(part), lengths
    if backend is not None:
        backend.no_truncation() if truncation is None else backend.enable_truncation(**truncation)
        backend.no_padding() if padding is None else backend.enable_padding(**padding)
