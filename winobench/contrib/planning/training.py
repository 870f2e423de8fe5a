"""Plans of HardNeg fine-tuning: its step."""

from __future__ import annotations

import dataclasses
import functools
import math

import jax
from jax.sharding import Mesh

from winobench import parallel
from winobench.base.errors import InputError
from winobench.contrib.planning import abstract, table
from winobench.contrib.planning.plan import Duration, Job, Load, Plan
from winobench.contrib.planning.programs import Compiled, Program, bytes_there, placed
from winobench.diffusion.folders import Description
from winobench.runs.training_settings import HardNeg
from winobench.training import hardneg_step, loop

# Training set -> rows: COCO's captions in Karpathy's training split with the rest of its validation images.
_ROWS_OF = {"coco_hardneg_train": 566_747}


def make_plan(job: Job) -> Plan:
    """Plans a fine-tuning. Where the config's micro-batches do not fit, more and smaller ones are tried."""
    config, text = job.config, job.target.text
    if not abstract.is_pipeline(config.model):
        raise InputError(
            f"{config.model} is not a diffusion model, whose fine-tuning a plan compiles: name one, such as sd21-base"
        )
    if job.devices:
        raise InputError("--devices scales evaluations. For training, name each number in --accelerator: h100:1,h100:8")
    mesh = parallel.make_mesh(job.target.devices, model_parallel=config.mesh.model_parallel)
    loop.check_batch_size(config.batch_size, config.accumulate, mesh)
    description = abstract.read_description(config.model, revision=config.revision)
    num_steps, notes = _steps(config)
    for accumulate in range(config.accumulate, config.batch_size + 1):
        if config.batch_size % (accumulate * mesh.size):
            continue  # the devices could not share the rows of such a micro-batch
        rows = config.batch_size // accumulate
        program, state = step_program(description, config, mesh, accumulate)
        size = f"{accumulate} x {rows // mesh.size} rows a device"
        step = job.fitting(program, lambda noun, items, own, state=state: state + own, size)
        if step:
            break
    if step and accumulate != config.accumulate:
        notes.append(f"{text} needs --accumulate={accumulate}. The loss then compares means over {rows} rows")
    content = {"batch_size": config.batch_size, "accumulate": accumulate, "state": state, "num_steps": num_steps}
    content["step"] = step and step.as_json()
    # All parts of the networks. Moments and the unread batch are small next to them.
    loading = state * mesh.shape.get(parallel.MODEL_AXIS, 1) / job.assumed.storage_rate

    def duration(devices: int) -> Duration:
        computed = {"training": num_steps * step.seconds}
        return Duration(devices, computed | {"loading": loading, "compiling": step.compile_seconds})

    return job.plan(
        "GB of networks, adapters and moments, and of the step. Its rows and micro-batches",
        [_load(config, accumulate, state, step)],
        duration if step and num_steps is not None else None,
        notes,
        content,
    )


def _load(config: HardNeg, accumulate: int, state: int, step: Compiled | None) -> Load:
    own = step.own if step else 0
    shown = {"networks, adapters and moments": state, "step": own, "sum": state + own}
    row = {"state": table.gigabytes(state)}
    if step:
        row |= {"more": table.gigabytes(own), "rows": f"{config.batch_size}", "micro": f"{accumulate}"}
        row["s a step"] = f"{step.seconds:.2f}"
        row["s to compile"] = f"{step.compile_seconds:.0f}"
    return Load(config.model, (step,), state + own, shown, row)


def step_program(description: Description, config: HardNeg, mesh: Mesh, accumulate: int) -> tuple[Program, int]:
    """The training step of so many micro-batches, not yet compiled, and the bytes of its state on a device."""
    config = dataclasses.replace(config, accumulate=accumulate)
    pipeline = abstract.make_pipeline(description, config.dtype)  # which gets the adapters
    adapted = hardneg_step.adapt(pipeline, config)
    # Rates that fall with the steps are a number that the step reads. How many there are does not change it.
    step, optimizer = hardneg_step.make_step(pipeline, adapted, config, config.num_steps or 1_000, mesh)
    state = jax.eval_shape(functools.partial(hardneg_step.first_state, adapted, optimizer, config))
    batch = hardneg_step.batch_shapes(pipeline, config.batch_size, pipeline.check_image_size(config.image_size))
    arguments = (
        placed(state, parallel.parameter_shardings(state, mesh)),
        placed(batch, jax.tree.map(lambda _: parallel.split_rows(mesh), batch)),
        placed(adapted.frozen, parallel.parameter_shardings(adapted.frozen, mesh)),
    )
    rows = config.batch_size // mesh.size
    return Program("training step", "row", rows, lambda _: step.lower(*arguments)), bytes_there(arguments)


def _steps(config: HardNeg) -> tuple[int | None, list[str]]:
    left_out = "encoding the images once, and validation, are not in the time"
    if config.num_steps is not None:
        return config.num_steps, [f"{config.num_steps:,} steps; {left_out}"]
    rows = _ROWS_OF.get(config.data.name)
    if rows is None:
        return None, [f"the number of rows of {config.data.name} is unknown: name --num_steps for the time"]
    steps = math.ceil(config.epochs * rows / config.batch_size)
    source = f"{steps:,} steps: {config.epochs:g} epochs of {rows:,} rows (COCO's captions for training)"
    return steps, [f"{source}; {left_out}"]
