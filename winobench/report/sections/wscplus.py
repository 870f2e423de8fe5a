"""WSC+: accuracy next to people's, by type and by writer of the sentences, and kinds of errors (Figures 6 to 9)."""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from winobench import metrics
from winobench.data.published_numbers import PEOPLE, numbers
from winobench.data.wscplus import GENERATORS, NEITHER, TYPES, UNTYPED
from winobench.metrics import agreement
from winobench.metrics.agreement import Rating
from winobench.report import figures
from winobench.report.cells import (
    ABSENT,
    NUMBER_COLUMNS,
    PROPORTION_COLUMNS,
    Cell,
    Table,
    TableRow,
    drawn_values,
    proportion_cell,
)
from winobench.report.figures import Mark, Panel
from winobench.report.sections.shared import Details, ReportData, Section
from winobench.report.wording import number, percent
from winobench.runs.examples import Questions
from winobench.runs.labels import task_label
from winobench.runs.run import TaskRun
from winobench.tasks import wscplus

TASKS = ("wscplus", "wscplus_test")

ERROR_LABELS = {
    wscplus.RESPONSE_EVASION: "response evasion",
    wscplus.AMBIGUITY_MISINTERPRETATION: "ambiguity misinterpretation",
    wscplus.ENTITY_MISSELECTION: "entity misselection",
    wscplus.NO_ANSWER: "no answer",
}

GENERATOR_LABELS = {"GPT4": "GPT-4", "GPT3": "GPT-3.5", "Claude2": "Claude2", "Human": "people"}

_MOST_PRONOUNS = 20
_CHANCE = wscplus.CHANCE["accuracy"]
_PEOPLE = Mark("people (paper)", figures.MUTED, "o", figures.NO_LINE)

_Measured = Sequence[tuple[str, str]]  # labels, and rows of the results
_ALL = ("all questions", "accuracy")
_BY_TYPE = [(name, f"{name}/accuracy") for name in TYPES]

_Counts = Sequence[Mapping[str, int] | None]  # kind of errors -> their number, of each run that has answers


def asked_tasks(report_data: ReportData) -> list[str]:
    """The tasks of WSC+ to which the runs have answers."""
    return [task for task in TASKS if any(_answered(record) for record in report_data.records(task))]


def wscplus_section(report_data: ReportData) -> Section | None:
    """The paper's Figures 6 to 9, plotted from the runs' answers, and people's answers in the layout of Table 6."""
    tasks = asked_tasks(report_data)
    if not tasks:
        return None
    section = Section(
        "wscplus",
        "WSC+",
        [
            "As the paper's Figures 6 to 9: the share of right answers next to people's, by type, what kind the errors "
            "are of, and by the model that wrote the sentences. Lines are 95% intervals, the dashed line is chance.",
            "Response evasion is an answer “neither” where one of the candidates is meant, ambiguity misinterpretation "
            "a candidate where neither is, entity misselection the wrong candidate (section 4.1). People's numbers are "
            "the means of five evaluators over 200 questions of the validation set (Table 6).",
        ],
    )
    section.legend = [*report_data.dots, _PEOPLE]
    rows, error_rows = [], []
    for task in tasks:
        before = "" if len(tasks) == 1 else f"{task_label(task)}: "
        people = people_said() if task == TASKS[0] else {}
        writers = _writers(report_data, task)
        measured = [_ALL, *_BY_TYPE, *writers, ("pairs, both right", "pair_accuracy")]
        counts = [error_counts(record) if _answered(record) else None for record in report_data.records(task)]
        kinds = [kind for kind in ERROR_LABELS if kind != wscplus.NO_ANSWER or any(c and c[kind] for c in counts)]
        section.panels += [
            _accuracy_bars(report_data, task, f"{before}right answers (Figure 6)", [_ALL], people),
            _accuracy_bars(report_data, task, f"{before}by type (Figure 7)", _BY_TYPE, people),
            _error_bars(report_data, f"{before}kinds of errors (Figure 8)", kinds, counts),
            _accuracy_bars(report_data, task, f"{before}by writer of the sentences (Figure 9)", writers, people),
        ]
        section.tables.append(_accuracy_table(report_data, task, measured, people))
        section.tables.append(_error_table(f"{before}errors by kind, with their share of all errors", kinds, counts))
        section.folds += _pronouns(report_data, task)
        for label, key in measured:
            rows += report_data.csv_rows(task, key, {"of": label}, PROPORTION_COLUMNS, people=people.get(key))
        error_rows += _error_rows(report_data, task, kinds, counts)
    if report_data.ratings is not None:
        table, section.records["wscplus_raters.csv"] = _raters(report_data, tasks, report_data.ratings)
        section.tables.append(table)
    section.pictures["wscplus.png"] = (section.panels, section.legend, 2)
    section.records["wscplus.csv"] = rows
    if error_rows:
        section.records["wscplus_errors.csv"] = error_rows
    return section


