"""A run that fine-tunes a model: training with validations, checkpoints and exports."""

from __future__ import annotations

import abc
import math
import os
import pathlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from winobench import parallel
from winobench.base import options, registry
from winobench.runs.model_settings import Checkpoint
from winobench.runs.training_settings import Training
from winobench.training import loop, writers
from winobench.training.checkpoints import Checkpoints, TrainState

ConfigT = TypeVar("ConfigT", bound=Training)


class Tuning(abc.ABC, Generic[ConfigT]):
    """One run. Subclasses load the model and the data."""

    best_metric: ClassVar[str]  # of the validation, by which checkpoints are compared. Higher is better
    watched: ClassVar[str] = "loss"  # the number whose growth ends a run that diverges
    num_steps: int
    _step: loop.StepFn
    _state: TrainState  # the first one
    _frozen: Any = None
    _validation: Any = None

    def __init__(self, config: ConfigT, workdir: pathlib.Path):
        self._config, self._workdir = config, workdir
        self._mesh = loop.make_mesh(config.batch_size, config.accumulate, config.mesh.model_parallel)
        self._writers = writers.for_run(workdir, project=config.wandb, config=options.nested(options.values(config)))

    def count_steps(self, num_rows: int) -> int:
        """The steps of the config, or else of its epochs over so many rows."""
        config = self._config
        return config.num_steps or math.ceil(config.epochs * num_rows / config.batch_size)

    @classmethod
    def run(
        cls,
        config: ConfigT,
        workdir: str | os.PathLike,
        *,
        max_seconds: float | None = None,
        log: Sequence[str] = (),
    ) -> str:
        parallel.one_device_per_core()
        training = cls(config, pathlib.Path(workdir))
        if log:
            told = options.nested(options.values(config))
            training._writers = writers.for_run(workdir, project=config.wandb, config=told, log=log)
        training.train(max_seconds=max_seconds)
        return training.report()

    @abc.abstractmethod
    def _batches_from(self, first: int) -> Iterator[loop.Batch]:
        """The batches from a step on."""

    @abc.abstractmethod
    def measure(self, state: TrainState) -> dict[str, float]:
        """The validation's numbers of a state."""

    @abc.abstractmethod
    def export_best(self, state: TrainState) -> None:
        """Writes the model of the best validation, or of the newest checkpoint without validation."""

    @abc.abstractmethod
    def report(self) -> str:
        """The run's last lines."""

    def export_newest(self, state: TrainState) -> None:
        """Writes the model of the newest checkpoint where a recipe keeps it."""

    def train(self, *, max_seconds: float | None = None) -> None:
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
                loop.Pace(
                    self.num_steps,
                    config.log_every,
                    config.checkpoint_every,
                    config.validate_every,
                    max_seconds,
                    self.watched,
                    config.explosion_factor,
                ),
                loop.Outputs("training", self._workdir / "metrics.jsonl", checkpoints, self._writers, keep),
                mesh=self._mesh,
                frozen=self._frozen,
                validate=validate if validates else None,
            )
            keep(state)  # once more, for a run that was killed between its last checkpoint and this
            checkpoints.wait()
            self._best = checkpoints.best()
        finally:
            checkpoints.close()


def free_fields(is_length_free: bool, *more: str) -> tuple[str, ...]:
    """The fields that may change when a run continues. Its length, if the learning rate does not depend on it."""
    free = ("log_every", "checkpoint_every", "validation.batch_size", "mesh.model_parallel", "wandb", *more)
    return free + ("num_steps", "epochs") * is_length_free


def folder_name(config: Checkpoint, spec: str, *ends: str) -> str:
    """The name of a run's folder: the config's and the model's, and ``ends``, the last one a digest of all settings."""
    return "-".join((registry.model_label(spec.replace(":", "-")), registry.model_label(config.model), *ends))


def evaluation_command(config_name: str, fields: Mapping[str, Any]) -> str:
    """The ``winobench eval`` command with fields of its config."""
    words = ["winobench", "eval", f"--config={config_name}"]
    return shlex.join(words + [f"--{name}={value}" for name, value in fields.items()])
