"""WSC+: accuracy beside people's, by type and by writer of the sentences, and kinds of errors (Figures 6 to 9)."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from winobench import metrics
from winobench.data.wscplus import GENERATORS, NEITHER, TYPES
from winobench.metrics import agreement
from winobench.metrics.agreement import Rating
from winobench.report import figures
from winobench.report.examples import Questions
from winobench.report.figures import Mark, Panel
from winobench.report.labels import task_label
from winobench.report.runs import TaskRun
from winobench.report.sections.shared import (
    ABSENT,
    Cell,
    Fold,
    Material,
    Section,
    Table,
    TableRow,
    number,
    percent,
    proportion_cell,
)
from winobench.tasks import wscplus

TASKS = ("wscplus", "wscplus_test")

ERROR_LABELS = {
    wscplus.RESPONSE_EVASION: "response evasion",
    wscplus.AMBIGUITY_MISINTERPRETATION: "ambiguity misinterpretation",
    wscplus.ENTITY_MISSELECTION: "entity misselection",
    wscplus.NO_ANSWER: "no answer",
}
"""The kinds of errors of the paper's section 4.1, and what is none of them."""

GENERATOR_LABELS = {"GPT4": "GPT-4", "GPT3": "GPT-3.5", "Claude2": "Claude2", "Human": "people"}

_HUMANS = "human"
_MOST_PRONOUNS = 20
_CHANCE = wscplus.CHANCE["accuracy"]


def asked_tasks(material: Material) -> list[str]:
    """The tasks of WSC+ to which the runs have answers."""
    return [task for task in TASKS if any(_answered(record) for record in material.records(task))]


def wscplus_section(material: Material) -> Section | None:
    """The paper's Figures 6 to 9, drawn of the runs' answers, and people's answers in the layout of Table 6.

    Args:
      material: runs of text benchmarks.

    Raises:
      InputError: a rating is of no question, or no answer to it, or questions differ in the number of ratings.
    """
    tasks = asked_tasks(material)
    if not tasks:
        return None
    section = Section(
        "wscplus",
        "WSC+",
        [
            "As the paper's Figures 6 to 9: the share of right answers beside people's, by type, what kind the errors "
            "are of, and by the model that wrote the sentences. Lines are 95% intervals, the dashed line is chance.",
            "Response evasion is an answer “neither” where one of the candidates is meant, ambiguity misinterpretation "
            "a candidate where neither is, entity misselection the wrong candidate (section 4.1). People's numbers are "
            "the means of five evaluators over 200 questions of the validation set (Table 6).",
        ],
    )
    humans = Mark("people (paper)", figures.MUTED, "o", figures.NO_LINE)
    marks = [dataclasses.replace(mark, dash=figures.NO_LINE) for mark in material.marks]
    section.legend = [*marks, humans]
    panels, accuracy_rows, error_rows = [], [], []
    for task in tasks:
        records = material.records(task)
        before = "" if len(tasks) == 1 else f"{task_label(task)}: "
        people = people_said() if task == TASKS[0] else {}
        names = [(name, f"{name}/accuracy") for name in TYPES]
        writers = [(GENERATOR_LABELS.get(name, name), f"{name}/accuracy") for name in _generators(records)]
        for title, figure, labelled in (
            ("right answers", "6", [("all questions", "accuracy")]),
            ("by type", "7", names),
            ("by writer of the sentences", "9", writers),
        ):
            keys = [key for _, key in labelled]
            series = [
                (mark, _values([record.results.get(key) for key in keys]))
                for mark, record in zip(marks, records, strict=True)
                if record is not None
            ]
            quoted = [people.get(key) for key in keys]
            if any(value is not None for value in quoted):
                series.append((humans, _quoted(quoted)))
            panels.append(_bars(f"{before}{title} (Figure {figure})", [label for label, _ in labelled], series))
        counts = [error_counts(record) if _answered(record) else None for record in records]
        kinds = [kind for kind in ERROR_LABELS if kind != wscplus.NO_ANSWER or any(c and c[kind] for c in counts)]
        series = [
            (mark, np.array([[count[kind] for kind in kinds], *[[np.nan] * len(kinds)] * 2], np.float64))
            for mark, count in zip(marks, counts, strict=True)
            if count is not None
        ]
        labels = [ERROR_LABELS[kind] for kind in kinds]
        panels.insert(-1, _bars(f"{before}kinds of errors (Figure 8)", labels, series, counted=True))
        rows = []
        for label, key in [("all questions", "accuracy"), *names, *writers, ("pairs, both right", "pair_accuracy")]:
            entries = [record.results.get(key) if record else None for record in records]
            if not any(entries):
                continue
            said = people.get(key)
            cells = [proportion_cell(entry, place) for place, entry in enumerate(entries)]
            size = max(entry["n"] for entry in entries if entry)
            rows.append(TableRow([Cell(label), *cells, Cell("" if said is None else percent(said)), Cell(f"{size:,}")]))
            for run, entry in zip(material.runs, entries, strict=True):
                if entry:
                    values = {name: entry[name] for name in ("value", "low", "high", "chance", "n", "ties")}
                    accuracy_rows.append({"run": run.label, "task": task, "of": label, **values, "people": said})
        caption = task_label(task)
        section.tables.append(Table(["", *range(len(material.runs)), "people (paper)", "questions"], rows, caption))
        lines = []
        for kind in kinds:
            cells = [ABSENT if count is None else _share(count, kind) for count in counts]
            lines.append(TableRow([Cell(ERROR_LABELS[kind]), *cells]))
        for run, count in zip(material.runs, counts, strict=True):
            for kind in kinds if count is not None else ():
                total = sum(count.values())
                error_rows.append(
                    {
                        "run": run.label,
                        "task": task,
                        "error": ERROR_LABELS[kind],
                        "count": count[kind],
                        "share": count[kind] / total if total else None,
                        "errors": total,
                    }
                )
        title = f"{before}errors by kind, with their share of all errors"
        section.tables.append(Table(["error", *range(len(material.runs))], lines, title[0].upper() + title[1:]))
        section.folds += _pronouns(material, task, records)
    if material.ratings is not None:
        table, section.records["wscplus_raters.csv"] = _raters(material, tasks, material.ratings)
        section.tables.append(table)
    section.panels = panels
    section.pictures["wscplus.png"] = (panels, section.legend, 2)
    section.records["wscplus.csv"] = accuracy_rows
    if error_rows:
        section.records["wscplus_errors.csv"] = error_rows
    return section


