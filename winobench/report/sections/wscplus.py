"""WSC+: accuracy next to people's, by type and writer, kinds of errors, and the questions (Figures 4 and 6 to 11)."""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from winobench import metrics
from winobench.data.published_numbers import PEOPLE, numbers
from winobench.data.wscplus import GENERATORS, NEITHER, TYPES, UNTYPED, WSC285_PRONOUNS, pronoun_counts
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
from winobench.report.sections.shared import MOST_CHARTED_RUNS, Details, ReportData, Section
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

CORRECT = "right"  # next to the kinds of errors, as an outcome

_MOST_PRONOUNS, _MOST_DRAWN_PRONOUNS = 20, 10
_CHANCE = wscplus.CHANCE["accuracy"]
_PEOPLE = Mark("people (paper)", figures.MUTED, "o", figures.NO_LINE)
PRONOUN_MARKS = (
    Mark("WSC+", figures.COLOURS[0], "s", figures.NO_LINE),
    Mark("WSC285, the original challenge", figures.COLOURS[4], "s", figures.NO_LINE),
)
"""The looks of the two sets in Figure 4."""

_Measured = Sequence[tuple[str, str]]  # labels, and rows of the results
_ALL = ("all questions", "accuracy")
_BY_TYPE = [(name, f"{name}/accuracy") for name in TYPES]

_Counts = Sequence[Mapping[str, int] | None]  # kind of errors -> their number, of each run that has answers


def asked_tasks(report_data: ReportData) -> list[str]:
    """The tasks of WSC+ to which the runs have answers."""
    return [task for task in TASKS if any(map(_questions, report_data.records(task)))]


def wscplus_section(report_data: ReportData) -> Section | None:
    """The paper's Figures 4 and 6 to 11, from the runs' questions and answers, and people's answers as in Table 6."""
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
            "As Figures 4, 10 and 11: the pronouns next to the original challenge's, the questions by type and writer, "
            "and the outcomes by type. They count the questions that the runs answered. The paper's Figures 4 and 10 "
            "count the whole file.",
        ],
    )
    section.legend = [*report_data.dots, _PEOPLE]
    rows, error_rows = [], []
    asked_panels: list[Panel] = []
    counted: dict[str, list[dict[str, Any]]] = {name: [] for name in ("pronouns", "types", "outcomes")}
    for task in tasks:
        before = "" if len(tasks) == 1 else f"{task_label(task)}: "
        people = people_said() if task == TASKS[0] else {}
        writers = _writers(report_data, task)
        measured = [_ALL, *_BY_TYPE, *writers, ("pairs, both right", "pair_accuracy")]
        asked = [_questions(record) for record in report_data.records(task)]
        counts = [None if questions is None else error_counts(questions) for questions in asked]
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
        asked_panels += _asked_panels(before, task, next(filter(None, asked)), counted)
        outcomes = _outcome_panels(report_data, before, task, counted["outcomes"])
        asked_panels += outcomes[:1]
        if outcomes[1:]:
            section.folds.append(Details(_title(f"{before}outcomes by type, other runs"), panels=outcomes[1:]))
        for label, key in measured:
            rows += report_data.csv_rows(task, key, {"of": label}, PROPORTION_COLUMNS, people=people.get(key))
        error_rows += _error_rows(report_data, task, kinds, counts)
    if report_data.ratings is not None:
        table, section.records["wscplus_raters.csv"] = _raters(report_data, tasks, report_data.ratings)
        section.tables.append(table)
    section.images["wscplus.png"] = (section.panels, section.legend, 2)
    section.images["wscplus_questions.png"] = (asked_panels, [*PRONOUN_MARKS], 2)
    section.panels = [*section.panels, *asked_panels]
    section.legend = [*section.legend, *PRONOUN_MARKS]
    section.records["wscplus.csv"] = rows
    section.records |= {f"wscplus_{name}.csv": lines for name, lines in counted.items() if lines}
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
    return Table(["error", *range(len(counts))], rows, _title(title))


def _error_rows(report_data: ReportData, task: str, kinds: Sequence[str], counts: _Counts) -> list[dict[str, Any]]:
    rows = []
    for run, count in zip(report_data.runs, counts, strict=True):
        if count is None:
            continue
        total = sum(count.values())
        for kind in kinds:
            share = count[kind] / total if total else None
            found = {"error": ERROR_LABELS[kind], "count": count[kind], "share": share, "errors": total}
            rows.append({"run": run.label, "task": task, **found})
    return rows


def error_counts(questions: Questions) -> dict[str, int]:
    """Kind of error -> its number, recomputed from the answers of a run."""
    found = collections.Counter(_outcomes(questions))
    return {kind: found[kind] for kind in ERROR_LABELS}


