"""The training loop: a pure step function, batches by index, checkpoints, metrics."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import math
import pathlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AbstractMesh, Mesh, NamedSharding

from winobench import parallel
from winobench.base import options, random_numbers, trackers
from winobench.base.errors import InputError
from winobench.base.progress import Progress
from winobench.training import writers as metric_writers
from winobench.training.checkpoints import Checkpoints, Params, TrainState, what_is_kept

Batch = Mapping[str, Any]  # trees of arrays, with the examples first
Metrics = dict[str, jax.Array]

# Steps that may be under way on the devices: enough that they never wait, few enough that batches do not pile up there.
_STEPS_AHEAD = 2
# An exploding loss is compared with the median of this many values before it, once there are enough.
_LONGEST_MEMORY = 200
_SHORTEST_MEMORY = 20


LossFn = Callable[..., tuple[jax.Array, Metrics]]
StepFn = Callable[..., tuple[TrainState, Metrics]]


class DivergenceError(InputError, FloatingPointError):
    """Training diverged. The message names the number, the step, and the last checkpoint."""


def create_state(params: Params, optimizer: optax.GradientTransformation, *, average: bool = True) -> TrainState:
    """A fresh state with copies of ``params``, as the step donates its buffers."""
    copy = jax.tree.map(jnp.copy, params)
    ema = jax.tree.map(jnp.copy, params) if average else None
    return TrainState(jnp.zeros((), jnp.int32), copy, ema, optimizer.init(copy))


def make_step(
    loss_fn: LossFn,
    optimizer: optax.GradientTransformation,
    *,
    seed: int,
    ema_decay: float | None = 0.999,
    accumulate: int = 1,
    mesh: Mesh | None = None,
) -> StepFn:
    """Jits one update. The step's randomness depends on (seed, step) alone, so a resumed run repeats it exactly.

    With ``accumulate`` above 1 the batch is cut into so many micro-batches, processed one after the other, and their
    gradients are averaged: row r goes into micro-batch r mod ``accumulate``, so that each device cuts up its own rows.
    A loss that compares means, such as the hinged one of hard negatives, takes them over the micro-batch, as the
    published code does. Each micro-batch has its own key. Metrics are means over micro-batches.

    Args:
      loss_fn: (params, batch, key) -> (scalar loss, scalar metrics); (params, frozen, batch, key) with ``frozen``.
      ema_decay: of the averaged parameters, or None. The first steps use min(decay, (1 + n) / (10 + n)).
      mesh: lays out the new state by ``parallel.parameter_shardings``. Needed where an axis splits parameters.

    Returns:
      step(state, batch, frozen=None) -> (state, metrics). The passed state's buffers are donated, ``frozen``'s are not.
    """
    options.EMA_DECAY.check("ema_decay", ema_decay)
    options.BATCH_SIZE.check("accumulate", accumulate)

    def gradients_of(params: Params, frozen: Params | None, batch: Batch, key: jax.Array) -> tuple[Params, Metrics]:
        arguments = (params, batch, key) if frozen is None else (params, frozen, batch, key)
        (loss, metrics), gradients = jax.value_and_grad(loss_fn, has_aux=True)(*arguments)
        return gradients, {"loss": loss, **metrics}

    def accumulated(params: Params, frozen: Params | None, batch: Batch, key: jax.Array) -> tuple[Params, Metrics]:
        def part_of(array: jax.Array) -> jax.Array:
            parts = array.reshape(len(array) // accumulate, accumulate, *array.shape[1:]).swapaxes(0, 1)
            return parts if mesh is None else jax.lax.with_sharding_constraint(parts, parallel.split_rows(mesh, axis=1))

        def add(total: Params, numbered: tuple[jax.Array, Batch]) -> tuple[Params, Metrics]:
            number, part = numbered
            gradients, metrics = gradients_of(params, frozen, part, jax.random.fold_in(key, number))
            return jax.tree.map(jnp.add, total, gradients), metrics

        parts = jax.tree.map(part_of, dict(batch))
        zeros = jax.tree.map(jnp.zeros_like, params)
        total, metrics = jax.lax.scan(add, zeros, (jnp.arange(accumulate), parts))
        metrics = {name: jnp.mean(value.astype(jnp.float32)) for name, value in metrics.items()}
        return jax.tree.map(lambda array: array / accumulate, total), metrics

    def training_step(state: TrainState, batch: Batch, frozen: Params | None = None) -> tuple[TrainState, Metrics]:
        with parallel.traced_on(mesh):
            return updated(state, batch, frozen)

    def updated(state: TrainState, batch: Batch, frozen: Params | None) -> tuple[TrainState, Metrics]:
        key = jax.random.fold_in(random_numbers.seed_key(seed), state.step)
        how = gradients_of if accumulate == 1 else accumulated
        gradients, metrics = how(state.params, frozen, batch, key)
        updates, opt_state = optimizer.update(gradients, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        ema = None
        if ema_decay is not None:
            count = state.step.astype(jnp.float32)
            decay = jnp.minimum(ema_decay, (1.0 + count) / (10.0 + count))
            ema = jax.tree.map(lambda old, new: decay * old + (1.0 - decay) * new, state.ema, params)
        loss = metrics.pop("loss")
        metrics = {"loss": loss, "gradient_norm": optax.tree.norm(gradients), **metrics}
        new = TrainState(state.step + 1, params, ema, opt_state)
        if mesh is not None:
            new = jax.lax.with_sharding_constraint(new, parallel.parameter_shardings(new, mesh))
        return new, metrics

    platform = jax.default_backend() if mesh is None else mesh.devices.flat[0].platform
    return jax.jit(training_step, donate_argnums=0, compiler_options=parallel.COMPILER_OPTIONS.get(platform))


def local_rows(batch_size: int) -> slice:
    """This process's rows of a batch: equal shares, in the order of processes."""
    each = batch_size // jax.process_count()
    return slice(jax.process_index() * each, (jax.process_index() + 1) * each)


