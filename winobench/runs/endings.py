"""Incomplete answers in words: how they ended, how many there are, and what helps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from winobench.base.errors import InputError
from winobench.runs.requests import (
    CUT_OFF,
    EMPTY,
    ENDINGS,
    FILTERED,
    FINISHED,
    INTERRUPTED,
    TOOL_CALL,
    Request,
    Response,
)

ENDED = {
    CUT_OFF: "cut off by max_tokens{}",
    EMPTY: "empty or thoughts alone",
    FILTERED: "held back by a filter",
    TOOL_CALL: "a tool call",
    INTERRUPTED: "interrupted",
}
"""How an incomplete answer ended -> in words, with a place for the limit's value."""

_THINK_LESS = (
    'have the model think less, such as by --config.api.extra_body=\'{"reasoning_effort": "low"}\', or name one that'
    " does not think"
)
_ANOTHER = "name another model or server"
ADVICE = {
    CUT_OFF: _THINK_LESS,
    EMPTY: _THINK_LESS,
    FILTERED: _ANOTHER,
    TOOL_CALL: _ANOTHER,
    INTERRUPTED: "give the same command again",
}
"""How an incomplete answer ended -> what helps."""


def why_incomplete(request: Request, response: Response, *, can_be_longer: bool = False) -> str | None:
    """A few words on why an answer is incomplete; None for a finished one."""
    if response.ending == FINISHED:
        return None
    advice = ", raise it" if can_be_longer and response.ending == CUT_OFF else ""
    return f"incomplete answer, {_words(response.ending, getattr(request, 'max_tokens', None))}{advice}"


def incomplete(
    wanted: Mapping[str, Request], read: Mapping[str, Response], *, can_be_longer: bool = False
) -> dict[str, str]:
    """Key -> why its answer is incomplete. See `why_incomplete`."""
    found = {key: why_incomplete(wanted[key], read[key], can_be_longer=can_be_longer) for key in wanted if key in read}
    return {key: why for key, why in found.items() if why}


def incomplete_lines(results: Mapping[str, Any]) -> list[str]:
    """A line for each task with incomplete answers: their number by kind, how they count, and advice."""
    return [
        f"{task}: {_counted(counts)} and count as wrong: {_advice(counts)}"
        for task, counts in (results.get("endings") or {}).items()
        if task in results["tasks"] and _incomplete(counts)
    ]


def all_incomplete(task: str, counts: Mapping[str, int | None]) -> InputError:
    """The error of a task without any finished answer."""
    return InputError(f"{task}: {_counted(counts)}: {_advice(counts)}", code="incomplete-answers")


def _incomplete(counts: Mapping[str, int | None]) -> dict[str, int]:
    """How an incomplete answer ended -> how many did."""
    return {ending: counts[ending] for ending in ENDINGS if ending != FINISHED and counts[ending]}


def _counted(counts: Mapping[str, int | None]) -> str:
    found = _incomplete(counts)
    number, total = sum(found.values()), sum(counts[ending] for ending in ENDINGS)
    kinds = ", ".join(f"{count:,} {_words(ending, counts['max_tokens'])}" for ending, count in found.items())
    return f"{'all' if number == total else f'{number:,} of'} {total:,} answers are incomplete ({kinds})"


def _advice(counts: Mapping[str, int | None]) -> str:
    return ", or ".join(dict.fromkeys(ADVICE[ending] for ending in _incomplete(counts)))


def _words(ending: str, limit: int | None) -> str:
    return ENDED[ending].format(f"={limit}" if limit else "")
