"""Checkpoints of a training run, written while it continues."""

from __future__ import annotations

import operator
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import optax

Params = Any  # a pytree of arrays


class TrainState(NamedTuple):
    """Everything that a step changes."""

    step: jax.Array  # finished steps, int32 scalar
    params: Params
    ema: Params | None  # exponential moving average of ``params``, float32; None where no average is kept
    opt_state: optax.OptState


class Checkpoints:
    """Orbax checkpoints of a TrainState: the newest, and of equal ones the newest with the best metric."""

    def __init__(self, folder: str | pathlib.Path, *, max_to_keep: int = 2, best_metric: str | None = None):
        import orbax.checkpoint as ocp  # late: a bare accelerator machine trains without it
        from orbax.checkpoint import checkpoint_managers

        self._ocp = ocp
        self._best_metric = best_metric
        options: dict[str, Any] = {"max_to_keep": max_to_keep}
        if best_metric is not None:
            value = operator.itemgetter(best_metric)
            best = checkpoint_managers.BestN(get_metric_fn=value, n=1, keep_checkpoints_without_metrics=False)
            newest = checkpoint_managers.LatestN(max_to_keep)
            policy = checkpoint_managers.AnyPreservationPolicy([newest, best])
            options = {"preservation_policy": policy, "best_fn": value, "best_mode": "max"}
        self.folder = pathlib.Path(folder).absolute()
        self._manager = ocp.CheckpointManager(
            self.folder, options=ocp.CheckpointManagerOptions(cleanup_tmp_directories=True, **options)
        )

    def latest_step(self) -> int | None:
        return self._manager.latest_step()

    def best(self) -> tuple[int, float] | None:
        """Step and value of the checkpoint with the highest ``best_metric``, or None while none was measured."""
        step = None if self._best_metric is None else self._manager.best_step()
        metrics = None if step is None else self._manager.metrics(step)
        return None if step is None or metrics is None else (step, float(metrics[self._best_metric]))

    def save(self, state: TrainState, metrics: Mapping[str, float] | None = None) -> None:
        """Starts writing ``state``. A checkpoint that exists for this step is kept."""
        step = int(state.step)
        if step not in self._manager.all_steps():
            values = None if metrics is None else {name: float(value) for name, value in metrics.items()}
            self._manager.save(step, args=self._ocp.args.StandardSave(state), metrics=values)

    def restore(self, like: TrainState, step: int | None = None) -> TrainState:
        """Reads a checkpoint into the structure, shapes, dtypes and placement of ``like``."""
        abstract = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding), like)
        step = self.latest_step() if step is None else step
        return self._manager.restore(step, args=self._ocp.args.StandardRestore(abstract))

    def wait(self) -> None:
        self._manager.wait_until_finished()

    def close(self) -> None:
        self.wait()
        self._manager.close()


def what_is_kept(checkpoints: Checkpoints | None) -> str:
    """The newest checkpoint, in words, for the message of a run that ends early."""
    if checkpoints is None:
        return "there is no checkpoint"
    checkpoints.wait()
    step = checkpoints.latest_step()
    if step is None:
        return f"there is no checkpoint in {checkpoints.folder} yet: lower the learning rate"
    return f"the last good checkpoint is step {step} in {checkpoints.folder}: lower the learning rate and go on from it"
