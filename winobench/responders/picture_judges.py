"""A model's name to what answers about pictures with it: any scorer of images and texts, or one that writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from winobench.base.errors import InputError
from winobench.base.registry import ModelRef
from winobench.scorers import loading as scorers

if TYPE_CHECKING:
    from winobench.runs.requests import Responder

WRITES = "vqa_score"
"""The kind of scorer whose models also write about images (`winobench.responders.picture_reader`)."""


def load(
    ref: ModelRef,
    dtype: str = "float32",
    *,
    allow_pickle: bool = False,
    batch_size: int | None = None,
    int8: bool = False,
    model_parallel: int = 1,
    seed: int = 0,
    sampling: Mapping[str, Any] | None = None,
) -> Responder:
    """Loads a checkpoint of a kind in `winobench.scorers.loading.SCORERS` and makes it answer about images.

    Args:
      ref, dtype, allow_pickle, batch_size, int8, model_parallel, seed: as of
        `winobench.responders.loading.load_responder`.
      sampling: ``num_samples`` and ``timesteps`` of a scorer that has samples. The usual ones when None.

    Raises:
      InputError: an option is not for the model, or its files cannot be read.
    """
    if ref.kind == WRITES:
        from winobench import parallel
        from winobench.responders.picture_reader import PictureReader

        return PictureReader.from_pretrained(
            ref.checkpoint,
            dtype,
            mesh=None if model_parallel == 1 else parallel.make_mesh(model_parallel=model_parallel),
            int8=int8,
            revision=ref.revision,
            allow_pickle=allow_pickle,
            batch_size=batch_size,
            seed=seed,
        )
    if int8:
        raise InputError(
            f"int8 is an option of models that write, but {ref.name!r} is none: leave it out", code="option-of-others"
        )
    scorer = scorers.load_scorer(
        ref, dtype, allow_pickle=allow_pickle, batch_size=batch_size, model_parallel=model_parallel
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
