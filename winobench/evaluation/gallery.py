"""Small images of the examples that a report shows, kept in the run's folder so that it needs no data later."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from PIL import Image

from winobench.data import images as image_files
from winobench.data.images import ImageSource
from winobench.evaluation.plan import Plan
from winobench.metrics.margins import margins
from winobench.tasks.base import Task

SIZE = 192
"""Longest side of an image in pixels. Smaller ones stay as they are."""

EXAMPLES_A_KIND = 8
"""Examples of each kind: surely wrong, surely right, and any."""

_QUALITY = 85


def example_table(task: Task, plan: Plan, scores: Sequence[np.ndarray]) -> pa.Table:
    """`image_table` of the images of the most telling examples."""
    questions = plan.questions[task.name]
    chosen = choose_examples([question.target for question in questions], scores)
    numbers = dict.fromkeys(image for example in chosen for image in questions[example].images)
    return image_table({plan.image_hashes[number]: plan.images[number] for number in numbers})


def choose_examples(targets: Sequence[int | None], scores: Sequence[np.ndarray]) -> list[int]:
    """The examples with the most negative and most positive margin, and some at random, by scores [images, texts]."""
    order = np.argsort(margins(targets, scores), kind="stable")
    # A separate generator with a fixed seed: a report of the same run shows the same examples.
    any_order = np.random.default_rng(0).permutation(len(order))
    picked = [*order[:EXAMPLES_A_KIND], *order[::-1][:EXAMPLES_A_KIND], *any_order[:EXAMPLES_A_KIND]]
    return list(dict.fromkeys(int(number) for number in picked))


def image_table(images: Mapping[str, ImageSource], size: int = SIZE) -> pa.Table:
    """Small images with a longest side of ``size`` pixels: rows (``image``: the SHA-256 of its content, ``jpeg``)."""
    files = [_thumbnail(image, size) for image in images.values()]
    return pa.table({"image": pa.array(list(images), pa.string()), "jpeg": pa.array(files, pa.binary())})


def _thumbnail(source: ImageSource, size: int) -> bytes:
    image = image_files.open_image(source)
    image.thumbnail((size, size), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=_QUALITY)
    return buffer.getvalue()
