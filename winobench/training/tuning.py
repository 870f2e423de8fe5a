"""A run that fine-tunes a model: training with validations, checkpoints and exports."""

from __future__ import annotations

import math
import os
import pathlib
from typing import TYPE_CHECKING, Any, ClassVar

from winobench import parallel
from winobench.base import options
from winobench.training import loop
from winobench.training.checkpoints import Checkpoints, TrainState

if TYPE_CHECKING:
    import ml_collections


class Tuning:
    """One run. Subclasses load the model and the data.

    They define ``measure(state)``, the validation's numbers of a state, ``export_best(state)``, which writes the model
    of the best validation, or of the newest checkpoint without validation, ``_batches_from(step)`` and ``report()``.

    Attributes:
      best_metric: the validation's number by which checkpoints are compared. Higher is better.
      watched: the number whose growth ends a run that diverges.
    """

    best_metric: ClassVar[str]
    watched: ClassVar[str] = "loss"
    _frozen: Any = None
    _validation: Any = None

    @classmethod
    def run(
        cls, config: ml_collections.ConfigDict, workdir: str | os.PathLike, *, max_seconds: float | None = None
    ) -> str:
        """Trains, or continues training, and exports what was trained."""
        parallel.one_device_per_core()
        training = cls(config, pathlib.Path(workdir))
        training.train(max_seconds=max_seconds)
        return training.report()

    def export_newest(self, state: TrainState) -> None:
        """Writes the model of the newest checkpoint where a recipe keeps it."""

    def train(self, *, max_seconds: float | None = None) -> None:
        """Trains up to the last step, with validations, checkpoints and exports."""
        config = self._config
        validates = self._validation is not None
        checkpoints = Checkpoints(self._workdir / "checkpoints", best_metric=self.best_metric if validates else None)
        best = checkpoints.best()
        best_value = -math.inf if best is None else best[1]

        def validate(state: TrainState) -> dict[str, float]:
            nonlocal best_value
            values = self.measure(state)
            # As the checkpoints do, of equal ones the newest. Not the model before its first step.
            if int(state.step) and values[self.best_metric] >= best_value:
                best_value = values[self.best_metric]
                self.export_best(state)
            return values

        def keep(state: TrainState) -> None:
            self.export_newest(state)
            if not validates:
                self.export_best(state)

        try:
            state = loop.train(
                self._step,
                self._state,
                self._batches_from,
                num_steps=self.num_steps,
                checkpoints=checkpoints,
                metrics_file=self._workdir / "metrics.jsonl",
                writers=self._writers,
                name="training",
                log_every=config.log_every,
                checkpoint_every=config.checkpoint_every,
                on_checkpoint=keep,
                max_seconds=max_seconds,
                mesh=self._mesh,
                frozen=self._frozen,
                validate=validate if validates else None,
                validate_every=config.validate_every,
                watched=self.watched,
                explosion_factor=config.explosion_factor,
            )
            keep(state)  # once more, for a run that was killed between its last checkpoint and this
            checkpoints.wait()
            self._best = checkpoints.best()
        finally:
            checkpoints.close()


def check_numbers(config: ml_collections.ConfigDict) -> None:
    """Checks the ranges of the numbers that all recipes have."""
    for name in ("batch_size", "accumulate", "log_every", "checkpoint_every"):
        options.STEPS.check(f"config.{name}", config[name])
    options.FACTOR.check("config.explosion_factor", config.explosion_factor)
