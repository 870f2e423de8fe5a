"""CLEVR by sub-task, next to the paper's Table 6."""

from __future__ import annotations

from winobench.report import published
from winobench.report.cells import NUMBER_COLUMNS, Cell, Table, TableRow, proportion_cell
from winobench.report.sections.shared import ReportData, Section
from winobench.report.wording import percent

CLEVR_LABELS = {  # in the order of the paper's Table 6
    "pair_binding_size": "Pair binding (size)",
    "pair_binding_color": "Pair binding (colour)",
    "binding_shape_color": "Binding (shape | colour)",
    "binding_color_shape": "Binding (colour | shape)",
    "recognition_color": "Recognition (colour)",
    "recognition_shape": "Recognition (shape)",
    "spatial": "Spatial",
}
_TABLE = ("6",)


def clevr_section(report_data: ReportData) -> Section | None:
    """CLEVR's sub-tasks next to the paper's (Table 6)."""
    records = report_data.records("clevr")
    if not any(records):
        return None
    models = published.columns(_TABLE, "clevr")
    rows, lines = [], []
    for group, label in [*CLEVR_LABELS.items(), ("", "Average")]:
        key = f"{group}/accuracy" if group else "accuracy"
        # The sub-tasks are of one size, so that the accuracy over all examples is their average. Where they are not,
        # the macro mean is.
        results = [{} if record is None else record.results for record in records]
        entries = [of_run.get(key if group else "macro_accuracy") or of_run.get(key) for of_run in results]
        if not any(entries):
            continue
        quoted = [published.cell(_TABLE, "clevr", key, model) for model in models]
        lines.append(
            TableRow(
                [
                    Cell(label, style="" if group else "strong"),
                    *(proportion_cell(entry, run) for run, entry in enumerate(entries)),
                    *(Cell("" if other is None else percent(other.value), style="paper") for other in quoted),
                ]
            )
        )
        of = {"sub_task": group or "average"}
        for run, entry in zip(report_data.runs, entries, strict=True):
            if entry:
                rows.append({**of, "source": run.label, **{name: entry[name] for name in NUMBER_COLUMNS}})
        for model, other in zip(models, quoted, strict=True):
            if other is not None:
                numbers = {**dict.fromkeys(NUMBER_COLUMNS), "value": other.value}
                rows.append({**of, "source": f"{model} (paper)", **numbers})
    if not lines:
        return None
    return Section(
        "clevr",
        "CLEVR by sub-task",
        [
            "Accuracy in percent. Chance is 50. The paper's columns are its Table 6, on images that its authors "
            "rendered: the question is the same, the images are not."
        ],
        tables=[Table(["sub-task", *range(len(report_data.runs)), *(f"{model} (paper)" for model in models)], lines)],
        records={"clevr.csv": rows},
    )