def _outcomes(questions: Questions) -> list[str]:
    """`CORRECT` or the kind of error of each question."""
    outcomes = []
    rows = zip(questions.correct, questions.choices, questions.targets, questions.scores, strict=True)
    for right, choice, answer, scores in rows:
        is_tie = scores.size > 0 and np.count_nonzero(scores == scores.max()) > 1
        if right:
            outcomes.append(CORRECT)
        elif choice is None or is_tie:
            outcomes.append(wscplus.NO_ANSWER)
        elif answer == NEITHER:
            outcomes.append(wscplus.AMBIGUITY_MISINTERPRETATION)
        elif choice == NEITHER:
            outcomes.append(wscplus.RESPONSE_EVASION)
        else:
            outcomes.append(wscplus.ENTITY_MISSELECTION)
    return outcomes


def people_said() -> dict[str, float]:
    """Metric -> people's accuracy (Table 6), in [0, 1]."""
    return {number.metric: number.value for number in numbers(paper="wscplus", table="6", model=PEOPLE)}


def outcome_counts(questions: Questions) -> dict[tuple[str, str], int]:
    """(outcome, type) -> its questions: `CORRECT` and the kinds of errors, by type (Figure 11)."""
    found = {(kind, name): 0 for kind in (CORRECT, *ERROR_LABELS) for name in TYPES}
    rows = zip(questions.groups, _outcomes(questions), strict=True)
    for groups, kind in rows:
        for name in TYPES:
            if name in groups:
                found[kind, name] += 1
    return found


def pronoun_panel(title: str, counts: Mapping[str, int]) -> Panel:
    """The shares of the most frequent pronouns, next to the original challenge's (Figure 4)."""
    labels = list(counts)[:_MOST_DRAWN_PRONOUNS]
    series = [
        (mark, _without_intervals([100 * of.get(label, 0) / sum(of.values()) for label in labels]))
        for mark, of in zip(PRONOUN_MARKS, (counts, WSC285_PRONOUNS), strict=True)
    ]
    options = {"percent": False, "ylabel": "% of the questions"}
    return figures.bars_panel(title, labels, series, 2.6, f"WSC+, {title}: a bar a set", **options)


def type_panel(title: str, counts: Mapping[str, Mapping[str, int]]) -> Panel:
    """Type -> writer -> number of questions, as a table of counts (Figure 10)."""
    writers = list(next(iter(counts.values())))
    numbers_of = np.array([[of[writer] for of in counts.values()] for writer in writers])
    labels = [GENERATOR_LABELS.get(writer, writer) for writer in writers]
    return figures.count_panel(title, labels, list(counts), numbers_of, f"WSC+, {title}")


def _asked_panels(
    before: str, task: str, questions: Questions, counted: Mapping[str, list[dict[str, Any]]]
) -> list[Panel]:
    """Figures 4 and 10 of the questions that were asked. Their rows are added to ``counted``."""
    panels = []
    pronouns = pronoun_counts(named["pronoun"] for named in questions.named if "pronoun" in named)
    if pronouns:
        panels.append(pronoun_panel(_title(f"{before}pronouns (as Figure 4)"), pronouns))
        counted["pronouns"].extend(pronoun_rows(pronouns, task=task))
    by_writer = _types_by_writer(questions)
    if any(by_writer.values()):
        panels.append(type_panel(_title(f"{before}questions by type and writer (as Figure 10)"), by_writer))
        counted["types"].extend(type_rows(by_writer, task=task))
    return panels


def _types_by_writer(asked: Questions) -> dict[str, dict[str, int]]:
    counts = collections.Counter(
        (next((group for group in groups if group in TYPES), None), group)
        for groups in asked.groups
        for group in groups
        if group not in TYPES
    )
    there = dict.fromkeys(writer for _, writer in counts)
    order = [*(name for name in GENERATORS if name in there), *(name for name in there if name not in GENERATORS)]
    return {name: {writer: counts[name, writer] for writer in order} for name in TYPES}


def pronoun_rows(counts: Mapping[str, int], **more: str) -> list[dict[str, Any]]:
    """The numbers behind Figure 4, a row a pronoun."""
    total, original = sum(counts.values()), sum(WSC285_PRONOUNS.values())
    rows = []
    for pronoun in dict.fromkeys([*counts, *WSC285_PRONOUNS]):
        here, there = counts.get(pronoun, 0), WSC285_PRONOUNS.get(pronoun, 0)
        shares = {"share": here / total, "wsc285": there, "wsc285_share": there / original}
        rows.append({**more, "pronoun": pronoun, "questions": here, **shares})
    return rows


def type_rows(counts: Mapping[str, Mapping[str, int]], **more: str) -> list[dict[str, Any]]:
    """The numbers behind Figure 10, a row a type and writer."""
    return [
        {**more, "type": name, "writer": writer, "questions": count}
        for name, of_type in counts.items()
        for writer, count in of_type.items()
    ]


