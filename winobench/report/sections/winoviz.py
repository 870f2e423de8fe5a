"""WinoViz in the layout of the paper's Tables 1 to 4 and 6, and the position bias of answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from winobench.report import figures, published
from winobench.report.cells import ABSENT, PROPORTION_COLUMNS, Cell, Table, TableRow, drawn_values, proportion_cell
from winobench.report.figures import Mark, Panel
from winobench.report.sections.shared import ReportData, Section
from winobench.runs.run import Run

SETS = {"winoviz": "the user's items", "winoviz_mini": "our small set"}  # beginning of the tasks' names -> their items

_HOPS = (("Single-hop", "single"), ("Multi-hop", "multi"))
_METRICS = (("Ind.", "individual"), ("Pair", "pair"))
_STEPS = (("Pragmatic", "pragmatic"), ("Visual", "visual"), ("Combined", "combined"))
_BIAS = {
    "position_bias/first_option": "first option chosen",
    "position_bias/flipped": "choice changes with the order",
    "position_bias/right_in_both_orders": "right in both orders",
}
# Caption, the prompts of its rows, and the tables of the paper whose rows stand below ours.
_BLOCKS = (
    ("Zero-shot (Table 1)", ("zero_shot",), ("Table 1", "Table 6")),
    ("Four examples, without and with reasons (Table 2)", ("few_shot", "chain_of_thought"), ("Table 2",)),
    ("After NLI training (Table 3)", ("entailment",), ("Table 3",)),
    ("By similarity of the texts (ours)", ("similarity",), ()),
    ("With images of the premises (Table 6)", ("picture_match", "captions", "vqa"), ("Table 6",)),
)
# Tables with a comparison to them.
_WITH_ZERO_SHOT = ("Table 2", "Table 6")
_PROMPTS = {
    "zero_shot": "0 examples",
    "few_shot": "4 examples",
    "chain_of_thought": "4 examples with reasons",
    "entailment": "entailment",
    "similarity": "similarity",
    "picture_match": "match of images and hypotheses",
    "captions": "captions of images",
    "vqa": "asked about images",
}


@dataclasses.dataclass(frozen=True)
class _Row:
    """A run, or a row of the paper: its names, and task and metric -> entry."""

    name: str
    prompt: str
    entries: Mapping[tuple[str, str], Mapping[str, Any]]
    run: int | None = None


def winoviz_section(report_data: ReportData) -> Section | None:
    """Tables 1 to 4 and 6 with our runs above the paper's rows, and the position bias of runs that asked both ways."""
    tasks = {task for run in report_data.runs for task in run.tasks}
    sets = [name for name in SETS if any(task in tasks for task in _tasks_of(name))]
    if not sets:
        return None
    section = Section(
        "winoviz",
        "WinoViz",
        [
            "Ind. counts questions, Pair the pairs of which both questions are right. Chance is 50% and 25%. Options "
            "that are scored stand among answers that are generated, as the small print says."
        ],
    )
    marks = report_data.dots
    panels: list[Panel] = []
    for name in sets:
        single, multi, decoupled = _tasks_of(name)
        whose = f", {SETS[name]}" if len(sets) > 1 or name != "winoviz" else ""
        hops = [(f"{hop} {metric}", f"{name}_{task}", key) for hop, task in _HOPS for metric, key in _METRICS]
        ours = [_run_row(run, number) for number, run in enumerate(report_data.runs)]
        for caption, prompts, tables in _BLOCKS:
            wanted = ("zero_shot", *prompts) if tables and tables[0] in _WITH_ZERO_SHOT else prompts
            rows = [row for row in ours if _prompt(row.prompt) in wanted and _has(row, hops)]
            if not any(_prompt(row.prompt) in prompts for row in rows):
                continue
            rows += [row for row in _paper_rows((single, multi), tables) if row.prompt in wanted]
            section.tables.append(_table(f"{caption}{whose}", rows, hops))
        steps = [(step, decoupled, f"{group}/individual") for step, group in _STEPS]
        rows = [row for row in ours if _has(row, steps)]
        if rows:
            caption = f"The two steps and both together, Ind. (Table 4){whose}"
            section.tables.append(_table(caption, [*rows, *_paper_rows((decoupled,), ("Table 4",))], steps))
        bias = _bias_table(report_data, _tasks_of(name), whose)
        if bias is not None:
            section.tables.append(bias)
        for title, cells in ((f"Single-hop and multi-hop{whose}", hops), (f"The steps apart{whose}", steps)):
            shown = [(row.run, row) for row in ours if row.run is not None and _has(row, cells)]
            series = [(marks[run], drawn_values(_found(row, cells))) for run, row in shown]
            if series:
                panels.append(_bars(title, [label for label, *_ in cells], series))
    if "winoviz_mini" in sets:
        section.intro.append(
            "Our small set is not the paper's, whose items are not public: its numbers are not to be compared with the "
            "paper's, and the paper's stand next to the user's items alone."
        )
    section.panels = panels
    section.legend = marks if panels else []
    if panels:
        section.images["winoviz.png"] = (panels, marks, 2)
    section.records["winoviz.csv"] = list(_records(report_data, sets))
    return section


