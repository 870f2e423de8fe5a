"""Timesteps as a config has them."""

from __future__ import annotations

import re


def parse_timesteps(rule: str | None) -> str | list[int] | list[float] | None:
    """The name of a rule as it is, or timesteps, or noise levels, with commas as numbers."""
    if rule is None:
        return None
    words = [word.strip() for word in rule.split(",")]
    if all(re.fullmatch("[0-9]+", word) for word in words):
        return [int(word) for word in words]
    return [float(word) for word in words] if all(re.fullmatch(r"[01]?\.[0-9]+", word) for word in words) else rule
