"""Networks of scorers and encoders: put on the devices, called without their parameters, and identified."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Self

import jax
from jax.sharding import Mesh

from winobench import parallel
from winobench.base import json_files, options
from winobench.base.errors import InputError
from winobench.checkpoints import models, sources
from winobench.checkpoints.loaded import Loaded
from winobench.models import functional, states
from winobench.models.base import Network
from winobench.models.snapshots import HasSnapshots

if TYPE_CHECKING:
    from winobench.checkpoints.vision_language import LoadedVisionLanguageModel


@dataclasses.dataclass(frozen=True)
class NetworkFunction:
    """A function of a network's parameters, for `winobench.engine.tables.Encoder`. Equal values share a compilation."""

    structure: functional.Structure
    function: Callable[..., Any]
    settings: tuple[Any, ...] = ()

    def __call__(self, params: list[jax.Array], batch: jax.Array) -> Any:
        network = self.structure.module(params)
        with functional.precision(network.dtype):
            return self.function(network, batch, *self.settings)


def place(network: Network, mesh: Mesh) -> tuple[functional.Structure, list[jax.Array]]:
    """Puts a network on the devices of a mesh: its structure, and its parameters there."""
    structure, params = functional.split(network)
    return structure, parallel.place_parameters(params, mesh)


def check_made(name: str, value: Any, *parts: str) -> None:
    """Raises InputError for an argument that lacks an attribute of the models and processors that a scorer takes."""
    if any(getattr(value, part, None) is None for part in parts):
        message = f"{name} is {options.quote(value)}, but it must be loaded: make the scorer by its from_pretrained"
        raise InputError(message, code="wrong-type")


class HasLoadedModel(HasSnapshots):
    """A `HasSnapshots` of a loaded language model, whose arrays are on the devices of ``mesh`` already."""

    MODEL = "_loaded"
    _shardings: tuple[Any, ...] = ()

    def _use(self, loaded: Loaded) -> None:
        check_made("loaded", loaded, "mesh", "parts")
        self._loaded, self.mesh = loaded, parallel.as_mesh(loaded.mesh)

    def _parameters(self, loaded: Loaded) -> tuple[functional.Structure, list[jax.Array]]:
        """A model's structure, and its parameters on the devices. New ones go where those before them were."""
        structure, params = loaded.parts()
        if len(self._shardings) == len(params):
            params = [parallel.put(array, place) for array, place in zip(params, self._shardings, strict=True)]
        elif not all(parallel.is_on(array, self.mesh) for array in params):
            params = parallel.place_parameters(params, self.mesh)
        self._shardings = tuple(array.sharding for array in params)
        return structure, params

    def _put(self, arrays: Any) -> Any:
        """The rows of a batch, split over the devices."""
        split = parallel.split_axis(self.mesh)
        return jax.tree.map(lambda array: parallel.put(array, split), arrays)


class HoldsVisionLanguage(HasLoadedModel):
    """A `HasLoadedModel` of a vision-language model. ``TEMPLATE`` is the option with the text around prompts."""

    TEMPLATE: ClassVar[str]
    _loaded: LoadedVisionLanguageModel

    @classmethod
    def from_pretrained(
        cls,
        source: str | os.PathLike[str],
        dtype: str = "float32",
        *,
        mesh: Mesh | None = None,
        int8: bool = False,
        max_pixels: int | None = None,
        variant: str | None = None,
        revision: str | None = None,
        allow_pickle: bool = False,
        **others: Any,
    ) -> Self:
        """Loads a model and makes it ready.

        Args:
          source, dtype, mesh, int8, max_pixels, variant, allow_pickle: see
            `winobench.checkpoints.vision_language.load_vision_language`.
          revision: of a repository on the hub.
          **others: options of the class.

        Raises:
          InputError: files are missing or damaged, it is not a vision-language model, or an option is not one of its
            choices.
        """
        from winobench.checkpoints.vision_language import load_vision_language  # late: it imports all networks

        check_options(cls, others)
        cls._check_choices(**others)
        loaded = load_vision_language(
            sources.resolve(source, revision=revision),
            dtype,
            mesh=mesh,
            int8=int8,
            max_pixels=max_pixels,
            variant=variant,
            allow_pickle=allow_pickle,
            templates={cls.TEMPLATE: others.get(cls.TEMPLATE)},
        )
        made: Any = cls  # a subclass, which takes them
        return made(loaded, **others)

    @classmethod
    def _check_choices(cls, **options: Any) -> None:
        """Raises InputError for an option that is wrong for every model: before the weights, which take long."""


def fingerprint(network: Network, **others: Any) -> str:
    """SHA-256, 64 hexadecimal digits, over weights and config. Takes seconds for a large network, once."""
    description = {"config": network.config.to_dict(), "weights": models.weights_sha256(network), **others}
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()


def tokenizer_identity(tokenizer: Any) -> dict[str, Any]:
    """Everything that a fast tokenizer of transformers does, as JSON values."""
    content = json_files.parse(tokenizer.backend_tokenizer.to_str())
    # These two hold what the last call asked for.
    content = {key: value for key, value in content.items() if key not in ("padding", "truncation")}
    changes = states.changes_of_tokenizer(tokenizer)
    return {**content, **({"changes": changes} if changes else {})}


def check_options(cls: type, options: dict[str, Any]) -> None:
    """Raises InputError unless a class can be made with these keyword-only arguments. Before the weights are read."""
    parameters = inspect.signature(cls).parameters.values()
    known = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    if unknown := sorted(options.keys() - set(known)):
        raise InputError(
            f"{unknown[0]!r} is not an option of {cls.__name__}: it has {', '.join(known)}", code="unknown-option"
        )
