"""An example of a task. Its images are files, decoded images, or their numbers in a table."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Generic, TypeVar

Image = TypeVar("Image")  # an image: a file, a decoded image, or its number
Text = TypeVar("Text")  # a text: itself, or its number


@dataclasses.dataclass(frozen=True)
class Example(Generic[Image, Text]):
    """One question: some images, some texts, and which of the pairs belong together.

    Tasks give examples of images that can be opened (`winobench.data.images.ImageSource`) and texts. On the way from
    published files to a prepared set images are files and then numbers. In a plan, images and texts are numbers.

    Attributes:
      id: unique within the task and stable from run to run.
      images: candidates or the one query image. Many examples may share an image.
      texts: candidates or the one query text.
      target: index of the right candidate along the axis that has more than one; None when the right answer is the
        diagonal (Winoground), and for bias.
      groups: sub-tasks or tags that the example also counts for, e.g. ``("spatial",)``.
      ratings: what people gave each image, higher = better. Empty where nobody rated them.
    """

    id: str
    images: tuple[Image, ...]
    texts: tuple[Text, ...]
    target: int | None = 0
    groups: tuple[str, ...] = ()
    ratings: tuple[float, ...] = ()


Box = tuple[int, int, int, int]


@dataclasses.dataclass(frozen=True)
class ImageFile:
    """An image among the published files, or a part of one."""

    path: pathlib.Path
    box: Box | None = None  # left, top, right, bottom in pixels, right and bottom excluded; None for all


Item = Example[ImageFile, str]  # an example whose images are still files: what most tasks' files read, under one name
