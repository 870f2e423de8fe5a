"""Tokens and dollars in words."""

from __future__ import annotations

from collections.abc import Mapping

_DIRECTIONS = {"input": "read", "output": "written"}


def tokens_in_words(tokens: Mapping[str, int | None]) -> list[str]:
    """A part for each known number of tokens."""
    return [f"{tokens[name]:,} tokens {word}" for name, word in _DIRECTIONS.items() if tokens.get(name) is not None]


def dollars(cost: float | None, options: str = "--api.price") -> str:
    """A price, or the options with which an unknown one becomes known."""
    if cost is None:
        return f"price unknown ({options})"
    return f"${cost:,.4f}" if 0 < cost < 0.01 else f"${cost:,.2f}"