def _outcome_panels(report_data: ReportData, before: str, task: str, rows: list[dict[str, Any]]) -> list[Panel]:
    """Figure 11, a panel a run. Their numbers are added to ``rows``."""
    panels = []
    for run_number, (run, record) in enumerate(zip(report_data.runs, report_data.records(task), strict=True)):
        if (questions := _questions(record)) is None:
            continue
        counts = outcome_counts(questions)
        labels = {CORRECT: CORRECT, **ERROR_LABELS}
        shown = [kind for kind in labels if kind != wscplus.NO_ANSWER or any(counts[kind, name] for name in TYPES)]
        rows += [
            {"run": run.label, "task": task, "outcome": labels[kind], "type": name, "questions": count}
            for (kind, name), count in counts.items()
        ]
        if run_number < MOST_CHARTED_RUNS:
            table = np.array([[counts[kind, name] for name in TYPES] for kind in shown])
            title = _title(f"{before}outcomes by type (Figure 11)")
            title += f", {run.label}" if len(report_data.runs) > 1 else ""
            names = [labels[kind] for kind in shown]
            panels.append(figures.count_panel(title, names, TYPES, table, f"WSC+, {title}: shares of each type"))
    return panels


def _raters(
    report_data: ReportData, tasks: Sequence[str], ratings: Sequence[Rating]
) -> tuple[Table, list[dict[str, Any]]]:
    """People's accuracy by type, and their agreement: a table, and a row a number."""
    answers: dict[str, str] = {}
    types: dict[str, str] = {}
    asked = [_questions(record) for task in tasks for record in report_data.records(task)]
    for questions in filter(None, asked):
        for name, answer, groups in zip(questions.ids, questions.targets, questions.groups, strict=True):
            if answer is not None:
                answers[name] = wscplus.LABELS[answer]
                types[name] = next((group for group in groups if group in TYPES), UNTYPED)
    types = dict(sorted(types.items(), key=lambda question_type: (*TYPES, UNTYPED).index(question_type[1])))
    kappa = agreement.ratings_kappa(ratings, wscplus.LABELS, num_resamples=report_data.resamples, seed=report_data.seed)
    accuracies = agreement.rater_accuracy(ratings, answers, types)
    columns = [*(name for name in dict.fromkeys(types.values()) if name != UNTYPED), agreement.TOTAL]
    lines, rows = [], []
    for rater, entries in accuracies.items():
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
    published_values = [
        people.get("accuracy" if column == agreement.TOTAL else f"{column}/accuracy") for column in columns
    ]
    quoted = [ABSENT if value is None else Cell(percent(value), style="paper") for value in published_values]
    lines.append(TableRow([Cell("people (paper)"), *quoted]))
    rows.append({"rater": "all", "of": "Fleiss' kappa", **{key: getattr(kappa, key) for key in NUMBER_COLUMNS}})
    (printed,) = numbers(paper="wscplus", metric="kappa")
    caption = f"People's answers, {kappa.num_raters} to each of {kappa.n:,} questions: {_kappa_said(kappa)}"
    return Table(["right answers", *columns], lines, f"{caption} (paper: {printed.printed})"), rows


def _kappa_said(kappa: agreement.Kappa) -> str:
    if kappa.value is None:
        return "Fleiss' kappa is not defined, as all answers are the same"
    said = f"Fleiss' kappa {number(kappa.value, 3)}"
    if kappa.low is None or kappa.high is None:
        return said
    return f"{said}, 95% interval {number(kappa.low, 3)} to {number(kappa.high, 3)}"


def _questions(record: TaskRun | None) -> Questions | None:
    """The questions that a run has answered; None without their table."""
    return record.examples if record is not None and isinstance(record.examples, Questions) else None


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
    title = _title(title)
    return figures.bars_panel(title, labels, series, 2.6, f"WSC+, {title}: a bar a run", **options)


def _title(text: str) -> str:
    return text[0].upper() + text[1:]


def _share(counts: Mapping[str, int], kind: str) -> Cell:
    total = sum(counts.values())
    return Cell(f"{counts[kind]:,}", f"{percent(counts[kind] / total)}%" if total else "", "value")


def _pronouns(report_data: ReportData, task: str) -> list[Details]:
    """The frequency of each pronoun, and its right answers (compare Figure 4)."""
    asked = [_questions(record) for record in report_data.records(task)]
    questions = next(filter(None, asked))
    counts = pronoun_counts(named["pronoun"] for named in questions.named if "pronoun" in named)
    if not counts:
        return []
    rows = []
    for pronoun, count in list(counts.items())[:_MOST_PRONOUNS]:
        cells = [Cell(pronoun), Cell(f"{count:,}", f"{percent(count / len(questions.ids))}%")]
        for run_number, questions_of_run in enumerate(asked):
            if questions_of_run is None:
                cells.append(ABSENT)
                continue
            right = [
                bool(is_right)
                for named, is_right in zip(questions_of_run.named, questions_of_run.correct, strict=True)
                if named.get("pronoun", "").strip().lower() == pronoun
            ]
            entry = {**metrics.wilson(sum(right), len(right))._asdict(), "chance": _CHANCE} if right else None
            cells.append(proportion_cell(entry, run_number))
        rows.append(TableRow(cells))
    columns = ["pronoun", "questions", *range(len(report_data.runs))]
    title = "Pronouns" if task == TASKS[0] else f"Pronouns of {task_label(task)}"
    return [Details(title, tables=[Table(columns, rows, "How often it occurs, and right answers")])]
