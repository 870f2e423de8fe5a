"""A model's name to its scorer: diffusion models, contrastive ones, matching heads, and what other packages plug in."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from winobench import registry
from winobench.errors import InputError

if TYPE_CHECKING:
    from winobench.scorers.base import SampledScorer, Scorer

SCORERS: dict[str, str] = {
    "diffusion_itm": "winobench.scorers.diffusion_itm:DiffusionITM",
    "contrastive": "winobench.scorers.contrastive:Contrastive",
    "itm_head": "winobench.scorers.itm_head:ItmHead",
}
"""Kind of scorer -> the class that has ``from_pretrained``."""

# What a checkpoint's kind is told by: a file that only it has, and, for transformers' folders, the model's type.
_FILES = {"model_index.json": "diffusion_itm", "open_clip_config.json": "contrastive"}
_MODEL_TYPES = {"clip": "contrastive", "blip": "itm_head"}


def load_scorer(
    name: str,
    dtype: str = "float32",
    *,
    variant: str | None = None,
    revision: str | None = None,
    allow_pickle: bool = False,
    batch_size: int | None = None,
    diffusion: dict[str, Any] | None = None,
) -> Scorer | SampledScorer:
    """Loads a model and makes it a scorer.

    Args:
      name: a name in `winobench.registry.MODELS` or of a plugged-in scorer, a folder, or a hub id.
      dtype: ``float32`` or ``bfloat16``.
      variant: of the weight files, such as ``fp16``.
      revision: branch, tag or commit of a hub id.
      allow_pickle: whether ``.bin`` files may be read, by a restricted unpickler.
      batch_size: of the scorer; chosen for the kind of device when None.
      diffusion: options that only diffusion models have, such as ``lora`` and ``lora_scale``; those that are None are
        left out.

    Raises:
      InputError: there is no such model, its kind is not known, or it is a baseline and an option is for diffusion
        models.
    """
    given = {option: value for option, value in (diffusion or {}).items() if value is not None}
    source = registry.model_source(name)
    if name not in registry.MODELS and name in registry.plugged_in():
        _refuse(name, given | {key: value for key, value in [("variant", variant), ("revision", revision)] if value})
        return registry.plugged_in()[name].load()()
    model = registry.MODELS.get(name)
    kind = model.scorer if model is not None else checkpoint_kind(source, revision)
    if kind != "diffusion_itm":
        _refuse(name, given)
    options = {**(model.options if model is not None else {}), **given}
    module, _, cls = SCORERS[kind].partition(":")
    return getattr(importlib.import_module(module), cls).from_pretrained(
        # Under its own name a model of the registry may bring settings along.
        name if model is not None else source,
        dtype,
        variant=variant,
        revision=revision,
        allow_pickle=allow_pickle,
        batch_size=batch_size,
        **options,
    )


def checkpoint_kind(source: str, revision: str | None = None) -> str:
    """Which of ``SCORERS`` a folder or hub repository is for.

    Raises:
      InputError: it holds no checkpoint of a known kind.
    """
    from winobench.checkpoints import sources

    place = sources.resolve(source, revision=revision)
    for file, kind in _FILES.items():
        if place.find(file) is not None:
            return kind
    config = place.find("config.json")
    model_type = sources.read_json(config).get("model_type") if config is not None else None
    if model_type in _MODEL_TYPES:
        return _MODEL_TYPES[model_type]
    hint = place.hint()
    if config is None and hint:
        raise InputError(f"model_index.json of {place} is not at hand: {hint}")
    found = f"its config.json is of a {model_type!r}" if config is not None else "it has none of their files"
    raise InputError(
        f"{place} is no diffusion pipeline (model_index.json), CLIP (config.json, open_clip_config.json) or BLIP"
        f" (config.json): {found}; name another model"
    )


def _refuse(name: str, options: dict[str, Any]) -> None:
    if options:
        raise InputError(f"{next(iter(options))} is an option of diffusion models, but {name!r} is none: leave it out")
