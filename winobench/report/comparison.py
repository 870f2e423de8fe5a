"""Two runs compared: paired differences, and the questions that one has right and the other wrong."""

from __future__ import annotations

import copy
import dataclasses
import html
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from winobench.base import options, text_tables
from winobench.base.errors import InputError
from winobench.base.text_tables import TableFormat
from winobench.metrics import Dependence
from winobench.report import analysis
from winobench.report.analysis import Difference
from winobench.report.wording import probability
from winobench.runs.examples import Questions
from winobench.runs.labels import shortened
from winobench.runs.reading import make_labels_unique, read_run
from winobench.runs.rows import Row, rows_of
from winobench.runs.run import Run, TaskRun
from winobench.tasks import TASKS
from winobench.tasks.base import SKILLS

Draws = tuple[Mapping[str, np.ndarray] | None, str]
"""Metric -> right and wrong under resampled samples, [n, draws] bool, or None, and the reason."""

SKILL_ROW = "macro_mean"
"""Name of the row of a skill: the mean over its tasks, each of which weighs the same."""

_FEWEST_TASKS = 2  # of a skill
_SHOWN_ROWS = 40  # in a notebook
_TEXT_LETTERS = 200  # of a question in a table


@dataclasses.dataclass(frozen=True, eq=False)
class Flip:
    """A question that one of two runs has right and the other wrong, under the headline metric of its task.

    Attributes:
      task: name of the task.
      id: of the example or question, in its task.
      groups: sub-tasks that it also counts for.
      texts: the candidates, or the one query. In a text task, the parts of the question and then its options.
      right_answer: the right candidate: its text, or ``image <number>``, from 1. None where the right answer is the
        diagonal, as in Winoground.
      answers: what the first and the second run chose, in the same words. None for the diagonal, a tie, and a text that
        could not be read as an answer.
      scores: of the first and the second run, float64 [images, texts], higher = better match. Of a text task [1,
        options], or [1, 0] where the model wrote its answers.
      first_is_right: whether the first run has it right. The second one then has it wrong.
    """

    task: str
    id: str
    groups: tuple[str, ...]
    texts: tuple[str, ...]
    right_answer: str | None
    answers: tuple[str | None, str | None]
    scores: tuple[np.ndarray, np.ndarray]
    first_is_right: bool


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Differences of two runs over the questions that both have answered. `compare` makes it.

    Printing it gives a few lines, and a notebook shows the table.

    Attributes:
      first: what the first run is called, its model with as much of its settings as tells the two apart.
      second: what the second run is called.
      differences: a `winobench.report.analysis.Difference` a row of each task, also of its sub-tasks, in the order of
        the first run's results. Then one a skill of at least two tasks: task ``@<skill>`` and name ``macro_mean``, in
        which each task weighs the same. Each has both ``first`` and ``second`` in [0, 1], ``value`` (second less
        first) with the 95% interval ``low`` to ``high``, ``p_value`` and ``p_adjusted``. The latter is Benjamini and
        Hochberg's, over all rows of ``differences`` (Y. Benjamini and Y. Hochberg, JRSS B 57, 1995).
      flips: a `Flip` a question that one run has right and the other wrong.
      notes: sentences on tasks that were left out, and on gaps of the intervals.
      is_text: whether the runs asked questions without images.
    """

    first: str
    second: str
    differences: tuple[Difference, ...]
    flips: tuple[Flip, ...]
    notes: tuple[str, ...]
    is_text: bool

    def __repr__(self) -> str:
        clear = sum(difference.is_clear for difference in self.differences)
        tasks = len({difference.task for difference in self.differences if not difference.task.startswith("@")})
        only_first = sum(flip.first_is_right for flip in self.flips)
        return (
            f"<Comparison of {self.first} and {self.second}: {len(self.differences):,} differences in {tasks} "
            f"task{'' if tasks == 1 else 's'}, {clear:,} of them clear\n"
            f"  {len(self.flips):,} flips: only {self.first} has {only_first:,} right, only {self.second} has "
            f"{len(self.flips) - only_first:,}>"
        )

    def _repr_html_(self) -> str:
        columns, rows = self._cells(groups=False)
        parts = [f"<p>{html.escape(repr(self)[1:-1])}</p>"]
        parts.append(text_tables.write_table("html", columns, rows[:_SHOWN_ROWS], texts=2))
        if len(rows) > _SHOWN_ROWS:
            parts.append(f"<p>and {len(rows) - _SHOWN_ROWS:,} more rows: <code>print(comparison.table())</code></p>")
        parts += [f"<p>{html.escape(note)}</p>" for note in self.notes]
        return "\n".join(parts)

    def table(self, format: TableFormat = "text", *, groups: bool = False) -> str:
        """The differences as a table, a row a task and metric, and a row a skill.

        Values are in percent with one decimal, differences and their intervals in percentage points. The sign is that
        of second less first. ``●`` marks a clear difference: its adjusted p-value is at most 5%, and the runs differ on
        at least ten independent images (in text tasks, pairs of questions). ``○`` marks one whose interval alone
        excludes 0. ``‡`` at a mark says that the interval lacks the noise of the samples.

        Args:
          format: ``"text"`` for a terminal, ``"markdown"``, ``"latex"`` (a ``tabular`` for the package booktabs), or
            ``"csv"``: the columns of the report's ``differences.csv``, with numbers in full precision between -1 and
            1. Special characters are escaped for each format.
          groups: whether to add the rows of sub-tasks. P-values are adjusted for all rows either way.

        Returns:
          The table, with a line end after its last line.

        Raises:
          InputError: the format is unknown (``unknown-name``).
        """
        text_tables.check_format(format)
        if format == "csv":
            records = self.records(groups=groups)
            return text_tables.write_csv(records, list(records[0]) if records else ["first", "second", "task"])
        return text_tables.write_table(format, *self._cells(groups), texts=2)

    def records(self, *, groups: bool = False) -> list[dict[str, Any]]:
        """The differences as dictionaries: column of the table in CSV -> text, number or bool.

        Args:
          groups: whether to add the rows of sub-tasks.
        """
        return [
            difference_record(difference, self.first, self.second, self.is_text) for difference in self._rows(groups)
        ]

    def flip_table(self, format: TableFormat = "text") -> str:
        """The flips as a table, a row a question, in the order of ``flips``.

        Args:
          format: see `table`. CSV has all texts, and the scores with six digits, both as JSON. The others cut
            texts to 200 letters.

        Returns:
          The table, with a line end after its last line.

        Raises:
          InputError: the format is unknown (``unknown-name``).
        """
        text_tables.check_format(format)
        if format == "csv":
            records = [flip_record(flip, self.first, self.second) for flip in self.flips]
            return text_tables.write_csv(records, list(records[0]) if records else ["first", "second", "task"])
        rows = [
            [
                flip.task,
                flip.id,
                shortened(" / ".join(flip.texts), _TEXT_LETTERS),
                shortened(flip.right_answer or "", _TEXT_LETTERS),
                *(shortened(answer, _TEXT_LETTERS) for answer in said_answers(flip)),
            ]
            for flip in self.flips
        ]
        columns = ["task", "id", "texts", "right answer", self.first, self.second]
        return text_tables.write_table(format, columns, rows, texts=len(columns))

    def _rows(self, groups: bool) -> list[Difference]:
        return [difference for difference in self.differences if groups or not difference.group]

    def _cells(self, groups: bool) -> tuple[list[str], list[list[str]]]:
        rows = []
        for one in self._rows(groups):
            values = [text_tables.percent(value) for value in (one.first, one.second)]
            value, low, high = (text_tables.percent(end, sign=True) for end in (one.value, one.low, one.high))
            p_values = [probability(one.p_value), probability(one.p_adjusted)]
            difference, interval = f"{value} {one.mark}".rstrip(), f"{low} to {high}"
            rows.append([one.task, one.name, *values, difference, interval, *p_values, f"{one.num_examples:,}"])
        names = [f"{self.first} %", f"{self.second} %"]
        return ["task", "metric", *names, "difference", "95% interval", "p", "p adjusted", "n"], rows


def compare(
    first: Run | str | os.PathLike[str],
    second: Run | str | os.PathLike[str],
    *,
    tasks: Sequence[str] | None = None,
) -> Comparison:
    """Compares two finished runs, question by question.

    Difficulty that both runs share cancels, and questions that share an image count as dependent. The intervals include
    the noise of the samples (noise and timesteps) where the runs recorded their errors. For the formulas and their
    sources see `winobench.metrics.paired_difference`. The report page shows the same numbers.

    Bias tasks and tasks with ratings have no right and wrong answers, and are left out with a note. So are questions of
    text tasks whose calls failed.

    Args:
      first: a run of `winobench.read_run`, or its folder.
      second: the run that is compared with it. Differences are second less first.
      tasks: names of the tasks to compare. All that both runs have if None.

    Returns:
      Differences with intervals and p-values, and the questions on which the runs differ.

    Raises:
      InputError: a folder holds no finished run. One run is of a text benchmark, the other with images
        (``runs-of-two-kinds``). A task is in neither run or in one alone (``unknown-name``). In the second run, it has
        another version (``another-version``), or other questions or another metric (``different-questions``). No task
        is left (``nothing-to-compare``).
    """
    runs = [copy.copy(run) if isinstance(run, Run) else read_run(run) for run in (first, second)]
    if runs[0].is_text != runs[1].is_text:
        text, images = sorted(runs, key=lambda run: not run.is_text)
        raise InputError(
            f"{text.path} is a run of a text benchmark and {images.path} one with images: compare runs of one kind.",
            code="runs-of-two-kinds",
        )
    make_labels_unique(runs)
    first_run, second_run = runs
    chosen, notes = _comparable(first_run, second_run, tasks)
    paired = []
    lacking: dict[str, list[str]] = {}
    for task in chosen:
        draws = [resampled(run, task) for run in runs]
        for run, (_, reason) in zip(runs, draws, strict=True):
            if reason:
                lacking.setdefault(reason, []).append(f"{task} of {run.label}")
        if (pair := pair_task(first_run, second_run, task, draws)) is not None:
            paired.append(pair)
    notes += [f"{analysis.NO_NOISE} {reason}: {'; '.join(whose)}." for reason, whose in lacking.items()]
    differences = [difference for pair in paired for difference in pair.differences]
    return Comparison(
        first=first_run.label,
        second=second_run.label,
        differences=tuple(analysis.adjusted([*differences, *skill_differences(paired)])),
        flips=tuple(flip for pair in paired for flip in flips(pair)),
        notes=tuple(notes),
        is_text=first_run.is_text,
    )


def _comparable(first_run: Run, second_run: Run, names: Sequence[str] | None) -> tuple[list[str], list[str]]:
    """The tasks to compare, and notes. Refuses tasks that are not the same in both runs."""
    shared = [task for task in first_run.tasks if task in second_run.tasks]
    names = options.names().or_none().check("tasks", names)
    for name in names or ():
        if name not in shared:
            raise InputError(
                f"the task {name!r:.80} is not in both runs: choose from {', '.join(shared) or 'none'}.",
                code="unknown-name",
            )
    chosen, notes = [], []
    for task in shared if names is None else dict.fromkeys(names):
        first, second = first_run.tasks[task], second_run.tasks[task]
        if not (first.has_answers and second.has_answers):
            notes.append(f"{task} is not compared: its numbers are not shares of right answers.")
        elif first.examples is None or second.examples is None or None in (first.metric, second.metric):
            notes.append(f"{task} is not compared: a run has no table of its examples.")
        else:
            notes += _check_same(first_run, second_run, task)
            chosen.append(task)
    if not chosen:
        raise InputError(
            f"{first_run.path} and {second_run.path} have no task with answers in common: compare runs"
            " of the same tasks.",
            code="nothing-to-compare",
        )
    only = [task for task in dict.fromkeys([*first_run.tasks, *second_run.tasks]) if task not in shared]
    if only and names is None:
        notes.append(f"In one run alone, and not compared: {', '.join(only)}.")
    return chosen, notes


def _check_same(first_run: Run, second_run: Run, task: str) -> list[str]:
    """Refuses a task of another version, metric or other questions. Returns notes on failed calls."""
    first, second = first_run.tasks[task], second_run.tasks[task]
    versions = [record.identity.get("version") for record in (first, second)]
    if None not in versions and versions[0] != versions[1]:
        raise InputError(
            f"the task {task} has version {versions[0]} in {first_run.path} and {versions[1]} in {second_run.path}:"
            " evaluate both with one version of winobench, or leave the task out (--tasks).",
            code="another-version",
        )
    keys = [{record.answered.key(row) for row in range(len(record.answered.ids))} for record in (first, second)]
    failed = sum(record.examples.num_failed for record in (first, second) if isinstance(record.examples, Questions))
    ids = [set(record.answered.ids) for record in (first, second)]
    if failed and len(ids[0] ^ ids[1]) <= failed:
        keys = [{key for key in side if key[0] in ids[0] & ids[1]} for side in keys]
    if first.metric != second.metric or keys[0] != keys[1]:
        sizes = [len(record.answered.ids) for record in (first, second)]
        raise InputError(
            f"{first_run.path} and {second_run.path} have different questions of {task} ({sizes[0]:,} and"
            f" {sizes[1]:,}) or different metrics:"
            " evaluate both with the same data, limit and metric, or leave the task out (--tasks).",
            code="different-questions",
        )
    return [f"{task}: questions whose calls failed in a run are left out ({failed:,})."] if failed else []


def resampled(run: Run, task: str) -> Draws:
    """The answers under resampled samples, or the reason for none."""
    record = run.tasks[task]
    if record.deterministic or record.examples is None:
        return None, ""
    if run.has_raced(task):
        return None, "Pairs have different numbers of samples"
    if record.num_samples is None:
        return None, "The run does not record its number of samples"
    if record.num_units == 1:
        return None, "One sample does not tell how samples vary"
    batches = None if record.judge is None else run.batches(task)
    if batches is None or record.judge is None:
        return None, "No complete errors are recorded"
    return analysis.redrawn(batches, record.answered.targets, record.judge, record.timesteps), ""


@dataclasses.dataclass(frozen=True)
class PairedTask:
    """A task of two runs, over the examples that both have answered."""

    task: str
    first: TaskRun  # with these examples, in the same order
    second: TaskRun
    differences: list[Difference]
    headlines: tuple[Row, Row] | None  # of the metric's headline; None without the metric's code
    lacks_noise: bool

    @property
    def num_shared(self) -> int:
        return len(self.first.answered.ids)


def pair_task(first_run: Run, second_run: Run, task: str, draws: Sequence[Draws]) -> PairedTask | None:
    """The paired differences of a task, without adjustment. None where no example is the same."""
    first, second = first_run.tasks[task], second_run.tasks[task]
    shared = analysis.shared_rows(first, second)
    if not len(shared[0]) or first.metric != second.metric or first.metric is None:
        return None
    lacks_noise = any(reason for _, reason in draws)
    first, second = (analysis.select(record, rows) for record, rows in zip((first, second), shared, strict=True))
    # The groups of the first run count for both: they are not part of the question.
    second = dataclasses.replace(second, examples=dataclasses.replace(second.answered, groups=first.answered.groups))
    rows, others = (
        {row.name: row for row in rows_of(record, None if lacks_noise else _taken(redrawn, taken))}
        for record, (redrawn, _), taken in zip((first, second), draws, shared, strict=True)
    )
    names = [name for name in rows if name in others]  # a run with a limit may lack whole pairs
    if not names:
        return None
    pairs = ([rows[name] for name in names], [others[name] for name in names])
    differences = analysis.paired_differences(*pairs, first.answered.dependence)
    differences = [dataclasses.replace(difference, task=task, lacks_noise=lacks_noise) for difference in differences]
    headline = None if first.judge is None else first.judge.headline
    headlines = (rows[headline], others[headline]) if headline in names else None
    return PairedTask(task, first, second, differences, headlines, lacks_noise)


def _taken(redrawn: Mapping[str, np.ndarray] | None, rows: np.ndarray) -> dict[str, np.ndarray] | None:
    return None if redrawn is None else {name: correct[rows] for name, correct in redrawn.items()}


def skill_differences(paired: Sequence[PairedTask]) -> list[Difference]:
    """Paired differences of the mean over the tasks of a skill, for skills of at least two tasks."""
    differences = []
    for skill in SKILLS:
        of_skill = [
            (pair, pair.headlines)
            for pair in paired
            if pair.headlines is not None and pair.task in TASKS and skill in TASKS[pair.task].skills
        ]
        if len(of_skill) < _FEWEST_TASKS:
            continue
        lacks_noise = any(pair.lacks_noise for pair, _ in of_skill)
        first, second = ([_joined([rows[side] for _, rows in of_skill], lacks_noise)] for side in (0, 1))
        dependence = Dependence.from_sets([images for pair, _ in of_skill for images in pair.first.answered.images])
        (difference,) = analysis.paired_differences(first, second, dependence)
        differences.append(dataclasses.replace(difference, task=f"@{skill}", lacks_noise=lacks_noise))
    return differences


def _joined(rows: Sequence[Row], lacks_noise: bool) -> Row:
    """Rows of several tasks as one, whose value is the mean of theirs."""
    correct = np.concatenate([row.correct for row in rows])
    strata = np.repeat(np.arange(len(rows)), [len(row.correct) for row in rows])
    numbers = [row.num_samples for row in rows if row.redrawn is not None and row.num_samples is not None]
    redrawn = None
    if numbers and not lacks_noise:
        shape = (analysis.DRAWS,)
        draws = [
            np.broadcast_to(row.correct[:, None], (len(row.correct), *shape)) if row.redrawn is None else row.redrawn
            for row in rows
        ]
        redrawn = np.concatenate(draws)
    return Row(SKILL_ROW, np.arange(len(correct)), correct, strata, redrawn, min(numbers, default=None))


def flips(pair: PairedTask) -> Iterator[Flip]:
    """The questions that one run has right and the other wrong."""
    first, second = pair.first.answered, pair.second.answered
    for row in np.flatnonzero(first.correct != second.correct).tolist():
        yield Flip(
            task=pair.task,
            id=first.ids[row],
            groups=first.groups[row],
            texts=first.texts[row],
            right_answer=answer_of(pair.first, row, first.targets[row]),
            answers=(
                answer_of(pair.first, row, choice_of(first, row)),
                answer_of(pair.second, row, choice_of(second, row)),
            ),
            scores=(first.scores[row], second.scores[row]),
            first_is_right=bool(first.correct[row]),
        )


def choice_of(examples: Any, row: int) -> int | None:
    """Index of the candidate that a run chose; None where there is not one."""
    if isinstance(examples, Questions):
        return examples.choices[row]
    scores = examples.scores[row].ravel()
    if examples.targets[row] is None or np.sum(scores == scores.max()) > 1:
        return None
    return int(scores.argmax())


def answer_of(record: TaskRun, row: int, index: int | None) -> str | None:
    """A candidate in words."""
    if index is None:
        return None
    examples = record.answered
    if isinstance(examples, Questions):
        return examples.options[row][index]
    return examples.texts[row][index] if len(examples.images[row]) == 1 else f"image {index + 1}"


def said_answers(flip: Flip) -> tuple[str, str]:
    """Whether each run is right, and its answer if there is one."""
    rights = (flip.first_is_right, not flip.first_is_right)
    first, second = (
        f"{'✓' if is_right else '✗'} {answer or ''}".rstrip()
        for is_right, answer in zip(rights, flip.answers, strict=True)
    )
    return first, second


def difference_record(difference: Difference, first: str, second: str, is_text: bool) -> dict[str, Any]:
    """A difference as a row of a CSV file."""
    return {
        "first": first,
        "second": second,
        "task": difference.task,
        "metric": difference.metric,
        "group": difference.group,
        "first_value": difference.first,
        "second_value": difference.second,
        "difference": difference.value,
        "low": difference.low,
        "high": difference.high,
        "excludes_zero": difference.excludes_zero,
        "p": difference.p_value,
        "p_adjusted": difference.p_adjusted,
        "clear": difference.is_clear,
        "knows_samples": not difference.lacks_noise,
        f"{'pairs' if is_text else 'images'}_apart": difference.clusters_apart,
        "n": difference.num_examples,
        "only_first": difference.only_first,
        "only_second": difference.only_second,
    }


def flip_record(flip: Flip, first: str, second: str) -> dict[str, Any]:
    """A flip as a row of a CSV file. Texts and scores are JSON, scores [images][texts]."""
    scores = [
        [[float(f"{score:.6g}") if np.isfinite(score) else None for score in row] for row in matrix.tolist()]
        for matrix in flip.scores
    ]
    return {
        "first": first,
        "second": second,
        "task": flip.task,
        "id": flip.id,
        "groups": "; ".join(flip.groups),
        "texts": json.dumps(flip.texts, ensure_ascii=False),
        "right_answer": flip.right_answer or "",
        "right_run": first if flip.first_is_right else second,
        "first_answer": flip.answers[0] or "",
        "second_answer": flip.answers[1] or "",
        "first_scores": json.dumps(scores[0]),
        "second_scores": json.dumps(scores[1]),
    }
