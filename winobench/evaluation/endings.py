"""Incomplete answers in words: how they ended, how many there are, and what helps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from winobench.responders.language import (
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
    CUT_OFF: "cut off by the limit{} tokens",
    EMPTY: "empty, or thoughts alone",
    FILTERED: "held back by a filter",
    TOOL_CALL: "a tool call",
    INTERRUPTED: "interrupted",
}
"""How an incomplete answer ended -> in words, with a place for the limit."""

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


def why_incomplete(request: Request, response: Response) -> str | None:
    """A few words on why an answer is incomplete; None for a finished one."""
    if response.ending == FINISHED:
        return None
    limit = getattr(request, "max_tokens", None)
    return f"incomplete answer: {ENDED[response.ending]}".format(f" of {limit:,}" if limit else "")


def incomplete_lines(results: Mapping[str, Any]) -> list[str]:
    """A line for each task with incomplete answers: how many of which kind, what they count as, and what to do.

    Args:
      results: what `evaluate_questions` returns.
    """
    return [
        f"{task}: {said}; they count as wrong"
        for task, counts in (results.get("endings") or {}).items()
        if task in results["tasks"] and (said := incomplete(counts))
    ]


def incomplete(counts: Mapping[str, int | None]) -> str:
    """How many answers are incomplete, why, and what helps; nothing where all are finished."""
    total = sum(counts[ending] for ending in ENDINGS)
    limit = f" of {counts['max_tokens']:,}" if counts["max_tokens"] else ""
    found = [(ending, counts[ending]) for ending in ENDINGS if ending != FINISHED and counts[ending]]
    if not found:
        return ""
    kinds = [f"{count:,} {ENDED[ending].format(limit)}" for ending, count in found]
    advice = list(dict.fromkeys(ADVICE[ending] for ending, _ in found))
    return f"of {total:,} answers, {', '.join(kinds)}: {', or '.join(advice)}"
