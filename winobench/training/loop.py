"""The training loop: a pure step function, batches by index, checkpoints, metrics. It knows nothing of models."""

from __future__ import annotations

import json
import math
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tqdm import auto as tqdm

from winobench import parallel
from winobench.errors import InputError

Params = Any  # a pytree of arrays
Batch = dict[str, np.ndarray]


class TrainState(NamedTuple):
    """Everything that a step changes.

    Attributes:
      step: number of finished steps, int32 scalar.
      params: trained parameters.
      ema: exponential moving average of ``params``, float32; what is exported.
      opt_state: the optimizer's state.
    """

    step: jax.Array
    params: Params
    ema: Params
    opt_state: optax.OptState


LossFn = Callable[[Params, Batch, jax.Array], tuple[jax.Array, dict[str, jax.Array]]]
StepFn = Callable[[TrainState, Batch], tuple[TrainState, dict[str, jax.Array]]]


def create_state(params: Params, optimizer: optax.GradientTransformation) -> TrainState:
    """A fresh state that starts from ``params``; it holds copies, as the step donates its buffers."""
    params, ema = (jax.tree.map(jnp.copy, params) for _ in range(2))
    return TrainState(jnp.zeros((), jnp.int32), params, ema, optimizer.init(params))


def make_step(
    loss_fn: LossFn, optimizer: optax.GradientTransformation, *, seed: int, ema_decay: float = 0.999
) -> StepFn:
    """Jits one update. The step's randomness depends on (seed, step) alone, so a resumed run repeats it exactly.

    Args:
      loss_fn: (params, batch, key) -> (scalar loss, metrics).
      optimizer: an optax transformation.
      seed: of the key that ``loss_fn`` receives, folded with the step.
      ema_decay: of the averaged parameters; the first steps use a shorter average, min(decay, (1 + n) / (10 + n)).

    Returns:
      step(state, batch) -> (state, metrics); the passed state's buffers are donated.
    """

    def step(state: TrainState, batch: Batch):
        key = jax.random.fold_in(jax.random.key(seed), state.step)
        (loss, metrics), gradients = jax.value_and_grad(loss_fn, has_aux=True)(state.params, batch, key)
        updates, opt_state = optimizer.update(gradients, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        count = state.step.astype(jnp.float32)
        decay = jnp.minimum(ema_decay, (1.0 + count) / (10.0 + count))
        ema = jax.tree.map(lambda old, new: decay * old + (1.0 - decay) * new, state.ema, params)
        metrics = {"loss": loss, "gradient_norm": optax.tree.norm(gradients), **metrics}
        return TrainState(state.step + 1, params, ema, opt_state), metrics

    return jax.jit(step, donate_argnums=0)


class Checkpoints:
    """Orbax checkpoints of a TrainState in a folder; written in the background, renamed when whole."""

    def __init__(self, folder: str | pathlib.Path, *, max_to_keep: int = 2):
        import orbax.checkpoint as ocp  # late: a bare accelerator machine trains without it

        self._ocp = ocp
        self._manager = ocp.CheckpointManager(
            pathlib.Path(folder).absolute(), options=ocp.CheckpointManagerOptions(max_to_keep=max_to_keep)
        )

    def latest_step(self) -> int | None:
        """The newest complete checkpoint's step, or None."""
        return self._manager.latest_step()

    def save(self, state: TrainState) -> None:
        """Starts writing ``state``; a checkpoint that exists for this step is kept."""
        step = int(state.step)
        if step not in self._manager.all_steps():
            self._manager.save(step, args=self._ocp.args.StandardSave(state))

    def restore(self, like: TrainState) -> TrainState:
        """Reads the newest checkpoint into the structure, shapes and dtypes of ``like``."""
        abstract = jax.tree.map(_abstract, like)
        return self._manager.restore(self.latest_step(), args=self._ocp.args.StandardRestore(abstract))

    def close(self) -> None:
        """Waits for writes under way."""
        self._manager.wait_until_finished()
        self._manager.close()


def _abstract(leaf: jax.Array) -> jax.ShapeDtypeStruct:
    """Shape, dtype and placement of an array, which is what Orbax restores into."""
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)


def save_state(state: TrainState, path: str | pathlib.Path) -> None:
    """Writes a state into one ``.npz`` file, for machines without Orbax; replaced when whole."""
    path = pathlib.Path(path)
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        np.savez(file, *(np.asarray(leaf) for leaf in jax.tree.leaves(state)))
    temporary.rename(path)


