"""Plans of scoring: a diffusion model's denoising step and encoders."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from winobench import parallel
from winobench.base import memory
from winobench.base.errors import InputError
from winobench.contrib.planning import abstract, anchors, few_blocks, work
from winobench.contrib.planning.plan import Duration, Job, Load, Plan, of_all_blocks, without_size
from winobench.contrib.planning.programs import TEXT, Compiled, Program, placed, rows_like
from winobench.diffusion.pipeline import Pipeline
from winobench.engine import layouts, limits, tables
from winobench.scorers import denoising, pipeline_tables, samples

# Sizes of the largest step are tried in units of this many items, and not beyond this many times the first one.
_UNIT = 8
_SPAN = 16
_TRIES = 4
WHILE_ENCODING = "while texts are encoded, without the denoiser"


@dataclasses.dataclass(frozen=True)
class Scoring:
    """A scorer's bytes on each device, and its programs."""

    weights: dict[str, int]  # bytes of parameters on a device while it scores, by network
    tables: int  # bytes of the tables of latents and text states
    step: Program  # the denoising step, of as many triples on each device as the scorer begins with
    encoders: tuple[Program, ...]  # which fill the tables
    staged: int = 0  # bytes of text encoders that replace the denoiser while texts are encoded; 0 if they stay

    @property
    def resident(self) -> int:
        """Bytes on a device while it scores, without the programs."""
        return sum(self.weights.values()) + self.tables

    @property
    def encoding(self) -> int:
        """The same while it encodes texts."""
        return self.resident - self.weights["denoiser"] + self.staged if self.staged else self.resident

    def needed(self, noun: str, items: int, own: int) -> int:
        """Bytes on a device while a program runs (see `plan.Needed`)."""
        return own + (self.encoding if noun == TEXT else self.resident)


@dataclasses.dataclass(frozen=True)
class Fit:
    """The programs that fit, halved as the scorer would halve them; None where not even one item does."""

    scoring: Scoring
    step: Compiled | None
    encoders: tuple[Compiled | None, ...]  # empty where they are left out
    largest: int | None = None  # passes of the largest step, if it was looked for

    def load(self, name: str) -> Load:
        scoring, step, programs = self.scoring, self.step, (self.step, *self.encoders)
        of_texts = [program for program in programs if program and program.noun == TEXT and scoring.staged]
        temporaries = max((program.own for program in programs if program and program not in of_texts), default=0)
        row = {}
        if step:
            up_to = "" if self.largest is None else f" (to {self.largest})"
            row = {"at once": f"{step.items}{up_to}", "TFLOP": f"{step.operations / step.items / 1e12:.2f}"}
            row |= {"GB": f"{step.bytes / step.items / 1e9:.2f}", "passes/s": _rate(step.items / step.seconds)}
            row["at most"] = _rate(step.at_most) if step.at_most else ""
        shown = {**scoring.weights, "tables": scoring.tables, "temporaries, at most": temporaries}
        shown["sum"] = total = temporaries + scoring.resident
        if scoring.staged:
            shown["text encoders"] = "staged"
            shown[WHILE_ENCODING] = scoring.encoding + max((program.own for program in of_texts), default=0)
            total = max(total, shown[WHILE_ENCODING])
        return Load(name, programs, total, shown, row)


def _rate(number: float) -> str:
    return f"{number:,.0f}" if number >= 20 else f"{number:.3g}"