def check_batch_size(batch_size: int, accumulate: int, mesh: Mesh | AbstractMesh | None) -> None:
    devices = jax.device_count() if mesh is None else mesh.size
    parts = devices * accumulate
    if batch_size % parts or batch_size < 1:
        lower, higher = batch_size // parts * parts, -(-batch_size // parts) * parts or parts
        near = f"{lower} or {higher}" if lower else f"{higher}"
        many = f"{accumulate} micro-batches on {devices} devices" if accumulate > 1 else f"{devices} devices"
        raise InputError(
            f"a batch of {batch_size} cannot be shared by {many}: make batch_size {near}", code="indivisible-batch"
        )


def make_mesh(batch_size: int, accumulate: int, model_parallel: int) -> Mesh:
    """A mesh of all devices, or of as many cores of one CPU as can share a micro-batch equally."""
    devices = jax.devices()
    if devices[0].platform == "cpu" and jax.process_count() == 1 and batch_size % accumulate == 0:
        rows = batch_size // accumulate
        counts = [count for count in range(1, len(devices) + 1) if rows % count == 0 and count % model_parallel == 0]
        devices = devices[: max(counts, default=len(devices))]
    mesh = parallel.make_mesh(devices, model_parallel=model_parallel)
    check_batch_size(batch_size, accumulate, mesh)
    return mesh


def _num_rows(batch: Batch) -> int:
    return len(jax.tree.leaves(batch)[0])


def _share(batch: Batch, rows: NamedSharding) -> dict[str, jax.Array]:
    """Puts this process's rows on its devices, as its part of the whole batch."""
    check_batch_size(_num_rows(batch) * jax.process_count(), 1, rows.mesh)
    if jax.process_count() == 1:
        return jax.device_put(dict(batch), rows)
    return jax.tree.map(lambda array: jax.make_array_from_process_local_data(rows, array), dict(batch))


class _Watch:
    """Finds steps with signs of divergence, by the rule of `train`."""

    def __init__(self, watched: str, factor: float | None):
        self._watched, self._factor = watched, factor
        self._seen: collections.deque[float] = collections.deque(maxlen=_LONGEST_MEMORY)

    def fault(self, step: int, values: Mapping[str, float]) -> str | None:
        """The fault of a step, in words, or None."""
        for name in ("loss", "gradient_norm"):
            if not math.isfinite(values[name]):
                return f"the {name} at step {step} is {values[name]}"
        if self._factor is None:
            return None
        value = values[self._watched]
        if len(self._seen) >= _SHORTEST_MEMORY:
            median = statistics.median(self._seen)
            if median > 0 and value > self._factor * median:
                return (
                    f"the {self._watched} at step {step} is {value:.4g}, more than {self._factor:g} times its running"
                    f" median, {median:.4g}"
                )
        self._seen.append(value)
        return None