def load_state(like: TrainState, path: str | pathlib.Path) -> TrainState:
    """Reads a file of ``save_state``.

    Raises:
      InputError: the arrays are not those of a state like ``like``.
    """
    with np.load(path) as file:
        arrays = [file[name] for name in file.files]
    leaves, structure = jax.tree.flatten(like)
    if [(a.shape, a.dtype) for a in arrays] != [(leaf.shape, leaf.dtype) for leaf in leaves]:
        raise InputError(f"{path} holds the state of another network or optimizer: train with its own recipe")
    return jax.tree.unflatten(structure, arrays)


def _share(batch: Batch, rows: NamedSharding) -> dict[str, jax.Array]:
    count, devices = len(next(iter(batch.values()))), rows.mesh.shape[parallel.DATA_AXIS]
    if count % devices:
        raise InputError(
            f"a batch of {count} cannot be shared by {devices} devices: make batch_size a multiple of that"
        )
    return jax.device_put(batch, rows)


def train(
    step_fn: StepFn,
    state: TrainState,
    batches_from: Callable[[int], Iterator[Batch]],
    *,
    num_steps: int,
    checkpoints: Checkpoints | None,
    metrics_file: str | pathlib.Path,
    name: str,
    log_every: int = 100,
    checkpoint_every: int = 2000,
    on_checkpoint: Callable[[TrainState], dict[str, float] | None] | None = None,
    max_seconds: float | None = None,
    mesh: Mesh | None = None,
) -> TrainState:
    """Runs ``step_fn`` up to ``num_steps``, from the newest checkpoint if there is one.

    Args:
      step_fn: from ``make_step``.
      state: where to start if there is no checkpoint.
      batches_from: gives the batches from a step on; batch n must depend on n alone, so that resuming is exact.
      num_steps: total number of steps, those before a resume included.
      checkpoints: where states are kept, or None.
      metrics_file: one JSON line every ``log_every`` steps, and at checkpoints, is appended here.
      name: label of the progress bar.
      log_every: steps between two lines; metrics are fetched from the device only with a line.
      checkpoint_every: steps between checkpoints.
      on_checkpoint: called at every checkpoint (sample pictures, validation); what it returns is logged.
      max_seconds: stop early, with a checkpoint, after this many seconds.
      mesh: devices that share each batch, every one with its own copy of the state; all devices when None.

    Returns:
      The last state.

    Raises:
      FloatingPointError: the loss or the gradient is not finite; no checkpoint is written then.
      InputError: a batch cannot be shared equally by the devices.
    """
    mesh = parallel.as_mesh(mesh)
    state = jax.device_put(state, NamedSharding(mesh, PartitionSpec()))
    rows = NamedSharding(mesh, PartitionSpec(parallel.DATA_AXIS))
    if checkpoints is not None and checkpoints.latest_step() is not None:
        state = checkpoints.restore(state)
    metrics_file = pathlib.Path(metrics_file)
    metrics_file.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    first = int(state.step)
    batches = batches_from(first)
    bar = tqdm.tqdm(total=num_steps, initial=first, desc=name, unit="step", mininterval=2.0)
    last_logged, last_time = first, started
    with metrics_file.open("a") as log, bar:

        def write(row: dict[str, float]) -> None:
            log.write(json.dumps(row) + "\n")
            log.flush()

        for step in range(first + 1, num_steps + 1):
            state, metrics = step_fn(state, _share(next(batches), rows))
            bar.update()
            out_of_time = max_seconds is not None and time.monotonic() - started > max_seconds
            last = step == num_steps or out_of_time
            due = last or step % checkpoint_every == 0
            if due or step % log_every == 0:
                values = {key: float(value) for key, value in jax.device_get(metrics).items()}
                now = time.monotonic()
                rate = (step - last_logged) / (now - last_time)
                last_logged, last_time = step, now
                write({"step": step, "steps_per_second": round(rate, 3), **values})
                bar.set_postfix(loss=f"{values['loss']:.4f}")
                # Before any checkpoint: with a finite loss and gradient, what is saved is finite too.
                for what in ("loss", "gradient_norm"):
                    if not math.isfinite(values[what]):
                        kept = "there is no checkpoint" if checkpoints is None else "checkpoints from before are sound"
                        raise FloatingPointError(f"{name}: the {what} at step {step} is {values[what]}; {kept}.")
            if due:
                if checkpoints is not None:
                    checkpoints.save(state)
                if on_checkpoint is not None and (row := on_checkpoint(state)):
                    write({"step": step, **row})
                last_time = time.monotonic()
                last_logged = step
            if out_of_time:
                break
    return state
