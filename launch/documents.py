"""Types of the documents that ``--json`` prints. ``docs/write_schemas.py`` writes a JSON Schema of each."""

from __future__ import annotations

from typing import Any, NotRequired, Required, TypedDict

from winobench.runs.schema import Count, Results, Share
from winobench.tasks.base import State, Way


class Download(TypedDict):
    """A file that winobench prepare downloads."""

    file: Required[str]  # where it goes, in the folder of the data set's sources
    note: Required[str]  # its size and its licence, if they are known


class ProtocolRow(TypedDict):
    """A way to ask the questions of a task about texts."""

    name: Required[str]
    kind: Required[str]
    description: Required[str]


class TaskRow(TypedDict):
    """A task."""

    name: Required[str]
    version: Required[int]
    description: Required[str]
    ready: Required[bool]  # its data are here
    prepared: Required[bool]  # winobench prepare has made a set of it, which may be of another version
    data: Required[str]  # what is here, or how to get it
    questions: Required[Count | None]  # here or published. None where nobody knows
    only_by_name: Required[bool]  # --tasks=ready leaves it out
    groups: Required[list[str]]  # such as @spatial
    images: Required[Count | None]  # of a question. None for a task about texts
    texts: Required[Count | None]
    metric: Required[str | None]
    chance: Required[dict[str, Share]]  # row of the results -> chance level
    paper: Required[str | None]
    licence: Required[str | None]
    url: Required[str | None]
    files: Required[str | None]  # which published files the folder of --source must hold
    downloads: Required[list[Download]]
    protocols: Required[list[ProtocolRow]]


class DataSetRow(TypedDict):
    """A data set: tasks that come from one source."""

    name: Required[str]  # @NAME means all its tasks
    title: Required[str]
    description: Required[str]
    state: Required[State]
    way: Required[Way | None]  # how to get its data. None where winobench makes them
    questions: Required[Count | None]  # of all its tasks. None where nobody knows
    command: Required[str | None]  # that prepares it. None where there is none
    downloads: Required[str]  # which files winobench prepare downloads
    supplies: Required[str]  # which files the user supplies
    licence: Required[str]
    size: Required[str]
    tasks: Required[list[TaskRow]]


class DataSets(TypedDict):
    """``winobench eval --list_tasks`` and ``winobench prepare --list``."""

    data_sets: Required[list[DataSetRow]]


class PreparedSet(TypedDict):
    """The prepared data of a task or a training set."""

    task: Required[str]
    folder: Required[str]
    examples: Required[Count]
    published: Required[Count | None]  # so many are published. None where that depends on the user
    images: Required[Count]
    bytes: Required[Count]
    is_partial: Required[bool]
    left_out: Required[dict[str, Count]]  # reason -> examples


class PreparedSets(TypedDict):
    """``winobench prepare``."""

    prepared: Required[list[PreparedSet]]
    failed: Required[dict[str, str]]  # task -> why it has no data


class ModelRow(TypedDict):
    """A model that has a short name."""

    name: Required[str]
    description: Required[str]
    state: Required[str]
    kind: Required[str]
    source: Required[str]  # a folder, a hub id, or the variable of a key


class Models(TypedDict):
    """``winobench eval --list_models``."""

    models: Required[list[ModelRow]]


class EvaluatedRun(TypedDict):
    """A finished run of winobench eval or edit."""

    model: Required[str | None]
    folder: Required[str]
    results: Required[Results]  # as results.json in the folder


class Evaluations(TypedDict):
    """``winobench eval`` and ``winobench edit``."""

    runs: Required[list[EvaluatedRun]]


class Row(TypedDict):
    """A number of a run, in full precision."""

    run: NotRequired[str]  # its label, where there are several runs
    task: Required[str]
    metric: Required[str]
    group: Required[str]  # empty for the whole task
    value: Required[float | None]
    low: Required[float | None]  # ends of the 95% interval
    high: Required[float | None]
    chance: Required[float | None]
    n: Required[Count | None]


class Table(TypedDict):
    """``winobench export``."""

    rows: Required[list[Row]]


class DifferenceRow(TypedDict):
    """The second run less the first in one number, in full precision."""

    first: Required[str]  # the runs' labels
    second: Required[str]
    task: Required[str]  # or @<skill>: the mean over its tasks
    metric: Required[str]
    group: Required[str]  # empty for the whole task
    first_value: Required[Share]
    second_value: Required[Share]
    difference: Required[float]
    low: Required[float]  # ends of the 95% interval
    high: Required[float]
    excludes_zero: Required[bool]  # the interval does
    p: Required[Share]
    p_adjusted: Required[Share]  # for all rows, also of sub-tasks
    clear: Required[bool]  # by p_adjusted and enough independent images
    knows_samples: Required[bool]  # the interval includes the noise of samples
    images_apart: NotRequired[Count]  # at least so many independent images have answers that differ
    pairs_apart: NotRequired[Count]  # the same, in tasks about texts
    n: Required[Count]
    only_first: Required[Count]  # questions that only the first run has right
    only_second: Required[Count]


class Differences(TypedDict):
    """``winobench compare``."""

    differences: Required[list[DifferenceRow]]
    notes: Required[list[str]]  # on tasks that are left out, and on gaps of the intervals


class ReportPage(TypedDict):
    """``winobench report``."""

    page: Required[str]
    files: Required[list[str]]  # next to it


