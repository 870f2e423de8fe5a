"""A task: examples, candidates, the right answer, and the metric's name."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, get_args

from winobench.data.example import Example, Item
from winobench.data.images import ImageSource
from winobench.data.sources import Download, LeftOut
from winobench.metrics.association import Association
from winobench.metrics.ratings import RATING_METRICS

SKILLS = {
    "compositional": "who does what to whom, and what has which property",
    "spatial": "where things are",
    "counting": "how many there are",
    "attribute_binding": "which attribute belongs to which thing",
    "recognition": "which things and attributes are there",
    "order": "the order of words",
    "retrieval": "long captions among similar images, or the reverse",
    "classification": "which of many classes",
    "bias": "social associations",
    "people": "which images people prefer, or find to fit their prompt",
}
"""Skill -> what a model needs it for. Tasks of several data sets are compared by them."""


@dataclasses.dataclass(frozen=True)
class PublishedData:
    """The published files of a task.

    Attributes:
      read: ``read(folder) -> items`` in a fixed order, with a `winobench.data.sources.LeftOut` for each row that makes
        none, unless a published rule that the task's file states leaves it out. Raises InputError naming the file where
        an annotation file is missing or broken. ``winobench prepare`` looks for the images, and names the missing ones.
      how_to_get: what the folder must hold and where to get it, as the end of a sentence that begins with "where DIR
        holds", without a full stop.
      num_examples: how many the publication has; None where that depends on the user. Another number is an error.
      downloads: what may be downloaded into the folder. Need not be all that it must hold.
      shared_folder: where downloads go, in ``<data_dir>/sources``, the same for tasks that read the same files. The
        task's name by default.
      with_lists: ``with_lists(folder, scorer, name)`` makes the task's lists of candidates again with a contrastive
        scorer, writes them into the folder under this name, and returns what reads them; None for tasks without lists.
      read_partial: as ``read`` where ``--allow_partial`` is given, if more than images may be missing. It yields an
        item with a file that does not exist for anything that is missing, so that the set is marked as partial.
      fetch: ``fetch(folder, progress) -> line for the user`` gets more than single files, such as images of many web
        sites, once for all tasks of the folder; ``progress(what, unit)`` is a context with a
        `winobench.base.progress.Progress`.
    """

    read: Callable[[pathlib.Path], Iterable[Item | LeftOut]]
    how_to_get: str
    num_examples: int | None
    downloads: tuple[Download, ...] = ()
    shared_folder: str | None = None
    with_lists: Callable[[pathlib.Path, Any, str], PublishedData] | None = None
    read_partial: Callable[[pathlib.Path], Iterable[Item | LeftOut]] | None = None
    fetch: Callable[[pathlib.Path, Callable[[str, str], AbstractContextManager[Any]]], str] | None = None


@dataclasses.dataclass(frozen=True)
class Task:
    """A declaration of a task. Nothing is read before ``load`` is called.

    Attributes:
      name: what ``--tasks`` calls it.
      version: raised whenever a number could change.
      description: one line for ``--list_tasks``.
      metric: a name in `winobench.metrics.METRICS`, or in `winobench.metrics.RATING_METRICS` for a task whose images
        people have rated, or ``effect_size`` for a task with an ``association``.
      shape: (images, texts) of an example, for listings. The most, where examples differ. The fewest, for the metric
        ``average_precision``.
      chance: row of the results -> chance level in [0, 1], or None where nobody knows it. Of rows that it lacks it is
        the metric's, of guessing among each question's own candidates.
      chance_by_question: True where the metric gives all chance levels in this way. ``chance`` is for listings alone.
      load: ``load(data_dir, limit) -> iterable of Example``; ``limit`` counts scenes or items (or images of each group,
        for a bias task), None means all.
      ready: ``ready(data_dir) -> None`` or one sentence on how to get the data.
      images_compete: True where images are ranked for a text, so that scores need the unconditional error.
      data_fingerprint: ``data_fingerprint(data_dir, limit) -> str``, changes whenever the examples could.
      count: ``count(data_dir)``, the number of examples there are, or None while the data are not there.
      source: the published files that ``winobench prepare`` reads; None for a task that makes its own data.
      association: of a bias task.
      when_named: True for a task that runs only by its name, and not whenever its data are there.
      asks_questions: True where its texts are questions with answers (`winobench.data.question_texts`), which only a
        scorer with ``answers_questions`` can score.
      judged_alone: True where each text is also judged by itself, for scorers with a ``match_threshold``
        (`winobench.scorers.base.Scorer`), by the `winobench.metrics.Metric.alone` of the metric.
      prompt_of: an example's id -> what tells its prompt from others, for a task whose images people have rated. The
        row itself by default, as rows with equal texts may have been rated apart.
      skills: keys of `SKILLS`. ``--tasks=@<skill>`` chooses by them.
      paper: authors and year of the paper that published the data; None for data of winobench.
      licence: the licence of the published files; None where their source states none.
      url: the page of the published files.
    """

    name: str
    version: int
    description: str
    metric: str
    shape: tuple[int, int]
    chance: dict[str, float | None]
    load: Callable[[str | None, int | None], Iterable[Example[ImageSource, str]]]
    ready: Callable[[str | None], str | None]
    images_compete: bool
    data_fingerprint: Callable[[str | None, int | None], str]
    count: Callable[[str | None], int | None] = lambda data_dir: None
    source: PublishedData | None = None
    association: Association | None = None
    when_named: bool = False
    asks_questions: bool = False
    judged_alone: bool = False
    prompt_of: Callable[[str], str] = str
    skills: tuple[str, ...] = ()
    chance_by_question: bool = False
    paper: str | None = None
    licence: str | None = None
    url: str | None = None

    def __post_init__(self) -> None:
        unknown = set(self.skills) - SKILLS.keys()
        if unknown:
            raise ValueError(f"task {self.name!r} has the skill {min(unknown)!r}, none of {', '.join(SKILLS)}")

    @property
    def is_rated(self) -> bool:
        """True where scores are compared with people's ratings: an example is a prompt, its images and ratings."""
        return self.metric in RATING_METRICS

    @property
    def has_answers(self) -> bool:
        """True where an example is answered rightly or wrongly, and not one of many that make a number together."""
        return self.association is None and not self.is_rated

    @property
    def texts_compete(self) -> bool:
        """True where texts are ranked for an image, or images of several texts with each other."""
        return self.association is None and (self.shape[1] > 1 or self.is_rated)


