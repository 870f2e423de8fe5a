"""A model's name to what answers about pictures with it: any scorer of images and texts, or one that writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from winobench.base import registry
from winobench.base.errors import InputError
from winobench.runs.requests import PictureMatch, PictureOptions, PictureText
from winobench.scorers import loading as scorers

if TYPE_CHECKING:
    from winobench.runs.requests import Responder

WRITES = "vqa_score"
"""The kind of scorer whose models also write about pictures (`winobench.responders.picture_reader`)."""


def scorer_kind(name: str, revision: str | None = None) -> str | None:
    """Which of `winobench.scorers.loading.SCORERS` a model is; None for one without eyes.

    Args:
      name: a name in `winobench.base.registry.MODELS` or ``LANGUAGE_MODELS``, a folder, or a hub id.
      revision: of a hub id.

    Raises:
      InputError: there is no such model, or its kind is not known.
    """
    if name in registry.LANGUAGE_MODELS and name not in registry.MODELS:
        return None
    if name not in registry.MODELS:
        from winobench.checkpoints import sources, vision_language

        config = sources.resolve(registry.model_source(name), revision=revision).find("config.json")
        if config is not None and vision_language.only_reads(sources.read_json(config).get("model_type")):
            return None
    return scorers.scorer_kind(name, revision)


def kinds(name: str, revision: str | None = None) -> frozenset[str]:
    """The kinds of requests about pictures that a model answers; arguments and errors as of `scorer_kind`."""
    kind = scorer_kind(name, revision)
    if kind is None:
        return frozenset()
    return frozenset({PictureMatch.kind, *((PictureText.kind, PictureOptions.kind) if kind == WRITES else ())})


def load(
    name: str,
    dtype: str = "float32",
    *,
    revision: str | None = None,
    allow_pickle: bool = False,
    batch_size: int | None = None,
    int8: bool = False,
    model_parallel: int = 1,
    seed: int = 0,
    sampling: Mapping[str, Any] | None = None,
) -> Responder | None:
    """Loads a model and makes it answer about images; None for one without eyes, of which nothing is loaded.

    Args:
      name, dtype, revision, allow_pickle, batch_size, int8, model_parallel, seed: as of
        `winobench.responders.loading.load_responder`.
      sampling: ``num_samples`` and ``timesteps`` of a scorer that has samples. The usual ones when None.

    Raises:
      InputError: there is no such model, its kind is not known, or an option is not for it.
    """
    kind = scorer_kind(name, revision)
    if kind is None:
        return None
    if kind == WRITES:
        from winobench import parallel
        from winobench.responders.picture_reader import PictureReader

        return PictureReader.from_pretrained(
            name if name in registry.MODELS else registry.model_source(name),
            dtype,
            mesh=None if model_parallel == 1 else parallel.make_mesh(model_parallel=model_parallel),
            int8=int8,
            revision=revision,
            allow_pickle=allow_pickle,
            batch_size=batch_size,
            seed=seed,
        )
    if int8:
        raise InputError(
            f"int8 is an option of models that write, but {name!r} is none: leave it out", code="option-of-others"
        )
    scorer = scorers.load_scorer(
        name,
        dtype,
        revision=revision,
        allow_pickle=allow_pickle,
        batch_size=batch_size,
        model_parallel=model_parallel,
    )
    return as_responder(scorer, seed=seed, sampling=sampling)


def as_responder(scorer: Any, *, seed: int = 0, sampling: Mapping[str, Any] | None = None) -> Responder:
    """Any scorer of images and texts as a responder of the kind ``picture_match``; arguments as of `load`."""
    from winobench.responders.picture_matcher import PictureMatcher

    timesteps: str | Sequence[Any] | None = (sampling or {}).get("timesteps")
    given = {} if timesteps is None else {"timesteps": timesteps}
    if "num_samples" in (sampling or {}):
        given["num_samples"] = sampling["num_samples"]
    return PictureMatcher(scorer, seed=seed, **given)
