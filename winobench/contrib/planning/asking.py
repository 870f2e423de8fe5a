"""Plans of asking: a language model's programs for benchmarks of texts."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from winobench import parallel
from winobench.base import memory
from winobench.checkpoints import encoder_layouts, language_models
from winobench.contrib.planning import abstract, text_work
from winobench.contrib.planning.plan import Duration, Job, Load, Plan, without_size
from winobench.contrib.planning.programs import Compiled, Program, placed
from winobench.contrib.planning.text_work import Workload
from winobench.models import decoder, decoder_cache, functional, t5
from winobench.models.decoder_config import DecoderConfig
from winobench.models.t5 import T5Config
from winobench.responders import batches, decoding
from winobench.responders.batches import Room
from winobench.responders.shapes import Shape

Config = DecoderConfig | T5Config


@dataclasses.dataclass(frozen=True)
class Model:
    """A `winobench.responders.language_model.LanguageModel` of shapes instead of numbers."""

    config: Config
    program: decoding.Program
    params: list[jax.ShapeDtypeStruct]
    room: Room

    @property
    def mesh(self) -> Mesh:
        return self.program.mesh


@dataclasses.dataclass(frozen=True)
class Batches:
    asked: Workload
    shape: Shape
    rows: int  # of a batch, on devices that share one copy of the parameters
    prefix: int  # tokens that are read once for all requests; 0 for none
    cache: int  # bytes of keys and values on each device, which are among the temporaries of ``answering``
    prefix_cache: int  # bytes of the prefix's keys and values on each device
    answering: Compiled | None  # reads a batch's prompts, and writes texts or scores options. None if it does not fit
    reading: Compiled | None  # reads the prefix

    @property
    def resident(self) -> int:
        """Bytes on each device next to the parameters, at most. Without a program, the bytes of keys and values."""
        if self.answering is None:
            return self.cache + self.prefix_cache
        return self.prefix_cache + self.answering.temporaries + self.answering.code

    def runs(self, copies: int) -> int:
        """Batches in all, on so many copies of the parameters."""
        return math.ceil(self.asked.requests / (self.rows * copies))

    def turns(self, tokens: int | None) -> int:
        """Turns of the loop for the longest answer, whose first token needs none; None for the longest allowed."""
        return min(tokens or self.asked.limit, self.asked.limit) - 1 if self.answering.turn else 0

    def rates(self, copies: int, tokens: int | None) -> dict[str, float]:
        """Estimated rates of so many copies of the model, whose program must fit.

        Seconds of a batch's ``prompts`` and of a ``token`` of all rows, and ``tokens`` and ``questions`` per second.
        """
        token = self.answering.turn.seconds if self.answering.turn else 0.0
        rows = self.rows * copies
        questions = rows / (self.answering.seconds + self.turns(tokens) * token)
        return {
            "prompts": self.answering.seconds,
            "token": token,
            "tokens": rows / token if token else 0.0,
            "questions": questions * self.asked.questions / self.asked.requests,
        }

    def load(self, weights: int, model_parallel: int, copies: int, tokens: int | None, usable: int) -> Load:
        total = weights + self.resident
        # The caches of options need not be there for all layers at once.
        stored = min(self.cache + self.prefix_cache, self.resident)
        shown = {"weights": weights, "keys and values": stored, "other temporaries": self.resident - stored}
        shown["sum"] = total
        row = {"share a copy": f"{model_parallel}"}
        if self.answering and total <= usable:
            rates = self.rates(copies, tokens)
            row["at once"] = f"{self.rows * copies}"
            row["tokens/s"] = f"{rates['tokens']:,.0f}" if rates["tokens"] else ""
            questions = rates["questions"]
            row["questions/s"] = f"{questions:,.1f}" if questions >= 1 else f"{questions:.2g}"
        programs = (self.answering, *filter(None, [self.reading]))
        return Load(self.asked.name, programs, total, shown, row)

    def as_json(self, copies: int, tokens: int | None) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"rates": self.rates(copies, tokens) if self.answering else None}


def make_plan(job: Job) -> Plan:
    """Plans a config of texts for one language model.

    Where one device does not hold the share of ``model_parallel=1``, the fewest devices that hold it together are
    planned, and where none do, a smaller batch.
    """
    config, text, assumed = job.config, job.target.text, job.assumed
    tokens = assumed.answer_tokens
    network = abstract.read_language_model(config.model, revision=config.revision)
    given = config.tasks, config.protocol, config.data_dir, config.limit
    workloads, unknown = text_work.read(*given, assumed.characters_a_token)
    model, planned = _fitting(network, workloads, job)
    copies, weights = parallel.data_parallelism(model.mesh), model.room.parameter_bytes
    parts = len(job.target.devices) // copies
    loads = [task.load(weights, parts, copies, tokens, job.usable) for task in planned]
    notes = _notes(workloads, unknown, job)
    fits = all(load.programs[0] and load.total <= job.usable for load in loads)
    if fits and parts != config.model_parallel:
        more = "With more, weights and caches leave room for larger batches"
        notes.append(f"{text} needs --model_parallel={parts} at least, for which this plan is. {more}")
    if fits and model.room.batch_size != config.batch_size:
        notes.append(f"{text} needs --batch_size={model.room.batch_size}")
    content = {
        "copies": copies,
        "model_parallel": parts,
        "weights": weights,
        "batches": [task.as_json(copies, tokens) for task in planned],
        "answer_tokens": tokens,
    }
    about = "memory of a device, all else of all devices together"
    duration = functools.partial(_duration, model, planned, parts, job) if fits else None
    return job.plan(about, loads, duration, notes, content)


def _fitting(network: Config, workloads: Sequence[Workload], job: Job) -> tuple[Model, list[Batches]]:
    """The first way to share the parameters that fits, or the last one with the largest batch that does."""

    config = job.config

    def made(parts: int, batch_size: int | None) -> tuple[Model, list[Batches], bool]:
        mesh = parallel.make_mesh(job.target.devices, model_parallel=parts)
        model = make_model(network, mesh, dtype=config.dtype, int8=config.int8, batch_size=batch_size)
        free = job.usable - model.room.parameter_bytes
        # Nothing is compiled where weights do not fit.
        compiled = job.compile if free > 0 else lambda _: None
        planned = [plan_batches(model, workload, compiled) for workload in workloads]
        return model, planned, all(task.answering and task.resident <= free for task in planned)

    ways = job.ways_to_share(heads_of(network))
    for parts in ways:
        model, planned, fits = made(parts, config.batch_size)
        if fits:
            return model, planned
    rows = max(task.rows for task in planned)
    while not fits and rows > 1 and model.room.parameter_bytes < job.usable:
        rows //= 2
        model, planned, fits = made(ways[-1], rows)
    return model, planned


def _duration(model: Model, planned: Sequence[Batches], sharing: int, job: Job, devices: int) -> Duration:
    copies, tokens = job.copies(devices, sharing), job.assumed.answer_tokens
    reading = writing = 0.0
    programs = []
    for task in planned:
        runs = task.runs(copies)
        reading += runs * task.answering.seconds + (task.reading.seconds if task.reading else 0.0)
        writing += runs * task.turns(tokens) * task.rates(copies, tokens)["token"]
        programs += [program for program in (task.answering, task.reading) if program and program not in programs]
    loading = memory.array_bytes(model.params) / job.assumed.storage_rate
    compiling = sum(program.compile_seconds for program in programs)
    return Duration(devices, {"reading": reading, "writing": writing, "loading": loading, "compiling": compiling})


def _notes(workloads: Sequence[Workload], unknown: Sequence[str], job: Job) -> list[str]:
    assumed, notes = job.assumed, without_size(unknown)
    for workload in workloads:
        characters = f"{assumed.characters_a_token:g} characters each (an assumption)"
        length = f"prompts of {workload.prompt:,} tokens, {characters}"
        notes.append(f"{workload.name}: {workload.questions:,} questions, {workload.source}; {length}")
    if any(workload.limit for workload in workloads):
        longest = "every answer is as long as its task allows; --answer_tokens plans for shorter ones"
        if assumed.answer_tokens is not None:
            longest = f"the longest answer of a batch has {assumed.answer_tokens:,} tokens (an assumption)"
        notes.append(longest)
    links = "Collectives take as long as their bytes at the links' rate, without the time until the first one arrives"
    return [*notes, f"weights are read from {job.storage}. {links}"]


def make_model(
    config: Config, mesh: Mesh, *, dtype: str = "float32", int8: bool = False, batch_size: int | None = None
) -> Model:
    if isinstance(config, DecoderConfig):
        network, shardings = language_models.abstract_decoder(config, dtype, int8=int8), decoder.parameter_shardings
        start = None
    else:
        network, shardings = encoder_layouts.abstract_t5(config, dtype, int8=int8), t5.parameter_shardings
        start = config.decoder_start_token_id
    graph, state = nnx.split(network)
    params, tree = jax.tree.flatten(placed(state, shardings(state, mesh)))
    ends = config.eos_token_id if isinstance(config.eos_token_id, tuple) else (config.eos_token_id,)
    program = decoding.Program(
        functional.Structure(graph, tree), mesh, dtype, start, tuple(end for end in ends if end is not None)
    )
    room = Room(mesh, batches.parameter_bytes(params), batches.bytes_a_token(config, dtype, mesh), batch_size)
    return Model(config, program, params, room)


def heads_of(config: Config) -> int:
    """Heads of the network, which devices that share its parameters divide."""
    return config.num_heads if isinstance(config, T5Config) else config.num_key_value_heads


def plan_batches(model: Model, workload: Workload, compiled: Callable[[Program], Compiled | None]) -> Batches:
    """Plans a model's batches of a task's requests. ``compiled`` gives a program's figures; None if it does not fit."""
    is_shared = model.program.start is None and batches.is_shared(workload.shared, workload.requests)
    prefix = workload.shared if is_shared else 0
    # A prompt has its own token behind the shared part.
    prefix = min(prefix, workload.prompt - 1)
    limit = workload.limit
    if (longest := batches.longest(model.config)) is not None:
        limit = min(limit, longest - workload.prompt)
    shape = batches.shape_of(workload.prompt - prefix, workload.options, limit, is_sampled=False, config=model.config)
    parts = parallel.data_parallelism(model.mesh)
    rows = model.room.rows(shape, workload.requests) // parts
    width = batches.width_of(prefix, model.config) if prefix else 0
    slots = (shape.prompt + shape.answer) * (1 + shape.options)
    return Batches(
        workload,
        shape,
        rows,
        prefix,
        cache=model.room.bytes_a_token * rows * slots,
        prefix_cache=model.room.bytes_a_token * width,
        answering=compiled(_answering(model, shape, rows, width)),
        reading=compiled(_reading(model, width)) if prefix else None,
    )


