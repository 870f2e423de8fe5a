"""Shared code of responders that compute scores: checks of requests, and readers of answers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np

from winobench.base import options
from winobench.base.errors import InputError
from winobench.runs.requests import ImageSimilarity, Raw, Request, Response, check_request

# The field of each kind of request that answers compare.
_COMPARED = {"entailment": "hypotheses", "similarity": "others", "picture_match": "texts", "picture_options": "options"}
_COMPARED |= {"picture_starts": "starts", "pictures_options": "options"}


def check_kinds(who: str, requests: Sequence[Request], kinds: frozenset[str]) -> None:
    for number, request in enumerate(requests):
        if request.kind not in kinds:
            raise InputError(
                f"requests[{number}] asks for {request.kind}, but {who} answers {', '.join(sorted(kinds))}",
                code="kind-not-answered",
            )
        if request.kind in _COMPARED and not getattr(request, _COMPARED[request.kind]):
            raise InputError(
                f"requests[{number}] has nothing to compare with: give at least one text", code="empty-list"
            )
        check_request(request)


def finite(name: str, values: list[Any]) -> Raw:
    """A raw answer. That of a failed call if not all of its values are finite."""
    if np.isfinite(values).all():
        return {name: values}
    return {"error": {"kind": "not_finite", "message": f"the {name} are not finite numbers: {values}", "attempts": 1}}


def check_failed(raw: Mapping[str, Any]) -> None:
    """Raises ValueError for the raw answer of a failed call."""
    if "error" in raw:
        raise ValueError(f"this call failed: {raw['error']}")


def read_scores(request: Request, raw: Raw) -> Response:
    """The scores of all that a request compares. Raises ValueError where the raw answer lacks them."""
    check_failed(raw)
    count = _count(request)
    if not is_numbers(raw.get("scores"), count):
        raise ValueError(f"an answer about {count} candidates must hold a score for each, but is {raw}")
    return Response(scores=tuple(map(float, raw["scores"])))


def _count(request: Request) -> int:
    """The number of scores in an answer."""
    if isinstance(request, ImageSimilarity):
        return math.comb(len(request.images), 2)
    return 1 if request.kind == "picture_starts" else len(getattr(request, _COMPARED[request.kind]))


def is_numbers(values: Any, count: int) -> TypeGuard[Sequence[float]]:
    """Whether these are so many finite numbers."""
    return (
        isinstance(values, list | tuple)
        and len(values) == count
        and all(map(options.is_number, values))
        and all(map(math.isfinite, values))
    )
