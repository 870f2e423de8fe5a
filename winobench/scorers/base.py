"""The interface of scorers, and the evaluation's view of a scorer without samples."""

from __future__ import annotations

import copy
import pathlib
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from winobench.base import options
from winobench.base.errors import InputError
from winobench.data import images as image_files
from winobench.data.images import ImageSource


@runtime_checkable
class Scorer(Protocol):
    """Anything that states how well images and texts match.

    A scorer may also have

    - ``fingerprint() -> dict``: everything about it that can change a score, as JSON values; ``model`` is its weights'
      SHA-256. Without it, a stopped run starts again, because nobody could tell whether the scorer is the same.
    - ``answers_questions``: True where a text may be a question with an answer (`winobench.data.question_texts`), whose
      score says how likely the answer is. Without it, tasks in question form are refused.
    - ``match_threshold``: the score above which an image and a text match, of a scorer that was made to decide this, or
      None. Without it, tasks that judge each text by itself lack these rows.
    - ``mesh``: its devices. In a program of several processes, each scores its share of the work with a scorer of its
      own. One whose mesh has devices of other processes is called by all of them with all of the work.
    - ``snapshot()``: a copy that keeps the present weights. An evaluation takes fingerprint and scores from one copy.
      Without this method, a scorer whose fingerprint changes during an evaluation is refused, and its scores since then
      are not recorded.
    - ``set_cache_folder(folder, reuse=...)`` gets the run's folder before anything is scored. The scorer may keep paid
      answers there, in its own folder. With ``reuse``, it may read the folders of the runs next to it.
    - ``normalizes``: True where evaluations subtract the score of the text "", which makes images comparable.
    - ``chance``: a number that is subtracted from float64 scores before they are recorded as float32.
    - ``iter_scores(images, texts, pairs)`` with pairs int [n, 2] of (number of the image, number of the text): yields
      (int [b], which of the pairs, their float32 scores [b]) of batch after batch, each pair once. Without it,
      ``score`` is called for one image at a time, with the texts of the questions about that image.
    """

    def score(self, images: Sequence[ImageSource], texts: Sequence[str]) -> np.ndarray:
        """Float [num_images, num_texts], higher = better match."""


@runtime_checkable
class SampledScorer(Protocol):
    """A scorer whose scores are means over samples of noise and timestep, such as `winobench.DiffusionITM`.

    It may also have

    - ``mesh`` and ``snapshot()``, as a `Scorer`;
    - ``session(images, texts, *, num_samples, seed, timesteps)``, which an evaluation opens once and asks for triples
      in parts: an object with ``capacity`` and ``iter_errors``, as in `winobench.scorers.session.Session`. Without it,
      `iter_errors` is called for each part, with the images and texts of all parts.

    The rule ``antithetic_importance`` lists timesteps, and passes ``noise="antithetic"`` to both.
    """

    error: str

    def fingerprint(self) -> dict[str, Any]:
        """Everything about the scorer that can change an error, as JSON values; ``model`` is its weights' SHA-256."""

    def choose_timesteps(self, num_samples: int | None, seed: int, timesteps: str | Sequence[float]) -> np.ndarray:
        """The timestep of each sample, int [number of samples]. Noise levels, floats in (0, 1], of a flow model."""

    def iter_errors(
        self,
        images: Sequence[ImageSource],
        texts: Sequence[str],
        triples: np.ndarray,
        *,
        num_samples: int,
        seed: int,
        timesteps: str | Sequence[float],
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields (int [b], which of the triples, their float32 errors [b]) of batch after batch, each triple once."""


NO_TIMESTEP = -1
"""Stands for the timestep of the one sample of a scorer that has no samples."""


class WithoutSamples:
    """A `Scorer` as the evaluation uses it: one sample, whose error is minus the score."""

    error = "minus_score"

    def __init__(self, scorer: Scorer):
        self.scorer = scorer
        self.mesh = getattr(scorer, "mesh", None)
        self.answers_questions = getattr(scorer, "answers_questions", False)
        self.match_threshold = getattr(scorer, "match_threshold", None)
        self.normalizes = bool(getattr(scorer, "normalizes", False))
        self._chance = float(getattr(scorer, "chance", 0.0))
        self.encode_images = getattr(scorer, "encode_images", None)  # images -> vectors [n, width]
        self._instance = uuid.uuid4().hex

    def snapshot(self) -> WithoutSamples:
        found = copy.copy(self)
        from winobench.models import snapshots  # late: reports need this module, and no JAX

        found.scorer = snapshots.snapshot(self.scorer)
        found.encode_images = getattr(found.scorer, "encode_images", None)
        return found

    def _ability(self, name: str) -> Callable[..., Any] | None:
        """A method that a scorer may have. None for one that lacks it."""
        return getattr(self.scorer, name, None)

    def set_cache_folder(self, folder: pathlib.Path, *, reuse: bool) -> None:
        if set_cache_folder := self._ability("set_cache_folder"):
            set_cache_folder(folder, reuse=reuse)

    def fingerprint(self) -> dict[str, Any]:
        """The scorer's own, or one that no other scorer has."""
        if fingerprint := self._ability("fingerprint"):
            return fingerprint()
        kind = type(self.scorer)
        return {"scorer": f"{kind.__module__}.{kind.__qualname__}", "instance": self._instance}

    def choose_timesteps(self, num_samples: int | None, seed: int, timesteps: str | Sequence[float]) -> np.ndarray:
        return np.array([NO_TIMESTEP])

    def iter_errors(
        self, images: Sequence[ImageSource], texts: Sequence[str], triples: np.ndarray, **_: Any
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        pairs = np.asarray(triples)[:, :2]
        if iter_scores := self._ability("iter_scores"):
            for numbers, scores in iter_scores(images, texts, pairs):
                yield numbers, (self._chance - np.asarray(scores)).astype(np.float32)
            return
        ends = [*np.flatnonzero(np.diff(pairs[:, 0])) + 1, len(pairs)]
        for start, end in zip([0, *ends], ends, strict=False):
            own_texts = [texts[text] for text in pairs[start:end, 1]]
            image = image_files.open_image(images[pairs[start, 0]])
            scores = np.asarray(self.scorer.score([image], own_texts))
            if scores.shape != (1, len(own_texts)) or not is_real(scores):
                raise InputError(
                    f"{type(self.scorer).__name__}.score returned {scores.dtype} {list(scores.shape)} for 1 image and"
                    f" {len(own_texts)} texts: give floats [1, {len(own_texts)}]",
                    code="bad-scores",
                )
            yield np.arange(start, end), -scores[0].astype(np.float32)


def is_real(values: np.ndarray) -> bool:
    """Whether an array holds floats, bfloat16 among them, or integers, but not booleans or objects."""
    return values.dtype.kind in "fiu" or values.dtype.name == "bfloat16"


def for_evaluation(scorer: Any) -> SampledScorer:
    """A `Scorer` or a `SampledScorer` as the evaluation uses it."""
    if callable(getattr(scorer, "iter_errors", None)):
        return scorer
    if not callable(getattr(scorer, "score", None)):
        raise InputError(
            f"{options.quote(scorer)} is not a scorer: it has no method score(images, texts). Load one, such as"
            " DiffusionITM.from_pretrained('clevr-tiny')",
            code="wrong-type",
        )
    return WithoutSamples(scorer)