def make_plan(job: Job) -> Plan:
    """Plans a config of images and texts for one diffusion model. Without a step that fits, no time is known."""
    config, model = job.config, job.config.model
    if not abstract.is_pipeline(model):
        raise InputError(
            f"{model} is not a diffusion model, whose denoiser a plan compiles: name one, such as sd21-base"
        )
    pipeline = abstract.read_pipeline(config, model)
    shallow = abstract.shallow(pipeline) if job.few else []
    if config.float8:
        pipeline = denoising.in_8_bits(pipeline)
        shallow = [(counts, denoising.in_8_bits(few)) for counts, few in shallow]
    scoring = make_scoring(
        pipeline_tables.with_autoencoder_in(pipeline, config.autoencoder_dtype),
        parallel.make_mesh(job.target.devices, model_parallel=config.model_parallel),
        image_size=config.image_size,
        error=config.error,
        target=config.target,
        staged=config.encoders == "staged",
        batch=job.batch_size,
        shallow=shallow,
    )
    fitted = fit(scoring, job)
    sampling = config.sampling
    total = work.total(work.names(config.tasks), sampling.num_samples, sampling.num_bias_samples, config.limit)
    notes = [*without_size(total.unknown), *advice(fitted, job)]
    notes += anchors.note(model, job.target.accelerator.name)
    if pipeline.backend is not None:
        notes.append("texts are encoded before the images: their encoders are not in these figures")
    if fitted.step:
        of = f"{total.passes:,} passes and {total.images:,} images"
        notes.append(f"hours are for {of}, by the tasks' published sizes, with {job.storage}")
    load = fitted.load(model)
    content = {
        "weights": scoring.weights,
        "others": scoring.tables,
        "staged": scoring.staged,
        "programs": [program and program.as_json() for program in load.programs],
        "largest": fitted.largest,
        "per_second": "passes/s",
        "while_scoring": load.memory["sum"],
        "while_encoding": load.memory.get(WHILE_ENCODING, 0),
    }
    whose = "a device" if config.model_parallel == 1 else "the devices that share a copy"
    about = f"TFLOP and GB moved for a pass, passes/s of {whose}"
    duration = functools.partial(_duration, fitted, total, job) if fitted.step else None
    return job.plan(about, [load], duration, notes, content)


def fit(scoring: Scoring, job: Job) -> Fit:
    """Compiles a scorer's programs, of as many items as fit."""
    if scoring.resident > job.usable:
        return Fit(scoring, None, (None,) * len(scoring.encoders))
    encoders = tuple(job.halved(each, scoring.needed) for each in scoring.encoders)
    step = job.halved(scoring.step, scoring.needed)
    return Fit(scoring, step, encoders, _largest(scoring, job, step) if step and job.largest else None)


