"""A model's name to the responder that answers about images with it: a vision-language model, or any scorer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from winobench.base import registry
from winobench.base.errors import InputError
from winobench.runs.requests import PictureMatch, PictureOptions, PictureText
from winobench.scorers import loading as scorers

if TYPE_CHECKING:
    from winobench.runs.requests import Responder

WRITES = "vqa_score"
"""The kind of scorer whose models also write about images (`winobench.responders.vision_language`)."""


def scorer_kind(name: str, revision: str | None = None) -> str | None:
    """Which of `winobench.scorers.loading.SCORERS` a model is; None for a text-only one. Raises InputError."""
    if name in registry.LANGUAGE_MODELS and name not in registry.MODELS:
        return None
    if name not in registry.MODELS:
        from winobench.checkpoints import sources, vision_language

        config = sources.resolve(registry.model_source(name), revision=revision).find("config.json")
        if config is not None and vision_language.is_text_only(sources.read_json(config).get("model_type")):
            return None
    return scorers.scorer_kind(name, revision)


def kinds(name: str, revision: str | None = None) -> frozenset[str]:
    """The kinds of requests about images that a model answers. Raises InputError as `scorer_kind` does."""
    kind = scorer_kind(name, revision)
    if kind is None:
        return frozenset()
    return frozenset({PictureMatch.kind, *((PictureText.kind, PictureOptions.kind) if kind == WRITES else ())})


def load(
    name: str,
    dtype: str = "float32",
    *,
    int8: bool = False,
    model_parallel: int = 1,
    seed: int = 0,
    sampling: Mapping[str, Any] | None = None,
    **others: Any,
) -> Responder | None:
    """Loads a model and makes it answer about images; returns None for a text-only one, of which nothing is loaded.

    The options are those of `winobench.responders.loading.load_responder`. ``sampling`` holds ``num_samples`` and
    ``timesteps`` of a scorer that has samples. Raises InputError for an option of other models.
    """
    kind = scorer_kind(name, others.get("revision"))
    if kind is None:
        return None
    if kind == WRITES:
        from winobench import parallel
        from winobench.responders.vision_language import VisionLanguageModel

        return VisionLanguageModel.from_pretrained(
            name if name in registry.MODELS else registry.model_source(name),
            dtype,
            mesh=None if model_parallel == 1 else parallel.make_mesh(model_parallel=model_parallel),
            int8=int8,
            seed=seed,
            **others,
        )
    if int8:
        raise InputError(
            f"int8 is an option of models that write, but {name!r} only judges: leave it out", code="option-of-others"
        )
    scorer = scorers.load_scorer(name, dtype, model_parallel=model_parallel, **others)
    return as_responder(scorer, seed=seed, sampling=sampling)


def as_responder(scorer: Any, *, seed: int = 0, sampling: Mapping[str, Any] | None = None) -> Responder:
    """Any scorer of images and texts as a responder of the kind ``picture_match``. See `load` for its arguments."""
    from winobench.responders.matching import Matcher

    return Matcher(scorer, seed=seed, **{name: value for name, value in (sampling or {}).items() if value is not None})
