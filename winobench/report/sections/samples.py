"""Accuracy against the number of samples."""

from __future__ import annotations

from collections.abc import Sequence

from winobench.report import analysis, figures
from winobench.report.figures import Panel
from winobench.report.labels import task_label
from winobench.report.sections.shared import Material, Section, folded, no_curve, percent, says_nothing


def sample_section(material: Material) -> Section | None:
    """Accuracy against the number of samples (Figure 9)."""
    panels, rows, absent, raced = [], [], [], []
    few: dict[str, list[str]] = {}
    for task in material.tasks:
        if material.has_bias(task):
            continue
        curves: dict[str, list[tuple[int, analysis.Curve]]] = {}
        levels: dict[str, list[tuple[int, float]]] = {}
        for place, run in enumerate(material.runs):
            record = run.tasks.get(task)
            if record is None or record.judge is None:
                continue
            if record.deterministic or record.num_samples == 1:
                for metric, entry in record.results.items():
                    levels.setdefault(metric, []).append((place, entry["value"]))
                continue
            if says_nothing(record):
                few.setdefault(task, []).append(run.label)
                continue
            if run.has_raced(task):
                raced.append(run.label)
                continue
            batches = run.batches(task)
            if batches is None:
                absent.append(f"{task_label(task)} of {run.label}")
                continue
            found = analysis.accuracy_by_samples(batches, record.examples.targets, record.judge, seed=material.seed)
            for metric, curve in found.items():
                curves.setdefault(metric, []).append((place, curve))
                rows += [
                    {
                        "run": run.label,
                        "task": task,
                        "metric": metric,
                        "samples": int(size),
                        "mean": float(mean),
                        "low": float(low),
                        "high": float(high),
                    }
                    for size, mean, low, high in zip(curve.sizes, curve.mean, curve.low, curve.high, strict=True)
                ]
        for metric in material.shown(task):
            if metric not in curves:
                continue
            chance = next(
                (
                    record.results[metric]["chance"]
                    for record in material.records(task)
                    if record and metric in record.results
                ),
                None,
            )
            for place, value in levels.get(metric, []):
                label = material.runs[place].label
                fields = {"run": label, "task": task, "metric": metric, "samples": 1}
                rows.append({**fields, "mean": value, "low": value, "high": value})
            panel = _curve_panel(material, task, metric, curves[metric], levels.get(metric, []), chance)
            panels.append((task, panel))
    if not panels and not few:
        return None
    title = "Accuracy against the number of samples"
    if not panels:
        return Section("samples", title, [no_curve(material, few)])
    low, high = analysis.BAND
    shown, folds = folded(panels)
    section = Section(
        "samples",
        title,
        [
            f"Each point is the mean over {analysis.SUBSETS} random subsets of a run's own samples (seed "
            f"{material.seed}), from the recorded errors and under the task's normalisation; the band holds the "
            f"{low}th to {high}th percentile of the subsets. It closes at the full number by construction, because "
            "there is one such subset only. The dashed grey line is chance; runs that need no samples are horizontal.",
        ],
        legend=material.marks if len(material.runs) > 1 else [],
        panels=shown,
        folds=folds,
        records={"samples.csv": rows},
        pictures={"samples.png": ([panel for _, panel in panels], material.marks if len(material.runs) > 1 else [], 3)},
    )
    if few:
        section.notes.append(no_curve(material, few))
    if raced:
        section.notes.append(f"{', '.join(dict.fromkeys(raced))} raced: pairs have different numbers of samples.")
    if absent:
        section.notes.append(f"No complete errors are recorded for {'; '.join(absent)}.")
    return section


def _curve_panel(
    material: Material,
    task: str,
    metric: str,
    curves: Sequence[tuple[int, analysis.Curve]],
    levels: Sequence[tuple[int, float]],
    chance: float | None,
) -> Panel:
    marks = material.marks
    lines = [(marks[place], curve.sizes, curve.mean, curve.low, curve.high) for place, curve in curves]
    flat = [(marks[place], value) for place, value in levels]
    title = task_label(task) if metric == "accuracy" else f"{task_label(task)}, {metric}"
    ends = "; ".join(
        f"{mark.label} reaches {percent(mean[-1])}% with {sizes[-1]} samples" for mark, sizes, mean, *_ in lines
    )
    return Panel(title, lambda axes: figures.sample_curves(axes, lines, flat, chance), description=f"{title}: {ends}")
