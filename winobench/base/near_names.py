"""Advice on a name that is unknown: the known names that look like it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

_LONGEST = 100  # characters that are compared


def near(name: str, names: Iterable[str], count: int = 3) -> list[str]:
    """Returns at most ``count`` of the names, the nearest first. Upper case counts as lower case."""
    folded = {known.casefold(): known for known in reversed(list(names))}
    found = difflib.get_close_matches(name[:_LONGEST].casefold(), folded, n=count)
    return [folded[known] for known in found]


def did_you_mean(name: str, names: Iterable[str], otherwise: str, *, prefix: str = "") -> str:
    """The end of a sentence that refuses a name: a question with near names, or else ``otherwise``."""
    return question([prefix + known for known in near(name, names)], otherwise)


def question(names: Sequence[str], otherwise: str) -> str:
    """``did you mean a, b or c?``, or ``otherwise`` without any name."""
    *others, last = names or [""]
    return f"did you mean {', '.join(others)}{' or ' if others else ''}{last}?" if names else otherwise
