"""Answers that are missing or incomplete, in words: how they ended, how many there are, and what helps."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from winobench.base.errors import InputError
from winobench.runs import requests
from winobench.runs.requests import ENDINGS, FINISHED, Request, Response

_THINK_LESS = (
    'have the model think less, such as by --api.extra_body=\'{"reasoning_effort": "low"}\','
    " or name one that does not think"
)
_ANOTHER = "name another model or server"
_AGAIN = "give the same command again, which sends only the missing requests"
# How an incomplete answer ended -> in words, with a place for the limit's value, and what helps.
_IN_WORDS = {
    requests.CUT_OFF: ("cut off by max_tokens{}", _THINK_LESS),
    requests.EMPTY: ("empty or thoughts alone", _THINK_LESS),
    requests.FILTERED: ("held back by a filter", _ANOTHER),
    requests.TOOL_CALL: ("a tool call", _ANOTHER),
    requests.INTERRUPTED: ("interrupted", "give the same command again"),
    requests.BLOCKED: ("blocked", _ANOTHER),
}


def why_incomplete(request: Request, response: Response, *, can_be_longer: bool = False) -> str | None:
    """A few words on why an answer is incomplete; None for a finished one."""
    if response.ending == FINISHED:
        return None
    advice = ", raise it" if can_be_longer and response.ending == requests.CUT_OFF else ""
    return f"incomplete answer, {_words(response.ending, getattr(request, 'max_tokens', None))}{advice}"


def incomplete(
    wanted: Mapping[str, Request], read: Mapping[str, Response], *, can_be_longer: bool = False
) -> dict[str, str]:
    """Key -> why its answer is incomplete. See `why_incomplete`."""
    whys = {key: why_incomplete(wanted[key], read[key], can_be_longer=can_be_longer) for key in wanted if key in read}
    return {key: why for key, why in whys.items() if why}


def lasting(wanted: Iterable[str], read: Mapping[str, Response], blocked: Collection[str]) -> dict[str, str]:
    """Key -> why its answer is missing, where the same request would fail again: `_IN_WORDS`."""
    ended = {key: read[key].ending for key in wanted if key in read} | dict.fromkeys(blocked, requests.BLOCKED)
    return {key: ending for key, ending in ended.items() if ending not in (FINISHED, requests.INTERRUPTED)}


def missing(counts: Mapping[str, int]) -> str:
    """Numbers of missing answers by kind, such as ``2 blocked, 1 a tool call``, and what helps."""
    kinds = ", ".join(f"{count:,} {_words(ending, None)}" for ending, count in counts.items())
    return f"{kinds}: {_advice(counts)}"


def again(failed: int, blocked: int) -> str:
    """Advice where calls have failed, some of them for good."""
    if not blocked:
        return _AGAIN
    lasts = f"{blocked:,} {'was' if blocked == 1 else 'were'} blocked, which the same call would be again: {_ANOTHER}"
    return lasts if blocked == failed else f"{_AGAIN}. {lasts}"


def incomplete_lines(results: Mapping[str, Any]) -> list[str]:
    """A line for each task with incomplete answers: their number by kind, how they count, and advice."""
    ended = {task: counts for task, counts in (results.get("endings") or {}).items() if task in results["tasks"]}
    in_words = {task: _in_words(counts) for task, counts in ended.items()}
    return [f"{task}: {said} and count as wrong: {advice}" for task, (said, advice) in in_words.items() if advice]


def all_incomplete(task: str, counts: Mapping[str, int | None]) -> InputError:
    """The error of a task without any finished answer."""
    return InputError(": ".join((task, *_in_words(counts))), code="incomplete-answers")


def _in_words(counts: Mapping[str, int | None]) -> tuple[str, str]:
    """How many answers are incomplete, by kind, and advice. The latter is empty where none are."""
    ended = {ending: counts[ending] or 0 for ending in ENDINGS}
    counted = {ending: count for ending, count in ended.items() if ending != FINISHED and count}
    number, total = sum(counted.values()), sum(ended.values())
    kinds = ", ".join(f"{count:,} {_words(ending, counts['max_tokens'])}" for ending, count in counted.items())
    share = "all" if number == total else f"{number:,} of"
    return f"{share} {total:,} answers are incomplete ({kinds})", _advice(counted)


def _advice(kinds: Iterable[str]) -> str:
    return ", or ".join(dict.fromkeys(_IN_WORDS[kind][1] for kind in kinds))


def _words(ending: str, limit: int | None) -> str:
    return _IN_WORDS[ending][0].format(f"={limit}" if limit else "")
