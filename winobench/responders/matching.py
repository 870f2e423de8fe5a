"""Matches images with texts by any scorer of images and texts, and images with each other by one that encodes them."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from winobench.models import snapshots
from winobench.responders.answers import check_kinds, finite, read_scores
from winobench.runs.requests import ImageMatch, ImageSimilarity, Raw, Response
from winobench.scorers.base import NO_TIMESTEP, SampledScorer, Scorer, for_evaluation

# Raised whenever an answer that is computed here could change by more than rounding.
ANSWER_VERSION = 1

# Requests that a scorer is given at once. One with samples may come to the last sample of all of them before it has
# done with any, so that a kill would take all.
_AT_ONCE, _SAMPLED_AT_ONCE = 256, 16
_SETS_AT_ONCE = 64  # of images that are compared with each other

_IterErrors = Callable[[np.ndarray], Iterator[tuple[np.ndarray, np.ndarray]]]


class Matcher:
    """Answers how well texts match an image with the scores of a scorer. Those of a sampled one are means.

    A scorer with ``encode_images``, which gives vectors, also answers how similar images are.
    """

    kinds = frozenset({ImageMatch.kind})

    def __init__(
        self,
        scorer: Scorer | SampledScorer,
        *,
        num_samples: int = 32,
        timesteps: str | Sequence[int] | Sequence[float] = "uniform",
        seed: int = 0,
    ):
        self.scorer = for_evaluation(scorer)
        if getattr(self.scorer, "encode_images", None) is not None:
            self.kinds = self.kinds | {ImageSimilarity.kind}
        chosen = self.scorer.choose_timesteps(num_samples, seed, timesteps)
        self._is_sampled = not (len(chosen) == 1 and chosen[0] == NO_TIMESTEP)
        self._count = len(chosen)
        self._sampling = {"num_samples": num_samples, "seed": seed, "timesteps": timesteps}

    def snapshot(self) -> Matcher:
        snapshot = copy.copy(self)
        snapshot.scorer = snapshots.snapshot(self.scorer)
        return snapshot

    def fingerprint(self) -> Mapping[str, Any]:
        sampling = {"sampling": self._sampling} if self._is_sampled else {}
        return {"responder": "picture_matcher", "version": ANSWER_VERSION, **self.scorer.fingerprint(), **sampling}

    def ask(self, requests: Sequence[ImageMatch | ImageSimilarity]) -> Iterator[tuple[int, Raw]]:
        """See `Responder`. Each image and each text is encoded once, if they fit."""
        return self.snapshot()._ask(requests)

    def _ask(self, requests: Sequence[ImageMatch | ImageSimilarity]) -> Iterator[tuple[int, Raw]]:
        check_kinds("a scorer of images", requests, self.kinds)
        sets = [(number, request) for number, request in enumerate(requests) if isinstance(request, ImageSimilarity)]
        for start in range(0, len(sets), _SETS_AT_ONCE):
            yield from self._similarities(sets[start : start + _SETS_AT_ONCE])
        matches = [(number, request) for number, request in enumerate(requests) if isinstance(request, ImageMatch)]
        for place, raw in self._matches([request for _, request in matches]):
            yield matches[place][0], raw

    def _similarities(self, sets: Sequence[tuple[int, ImageSimilarity]]) -> Iterator[tuple[int, Raw]]:
        encode_images: Any = getattr(self.scorer, "encode_images", None)
        paths = [image.path for _, request in sets for image in request.images]
        vectors = np.asarray(encode_images(paths), np.float64)
        units = iter(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
        for number, request in sets:
            own = np.stack([next(units) for _ in request.images])
            rows, columns = np.triu_indices(len(own), 1)
            yield number, finite("scores", (own @ own.T)[rows, columns].tolist())

    def _matches(self, requests: Sequence[ImageMatch]) -> Iterator[tuple[int, Raw]]:
        at_once = _SAMPLED_AT_ONCE if self._is_sampled else _AT_ONCE
        options = self._options()
        open_session = getattr(self.scorer, "session", None) if self._is_sampled else None
        # A session computes all requests with one table of images and texts.
        tables = _tables(requests) if open_session is not None else None
        session = open_session(tables.images, tables.texts, **options) if tables and open_session and requests else None
        for start in range(0, len(requests), at_once):
            part = range(start, min(start + at_once, len(requests)))
            if tables is not None and session is not None:
                yield from self._answers(part, tables.requests[part.start : part.stop], session.iter_errors)
                continue
            own = _tables(requests[part.start : part.stop])
            iter_errors = functools.partial(self.scorer.iter_errors, own.images, own.texts, **options)
            yield from self._answers(part, own.requests, iter_errors)

    def read(self, request: ImageMatch | ImageSimilarity, raw: Raw) -> Response:
        return read_scores(request, raw)

    def _options(self) -> dict[str, Any]:
        return {**self._sampling, "num_samples": self._count} if self._is_sampled else {}

    def _answers(
        self, numbers: Sequence[int], requests: Sequence[tuple[int, tuple[int, ...]]], iter_errors: _IterErrors
    ) -> Iterator[tuple[int, Raw]]:
        """Answers to numbered requests, each about an image and texts. A pair in several requests is computed once."""
        pairs = list(dict.fromkeys((image, text) for image, texts in requests for text in texts))
        row_of = {pair: row for row, pair in enumerate(pairs)}
        needed = {
            number: [row_of[image, text] for text in texts]
            for number, (image, texts) in zip(numbers, requests, strict=True)
        }
        rows = np.repeat(np.arange(len(pairs)), self._count)
        samples = np.tile(np.arange(self._count), len(pairs))
        triples = np.column_stack([np.asarray(pairs, np.int64)[rows], samples])
        errors = np.full((len(pairs), self._count), np.nan)
        left = np.full(len(pairs), self._count)
        for computed, values in iter_errors(triples):
            errors[rows[computed], samples[computed]] = values
            np.subtract.at(left, rows[computed], 1)
            for number in [number for number, mine in needed.items() if not left[mine].any()]:
                yield number, finite("scores", (-errors[needed.pop(number)].mean(axis=1)).tolist())


class _Tables(NamedTuple):
    """The distinct images and texts of requests, and the numbers of each request's image and texts."""

    images: list[str]
    texts: list[str]
    requests: list[tuple[int, tuple[int, ...]]]


def _tables(requests: Sequence[ImageMatch]) -> _Tables:
    paths: dict[str, str] = {}
    images: dict[str, int] = {}
    texts: dict[str, int] = {}
    numbered = []
    for request in requests:
        paths.setdefault(request.image.sha256, request.image.path)
        image = images.setdefault(request.image.sha256, len(images))
        numbered.append((image, tuple(texts.setdefault(text, len(texts)) for text in request.texts)))
    return _Tables(list(paths.values()), list(texts), numbered)