def _tasks_of(name: str) -> tuple[str, str, str]:
    return (f"{name}_single", f"{name}_multi", f"{name}_decoupled")


def _prompt(protocol: str) -> str:
    """The prompt of a protocol, for generated and scored answers, in one order of the options or both."""
    return protocol.removesuffix("_swapped").removesuffix("_options")


def _run_row(run: Run, place: int) -> _Row:
    entries = {(task, key): entry for task, record in run.tasks.items() for key, entry in record.results.items()}
    return _Row(run.label, run.protocol, entries, place)


def _paper_rows(tasks: Sequence[str], tables: Sequence[str]) -> list[_Row]:
    """The paper's rows of some tables."""
    rows: dict[tuple[str, str], dict[tuple[str, str], dict[str, Any]]] = {}
    for task in tasks:
        for printed in published.numbers_of_task(task):
            if printed.place in tables:
                entry = {"value": printed.value, "printed": printed.printed}
                rows.setdefault((printed.method, printed.protocol or ""), {})[task, printed.metric] = entry
    return [_Row(f"{method} (paper)", protocol, entries) for (method, protocol), entries in rows.items()]


def _has(row: _Row, cells: Iterable[tuple[str, str, str]]) -> bool:
    return any(_found(row, cells))


def _found(row: _Row, cells: Iterable[tuple[str, str, str]]) -> list[Mapping[str, Any] | None]:
    return [row.entries.get((task, key)) for _, task, key in cells]


def _table(caption: str, rows: Sequence[_Row], cells: Sequence[tuple[str, str, str]]) -> Table:
    lines = []
    for row in rows:
        entries = _found(row, cells)
        if row.run is None:
            shown = [ABSENT if entry is None else Cell(entry["printed"], style="paper") for entry in entries]
        else:
            shown = [proportion_cell(entry, row.run) for entry in entries]
        how = _PROMPTS.get(_prompt(row.prompt), row.prompt)
        how += ", scored" if row.prompt.removesuffix("_swapped").endswith("_options") else ""
        lines.append(TableRow([Cell(row.name, how), *shown]))
    return Table(["model and prompt", *(label for label, *_ in cells)], lines, caption)


def _bias_table(report_data: ReportData, tasks: Sequence[str], whose: str) -> Table | None:
    lines = []
    for number, run in enumerate(report_data.runs):
        for task in tasks:
            entries = run.tasks[task].results if task in run.tasks else {}
            if not any(key in entries for key in _BIAS):
                continue
            cells = [proportion_cell(entries.get(key), number) for key in _BIAS]
            version = task.rpartition("_")[2]
            lines.append(TableRow([Cell(run.label, f"{version}, {_PROMPTS.get(_prompt(run.protocol), '')}"), *cells]))
    if not lines:
        return None
    caption = f"Position bias: every question asked in both orders of its options{whose}"
    return Table(["model and items", *_BIAS.values()], lines, caption)


def _bars(title: str, labels: Sequence[str], series: Sequence[tuple[Mark, np.ndarray]]) -> Panel:
    return figures.bars_panel(title, labels, series, 2.4, f"WinoViz, {title}: a bar a run")


def _records(report_data: ReportData, sets: Sequence[str]) -> Iterable[dict[str, Any]]:
    for name in sets:
        for task in _tasks_of(name):
            for run in report_data.runs:
                for key, entry in (run.tasks[task].results if task in run.tasks else {}).items():
                    values = {column: entry[column] for column in PROPORTION_COLUMNS}
                    yield {"run": run.label, "protocol": run.protocol, "task": task, "metric": key, **values}
            for printed in published.numbers_of_task(task):
                yield {
                    "run": f"{printed.method} (paper, {printed.place})",
                    "protocol": printed.protocol,
                    "task": task,
                    "metric": printed.metric,
                    **dict.fromkeys(PROPORTION_COLUMNS),
                    "value": printed.value,
                }
