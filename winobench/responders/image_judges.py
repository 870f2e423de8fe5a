"""A model's name to the responder that answers about images with it: a vision-language model, or any scorer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from winobench.base.errors import InputError
from winobench.base.registry import ModelRef
from winobench.scorers import loading as scorers

if TYPE_CHECKING:
    from winobench.runs.requests import Responder

WRITES = "vqa_score"
"""The kind of scorer whose models also write about images (`winobench.responders.vision_language`)."""


def load(
    ref: ModelRef,
    dtype: str = "float32",
    *,
    int8: bool = False,
    model_parallel: int = 1,
    seed: int = 0,
    sampling: Mapping[str, Any] | None = None,
    **others: Any,
) -> Responder:
    """As `winobench.responders.loading.load_responder`, for a kind in `winobench.scorers.loading.SCORERS`."""
    if ref.kind == WRITES:
        from winobench import parallel
        from winobench.responders.vision_language import VisionLanguageModel

        return VisionLanguageModel.from_pretrained(
            ref.checkpoint,
            dtype,
            mesh=None if model_parallel == 1 else parallel.make_mesh(model_parallel=model_parallel),
            int8=int8,
            revision=ref.revision,
            seed=seed,
            **others,
        )
    if int8:
        raise InputError(
            f"int8 is an option of models that write, but {ref.name!r} only judges: leave it out",
            code="option-of-others",
        )
    scorer = scorers.load_scorer(ref, dtype, model_parallel=model_parallel, **others)
    return as_responder(scorer, seed=seed, sampling=sampling)


def as_responder(scorer: Any, *, seed: int = 0, sampling: Mapping[str, Any] | None = None) -> Responder:
    """Any scorer of images and texts as a responder of the kind ``picture_match``."""
    from winobench.responders.matching import Matcher

    return Matcher(scorer, seed=seed, **{name: value for name, value in (sampling or {}).items() if value is not None})
