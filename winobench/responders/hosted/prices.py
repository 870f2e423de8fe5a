"""Prices of calls."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

PRICES_DATE = "2026-11-22"
"""When ``PRICES`` was put together, from the providers' price lists and pages that quote them."""


PRICES: dict[str, tuple[float, float]] = {
    "gpt-3.5-turbo": (0.50, 1.50),
    "gpt-4": (30.0, 60.0),
    "gpt-4-turbo": (10.0, 30.0),
    "gpt-4.1": (2.0, 8.0),
    "gpt-4.1-mini": (0.40, 1.60),
    "gpt-4.1-nano": (0.10, 0.40),
    "gpt-4o": (2.50, 10.0),
    "gpt-4o-mini": (0.15, 0.60),
    "gpt-5": (1.25, 10.0),
    "gpt-5-mini": (0.25, 2.0),
    "gpt-5-nano": (0.05, 0.40),
    "gpt-5.1": (1.25, 10.0),
    "gpt-5.2": (1.75, 14.0),
    "gpt-5.4": (2.50, 15.0),
    "gpt-image-1": (5.0, 40.0),
    "gpt-image-1-mini": (2.0, 8.0),
    "gpt-image-1.5": (5.0, 32.0),
    "gpt-image-2": (5.0, 30.0),
    "gpt-image-2.5-flare": (5.0, 30.0),
    "gpt-image-2.5-sunburst": (5.0, 30.0),
    "gpt-image-2.6-flare": (5.0, 30.0),
    "gpt-image-2.6-sunburst": (5.0, 30.0),
    "o3": (2.0, 8.0),
    "o3-mini": (1.10, 4.40),
    "o4-mini": (1.10, 4.40),
    "claude-haiku-4-5": (1.0, 5.0),
    "claude-sonnet-4-5": (3.0, 15.0),
    "claude-sonnet-4-6": (3.0, 15.0),
    "claude-opus-4-5": (5.0, 25.0),
    "claude-opus-4-6": (5.0, 25.0),
    "claude-opus-4-7": (5.0, 25.0),
    "claude-opus-4-8": (5.0, 25.0),
    "claude-opus-5": (5.0, 25.0),
}
"""US dollars per million tokens read and written, at the standard rate, without discounts for batches or caches. Models
that make images read the prompt's text, and write the image.

Prices change: give your own where they differ. A model that is not here has no price, which is not a price of 0.
"""


IMAGE_TOKENS = {"low": (272, 408, 400), "medium": (1056, 1584, 1568), "high": (4160, 6240, 6208)}
"""Quality -> tokens of an image of each of ``_SIZES``, by gpt-image-1, 1.5 and 1-mini (OpenAI's guide to images, "Cost
and latency"). Nothing is stated of later models."""

_SIZES = ("1024x1024", "1024x1536", "1536x1024")
_SNAPSHOT = re.compile(r"(-\d{4}-\d{2}-\d{2}|-\d{8}|-latest)$")


def image_tokens(model: str, quality: str | None, size: str | None) -> int | None:
    """Tokens of an image that a model writes; None where they are not stated."""
    stated = IMAGE_TOKENS.get(quality or "")
    if stated is None or size not in _SIZES or not re.match(r"gpt-image-1(?!\d)", model):
        return None
    return stated[_SIZES.index(size)]


def without_date(model: str) -> str:
    """The name of a model of which this may be a dated snapshot."""
    return _SNAPSHOT.sub("", model)


def cost(
    model: str,
    input_tokens: int | None,
    output_tokens: int | None,
    prices: Mapping[str, Sequence[float]] | None = None,
) -> float | None:
    """US dollars; None where price or tokens are not known. A dated snapshot costs as the model without the date."""
    table = {**PRICES, **(prices or {})}
    price = table.get(model, table.get(without_date(model)))
    if price is None or input_tokens is None or output_tokens is None:
        return None
    return (input_tokens * float(price[0]) + output_tokens * float(price[1])) / 1e6