def error_counts(record: TaskRun) -> dict[str, int]:
    """How often each kind of error occurs, recomputed from the answers of a run."""
    questions = record.examples
    found = collections.Counter()
    rows = zip(questions.correct, questions.choices, questions.targets, questions.scores, strict=True)
    for right, choice, answer, scores in rows:
        if right:
            continue
        is_tie = scores.size > 0 and np.count_nonzero(scores == scores.max()) > 1
        if choice is None or is_tie:
            found[wscplus.NO_ANSWER] += 1
        elif answer == NEITHER:
            found[wscplus.AMBIGUITY_MISINTERPRETATION] += 1
        elif choice == NEITHER:
            found[wscplus.RESPONSE_EVASION] += 1
        else:
            found[wscplus.ENTITY_MISSELECTION] += 1
    return {kind: found[kind] for kind in ERROR_LABELS}


def people_said() -> dict[str, float]:
    """Metric -> what people reach (Table 6), in [0, 1]."""
    return {number.metric: number.value for number in wscplus.published(place="Table 6", model=_HUMANS)}


def _raters(material: Material, tasks: Sequence[str], ratings: Sequence[Rating]) -> tuple[Table, list[dict[str, Any]]]:
    """How often people are right, by type, and how far they agree: a table, and a row a number."""
    answers: dict[str, str] = {}
    types: dict[str, str] = {}
    for record in (record for task in tasks for record in material.records(task) if _answered(record)):
        questions = record.examples
        for name, answer, groups in zip(questions.ids, questions.targets, questions.groups, strict=True):
            answers[name], types[name] = wscplus.LABELS[answer], groups[0]
    types = dict(sorted(types.items(), key=lambda one: TYPES.index(one[1])))
    kappa = agreement.ratings_kappa(ratings, wscplus.LABELS, num_resamples=material.resamples, seed=material.seed)
    found = agreement.rater_accuracy(ratings, answers, types)
    columns = [*dict.fromkeys(types.values()), agreement.TOTAL]
    lines, rows = [], []
    for rater, entries in found.items():
        cells = [Cell(rater)]
        for column in columns:
            entry = entries.get(column)
            if entry is None:
                cells.append(ABSENT)
                continue
            cells.append(Cell(percent(entry["value"]), f"{percent(entry['low'])} to {percent(entry['high'])}", "value"))
            rows.append({"rater": rater, "of": column, **{key: entry[key] for key in ("value", "low", "high", "n")}})
        lines.append(TableRow(cells))
    people = people_said()
    said = [people.get("accuracy" if column == agreement.TOTAL else f"{column}/accuracy") for column in columns]
    quoted = [ABSENT if value is None else Cell(percent(value), style="paper") for value in said]
    lines.append(TableRow([Cell("people (paper)"), *quoted]))
    rows.append(
        {"rater": "all", "of": "Fleiss' kappa", **{key: getattr(kappa, key) for key in ("value", "low", "high", "n")}}
    )
    (printed,) = wscplus.published(metric="kappa")
    caption = f"People's answers, {kappa.num_raters} to each of {kappa.n:,} questions: {_kappa_said(kappa)}"
    return Table(["right answers", *columns], lines, f"{caption} (paper: {printed.printed})"), rows


