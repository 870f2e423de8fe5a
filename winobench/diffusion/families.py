"""The families of text-to-image models, and which one a folder or hub repository is of."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from winobench.base import extensions, options
from winobench.base.errors import InputError
from winobench.diffusion import family_names
from winobench.diffusion.family_names import FAMILIES
from winobench.models.any_pipeline import AnyPipeline

if TYPE_CHECKING:
    from winobench.checkpoints.sources import Source
    from winobench.diffusion.pipeline import Pipeline

AUTO, NATIVE, TORCH = options.BACKENDS

_TORCH_FAMILIES = "torch_families"  # the part that knows the classes of diffusers


def load_pipeline(
    source: str | os.PathLike[str],
    dtype: Any = "float32",
    *,
    revision: str | None = None,
    backend: str = AUTO,
    **keywords: Any,
) -> Pipeline:
    """Loads a pipeline of any family.

    Args:
      source: see `Pipeline.from_pretrained`.
      dtype: see there.
      revision: see there.
      backend: ``native`` for families in Flax, ``torch`` for diffusers' own code under JAX, which is experimental
        (`winobench.TorchPipeline`). ``auto`` is ``native`` where such a family exists, and ``torch`` otherwise.
      **keywords: see `Pipeline.from_pretrained`.

    Raises:
      InputError: see `Pipeline.from_pretrained`.
    """
    from winobench.checkpoints import sources

    source = sources.resolve(source, revision=revision)
    return family_of(source, backend).from_pretrained(source, dtype, **keywords)


def read_lora(
    source: str | os.PathLike[str],
    lora: str | os.PathLike[str],
    *,
    revision: str | None = None,
    backend: str = AUTO,
    allow_pickle: bool = False,
) -> Any:
    """A LoRA for `load_with_lora` of the same source. Errors as in `Pipeline.read_lora`."""
    from winobench.checkpoints import sources

    family = family_of(sources.resolve(source, revision=revision), backend)
    return family.read_lora(lora, allow_pickle=allow_pickle)


def load_with_lora(
    source: str | os.PathLike[str],
    dtype: Any,
    adapters: Any,
    *,
    revision: str | None = None,
    backend: str = AUTO,
    **keywords: Any,
) -> tuple[Pipeline, Any]:
    """A pipeline of any family with a LoRA. As `Pipeline.load_with_lora`."""
    from winobench.checkpoints import sources

    source = sources.resolve(source, revision=revision)
    return family_of(source, backend).load_with_lora(source, dtype, adapters, **keywords)


def read_description(
    source: str | os.PathLike[str] | Source,
    *,
    revision: str | None = None,
    settings: Mapping[str, Any] | None = None,
    backend: str = AUTO,
) -> Any:
    """A `folders.Description` of any family. Arguments as in `Pipeline.read_description` and `load_pipeline`."""
    from winobench.checkpoints import sources

    source = sources.resolve(source, revision=revision)
    return family_of(source, backend).read_description(source, settings=settings)


def released(name: str) -> Any:
    """A published pipeline's description, from its sizes in code, without a file of it; None for other names."""
    for family in map(_family, FAMILIES):
        if name in family.RELEASED:
            return family.RELEASED[name]()
    return None


def family_of(source: Source, backend: str = AUTO) -> type[AnyPipeline]:
    """The family that a pipeline's ``model_index.json`` names, or else the one whose parts it has."""
    from winobench.checkpoints import sources

    options.BACKEND.check("backend", backend)
    path = source.require("model_index.json", "so it is not a pipeline in the diffusers layout")
    index = sources.read_json(path)
    kind = index.get("_class_name")
    if backend != TORCH and (name := family_names.family_name(kind)):
        return _family(name)
    if isinstance(kind, list):
        family_names.refuse_code(path, "pipeline", kind)
    by_torch: list[str] = []
    if backend == TORCH or _TORCH_FAMILIES in extensions.added(extensions.PARTS):
        torch_families = extensions.find(extensions.PARTS, _TORCH_FAMILIES)
        if backend == TORCH or (backend == AUTO and torch_families.knows(str(kind))):
            with sources.blame(path):
                torch_families.family_of(str(kind))
            return extensions.find(extensions.NAMES, "TorchPipeline")
        by_torch = torch_families.names()
    if kind in by_torch:
        raise InputError(
            f"{path} describes a {kind}, which runs by torch alone: this needs a family that is written in Flax, one of"
            f" {', '.join(FAMILIES)}",
            code="wrong-kind-of-model",
        )
    fitting = [name for name in FAMILIES if family_names.mismatch(_family(name), index) is None]
    if kind is None and fitting:
        return _family(fitting[0])
    if fitting:
        raise InputError(
            f"{path} names the unknown pipeline {options.quote(kind)}, though its parts belong to a"
            f" {fitting[0]}: write that as its _class_name if it is one",
            code="wrong-kind-of-model",
        )
    known = sorted({*FAMILIES, *by_torch})
    raise InputError(
        f"{path} describes a {kind or 'pipeline'}, whose parts fit no family that can be used: name one of"
        f" {', '.join(known)}",
        code="wrong-kind-of-model",
    )


def _family(name: str) -> type[AnyPipeline]:
    return _imported(FAMILIES[name])


def _imported(path: str) -> Any:
    module, _, attribute = path.partition(":")
    return getattr(importlib.import_module(module), attribute)
