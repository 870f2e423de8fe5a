"""The common base of loaded language models: a network that may be changed, and its identity."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import weakref
from collections.abc import Callable
from typing import Any, Self, TypeVar

import jax
from flax import nnx
from jax.sharding import Mesh

from winobench import parallel
from winobench.checkpoints import fast_tokenizers, models
from winobench.models import functional, lora, snapshots, states

_Loader = TypeVar("_Loader", bound=Callable[..., Any])


def spread_by_default(load: _Loader) -> _Loader:
    """A loader whose ``mesh`` may be None: copies for other devices are made once the parameters' size is known."""

    @functools.wraps(load)
    def loader(*args: Any, **options: Any) -> Any:
        if options.get("mesh") is not None:
            return load(*args, **options | {"mesh": parallel.as_mesh(options["mesh"])})
        loaded = load(*args, **options | {"mesh": parallel.make_mesh(jax.local_devices()[:1])})
        structure, params = loaded.parts()
        mesh = parallel.default_mesh(params)
        network = nnx.split(structure.module(parallel.place_parameters(params, mesh)))
        # The same values: the fingerprint is still theirs.
        return dataclasses.replace(loaded, network=network, mesh=mesh).as_loaded()

    return loader


class Loaded:
    """Base of frozen dataclasses with ``network``, ``config``, tokenizers, ``fingerprint``, ``mesh``, ``origin``."""

    network: tuple[Any, Any]
    config: Any
    fingerprint: str
    mesh: Mesh
    origin: snapshots.WeakSnapshot | None

    def module(self) -> Any:
        """The network as one object. Changes of it are changes of this."""
        return nnx.merge(*self.network)

    def parts(self) -> tuple[functional.Structure, list[Any]]:
        """The network's structure, and its arrays."""
        return snapshots.split(self.module())

    @property
    def tokenizers(self) -> dict[str, Any]:
        named = {name: getattr(self, name, None) for name in ("tokenizer", "qformer_tokenizer")}
        return {name: tokenizer for name, tokenizer in named.items() if tokenizer is not None}

    def _now(self) -> tuple[tuple[functional.Structure, Any], list[Any]]:
        structure, arrays = self.parts()
        return (structure, states.tokenizer_values(self.tokenizers)), arrays

    def as_loaded(self) -> Self:
        """The same. Its ``fingerprint`` is declared to belong to its arrays and tokenizers."""
        return dataclasses.replace(self, origin=snapshots.WeakSnapshot(*self._now()))

    def snapshot(self) -> Self:
        """A copy whose network and tokenizers keep their present state (`winobench.models.snapshots`)."""
        structure, arrays = self.parts()
        copies = states.copied(self, self.tokenizers)
        state, reference, before = vars(self).get("_last_snapshot", (None, None, copies))
        snapshot = None if reference is None else reference()
        if snapshot is not None and before is copies and state.matches(structure, arrays):
            return snapshot
        if before is not copies:
            self._check_tokenizers()
        snapshot = dataclasses.replace(self, network=nnx.split(structure.module(arrays)), **copies)
        vars(self)["_last_snapshot"] = snapshots.WeakSnapshot(structure, arrays), weakref.ref(snapshot), copies
        return snapshot

    def identity(self) -> str:
        """``fingerprint`` while the model is as it was loaded, otherwise 64 other hexadecimal digits.

        They are of its arrays and tokenizers. Takes seconds for a large network that was changed, once.
        """
        now, arrays = self._now()
        if self.origin is not None and self.origin.matches(now, arrays):
            return self.fingerprint
        module = self.module()
        description = {
            "loaded": self.fingerprint,
            "config": module.config.to_dict(),
            "weights": models.weights_sha256(module),
            "lora_scales": lora.scales(module),
        }
        if self.origin is not None and self.origin.structure[1] != now[1]:
            description["tokenizers"] = repr(now[1])
        return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()

    def _check_tokenizers(self) -> None:
        """Raises InputError for a token that the network has no embedding for."""
        for name, tokenizer in self.tokenizers.items():
            part = "qformer_config" if name == "qformer_tokenizer" else "text_config"
            fast_tokenizers.check_ids(tokenizer, getattr(self.config, part, self.config).vocab_size, "of this model")