Way = Literal["one command", "partly", "by hand", "gated"]
State = Literal["ready", Way]
"""States of a data set: its data are here, or the way to get them (`DataSet.way`)."""

READY, ONE_COMMAND, PARTLY, BY_HAND, GATED = get_args(State)


@dataclasses.dataclass(frozen=True)
class DataSet:
    """Tasks that come from one source. Listings have a row for each.

    Attributes:
      name: of its row. ``--tasks=@<name>`` means all its tasks.
      title: its name in prose.
      description: a few words on its questions. The state and the name stand next to it.
      tasks: each is a `Task`, a `winobench.tasks.questions.TextTask` or a training set.
      downloads: which of its files ``winobench prepare`` downloads. Empty for none.
      supplies: which of its files the user supplies. Empty for none.
      is_gated: True where the hub asks users to accept terms before ``winobench prepare`` can download the files.
      licence: in a few words, where it is more than the licence of the tasks.
      size: of the files, in bytes with a unit. Empty where nobody has measured it.
    """

    name: str
    title: str
    description: str
    tasks: Sequence[Any]
    downloads: str = "all"
    supplies: str = ""
    is_gated: bool = False
    licence: str = ""
    size: str = ""

    @property
    def way(self) -> Way:
        """How the user gets its data. `GATED` is one command, too, once the user has accepted the terms."""
        if self.is_gated:
            return GATED
        if self.supplies:
            return PARTLY if self.downloads else BY_HAND
        return ONE_COMMAND

    @property
    def is_prepared(self) -> bool:
        """False where winobench makes the data itself."""
        return bool(self.supplies) or self.has_command

    @property
    def word(self) -> str:
        """Means all its tasks as a value of ``--tasks`` and ``--tasks``."""
        return self.name if [task.name for task in self.tasks] == [self.name] else f"@{self.name}"

    @property
    def has_command(self) -> bool:
        """Whether ``winobench prepare`` makes its data ready."""
        return any(getattr(task, "source", None) is not None for task in self.tasks)

    def state(self, data_dir: str | None = None) -> str:
        """`READY` where all its tasks have their data, else the way to get them."""
        return READY if all(task.ready(data_dir) is None for task in self.tasks) else self.way

    def count(self, data_dir: str | None = None) -> int | None:
        """The number of the questions of all its tasks. None where nobody knows."""
        counts = [num_questions(task, data_dir) for task in self.tasks]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None

    @property
    def licences(self) -> str:
        """The licence from its field, or else from its tasks."""
        return self.licence or ", ".join(sorted(filter(None, {getattr(task, "licence", None) for task in self.tasks})))


def num_questions(task: Any, data_dir: str | None) -> int | None:
    """The number of a task's questions: here, or else in its publication. None where nobody knows."""
    source = getattr(task, "source", None)
    here = task.count(data_dir) if hasattr(task, "count") else None
    return source.num_examples if here is None and source is not None else here
