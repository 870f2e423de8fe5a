"""Accuracy of a model in training: tasks, scored with DiffusionITM at each validation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from winobench.base import memory
from winobench.base.errors import InputError
from winobench.evaluation import plan as planning
from winobench.evaluation import summary
from winobench.scorers import samples
from winobench.scorers.diffusion_itm import DiffusionITM
from winobench.tasks.base import Task

if TYPE_CHECKING:
    from winobench.diffusion.pipeline import Pipeline

MEAN = "validation/mean"  # over tasks: selects checkpoints (paper, section 4)


class Validation:
    """Tasks of the metric ``accuracy`` and fixed samples, so that values of one training can be compared."""

    def __init__(
        self,
        tasks: Sequence[Task],
        *,
        data_dir: str | None = None,
        limit: int | None = None,
        num_samples: int = 8,
        seed: int = 0,
        **options: Any,
    ):
        """Takes ``options`` of the scorer: timestep_range, batch_size, image_size, mesh."""
        for task in tasks:
            if task.metric != "accuracy":
                raise InputError(
                    f"task {task.name!r} has the metric {task.metric}: validate on tasks with accuracy",
                    code="unknown-metric",
                )
        self._tasks = list(tasks)
        self._plan = planning.make_plan(tasks, data_dir=data_dir, limit=limit, normalize="auto")
        self._sampling = {"num_samples": samples.check_num_samples(num_samples), "seed": seed}
        memory.check(
            f"a validation on {len(self._plan.pairs):,} pairs x {num_samples:,} samples",
            len(self._plan.pairs) * num_samples * 4 * 4,  # a triple's three numbers, and its error
            "lower validation.num_samples or validation.limit",
        )
        self._options = options

    def __call__(self, pipeline: Pipeline) -> dict[str, float]:
        """``validation/<task>``, each task's accuracy in [0, 1], and ``validation/mean``. Ties are wrong."""
        scorer = DiffusionITM(pipeline, **self._options)
        plan, num_samples = self._plan, self._sampling["num_samples"]
        triples = np.column_stack(
            [np.repeat(plan.pairs, num_samples, axis=0), np.tile(np.arange(num_samples), len(plan.pairs))]
        ).astype(np.int32)
        errors = np.empty(len(triples), np.float32)
        for rows, part in scorer.iter_errors(plan.images, plan.texts, triples, **self._sampling):
            errors[rows] = part
        if not np.isfinite(errors).all():
            raise InputError(
                "validation met an error that is not finite: train in float32, or at a lower rate", code="not-finite"
            )
        values = {}
        for task in self._tasks:
            scores = summary.question_scores(plan, task.name, errors.reshape(-1, num_samples))
            results = summary.task_results(task, plan.questions[task.name], scores)
            values[f"validation/{task.name}"] = results["accuracy"]["value"]
        return {**values, MEAN: float(np.mean(list(values.values())))}