def _kappa_said(kappa: agreement.Kappa) -> str:
    if kappa.value is None:
        return "Fleiss' kappa is not defined, as all answers are the same"
    interval = "" if kappa.low is None else f", 95% interval {number(kappa.low, 3)} to {number(kappa.high, 3)}"
    return f"Fleiss' kappa {number(kappa.value, 3)}{interval}"


def _answered(record: TaskRun | None) -> bool:
    return record is not None and isinstance(record.examples, Questions)


def _generators(records: Sequence[TaskRun | None]) -> list[str]:
    """Those that the runs have numbers of, the paper's first."""
    there = dict.fromkeys(
        name.removesuffix("/accuracy")
        for record in records
        if record is not None
        for name in record.results
        if name.endswith("/accuracy")
    )
    others = [name for name in there if name not in TYPES and name not in GENERATORS]
    return [*(name for name in GENERATORS if name in there), *others]


def _values(entries: Sequence[Mapping[str, Any] | None]) -> np.ndarray:
    keys = ("value", "low", "high")
    return np.array([[entry[key] if entry else np.nan for entry in entries] for key in keys], np.float64)


def _quoted(values: Sequence[float | None]) -> np.ndarray:
    """Values without intervals."""
    first = [np.nan if value is None else value for value in values]
    return np.array([first, [np.nan] * len(first), [np.nan] * len(first)], np.float64)


def _bars(
    title: str, labels: Sequence[str], series: Sequence[tuple[Mark, np.ndarray]], *, counted: bool = False
) -> Panel:
    def draw(axes) -> None:
        options = {"percent": False, "ylabel": "errors"} if counted else {"chance": _CHANCE}
        figures.grouped_bars(axes, labels, series, **options)

    margins = figures.bars_margins(labels)
    title = title[0].upper() + title[1:]
    return Panel(title, draw, 4.6, 2.6 + margins.bottom, f"WSC+, {title}: a bar a run", margins)


def _share(counts: Mapping[str, int], kind: str) -> Cell:
    total = sum(counts.values())
    return Cell(f"{counts[kind]:,}", f"{percent(counts[kind] / total)}%" if total else "", "value")


def _pronouns(material: Material, task: str, records: Sequence[TaskRun | None]) -> list[Fold]:
    """How often each pronoun is asked about, and how often it is understood (compare Figure 4)."""
    asked = next(record.examples for record in records if _answered(record))
    counts = collections.Counter(named["pronoun"].strip().lower() for named in asked.named if "pronoun" in named)
    if not counts:
        return []
    rows = []
    for pronoun, count in counts.most_common(_MOST_PRONOUNS):
        cells = [Cell(pronoun), Cell(f"{count:,}", f"{percent(count / len(asked.ids))}%")]
        for place, record in enumerate(records):
            if not _answered(record):
                cells.append(ABSENT)
                continue
            said = record.examples
            right = [
                bool(is_right)
                for named, is_right in zip(said.named, said.correct, strict=True)
                if named.get("pronoun", "").strip().lower() == pronoun
            ]
            entry = None
            if right:
                entry = {**metrics.wilson(sum(right), len(right))._asdict(), "chance": _CHANCE}
            cells.append(proportion_cell(entry, place))
        rows.append(TableRow(cells))
    columns = ["pronoun", "questions", *range(len(material.runs))]
    title = "Pronouns" if task == TASKS[0] else f"Pronouns of {task_label(task)}"
    return [Fold(title, tables=[Table(columns, rows, "How often it is asked about, and right answers")])]