@jax.jit
def _is_finite(array: jax.Array) -> jax.Array:
    return jnp.isfinite(array).all()


def _all_finite(tree: Any) -> bool:
    # One small program for each shape. A single one for hundreds of arrays takes seconds to compile. One after the
    # other: many collectives at once block each other on the devices of a CPU.
    floats = [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return all(bool(_is_finite(leaf)) for leaf in floats)


@dataclasses.dataclass(frozen=True)
class Pace:
    """When a training logs, saves, validates and ends."""

    num_steps: int
    log_every: int = 100
    checkpoint_every: int = 2000
    validate_every: int | None = None
    max_seconds: float | None = None  # then it stops early, with a checkpoint
    watched: str = "loss"  # the metric whose growth ends a training that diverges
    explosion_factor: float | None = None


@dataclasses.dataclass(frozen=True)
class Outputs:
    """The files and trackers of a training."""

    name: str
    metrics_file: str | pathlib.Path
    checkpoints: Checkpoints | None
    writers: Sequence[trackers.Writer] = ()
    on_checkpoint: Callable[[TrainState], dict[str, float] | None] | None = None


def train(
    step_fn: StepFn,
    state: TrainState,
    batches_from: Callable[[int], Iterator[Batch]],
    pace: Pace,
    outputs: Outputs,
    *,
    mesh: Mesh | None = None,
    frozen: Params | None = None,
    validate: Callable[[TrainState], dict[str, float]] | None = None,
) -> TrainState:
    """Runs ``step_fn`` up to ``pace.num_steps``, from the newest checkpoint if there is one.

    Metrics stay on the devices until a line is due. Then every step since the last line is checked. A loss or gradient
    that is not finite, or a watched metric above ``explosion_factor`` times the median of its last 200 values (with at
    least 20, and a median above zero), ends the run. These checks, and one of the state's values, come before every
    validation and checkpoint, so nothing bad is saved.

    With several processes, each one feeds its rows of every batch (``local_rows``), and the first one writes metrics.

    Args:
      mesh: devices that share each batch. All devices when None. Each has its own copy of state and ``frozen``, but an
        axis ``model`` splits them where it divides them (fully sharded data parallelism).
      validate: called before the first step, at the pace's steps and at the end. Its values are logged, and
        kept with the checkpoint of that step, for its ``best_metric``.
    """
    mesh = parallel.as_mesh(mesh)
    state = parallel.place_parameters(state, mesh)
    more = () if frozen is None else (parallel.place_parameters(frozen, mesh),)
    rows = parallel.split_rows(mesh)
    if outputs.checkpoints is not None and outputs.checkpoints.latest_step() is not None:
        state = outputs.checkpoints.restore(state)
    first, num_steps = int(state.step), pace.num_steps
    writers = [metric_writers.JsonLines(outputs.metrics_file), *outputs.writers] if jax.process_index() == 0 else []
    journal = _Journal(outputs.name, writers, _Watch(pace.watched, pace.explosion_factor), outputs.checkpoints)
    started = time.monotonic()

    with contextlib.ExitStack() as stack:
        journal.open(stack, first)
        bar = stack.enter_context(Progress(outputs.name, "steps", enabled=bool(writers)))
        bar.start(num_steps, first)
        if validate is not None and first == 0 < num_steps:
            journal.write(0, validate(state))
        batches = batches_from(first) if first < num_steps else iter(())
        clock = _Clock(first)
        for step in range(first + 1, num_steps + 1):
            batch = _share(next(batches), rows)
            state, metrics = step_fn(state, batch, *more)
            parallel.wait_if_cpu(mesh, metrics, communicates=True)  # gradients go from device to device
            journal.add(step, metrics, wait=step == first + 1)
            bar.advance()
            if step == first + 1:
                clock.start(step)  # the first step is spent on compiling
            out_of_time = pace.max_seconds is not None and _agreed(
                time.monotonic() - started > pace.max_seconds, step, pace.log_every
            )
            last = step == num_steps or out_of_time
            is_due = last or (pace.validate_every and step % pace.validate_every == 0)
            validates = validate is not None and bool(is_due)
            saves = last or validates or step % pace.checkpoint_every == 0
            if saves or step % pace.log_every == 0:
                bar.note(journal.log(step, clock.rates(step, _num_rows(batch)), pace.watched))
            if saves:
                _save(step, state, journal, validate if validates else None, outputs)
                clock.start(step)
            if out_of_time:
                break
    return state


def _save(
    step: int,
    state: TrainState,
    journal: _Journal,
    validate: Callable[[TrainState], dict[str, float]] | None,
    outputs: Outputs,
) -> None:
    if not _all_finite((state.params, state.ema, state.opt_state)):
        journal.stop(f"a parameter or the optimizer's state after step {step} is not finite")
    measured = None if validate is None else validate(state)
    if measured is not None:
        journal.write(step, measured)
    if outputs.checkpoints is not None:
        outputs.checkpoints.save(state, measured)
    if outputs.on_checkpoint is not None and (row := outputs.on_checkpoint(state)):
        journal.write(step, row)


class _Journal:
    """The metrics of steps: left on the devices until a line is due, then fetched, checked, and written."""

    def __init__(self, name: str, outputs: Sequence[trackers.Writer], watch: _Watch, checkpoints: Checkpoints | None):
        self._name = name
        self._outputs = outputs
        self._watch = watch
        self._checkpoints = checkpoints
        self._pending: list[tuple[int, Metrics]] = []

    def open(self, stack: contextlib.ExitStack, first: int) -> None:
        """Starts the outputs at a step, and closes them with a stack."""
        for output in self._outputs:
            stack.callback(output.close)
            output.start(first)

    def add(self, step: int, metrics: Metrics, *, wait: bool) -> None:
        """Takes a step's metrics. Waits for it, or else for the one a few steps before."""
        self._pending.append((step, metrics))
        if len(self._pending) > _STEPS_AHEAD or wait:
            jax.block_until_ready(self._pending[max(0, len(self._pending) - 1 - _STEPS_AHEAD)])

    def look(self) -> dict[str, float]:
        """Fetches and checks the numbers of the steps since the last look, and returns the last ones."""
        for step, values in jax.device_get(self._pending):
            values = {key: float(value) for key, value in values.items()}
            if fault := self._watch.fault(step, values):
                self.write(step, values)
                self.stop(fault)
        self._pending.clear()
        return values

    def log(self, step: int, rates: Mapping[str, float], watched: str) -> str:
        """Writes the line of a step. Returns the text of the progress bar."""
        values = self.look()
        self.write(step, {**rates, **values})
        shown = [f"{name} {values[name]:.4f}" for name in dict.fromkeys(("loss", watched))]
        if rates:
            shown.append(f"{rates['images_per_second']:,.0f} images/s")
        return ", ".join(shown)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        for output in self._outputs:
            output.write(step, values)

    def stop(self, fault: str) -> None:
        raise DivergenceError(f"{self._name}: {fault}; {what_is_kept(self._checkpoints)}.", code="diverged")


class _Clock:
    """Steps a second, without the time of validations and checkpoints."""

    def __init__(self, step: int):
        self.start(step)

    def start(self, step: int) -> None:
        self._step, self._time = step, time.monotonic()

    def rates(self, step: int, images_per_step: int) -> dict[str, float]:
        """The speed since the last call or start. Empty without steps."""
        steps, seconds = step - self._step, time.monotonic() - self._time
        self.start(step)
        if not steps or not seconds:
            return {}
        speed = steps / seconds
        return {"steps_per_second": round(speed, 3), "images_per_second": round(speed * images_per_step, 1)}


def _agreed(is_over: bool, step: int, log_every: int) -> bool:
    """Whether time is up. Several processes follow the first one, at every logged line."""
    if jax.process_count() == 1:
        return is_over
    if step % log_every:
        return False
    from jax.experimental import multihost_utils

    return bool(multihost_utils.broadcast_one_to_all(np.asarray(is_over)))