def _accuracy_bars(
    report_data: ReportData, task: str, title: str, measured: _Measured, people: Mapping[str, float]
) -> Panel:
    labels, keys = [label for label, _ in measured], [key for _, key in measured]
    series = [
        (mark, drawn_values([record.results.get(key) for key in keys]))
        for mark, record in zip(report_data.dots, report_data.records(task), strict=True)
        if record is not None
    ]
    if any(key in people for key in keys):
        series.append((_PEOPLE, _without_intervals([people.get(key) for key in keys])))
    return _bars(title, labels, series)


def _error_bars(report_data: ReportData, title: str, kinds: Sequence[str], counts: _Counts) -> Panel:
    series = [
        (mark, _without_intervals([count[kind] for kind in kinds]))
        for mark, count in zip(report_data.dots, counts, strict=True)
        if count is not None
    ]
    return _bars(title, [ERROR_LABELS[kind] for kind in kinds], series, counted=True)


def _accuracy_table(report_data: ReportData, task: str, measured: _Measured, people: Mapping[str, float]) -> Table:
    rows = []
    for label, key in measured:
        entries = report_data.entries(task, key)
        if any(entries):
            cells = [proportion_cell(entry, place) for place, entry in enumerate(entries)]
            size = max(entry["n"] for entry in entries if entry)
            said = Cell(percent(people[key]) if key in people else "")
            rows.append(TableRow([Cell(label), *cells, said, Cell(f"{size:,}")]))
    return Table(["", *range(len(report_data.runs)), "people (paper)", "questions"], rows, task_label(task))


def _error_table(title: str, kinds: Sequence[str], counts: _Counts) -> Table:
    rows = [
        TableRow([Cell(ERROR_LABELS[kind]), *(ABSENT if count is None else _share(count, kind) for count in counts)])
        for kind in kinds
    ]
    return Table(["error", *range(len(counts))], rows, title[0].upper() + title[1:])


def _error_rows(report_data: ReportData, task: str, kinds: Sequence[str], counts: _Counts) -> list[dict[str, Any]]:
    rows = []
    for run, count in zip(report_data.runs, counts, strict=True):
        for kind in kinds if count is not None else ():
            total = sum(count.values())
            share = count[kind] / total if total else None
            found = {"error": ERROR_LABELS[kind], "count": count[kind], "share": share, "errors": total}
            rows.append({"run": run.label, "task": task, **found})
    return rows


def error_counts(record: TaskRun) -> dict[str, int]:
    """Kind of error -> its number, recomputed from the answers of a run."""
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
    """Metric -> people's accuracy (Table 6), in [0, 1]."""
    return {number.metric: number.value for number in numbers(paper="wscplus", table="6", model=PEOPLE)}


