"""The tasks at a glance: how far each run is above chance, on one chart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from winobench.report import figures, published
from winobench.report.figures import Mark
from winobench.report.radar import radar_panel
from winobench.report.sections.shared import ReportData, Section
from winobench.report.wording import above_chance, listed

_FEWEST_AXES = 3
# With more axes than this, tasks that the paper lacks and that repeat others in another form, are left
# out of the radar chart.
_MANY_AXES = 12
_OTHER_FORMS = ("clevr_image", "clevr_winoground", "pets_photo", "pets_all")


def radar_section(report_data: ReportData) -> Section | None:
    """The tasks at a glance (Figures 2 and 10)."""
    axes = []
    for task in report_data.charted:
        for metric in report_data.headlines(task):
            if not report_data.has_answers(task):
                continue
            entries = report_data.entries(task, metric)
            known = [entry for entry in entries if entry and entry["chance"] is not None]
            if known:
                axes.append((report_data.measure(task, metric), task, metric, known[0]["chance"], entries))
    without = [axis for axis in axes if axis[1] not in _OTHER_FORMS]
    left_out = list(dict.fromkeys(axis[1] for axis in axes if axis[1] in _OTHER_FORMS))
    if len(without) > _MANY_AXES and left_out:
        axes = without
    else:
        left_out = []
    if len(axes) < _FEWEST_AXES:
        return None
    chances = np.array([chance for *_, chance, _ in axes])
    best = np.array([report_data.best(task) for _, task, *_ in axes])

    def above(values: Sequence[float | None], levels: np.ndarray) -> np.ndarray:
        numbers = np.array([np.nan if value is None else value for value in values], np.float64)
        return above_chance(numbers, levels, best)

    series, rows = [], []
    for index, (run, mark) in enumerate(zip(report_data.runs, report_data.marks, strict=True)):
        of_run = [entries[index] or {} for *_, entries in axes]
        raw = [entry.get("value") for entry in of_run]
        # Runs may have asked different questions of a task.
        own = [entry.get("chance") for entry in of_run]
        levels = np.array([chance if level is None else level for level, chance in zip(own, chances, strict=True)])
        series.append((mark, above(raw, levels)))
        rows += _radar_rows(run.label, axes, levels, raw, series[-1][1])
    quoted: list[tuple[Mark, np.ndarray]] = []
    for model, name in published.RADAR_MODELS.items():
        raw = [published.value_of(task, metric, model) for _, task, metric, *_ in axes]
        if sum(value is not None for value in raw) >= _FEWEST_AXES:
            mark = Mark(f"{name} (paper)", figures.MUTED, "os^D"[len(quoted) % 4], figures.DASHES[1 + len(quoted) % 3])
            quoted.append((mark, above(raw, chances)))
            rows += _radar_rows(mark.label, axes, chances, raw, quoted[-1][1])
    everyone = [mark for mark, _ in series] + [mark for mark, _ in quoted]
    description = "Radar chart: how far each run is above chance, task by task"
    panel = radar_panel("Tasks", [label for label, *_ in axes], [*quoted, *series], description)
    intro = (
        "The radius is (value − chance) / (1 − chance): the dashed ring is chance, the outer ring is all right. Values "
        "below chance lie inside the dashed ring."
    )
    if left_out:
        intro += f" In the table only, as the paper does not have them: {listed(left_out)}."
    return Section(
        "radar",
        "Tasks at a glance",
        [intro],
        legend=everyone,
        panels=[panel],
        records={"radar.csv": rows},
        images={"radar.png": ([panel], everyone, 1)},
    )


def _radar_rows(
    label: str, axes: Sequence[tuple], levels: np.ndarray, raw: Sequence[float | None], radii: np.ndarray
) -> list[dict]:
    return [
        {"series": label, "task": task, "metric": metric, "value": value, "chance": chance, "radius": float(radius)}
        for (_, task, metric, *_), chance, value, radius in zip(axes, levels.tolist(), raw, radii, strict=True)
        if value is not None
    ]
