"""What a task is: examples, candidates, the right answer, and the metric's name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

ImageSource = Any  # a path, a PIL image, or a uint8 array [height, width, 3]


@dataclasses.dataclass(frozen=True)
class Example:
    """One question: some images, some texts, and which of the pairs belong together.

    Attributes:
      id: unique within the task and stable from run to run.
      images: candidates or the one query image.
      texts: candidates or the one query text.
      target: index of the right candidate along the axis that has more than one; None when the right answer is the
        diagonal (Winoground).
      groups: sub-tasks or tags that the example also counts for, e.g. ``("spatial",)``.
    """

    id: str
    images: tuple[ImageSource, ...]
    texts: tuple[str, ...]
    target: int | None = 0
    groups: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Task:
    """A declaration of a task; nothing is read before ``load`` is called.

    Attributes:
      name: what ``--config.tasks`` calls it.
      version: raised whenever a number could change.
      description: one line for ``--list_tasks``.
      metric: a name in ``winobench.metrics.METRICS``.
      shape: (images, texts) of an example, for listings.
      chance: metric name -> chance level in [0, 1].
      load: ``load(data_dir, limit) -> iterable of Example``; ``limit`` counts scenes or items, None means all.
      ready: ``ready(data_dir) -> None`` or one sentence on how to get the data.
      images_compete: True where images are ranked for a text, so that scores need the unconditional error.
      data_fingerprint: ``data_fingerprint(data_dir, limit) -> str``, changes whenever the examples could.
    """

    name: str
    version: int
    description: str
    metric: str
    shape: tuple[int, int]
    chance: dict[str, float]
    load: Callable[[str | None, int | None], Iterable[Example]]
    ready: Callable[[str | None], str | None]
    images_compete: bool
    data_fingerprint: Callable[[str | None, int | None], str]
