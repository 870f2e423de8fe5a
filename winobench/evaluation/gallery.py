"""Small pictures of the examples that a report shows, kept in the run's folder so that it needs no data later."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from PIL import Image

from winobench.data import images as image_files
from winobench.data.images import ImageSource
from winobench.evaluation.plan import Plan
from winobench.tasks.base import Task

SIZE = 192
"""Longest side of a picture in pixels; smaller images stay as they are."""

EXAMPLES_A_KIND = 8
"""Examples of each kind: surely wrong, surely right, and any."""

_QUALITY = 85


def picture_table(task: Task, plan: Plan, scores: Sequence[np.ndarray]) -> pa.Table:
    """Images of the images of the most telling examples: rows (``image``: SHA-256 of its content, ``jpeg``).

    Raises:
      InputError: an image cannot be read.
    """
    questions = plan.questions[task.name]
    chosen = choose_examples([question.target for question in questions], scores)
    numbers = dict.fromkeys(image for example in chosen for image in questions[example].images)
    return pa.table(
        {
            "image": pa.array([plan.image_hashes[number] for number in numbers], pa.string()),
            "jpeg": pa.array([thumbnail(plan.images[number]) for number in numbers], pa.binary()),
        }
    )


def choose_examples(targets: Sequence[int | None], scores: Sequence[np.ndarray]) -> list[int]:
    """The examples to show: those with the most negative and most positive margin, and some drawn at random.

    Args:
      targets: index of the right candidate, or None for the diagonal (or, for one image, for no right answer).
      scores: [images, texts] an example, higher = better.

    Returns:
      Their numbers, each once, the surest wrong first.
    """
    margins = np.array([margin(target, matrix) for target, matrix in zip(targets, scores, strict=True)])
    order = np.argsort(margins, kind="stable")
    # A generator of its own with a fixed seed: a report of the same run shows the same examples.
    any_order = np.random.default_rng(0).permutation(len(margins))
    picked = [*order[:EXAMPLES_A_KIND], *order[::-1][:EXAMPLES_A_KIND], *any_order[:EXAMPLES_A_KIND]]
    return list(dict.fromkeys(int(number) for number in picked))


def margin(target: int | None, scores: np.ndarray) -> float:
    """By how much the right answer is preferred: negative where the example is wrong.

    With a target, its score less the best other one. On the diagonal of two images and two texts, the smallest of the
    four differences. Without a right answer, 0.
    """
    if target is not None:
        flat = np.ravel(scores)
        others = np.delete(flat, target)
        return float(flat[target] - others.max()) if len(others) else 0.0
    if scores.shape == (2, 2):
        own = np.diagonal(scores)
        return float(min((own - scores[[0, 1], [1, 0]]).min(), (own - scores[[1, 0], [0, 1]]).min()))
    return 0.0


def thumbnail(source: ImageSource, size: int = SIZE) -> bytes:
    """A small image as a JPEG file.

    Args:
      source: anything that `winobench.data.images.open_image` takes.
      size: its longest side in pixels. Smaller images stay as they are.

    Raises:
      InputError: it cannot be read.
    """
    picture = image_files.open_image(source)
    picture.thumbnail((size, size), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=_QUALITY)
    return buffer.getvalue()
