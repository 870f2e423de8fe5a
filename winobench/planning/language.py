"""A language model's programs ahead of time: prompts read, tokens written, and how many fit on some devices at once."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from winobench import parallel
from winobench.checkpoints import encoder_layouts, language_models
from winobench.models import decoder, decoder_cache, functional, t5
from winobench.models.decoder_config import DecoderConfig
from winobench.models.t5 import T5Config
from winobench.planning.compiling import Compiled
from winobench.planning.programs import Program
from winobench.planning.text_work import Asked
from winobench.responders import batches, decoding
from winobench.responders.batches import Room
from winobench.responders.shapes import Shape

Config = DecoderConfig | T5Config


@dataclasses.dataclass(frozen=True)
class Model:
    """A language model as `winobench.responders.language_model.LanguageModel` has it, of shapes instead of numbers.

    Attributes:
      config: the network's.
      program: what everything is compiled for.
      params: shapes of the parameters at their places.
      room: what decides how many rows a batch has.
    """

    config: Config
    program: decoding.Program
    params: list[jax.ShapeDtypeStruct]
    room: Room

    @property
    def mesh(self) -> Mesh:
        """The devices."""
        return self.program.mesh


@dataclasses.dataclass(frozen=True)
class Batches:
    """How a language model works off what a task asks.

    Attributes:
      asked: what that is.
      shape: of the batches.
      rows: of a batch, on devices that share one copy of the parameters.
      prefix: tokens that are read once for all requests; 0 for none.
      cache: bytes of keys and values on each device, which are among the temporaries of ``answering``.
      prefix_cache: bytes of those of the prefix on each device.
      answering: the program of a batch, which reads the prompts, and writes the texts or scores the options; None if it
        does not fit.
      reading: the program that reads the prefix; None without one.
    """

    asked: Asked
    shape: Shape
    rows: int
    prefix: int
    cache: int
    prefix_cache: int
    answering: Compiled | None
    reading: Compiled | None

    @property
    def resident(self) -> int:
        """Bytes on each device beside the parameters, at most; without a program, those of keys and values."""
        if self.answering is None:
            return self.cache + self.prefix_cache
        return self.prefix_cache + self.answering.temporaries + self.answering.code

    def runs(self, parts: int) -> int:
        """Batches in all, on so many parts of the devices that have a copy of the parameters each."""
        return math.ceil(self.asked.requests / (self.rows * parts))

    def turns(self, tokens: int | None) -> int:
        """Turns of the loop over the tokens, the first of which needs none.

        Args:
          tokens: of the longest answer of a batch; None for as many as there may be.
        """
        if self.answering is None or self.answering.turn is None:
            return 0
        return min(tokens or self.asked.limit, self.asked.limit) - 1


def make_model(
    config: Config, mesh: Mesh, *, dtype: str = "float32", int8: bool = False, batch_size: int | None = None
) -> Model:
    """A language model without numbers.

    Args:
      config: the network's.
      mesh: of devices that need not be available.
      dtype: see `LanguageModel.from_pretrained`, like the rest.
      int8: as there.
      batch_size: as there.
    """
    if isinstance(config, DecoderConfig):
        network, shardings = language_models.abstract_decoder(config, dtype, int8=int8), decoder.parameter_shardings
        start = None
    else:
        network, shardings = encoder_layouts.abstract_t5(config, dtype, int8=int8), t5.parameter_shardings
        start = config.decoder_start_token_id
    graph, state = nnx.split(network)
    placed = jax.tree.map(_placed, state, shardings(state, mesh))
    params, tree = jax.tree.flatten(placed)
    ends = config.eos_token_id if isinstance(config.eos_token_id, tuple) else (config.eos_token_id,)
    program = decoding.Program(
        functional.Structure(graph, tree), mesh, dtype, start, tuple(end for end in ends if end is not None)
    )
    room = Room(mesh, batches.parameter_bytes(params), batches.bytes_a_token(config, dtype, mesh), batch_size)
    return Model(config, program, params, room)


def ways_to_share(config: Config, count: int) -> list[int]:
    """Numbers of devices, the smallest first, that can share one copy of the parameters without more ado.

    Args:
      config: the network's, whose heads are divided.
      count: how many devices there are.
    """
    heads = config.num_heads if isinstance(config, T5Config) else config.num_key_value_heads
    return [parts for parts in range(1, count + 1) if count % parts == 0 and heads % parts == 0]


def plan_batches(model: Model, asked: Asked, compiled: Callable[[Program], Compiled | None]) -> Batches:
    """How a model works off a task's requests.

    Args:
      model: made for some devices.
      asked: the requests.
      compiled: compiles a program for them; None if it does not fit.
    """
    prefix = asked.shared if model.program.start is None and batches.is_shared(asked.shared, asked.requests) else 0
    # A prompt has a token of its own behind what is shared.
    prefix = min(prefix, asked.prompt - 1)
    limit = asked.limit
    if (longest := batches.longest(model.config)) is not None:
        limit = min(limit, longest - asked.prompt)
    shape = batches.shape_of(asked.prompt - prefix, asked.options, limit, is_sampled=False, config=model.config)
    parts = parallel.data_parallelism(model.mesh)
    rows = model.room.rows(shape, asked.requests) // parts
    width = batches.width_of(prefix, model.config) if prefix else 0
    slots = (shape.prompt + shape.answer) * (1 + shape.options)
    return Batches(
        asked=asked,
        shape=shape,
        rows=rows,
        prefix=prefix,
        cache=model.room.bytes_a_token * rows * slots,
        prefix_cache=model.room.bytes_a_token * width,
        answering=compiled(_answering(model, shape, rows, width)),
        reading=compiled(_reading(model, width)) if prefix else None,
    )


def _placed(leaf: Any, place: Any) -> Any:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place)


def _reading(model: Model, width: int) -> Program:
    """The program that reads what all prompts begin with."""
    return Program(
        "prefix",
        "text",
        1,
        lambda _: decoding.encode_prefix.lower(model.program, model.params, *_prefix_arguments(model, width)),
    )


def _prefix_arguments(model: Model, width: int) -> Iterator[jax.ShapeDtypeStruct]:
    whole = parallel.replicated(model.mesh)
    return (jax.ShapeDtypeStruct(shape, np.int32, sharding=whole) for shape in ((1, width), ()))


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
            prefix = jax.tree.map(_placed, made, decoder_cache.cache_shardings(model.config, 1, model.mesh))
        length = jax.ShapeDtypeStruct((), np.int32, sharding=whole)
        given = model.program, model.params, decoding.Prompts(prefix, length, table(shape.prompt), table())
        if shape.options:
            return decoding.score_options.lower(*given, table(shape.options, shape.answer), table(shape.options))
        return decoding.generate.lower(*given, table(), None, width=shape.answer)

    return Program("scoring of options" if shape.options else "generation", "question", rows, lower)
