"""What runs are called side by side: as short as it will do to tell them apart."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from winobench.runs.labels import model_label, shortened

if TYPE_CHECKING:
    from winobench.runs.run import Run

# Of a model's name and of each thing that tells runs of one model apart: what tables and legends have room for.
_MOST_LETTERS, _MOST_LETTERS_MORE = 32, 26


def short_label(run: Run) -> str:
    """What a run is called where its model is no other run's."""
    return shortened(model_label(str(run.config.get("model") or run.model)), _MOST_LETTERS)


def tell_apart(runs: Sequence[Run]) -> None:
    """Adds to equal labels what differs between their runs, as little of it as will do."""
    by_label: dict[str, list[Run]] = {}
    for run in runs:
        by_label.setdefault(run.label, []).append(run)
    for label, alike in by_label.items():
        parts: list[tuple[str, ...]] = [() for _ in alike]
        for said in (
            _different_parts([run.model for run in alike]),
            [run.protocol for run in alike],
            [f"normalize {run.config['identity'].get('normalize')}" for run in alike],
            [_samples_said(run) for run in alike],
            [str((run.config["identity"].get("scorer") or {}).get("dtype") or "") for run in alike],
            [run.path.resolve().name for run in alike],
        ):
            if len(set(parts)) == len(alike):
                break
            if len(set(said)) > 1:
                more = [shortened(part, _MOST_LETTERS_MORE) for part in said]
                parts = [(*before, after) for before, after in zip(parts, more, strict=True)]
        for run, more in zip(alike, parts, strict=True):
            run.label = f"{label} ({', '.join(filter(None, more))})" if any(more) else label
    labels = [run.label for run in runs]
    for number, run in enumerate(runs):
        if labels.count(run.label) > 1:
            run.label = f"{run.label} {number + 1}"


def _different_parts(models: Sequence[str]) -> list[str]:
    """Of the names' parts before the last one, those nearest to it in which the names differ. Empty if none do."""
    parts = [re.split(r"[/\\]", model.rstrip("/\\"))[-2::-1] for model in models]
    for some in itertools.zip_longest(*parts, fillvalue=""):
        if len(set(some)) > 1:
            return list(some)
    return [""] * len(models)


def _samples_said(run: Run) -> str:
    counts = [task.num_samples for task in run.tasks.values() if not (task.deterministic or task.is_bias)]
    known = [count for count in counts if count is not None]
    return f"{max(known):,} samples" if known else ""