def _largest(scoring: Scoring, job: Job, step: Compiled) -> int:
    """Items of the largest step, by a straight line through the needs of two sizes, and then by the compiler."""

    def compiled(items: int) -> Compiled | None:
        return job.fitting(dataclasses.replace(scoring.step, items=items), scoring.needed)

    other = compiled(max(1, step.items // 4))
    if other is None or other.items == step.items:
        return step.items
    slope = (step.temporaries - other.temporaries) / (step.items - other.items)
    free = job.usable - scoring.resident - step.own
    items = min(step.items + int(free / max(slope, 1.0)), _SPAN * step.items)
    for _ in range(_TRIES):
        items = items if items < _UNIT else items - items % _UNIT
        if items <= step.items:
            break
        if compiled(items):
            return items
        items = int(items * 0.9)
    return step.items


def advice(fitted: Fit, job: Job) -> list[str]:
    """Notes on extrapolated programs, and on options to try where something does not fit."""
    scoring, config, text = fitted.scoring, job.config, job.target.text
    more = f"--model_parallel={2 * config.model_parallel}"
    notes = of_all_blocks(text, fitted.step, ". Encoders are not compiled")
    if not fitted.step:
        one_of_both = scoring.resident - min(scoring.weights["denoiser"], scoring.weights["text encoders"])
        helps = config.encoders != "staged" and one_of_both <= job.usable
        takes = f"{scoring.resident / 1e9:.1f} GB of {job.usable / 1e9:.1f}"
        notes.append(f"{text}: weights and tables take {takes}: try {'--encoders=staged' if helps else more}")
    if scoring.staged and scoring.encoding > job.usable:
        notes.append(
            f"{text}: while texts are encoded, weights and tables take {scoring.encoding / 1e9:.1f} GB of"
            f" {job.usable / 1e9:.1f}: encode them elsewhere first, since results are kept, or try {more}"
        )
    return notes


def _duration(fitted: Fit, total: work.Total, job: Job, devices: int) -> Duration:
    """More copies of the parameters run the same programs, which exchange nothing."""
    copies = job.copies(devices, job.config.model_parallel)
    step, encoder = fitted.step, next(iter(fitted.encoders), None)
    weights = sum(fitted.scoring.weights.values()) + fitted.scoring.staged
    stored = weights + job.stored(total.images, devices)
    parts = {
        "scoring": total.passes / (step.items / step.seconds) / copies,
        "encoding": total.images * (encoder.seconds / encoder.items if encoder else 0.0) / copies,
        "loading": stored / job.assumed.storage_rate,
        "compiling": sum(program.compile_seconds for program in (step, *fitted.encoders) if program),
        # Steps that are not full, at most.
        "tails": job.assumed.rounds * (step.seconds + (encoder.seconds if encoder else 0.0)),
    }
    return Duration(devices, parts)


def make_scoring(
    pipeline: Pipeline,
    mesh: Mesh,
    *,
    image_size: int | None = None,
    error: str = "squared_l2",
    target: str = "own",
    staged: bool = False,
    batch: int | None = None,
    shallow: Sequence[tuple[tuple[int, ...], Pipeline]] = (),
) -> Scoring:
    """The programs of a `DiffusionITM` without weights, whose arguments these are."""
    image_size = pipeline.check_image_size(image_size)
    dtype = jnp.dtype(pipeline.denoiser.dtype).name
    _, params = pipeline.denoiser_function()
    image_function, image_params = pipeline.image_function()
    pixels = jax.ShapeDtypeStruct((1, image_size, image_size, 3), np.uint8)
    latents = jax.eval_shape(image_function, image_params, pixels)
    if (of_texts := pipeline.host_texts(dtype)) is None:
        text_function, text_params = pipeline.text_function(dtype)
        ids = jax.tree.map(np.asarray, pipeline.tokenize([""], image_size=image_size))
        states = jax.eval_shape(text_function, text_params, ids)
    else:
        text_params = []
        states = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((1, *leaf.shape), leaf.dtype), of_texts[1])
    parts = mesh.shape.get(parallel.MODEL_AXIS, 1)
    weights = {
        "denoiser": memory.array_bytes(params) // parts,
        "autoencoder": memory.array_bytes(image_params) // parts,
        "text encoders": 0 if staged else memory.array_bytes(text_params) // parts,
    }
    # One row of the tables of latents and of text states, and as many rows as the scorer keeps.
    room = pipeline_tables.TABLE_BYTES.on(mesh)
    rows = [(row, limits.table_rows(row, room)) for row in (latents, states)]
    table_bytes = sum(count * memory.array_bytes(row) for row, count in rows)
    resident = sum(weights.values()) + table_bytes

    def lowering(pipeline: Pipeline) -> Callable[[int], jax.stages.Lowered]:
        denoiser, params = pipeline.denoiser_function()
        how = denoising.Step(denoiser, pipeline.schedule_at(image_size), mesh, error, target, dtype)
        return functools.partial(_lower_step, how, params, rows)

    batch = batch or denoising.usual_batch_size(pipeline, latents.shape[1:], mesh, resident)
    blocks = few_blocks.block_counts(pipeline.denoiser.config) if shallow else ()
    of_few = tuple((counts, lowering(few)) for counts, few in shallow)
    images = pipeline_tables.image_batch(image_size, mesh)
    encoders = [_encoder("image encoder", "image", image_function, image_params, pixels, images, mesh)]
    if of_texts is None:
        texts = pipeline_tables.text_batch(ids, mesh)
        encoders.append(_encoder("text encoder", TEXT, text_function, text_params, ids, texts, mesh))
    return Scoring(
        weights,
        table_bytes,
        Program("denoising step", "pass", batch, lowering(pipeline), blocks, of_few),
        () if shallow else tuple(encoders),
        memory.array_bytes(text_params) // parts if staged else 0,
    )


def _lower_step(how: denoising.Step, params: Any, tables: Sequence[tuple[Any, int]], items: int) -> jax.stages.Lowered:
    """The denoising step of a number of triples on each device."""
    mesh = how.mesh
    total = items * parallel.data_parallelism(mesh)
    whole = parallel.replicated(mesh)
    key = jax.eval_shape(lambda: samples.noise_key(0))
    return denoising.step_on(mesh).lower(
        how,
        placed(params, layouts.parameter_formats(params, mesh)),
        *(rows_like(row, rows, whole) for row, rows in tables),
        jax.ShapeDtypeStruct(key.shape, key.dtype, sharding=whole),
        jax.ShapeDtypeStruct((3, total), np.int32, sharding=parallel.split_axis(mesh, axis=1)),
        jax.ShapeDtypeStruct((total,), np.int32, sharding=parallel.split_axis(mesh)),
        None,
    )


def _encoder(name: str, noun: str, function: Any, params: Any, example: Any, batch: int, mesh: Mesh) -> Program:
    """The program that fills a table."""

    def lower(items: int) -> jax.stages.Lowered:
        total = items * parallel.data_parallelism(mesh)
        arrays = placed(params, parallel.parameter_shardings(params, mesh))
        return tables.lower_encoder(function, mesh, arrays, rows_like(example, total, parallel.split_axis(mesh)))

    return Program(name, noun, batch, lower)
