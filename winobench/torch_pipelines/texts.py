"""What a pipeline's own `encode_prompt` makes of texts, on the host, in arrays of fixed shapes."""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
import pathlib
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from winobench.base import files
from winobench.base.errors import InputError
from winobench.torch_pipelines.families import Family

# Parts that texts do not pass through.
_OTHERS = ("vae", "scheduler")
# Of a config: the package's version, and how the weights were stored.
_NOT_IDENTITY = ("transformers_version", "quantization_config")

Conditions = dict[str, np.ndarray]


class TextEncoding:
    """A pipeline's text encoders and tokenizers.

    Attributes:
      call: keywords of ``__call__`` that the texts were encoded for, such as the most tokens.
    """

    def __init__(self, pipe: Any, family: Family, call: Mapping[str, Any], batch_size: int = 4):
        self._pipe, self._family, self.call, self.batch_size = pipe, family, dict(call), batch_size
        parts = {name: part for name, part in pipe.components.items() if name not in (family.denoiser, *_OTHERS)}
        self._networks = {name: part for name, part in parts.items() if hasattr(part, "state_dict")}
        rest = {name: part for name, part in parts.items() if name not in self._networks}
        # Now: tokenizers keep, and write, what their last call has set.
        self._files = {name: _files(part) for name, part in rest.items() if hasattr(part, "save_pretrained")}

    @functools.cached_property
    def _keywords(self) -> dict[str, Any]:
        """Of `encode_prompt`: where it shares a keyword with `__call__`, the default is that of `__call__`."""
        taken = inspect.signature(self._pipe.encode_prompt).parameters
        of_call = inspect.signature(type(self._pipe).__call__).parameters
        defaults = {name: of_call[name].default for name in taken if name in of_call and name != "prompt"}
        keywords = {name: value for name, value in defaults.items() if value is not inspect.Parameter.empty}
        keywords |= {"device": "cpu", "do_classifier_free_guidance": False, "num_images_per_prompt": 1}
        keywords |= {**self.call, **self._family.encode}
        return {name: value for name, value in keywords.items() if name in taken}

    @property
    def tokens(self) -> int | None:
        """The most tokens of a text."""
        return self._keywords.get(self._family.tokens)

    def results(self, texts: Sequence[str]) -> tuple[Any, ...]:
        """What `encode_prompt` gives for at most a batch of texts, as tensors [n, ...] of fixed shapes, or None."""
        import torch

        with torch.no_grad():
            results = self._pipe.encode_prompt(prompt=list(texts), **self._keywords)
        results = results if isinstance(results, tuple) else (results,)
        return results if self._family.fill is None else self._family.fill(results, self.tokens)

    @functools.cached_property
    def _example(self) -> tuple[Any, ...]:
        return self.results([""])

    @functools.cached_property
    def constants(self) -> dict[int, np.ndarray | None]:
        """Place among the results -> what all texts have there: an array, or None."""
        from winobench.torch_pipelines import bridge

        return {
            place: None if result is None else bridge.to_numpy(result)
            for place, result in enumerate(self._example)
            if result is None or place in self._family.constants
        }

    def encode(self, texts: Sequence[str]) -> Conditions:
        """Conditions ``{place: [n, ...]}`` of at most a batch of texts."""
        from winobench.torch_pipelines import bridge

        # As many texts in each batch: a text is encoded alike in all of them.
        results = self.results([*texts, *[""] * (self.batch_size - len(texts))])
        found = {}
        for place, (result, example) in enumerate(zip(results, self._example, strict=True)):
            if place in self.constants:
                continue
            if result is None or result.shape[1:] != example.shape[1:] or len(result) != self.batch_size:
                raise InputError(
                    f"{type(self._pipe).__name__} made {None if result is None else list(result.shape)} of"
                    f" {self.batch_size} texts, but {list(example.shape)} of the empty text: its family needs fixed"
                    " shapes (winobench.torch_pipelines.families)",
                    code="wrong-shape",
                )
            found[str(place)] = bridge.to_numpy(result)[: len(texts)]
        return found

    def encode_all(self, texts: Sequence[str], dtype: Any = None) -> Conditions:
        """Conditions of any number of texts. Floats are rounded to ``dtype`` unless it is None."""
        batches = [
            self.encode(texts[start : start + self.batch_size]) for start in range(0, len(texts), self.batch_size)
        ]
        whole = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
        return whole if dtype is None else rounded(whole, dtype)

    @functools.cached_property
    def identity(self) -> dict[str, Any]:
        """All that decides the conditions of a text: weights, configs, tokenizers and keywords."""
        return {
            "weights": {name: _weights(module) for name, module in self._networks.items()},
            "configs": {name: _plain(module.config.to_dict()) for name, module in self._networks.items()},
            "files": self._files,
            "keywords": {name: str(value) for name, value in self._keywords.items()},
        }


def rounded(conditions: Conditions, dtype: Any) -> Conditions:
    return {
        name: array.astype(dtype) if jnp.issubdtype(array.dtype, jnp.floating) else array
        for name, array in conditions.items()
    }


def _plain(config: Any) -> Any:
    """A config of transformers as JSON values, without its place and the versions of packages."""
    if isinstance(config, Mapping):
        kept = {str(name): value for name, value in config.items() if not str(name).startswith("_")}
        return {name: _plain(value) for name, value in kept.items() if name not in _NOT_IDENTITY}
    return [_plain(value) for value in config] if isinstance(config, list | tuple) else str(config)


def _weights(module: Any) -> str:
    from winobench.torch_pipelines import bridge

    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        array = bridge.to_numpy(tensor)
        digest.update(f"{name} {array.dtype.name} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).view(np.uint8).data if array.size else b"")
    return digest.hexdigest()


def _files(part: Any) -> str:
    """What a tokenizer or processor writes."""
    with tempfile.TemporaryDirectory() as folder:
        part.save_pretrained(folder)
        names = sorted(path for path in pathlib.Path(folder).rglob("*") if path.is_file())
        return files.digest([[os.path.relpath(path, folder), path.read_bytes().hex()] for path in names])