class Judged(TypedDict):
    """The results of a judge about the images of a run, as ``results.json`` in the folder."""

    folder: Required[str]
    rubric: Required[str]
    judge: Required[str]
    is_published: Required[bool]
    num_images: Required[Count]
    missing: Required[dict[str, Count]]  # images without an answer, by the reason
    no_image: Required[dict[str, dict[str, Count]]]  # label of a model -> kind -> missing images
    models: Required[dict[str, Any]]  # label -> metric -> group -> value, low, high, n
    overall: NotRequired[dict[str, float]]  # label -> mean of a benchmark's rubrics, if all of them are judged


class PlannedJudgement(TypedDict):
    """What a judge would ask about the images of a run."""

    folder: Required[str]
    judge: Required[str]
    rubric: Required[str]
    kind: Required[str]  # of the questions
    images: Required[Count]
    questions: Required[Count]
    requests: Required[Count]  # a question may be put to the vote in several
    missing: Required[Count]  # requests without a recorded answer
    open: Required[Count]  # images with further questions that follow missing answers
    tokens: NotRequired[dict[str, Count | None]]  # of a hosted judge: "input" and "output", at most
    costs: NotRequired[dict[str, float | None]]  # the same in US dollars
    cost: NotRequired[float | None]  # the sum
    local: NotRequired[dict[str, Any] | None]  # of a local judge: bytes of weights, on an accelerator also seconds


class Judgements(TypedDict):
    """``winobench judge``."""

    judgements: Required[list[Judged]]
    planned: NotRequired[list[PlannedJudgement]]  # with --dry_run
    people: NotRequired[dict[str, Any]]  # with --people: group -> agreement
    detector: NotRequired[dict[str, Any]]  # with --detector: model -> tag -> accuracy
    no_image: NotRequired[dict[str, dict[str, Count]]]  # with --detector: model -> kind -> missing images


class MissingImageRow(TypedDict):
    """A place without an image."""

    model: Required[str]
    seed: Required[int]
    id: Required[str]  # of the prompt
    kind: Required[str]  # absent, filtered, black


class CollectedImages(TypedDict):
    """``winobench collect``."""

    folder: Required[str]
    images: Required[Count]
    missing: Required[list[MissingImageRow]]
    verified: NotRequired[dict[str, Any]]  # model -> tag -> accuracy, where the verifier knows the prompts


class GeneratedImages(TypedDict):
    """``winobench generate``."""

    folder: NotRequired[str]  # without --dry_run
    page: NotRequired[str]  # the same
    images: NotRequired[Count]  # the same
    missing: NotRequired[dict[str, dict[str, Count]]]  # model -> kind -> images that are missing for good
    spent: NotRequired[dict[str, Any]]  # hosted model -> images, tokens, cost in dollars, seconds of calls
    planned: NotRequired[dict[str, Any]]  # with --dry_run: model -> images, missing ones, tokens, cost, seconds
    verified: NotRequired[dict[str, Any]]  # model -> tag -> accuracy, where the verifier knows the prompts
    judgements: NotRequired[list[Judged]]  # with --judge


class Understanding(TypedDict):
    """``winobench understand``."""

    folder: Required[str]
    images: Required[str]  # the run of generated images
    runs: Required[list[str]]  # of matching
    page: Required[str]


class PaperTable(TypedDict):
    """A table or section of a paper with numbers of winobench's tasks."""

    paper: Required[str]
    place: Required[str]
    numbers: Required[Count]
    tasks: Required[list[str]]
    missing: Required[list[str]]  # tasks without their data here
    needs: Required[list[str]]  # their data sets


class PaperTables(TypedDict):
    """``winobench reproduce``."""

    tables: Required[list[PaperTable]]


class Plans(TypedDict):
    """``winobench plan``."""

    config: Required[dict[str, Any]]
    plans: Required[list[dict[str, Any]]]


class Preferences(TypedDict):
    """The study with people of two models' images."""

    first: Required[str]
    second: Required[str]
    pairs: Required[Count]
    results: Required[dict[str, Any]]


class Caption(TypedDict):
    """A text about an image."""

    file: Required[str]
    text: Required[str | None]  # None where it is missing


class Captions(TypedDict):
    """``winobench caption``."""

    folder: Required[str]
    question: Required[str]  # empty for captions
    captions: Required[list[Caption]]
    failed: Required[dict[str, str]]  # file -> why it has no text
    asked: Required[Count]  # texts that were written now
    tokens: Required[dict[str, Count | None] | None]  # input and output. None where nobody knows
    cost: Required[float | None]  # dollars


class WrittenItems(TypedDict):
    """``winobench write_items``."""

    folder: Required[str]
    checks: NotRequired[dict[str, Any]]  # as checks.json in the folder
    finished: NotRequired[dict[str, Any]]  # with --finish: annotators, items, kept, sentences, agreement, files


DOCUMENTS = {
    "data_sets": DataSets,
    "prepared_sets": PreparedSets,
    "models": Models,
    "evaluations": Evaluations,
    "table": Table,
    "differences": Differences,
    "report": ReportPage,
    "judgements": Judgements,
    "collected_images": CollectedImages,
    "generated_images": GeneratedImages,
    "understanding": Understanding,
    "paper_tables": PaperTables,
    "plans": Plans,
    "preferences": Preferences,
    "captions": Captions,
    "written_items": WrittenItems,
}
"""Name of a schema in docs/schemas -> the type of the document."""
