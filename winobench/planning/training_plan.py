"""What HardNeg fine-tuning takes of some devices: the memory of its step, its time, hours and dollars."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
from jax.sharding import Mesh

from winobench import parallel
from winobench.base.errors import InputError
from winobench.planning import abstract
from winobench.planning.compiling import Compiled, compile_program
from winobench.planning.estimate import Assumptions
from winobench.planning.programs import Program
from winobench.planning.topologies import Target
from winobench.training import hardneg_step, loop

if TYPE_CHECKING:
    import ml_collections

_ROWS_OF = {"coco_hardneg_train": 566_747}
"""Training set -> rows: COCO's captions in Karpathy's training split with the rest of its validation images."""


@dataclasses.dataclass(frozen=True)
class TrainingDuration:
    """Seconds of a training. But for ``compiling`` none has been measured.

    Attributes:
      devices: how many there are.
      training: all steps, at the estimated rate. Encoding the images and validation are not in it.
      loading: weights, at the assumed rate of storage.
      compiling: the step, as long as it took on this machine.
    """

    devices: int
    training: float
    loading: float
    compiling: float

    @property
    def total(self) -> float:
        """All parts."""
        return self.training + self.loading + self.compiling


@dataclasses.dataclass(frozen=True)
class TrainingPlan:
    """What a config takes on one kind of device.

    Attributes:
      target: e.g. ``v5e:2x2``.
      batch_size: rows of a step, over all devices and micro-batches.
      accumulate: micro-batches, one after the other.
      state: bytes on a device of the networks, the adapters and what the optimizer keeps.
      usable: bytes of a device that programs can use.
      step: the compiled step; None if not even a row a device fits.
      num_steps: of the training; None where nobody knows how many rows there are.
      durations: for the devices. None where something is not known or does not fit.
      price: dollars per device and hour; None if nobody said.
      notes: what the numbers rest on.
    """

    target: str
    batch_size: int
    accumulate: int
    state: int
    usable: int
    step: Compiled | None
    num_steps: int | None
    durations: tuple[TrainingDuration, ...]
    price: float | None
    notes: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """Bytes on a device, at most."""
        return self.state + (self.step.temporaries + self.step.code if self.step else 0)

    @property
    def fits(self) -> bool:
        """Whether the step does."""
        return self.step is not None

    def as_json(self) -> dict[str, Any]:
        """All of it as JSON values, with what is computed from it."""
        content = dataclasses.asdict(self)
        for duration, written in zip(self.durations, content["durations"], strict=True):
            written["total"] = duration.total
        if self.step:
            content["step"]["seconds"] = self.step.seconds
        return content | {"total": self.total, "fits": self.fits}


def make_plan(
    config: ml_collections.ConfigDict,
    model: str,
    target: Target,
    devices: Sequence[int],
    price: float | None,
    assumed: Assumptions,
    say: Callable[[str], None],
) -> TrainingPlan:
    """Plans a fine-tuning for some devices. Arguments as of `winobench.planning.plans.make_plan`.

    Where the micro-batches that the config asks for do not fit, smaller ones are tried: more of them, one after the
    other.

    Raises:
      InputError: the model is no diffusion model, or the devices cannot share the batch.
    """
    if not abstract.is_pipeline(model):
        raise InputError(
            f"{model} is no diffusion model, whose fine-tuning a plan compiles: name one, such as sd21-base"
        )
    if devices:
        raise InputError(
            "--devices scales evaluations; of a training, name each number in --accelerator: h100:1,h100:8"
        )
    description = abstract.read_description(model, revision=config.revision)
    mesh = parallel.make_mesh(target.devices, model_parallel=config.mesh.model_parallel)
    loop.check_batch_size(config.batch_size, config.accumulate, mesh)
    num_steps, notes = _steps(config)
    usable, step = target.accelerator.usable_memory, None
    for accumulate in _ways_to_cut(config.batch_size, config.accumulate, mesh.size):
        program, state = step_program(description, config, mesh, accumulate)
        rows = config.batch_size // accumulate // mesh.size
        say(f"{target.text}: compiling the {program.name}, {accumulate} x {rows} rows a device")
        compiled = compile_program(program, target)
        if compiled is not None and state + compiled.temporaries + compiled.code <= usable:
            step = compiled
            break
    if accumulate != config.accumulate and step is not None:
        notes += (
            f"{target.text} needs --config.accumulate={accumulate}; the loss then compares means over"
            f" {config.batch_size // accumulate} rows",
        )
    durations = ()
    if step is not None and num_steps is not None:
        # All parts of the networks. Moments and the batch, which nobody reads, are small next to them.
        loading = state * mesh.shape.get(parallel.MODEL_AXIS, 1) / assumed.storage_rate
        duration = TrainingDuration(mesh.size, num_steps * step.seconds, loading, step.compile_seconds)
        durations = (duration,)
    return TrainingPlan(
        target.text, config.batch_size, accumulate, state, usable, step, num_steps, durations, price, notes
    )


def step_program(
    description: Any, config: ml_collections.ConfigDict, mesh: Mesh, accumulate: int
) -> tuple[Program, int]:
    """The training step as it will run, not yet compiled, and the bytes of its state on a device.

    Args:
      description: from `abstract.read_description`.
      config: from ``configs/hardneg.py``.
      mesh: of devices that need not be available.
      accumulate: micro-batches, instead of the config's.
    """
    config = config.copy_and_resolve_references()
    config.accumulate = accumulate
    pipeline = abstract.make_pipeline(description, config.dtype)
    adapted = hardneg_step.adapt(pipeline, config)
    # Rates that fall with the steps are a number that the step reads. How many there are does not change it.
    step, optimizer = hardneg_step.make_step(pipeline, adapted, config, config.num_steps or 1_000, mesh)
    state = jax.eval_shape(functools.partial(hardneg_step.first_state, adapted, optimizer, config))
    batch = hardneg_step.batch_shapes(pipeline, config.batch_size, pipeline.check_image_size(config.image_size))

    def placed(tree: Any, where: Any) -> Any:
        return jax.tree.map(lambda leaf, at: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=at), tree, where)

    arguments = (
        placed(state, parallel.parameter_shardings(state, mesh)),
        placed(batch, jax.tree.map(lambda _: parallel.split_rows(mesh), batch)),
        placed(adapted.frozen, parallel.parameter_shardings(adapted.frozen, mesh)),
    )
    bytes_there = sum(
        math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(arguments)
    )
    rows = config.batch_size // mesh.size
    return Program("training step", "row", rows, lambda _: step.lower(*arguments)), bytes_there


def _ways_to_cut(batch_size: int, first: int, devices: int) -> list[int]:
    """Numbers of micro-batches, from the first one on, whose rows the devices can share."""
    return [number for number in range(first, batch_size + 1) if batch_size % (number * devices) == 0]


def _steps(config: ml_collections.ConfigDict) -> tuple[int | None, tuple[str, ...]]:
    """How many there are, and what that rests on."""
    left_out = "encoding the images once, and validation, are not in the time"
    if config.num_steps is not None:
        return config.num_steps, (f"{config.num_steps:,} steps; {left_out}",)
    rows = _ROWS_OF.get(config.data.name)
    if rows is None:
        return None, (f"nobody knows the rows of {config.data.name} ahead: name --config.num_steps for the time",)
    steps = math.ceil(config.epochs * rows / config.batch_size)
    said = f"{steps:,} steps: {config.epochs:g} epochs of {rows:,} rows (COCO's captions for training)"
    return steps, (f"{said}; {left_out}",)
