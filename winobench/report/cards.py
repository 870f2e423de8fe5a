"""Cards of the gallery: an example with its images, candidates and scores."""

from __future__ import annotations

import base64
import dataclasses
import functools
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

from winobench.data import images as image_files
from winobench.runs.edits import Edit
from winobench.runs.examples import Examples
from winobench.runs.run import TaskRun

# Longest side in pixels of images in examples with few and with many of them: dozens of candidates would otherwise make
# most of the page's size.
SIDE_FEW, _SIDE_MANY, _MANY = 160, 112, 3
_QUALITY = 80
_MOST_CANDIDATES = 10  # of a card: the best and, further down, the right one


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A candidate as a card shows it."""

    image: str | None  # `data:` address; None for a text, and for an image that the run has not kept
    text: str | None  # None for an image
    number: int  # its place in the example, from 1
    score: str  # ``best`` or its distance to the best
    share: float  # its score between the worst (0) and the best candidate (1)
    is_right: bool
    is_chosen: bool  # the model's answer
    edited: str | None = None  # `data:` address of the image as it was edited towards the text
    edit: str = ""  # the distance, and its effect on the error, in words


@dataclasses.dataclass(frozen=True)
class Square:
    """An example without a query: every image with every text. The right pairs are on the diagonal."""

    images: Sequence[str | None]
    texts: Sequence[str]
    # [images][texts] of (score relative to the best, is the pair right, is the text the best of its image).
    cells: Sequence[Sequence[tuple[str, bool, bool]]]


@dataclasses.dataclass(frozen=True)
class Card:
    """One example."""

    id: str
    groups: str  # its sub-tasks
    is_correct: bool  # under the task's headline metric
    verdict: str  # in words
    query_image: str | None = None  # compared with the candidates, or the text is. None for a square
    query_text: str | None = None
    candidates: Sequence[Candidate] = ()  # the best first
    hidden: int = 0  # number of candidates that are not shown
    square: Square | None = None  # instead of candidates


def make_card(
    record: TaskRun,
    row: int,
    by: float,
    kept: Mapping[str, bytes],
    edits: Mapping[tuple[str, str], tuple[Edit, bytes]] | None = None,
) -> Card:
    """The card of one example."""
    examples = record.answered
    images, texts, target = examples.images[row], examples.texts[row], examples.targets[row]
    scores = examples.scores[row]
    side = SIDE_FEW if len(images) < _MANY else _SIDE_MANY
    shown = [image_address(kept[image], side) if image in kept else None for image in images]
    is_correct = bool(examples.correct[row])
    verdict = f"{'right' if is_correct else 'wrong' if by < 0 else 'tied'} by {_amount(abs(by))}"
    groups = ", ".join(group.replace("_", " ") for group in examples.groups[row])
    card = Card(examples.ids[row], groups, is_correct, verdict)
    best = float(scores.max())
    if target is None:
        shape = (len(images), len(texts))
        belong = np.eye(*shape, dtype=bool) if record.judge is None else record.judge.pairs(shape)
        cells = [
            [
                (_relative(float(scores[i, j]), best), bool(belong[i, j]), bool(scores[i, j] == scores[i].max()))
                for j in range(len(texts))
            ]
            for i in range(len(images))
        ]
        return dataclasses.replace(card, square=Square(shown, texts, cells))
    texts_compete = len(texts) > 1
    candidates = _candidates(examples, row, shown, edits or {}, side)
    return dataclasses.replace(
        card,
        query_image=shown[0] if texts_compete else None,
        query_text=None if texts_compete else texts[0],
        candidates=candidates,
        hidden=scores.size - len(candidates),
    )


def _candidates(
    examples: Examples,
    row: int,
    shown: Sequence[str | None],
    edits: Mapping[tuple[str, str], tuple[Edit, bytes]],
    side: int,
) -> list[Candidate]:
    """The candidates of an example, the best first; ``shown`` are the competing images."""
    images, texts, target = examples.images[row], examples.texts[row], examples.targets[row]
    flat = examples.scores[row].ravel()
    best, worst = float(flat.max()), float(flat.min())
    unique_best = int(np.sum(flat == best)) == 1
    texts_compete = len(texts) > 1
    kept = [int(position) for position in np.argsort(-flat, kind="stable")[:_MOST_CANDIDATES]]
    if target is not None and target not in kept:
        kept[-1] = target
    return [
        Candidate(
            image=None if texts_compete else shown[position],
            text=texts[position] if texts_compete else None,
            number=position + 1,
            score=_relative(float(flat[position]), best),
            share=1.0 if best == worst else (float(flat[position]) - worst) / (best - worst),
            is_right=position == target,
            is_chosen=unique_best and flat[position] == best,
            **_edited(edits.get((images[position // len(texts)], texts[position % len(texts)])), side),
        )
        for position in kept
    ]


def _edited(found: tuple[Edit, bytes] | None, side: int) -> dict[str, Any]:
    if found is None:
        return {}
    edit, image = found
    words = f"moved {_amount(edit.distance)}, error {_amount(edit.error_before)} to {_amount(edit.error_after)}"
    return {"edited": image_address(image, side), "edit": words}


@functools.lru_cache(maxsize=4096)
def image_address(jpeg: bytes, side: int) -> str | None:
    """An image as a ``data:`` address, no larger than ``side`` pixels; None where it cannot be decoded."""
    try:
        # Decoded even where it is small enough: a damaged image fails here and not in the browser.
        with image_files.opened(io.BytesIO(jpeg)) as image:
            if image.format != "JPEG" or max(image.size) > side:
                rgb = image_files.to_rgb(image)
                rgb.thumbnail((side, side), Image.Resampling.LANCZOS)
                buffer = io.BytesIO()
                rgb.save(buffer, "JPEG", quality=_QUALITY)
                jpeg = buffer.getvalue()
    except image_files.ImageProblem:
        return None
    return f"data:image/jpeg;base64,{base64.b64encode(jpeg).decode('ascii')}"


def _relative(score: float, best: float) -> str:
    return "best" if score == best else f"−{_amount(best - score)}"


def _amount(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:#.3g}"
