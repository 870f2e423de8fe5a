"""A text task: questions, the protocols that put them to a model, and the metrics over the answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from winobench.runs.requests import InputImage, Request, Response


@dataclasses.dataclass(frozen=True)
class TextQuestion:
    """One question with a closed set of answers.

    Attributes:
      id: unique within the task and stable from run to run.
      texts: what prompts are made of, e.g. ``{"premise": ..., "question": ...}``.
      options: what can be answered, in order.
      answer: index of the right option.
      groups: sub-tasks that the question also counts for, e.g. ``("traditional", "GPT4")``.
      pair: questions of the same pair are right only together; None for a question without a partner.
      images: of the text that the task calls `TextTask.illustrated`, where a protocol needs them.
      captions: a text about each of the images, where a protocol needs them. None for one that could not be written.
    """

    id: str
    texts: Mapping[str, str]
    options: tuple[str, ...]
    answer: int
    groups: tuple[str, ...] = ()
    pair: str | None = None
    images: tuple[InputImage, ...] = ()
    captions: tuple[str | None, ...] = ()


@dataclasses.dataclass(frozen=True)
class Answer:
    """A model's answer to a question, from its responses."""

    status: str  # ANSWERED, UNPARSABLE or FAILED
    choice: int | None = None  # index of the chosen option
    choices: tuple[int | None, ...] = ()  # in each of several requests (orders of the options, images)
    scores: tuple[float, ...] | None = None  # of the options, where the protocol has scores. Higher = better
    tie: bool = False  # the best score occurs twice, so that the choice counts as wrong


@dataclasses.dataclass(frozen=True)
class Protocol:
    """A way to put a question to a model and to read its answer.

    Attributes:
      name: what ``--protocol`` calls it, e.g. ``zero_shot``.
      description: one line for listings. Says where the prompt is from.
      kind: of its requests, one of `winobench.runs.requests.KINDS`.
      requests: the requests of a question, at least one. All questions have the same number and meaning, or one for
        each of its images.
      read: the answer in the responses to them. A None among them is a call that failed.
      needs: what a question must have besides its texts: ``images``, or ``captions``, which another model writes of
        them first.
    """

    name: str
    description: str
    kind: str
    requests: Callable[[TextQuestion], Sequence[Request]]
    read: Callable[[TextQuestion, Sequence[Response | None]], Answer]
    needs: Literal["", "images", "captions"] = ""


@dataclasses.dataclass(frozen=True)
class TextTask:
    """A declaration of a text task. Nothing is read before ``load`` is called.

    Attributes:
      name: what ``--tasks`` calls it.
      version: raised whenever a number could change.
      description: one line for ``--list_tasks``.
      protocols: name -> protocol. The first is the default.
      chance: metric name -> chance level in [0, 1].
      load: ``load(data_dir, limit) -> iterable of TextQuestion``; ``limit`` counts pairs or items, None means all.
      ready: ``ready(data_dir) -> None`` or one sentence on how to get the data.
      data_fingerprint: ``data_fingerprint(data_dir, limit) -> str``, changes whenever the questions could.
      count: ``count(data_dir)``, the number of questions, or None while the data are not there.
      metrics: ``metrics(questions, answers) -> {metric: {"value", "low", "high", "chance", "n", "ties"}}``. The
        headline first, ``<group>/<metric>`` for groups. Proportions in [0, 1].
      illustrated: which of a question's texts images may show; None where no protocol is about images.
      paper, licence, url: as in `winobench.tasks.base.Task`.
    """

    name: str
    version: int
    description: str
    protocols: Mapping[str, Protocol]
    chance: Mapping[str, float]
    load: Callable[[str | None, int | None], Iterable[TextQuestion]]
    ready: Callable[[str | None], str | None]
    data_fingerprint: Callable[[str | None, int | None], str]
    metrics: Callable[[Sequence[TextQuestion], Sequence[Answer]], Mapping[str, Mapping[str, Any]]]
    count: Callable[[str | None], int | None] = lambda data_dir: None
    illustrated: str | None = None
    paper: str | None = None
    licence: str | None = None
    url: str | None = None