def _raters(
    report_data: ReportData, tasks: Sequence[str], ratings: Sequence[Rating]
) -> tuple[Table, list[dict[str, Any]]]:
    """People's accuracy by type, and their agreement: a table, and a row a number."""
    answers: dict[str, str] = {}
    types: dict[str, str] = {}
    for record in (record for task in tasks for record in report_data.records(task) if _answered(record)):
        questions = record.examples
        for name, answer, groups in zip(questions.ids, questions.targets, questions.groups, strict=True):
            answers[name] = wscplus.LABELS[answer]
            types[name] = next((group for group in groups if group in TYPES), UNTYPED)
    types = dict(sorted(types.items(), key=lambda one: (*TYPES, UNTYPED).index(one[1])))
    kappa = agreement.ratings_kappa(ratings, wscplus.LABELS, num_resamples=report_data.resamples, seed=report_data.seed)
    found = agreement.rater_accuracy(ratings, answers, types)
    columns = [*(name for name in dict.fromkeys(types.values()) if name != UNTYPED), agreement.TOTAL]
    lines, rows = [], []
    for rater, entries in found.items():
        cells = [Cell(rater)]
        for column in columns:
            entry = entries.get(column)
            if entry is None:
                cells.append(ABSENT)
                continue
            cells.append(Cell(percent(entry["value"]), f"{percent(entry['low'])} to {percent(entry['high'])}", "value"))
            rows.append({"rater": rater, "of": column, **{key: entry[key] for key in NUMBER_COLUMNS}})
        lines.append(TableRow(cells))
    people = people_said()
    said = [people.get("accuracy" if column == agreement.TOTAL else f"{column}/accuracy") for column in columns]
    quoted = [ABSENT if value is None else Cell(percent(value), style="paper") for value in said]
    lines.append(TableRow([Cell("people (paper)"), *quoted]))
    rows.append({"rater": "all", "of": "Fleiss' kappa", **{key: getattr(kappa, key) for key in NUMBER_COLUMNS}})
    (printed,) = numbers(paper="wscplus", metric="kappa")
    caption = f"People's answers, {kappa.num_raters} to each of {kappa.n:,} questions: {_kappa_said(kappa)}"
    return Table(["right answers", *columns], lines, f"{caption} (paper: {printed.printed})"), rows


def _kappa_said(kappa: agreement.Kappa) -> str:
    if kappa.value is None:
        return "Fleiss' kappa is not defined, as all answers are the same"
    interval = "" if kappa.low is None else f", 95% interval {number(kappa.low, 3)} to {number(kappa.high, 3)}"
    return f"Fleiss' kappa {number(kappa.value, 3)}{interval}"


def _answered(record: TaskRun | None) -> bool:
    return record is not None and isinstance(record.examples, Questions)


def _writers(report_data: ReportData, task: str) -> _Measured:
    """The writers of the sentences, and the row of the results on each. The paper's first."""
    there = [name.removesuffix("/accuracy") for name in report_data.names(task) if name.endswith("/accuracy")]
    others = [name for name in there if name not in TYPES and name not in GENERATORS]
    names = [*(name for name in GENERATORS if name in there), *others]
    return [(GENERATOR_LABELS.get(name, name), f"{name}/accuracy") for name in names]


def _without_intervals(values: Sequence[float | None]) -> np.ndarray:
    nothing = [np.nan] * len(values)
    return np.array([values, nothing, nothing], np.float64)


def _bars(
    title: str, labels: Sequence[str], series: Sequence[tuple[Mark, np.ndarray]], *, counted: bool = False
) -> Panel:
    options = {"percent": False, "ylabel": "errors"} if counted else {"chance": _CHANCE}
    title = title[0].upper() + title[1:]
    return figures.bars_panel(title, labels, series, 2.6, f"WSC+, {title}: a bar a run", **options)


def _share(counts: Mapping[str, int], kind: str) -> Cell:
    total = sum(counts.values())
    return Cell(f"{counts[kind]:,}", f"{percent(counts[kind] / total)}%" if total else "", "value")


def _pronouns(report_data: ReportData, task: str) -> list[Details]:
    """The frequency of each pronoun, and its right answers (compare Figure 4)."""
    records = report_data.records(task)
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
            entry = {**metrics.wilson(sum(right), len(right))._asdict(), "chance": _CHANCE} if right else None
            cells.append(proportion_cell(entry, place))
        rows.append(TableRow(cells))
    columns = ["pronoun", "questions", *range(len(report_data.runs))]
    title = "Pronouns" if task == TASKS[0] else f"Pronouns of {task_label(task)}"
    return [Details(title, tables=[Table(columns, rows, "How often it occurs, and right answers")])]
