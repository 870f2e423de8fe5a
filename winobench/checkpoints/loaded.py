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
from winobench.checkpoints import models
from winobench.models import functional, holding, lora

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
    """Base of frozen dataclasses with ``network``, ``fingerprint``, ``mesh`` and ``origin``."""

    network: tuple[Any, Any]
    fingerprint: str
    mesh: Mesh
    origin: holding.Taken | None

    def module(self) -> Any:
        """The network as one object. Changes of it are changes of this."""
        return nnx.merge(*self.network)

    def parts(self) -> tuple[functional.Structure, list[Any]]:
        """The network's structure, and its arrays."""
        return holding.split(self.module())

    def as_loaded(self) -> Self:
        """The same. Its ``fingerprint`` is declared to belong to its arrays."""
        return dataclasses.replace(self, origin=holding.Taken(*self.parts()))

    def held(self) -> Self:
        """The same with a network that stays as it is now (`winobench.models.holding`)."""
        structure, arrays = self.parts()
        taken, reference = vars(self).get("_last_held", (None, None))
        there = None if reference is None else reference()
        if there is not None and taken.is_of(structure, arrays):
            return there
        there = dataclasses.replace(self, network=nnx.split(structure.module(arrays)))
        vars(self)["_last_held"] = holding.Taken(structure, arrays), weakref.ref(there)
        return there

    def identity(self) -> str:
        """``fingerprint`` while the network is as it was loaded, otherwise 64 other hexadecimal digits, of its arrays.

        Takes seconds for a large network that was changed, once.
        """
        if self.origin is not None and self.origin.is_of(*self.parts()):
            return self.fingerprint
        module = self.module()
        description = {
            "loaded": self.fingerprint,
            "config": module.config.to_dict(),
            "weights": models.weights_sha256(module),
            "lora_scales": lora.scales(module),
        }
        return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()
