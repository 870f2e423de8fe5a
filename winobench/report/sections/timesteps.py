"""Error against timestep, for right and for wrong candidates."""

from __future__ import annotations

import dataclasses

from winobench.report import analysis, figures
from winobench.report.figures import Margins, Mark, Panel
from winobench.report.labels import task_label
from winobench.report.sections.shared import Fold, Material, Section, folded, no_curve, says_nothing

# Above, a power of ten that the numbers of the vertical axis are to be multiplied by.
_MARGINS = Margins(left=0.72, top=0.2)
_SIZE = (2.9, 2.2)


def timestep_section(material: Material) -> Section | None:
    """Error against timestep for right and wrong candidates (Figure 3)."""
    right, wrong = (
        Mark("right candidates", figures.RIGHT, "o"),
        Mark("wrong candidates", figures.WRONG, "s", figures.DASHES[1]),
    )
    gap = Mark("wrong − right", figures.BOTH, "D")
    shown, folds, rows, pictures, untimed = [], [], [], {}, []
    few: dict[str, list[str]] = {}
    for place, run in enumerate(material.runs):
        everything = []
        for task, record in run.tasks.items():
            if record.is_bias or record.deterministic or record.metric is None:
                continue
            if record.timesteps is None:
                untimed.append(run.label)
                continue
            if says_nothing(record):
                few.setdefault(task, []).append(run.label)
                continue
            batches = run.batches(task)
            if batches is None or batches[0].own.shape[-1] != len(record.timesteps):
                continue
            profile = analysis.timestep_profile(
                batches, record.timesteps, record.examples.targets, record.examples.dependence
            )
            everything += [(task, panel) for panel in _timestep_panels(task, profile, right, wrong, gap)]
            for name, (mean, low, high) in profile.series.items():
                for bin_number, (first, last) in enumerate(profile.edges):
                    rows.append(
                        {
                            "run": run.label,
                            "task": task,
                            "series": name,
                            "first_timestep": first,
                            "last_timestep": last,
                            "mean_timestep": float(profile.timesteps[bin_number]),
                            "mean": float(mean[bin_number]),
                            "low": float(low[bin_number]),
                            "high": float(high[bin_number]),
                        }
                    )
        if everything:
            name = "timesteps.png" if len(material.runs) == 1 else f"timesteps-{place + 1}.png"
            pictures[name] = ([panel for _, panel in everything], [right, wrong, gap], 4)
            first, more = folded(everything)
            if len(material.runs) == 1:
                shown, folds = first, more
            else:
                folds.append(Fold(run.label, panels=first, is_open=not folds))
                folds += [dataclasses.replace(fold, title=f"{run.label}, {fold.title}") for fold in more]
    notes = [
        f"{label} did not record its timesteps: evaluate again to see it here." for label in dict.fromkeys(untimed)
    ]
    if few:
        notes.append(no_curve(material, few))
    title = "Error against timestep"
    if not rows:
        return Section("timesteps", title, notes) if few else None
    return Section(
        "timesteps",
        title,
        [
            "Mean error of right and of wrong pairs of image and text, in bins of the timestep with about as many "
            "samples each. First the error itself, which depends on the image far more than on the text; beside it the "
            "error less that of the same image under the empty text or, where that was not scored, wrong less right. "
            "The bands are 95% intervals of the mean over images.",
        ],
        legend=[right, wrong, gap],
        panels=shown,
        folds=folds,
        notes=notes,
        records={"timesteps.csv": rows},
        pictures=pictures,
    )


def _timestep_panels(task: str, profile: analysis.Profile, right: Mark, wrong: Mark, gap: Mark) -> list[Panel]:
    label = task_label(task)
    series = profile.series
    absolute = [(right, series["right"]), (wrong, series["wrong"])]
    if "right_relative" in series:
        relative = [(right, series["right_relative"]), (wrong, series["wrong_relative"])]
        title, ylabel = "relative", "error less unconditional"
    else:
        relative = [(gap, series["wrong_minus_right"])]
        title, ylabel = "difference", "wrong less right"
    return [
        Panel(
            f"{label}, error",
            lambda axes: figures.timestep_lines(axes, profile.timesteps, absolute, "error", zero=False),
            *_SIZE,
            margins=_MARGINS,
        ),
        Panel(
            f"{label}, {title}",
            lambda axes: figures.timestep_lines(axes, profile.timesteps, relative, ylabel, zero=True),
            *_SIZE,
            margins=_MARGINS,
        ),
    ]
