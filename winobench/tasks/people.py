"""What tasks share that ask whether a scorer ranks images as people do.

An example is a prompt with images of it, and what people gave each. The score that is ranked is, for a diffusion
model, minus the error under the prompt less that under the empty text: how much the prompt helps to tell the noise from
this image, an estimate of their pointwise mutual information up to a factor (Krojer et al. 2023, Eq. 5). The error
alone says above all how plain an image is, and would rank images by that. What remains is that some prompts help
more than others, whatever their images show. Measures ``within_prompt_*`` know nothing of it, and
``normalize=gray_image`` takes it away. Other scorers' scores are ranked as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from winobench.tasks.annotations import Entry
from winobench.tasks.base import PublishedData, Task
from winobench.tasks.published import published_task


def rated_task(
    *,
    name: str,
    description: str,
    metric: str,
    most_pictures: int,
    source: PublishedData,
    version: int = 1,
    prompt_of: Callable[[str], str] = str,
) -> Task:
    """A task on images that people have rated."""
    return published_task(
        name=name,
        version=version,
        description=description,
        metric=metric,
        shape=(most_pictures, 1),
        chance={},
        images_compete=True,
        skills=("people",),
        source=source,
        prompt_of=prompt_of,
    )


def answer(entry: Entry, low: int, high: int) -> int:
    """A whole number on a scale, also one that a table states as text, as ``4`` or ``4.0``."""
    value: Any = entry.value
    if isinstance(value, str) and re.fullmatch(r"[0-9]+(\.0*)?", value.strip()):
        value = int(float(value))
    if isinstance(value, bool) or not isinstance(value, int):
        raise entry.wrong("is not a whole number", "not-a-number")
    if not low <= value <= high:
        raise entry.wrong(f"is {value}, which is not from {low} to {high}", "out-of-range")
    return value
