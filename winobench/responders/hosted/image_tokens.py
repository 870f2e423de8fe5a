"""Tokens that providers count for an image that a model reads, by the rules that they have published.

OpenAI: https://platform.openai.com/docs/guides/images-vision, "Calculating costs". Anthropic:
https://platform.claude.com/docs/en/build-with-claude/vision, "Image costs" (both seen 2026-11-30).
"""

from __future__ import annotations

import math
import re

from winobench.responders.hosted.prices import without_date

# Tokens of an image, and of each of its tiles.
_TILES = {
    "gpt-4o": (85, 170),
    "gpt-4.1": (85, 170),
    "gpt-4o-mini": (2833, 5667),
    "o1": (75, 150),
    "o3": (75, 150),
    "gpt-5": (70, 140),
}
_BOX, _SHORT_SIDE, _TILE = 2048, 768, 512  # pixels
# Tokens of each patch.
_PATCHES = {"gpt-4.1-mini": 1.62, "gpt-4.1-nano": 2.46, "gpt-5-mini": 1.62, "gpt-5-nano": 2.46, "o4-mini": 1.72}
_PATCH, _MOST_PATCHES = 32, 1536
# The most visual tokens of an image: a larger one is scaled down to so many.
_VISUAL_TOKENS = {"claude-(haiku|sonnet|opus)-4-[56]": 1568, "claude-opus-4-[78]": 4784}
_VISUAL_SIDE = 28


def most_tokens(model: str, width: int, height: int) -> int | None:
    """Tokens of an image of so many pixels, at most. None for a model without a published rule."""
    model = without_date(model)
    if model in _TILES:
        base, each = _TILES[model]
        # Small images stay as they are: https://community.openai.com/t/1262691 has the tokens of one of 128 x 64.
        share = min(1.0, _BOX / max(width, height), _SHORT_SIDE / min(width, height))
        return base + each * _cover(max(1, round(share * width)), max(1, round(share * height)), _TILE)
    if model in _PATCHES:
        return math.ceil(min(_cover(width, height, _PATCH), _MOST_PATCHES) * _PATCHES[model])
    most = next((most for name, most in _VISUAL_TOKENS.items() if re.fullmatch(name, model)), None)
    return None if most is None else min(_cover(width, height, _VISUAL_SIDE), most)


def _cover(width: int, height: int, side: int) -> int:
    """Squares that cover an image."""
    return -(-width // side) * -(-height // side)