def _reading(model: Model, width: int) -> Program:
    """The program that reads the prefix of all prompts."""
    whole = parallel.replicated(model.mesh)
    arguments = [jax.ShapeDtypeStruct(shape, np.int32, sharding=whole) for shape in ((1, width), ())]
    return Program("prefix", "text", 1, lambda _: decoding.encode_prefix.lower(model.program, model.params, *arguments))


def _answering(model: Model, shape: Shape, rows: int, width: int) -> Program:
    """The program that answers a batch, of so many rows for each copy of the parameters, behind a prefix."""
    whole, split = parallel.replicated(model.mesh), parallel.split_axis(model.mesh)

    def lower(rows: int) -> jax.stages.Lowered:
        total = rows * parallel.data_parallelism(model.mesh)

        def table(*axes: int) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct((total, *axes), np.int32, sharding=split)

        prefix = None
        if width:
            made = jax.eval_shape(lambda: decoder_cache.make_cache(model.config, 1, width, model.program.dtype))
            prefix = placed(made, decoder_cache.cache_shardings(model.config, 1, model.mesh))
        length = jax.ShapeDtypeStruct((), np.int32, sharding=whole)
        given = model.program, model.params, decoding.Prompts(prefix, length, table(shape.prompt), table())
        if shape.options:
            return decoding.score_options.lower(*given, table(shape.options, shape.answer), table(shape.options))
        return decoding.generate.lower(*given, table(), None, width=shape.answer)

    return Program("scoring of options" if shape.options else "generation", "question", rows, lower)
