"""How well a model that is being trained tells right from wrong: tasks, judged with DiffusionITM again and again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jax.sharding import Mesh

from winobench.base import memory
from winobench.base.errors import InputError
from winobench.evaluation import plan as planning
from winobench.evaluation import summary
from winobench.scorers import samples
from winobench.scorers.diffusion_itm import DiffusionITM
from winobench.tasks.base import Task

if TYPE_CHECKING:
    from winobench.diffusion.pipeline import Pipeline

# Its three numbers, and its error.
_BYTES_OF_A_TRIPLE = 3 * 4 + 4

MEAN = "validation/mean"
"""The name of the mean over tasks, by which checkpoints are selected (paper, section 4)."""


class Validation:
    """Tasks and the samples that they are judged on, the same every time, so that values can be compared.

    Args:
      tasks: with the metric ``accuracy``, such as the text side and the image side of a set with hard negatives.
      data_dir: where the tasks find their data.
      limit: scenes or items a task; None means all.
      num_samples: of noise and timestep, for every pair.
      seed: of the samples.
      timestep_range: (first, end) of the timesteps that are drawn; ``all``; None for what the model's folder states.
      batch_size: of the scorer, on each device; None lets it choose.
      image_size: images are resized to it; None for the model's own.
      mesh: the devices.

    Raises:
      InputError: a task's data cannot be used.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        *,
        data_dir: str | None = None,
        limit: int | None = None,
        num_samples: int = 8,
        seed: int = 0,
        timestep_range: tuple[int, int] | str | None = None,
        batch_size: int | None = None,
        image_size: int | None = None,
        mesh: Mesh | None = None,
    ):
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
            self.num_passes * _BYTES_OF_A_TRIPLE,
            "lower validation.num_samples or validation.limit",
        )
        self._options = {
            "timestep_range": timestep_range,
            "batch_size": batch_size,
            "image_size": image_size,
            "mesh": mesh,
        }

    @property
    def num_passes(self) -> int:
        """Passes of the denoiser that one validation takes."""
        return len(self._plan.pairs) * self._sampling["num_samples"]

    def __call__(self, pipeline: Pipeline) -> dict[str, float]:
        """Judges the model as it is now.

        Returns ``validation/<task>``, the accuracy of each task in [0, 1], and ``validation/mean``, their mean. Ties
        are wrong.
        """
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
        errors = errors.reshape(-1, num_samples)
        values = {}
        for task in self._tasks:
            scores = summary.question_scores(plan, task.name, errors)
            results = summary.task_results(task, plan.questions[task.name], scores)
            values[f"validation/{task.name}"] = results["accuracy"]["value"]
        return {**values, MEAN: float(np.mean(list(values.values())))}
