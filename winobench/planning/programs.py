"""The programs of an evaluation as they will run on a mesh, not yet compiled: its functions, shapes and layouts."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from winobench import parallel
from winobench.base import memory
from winobench.diffusion.pipeline import Pipeline
from winobench.engine import layouts, limits, tables
from winobench.planning import few_blocks
from winobench.scorers import denoising, pipeline_tables, samples

TEXT = "text"
"""The noun of the program that encodes texts."""


@dataclasses.dataclass(frozen=True)
class Program:
    """A program that has not been compiled.

    Attributes:
      name: e.g. ``denoising step``.
      noun: what an item is, e.g. ``pass``.
      items: that each device works on in one run.
      lower_items: number of items -> the program as JAX's compilers take it.
      blocks: how many blocks of each kind its network has, where `shallow` stands for it.
      shallow: numbers of blocks and the same program of a network that has them (`winobench.planning.few_blocks`).
    """

    name: str
    noun: str
    items: int
    lower_items: Callable[[int], jax.stages.Lowered]
    blocks: tuple[int, ...] = ()
    shallow: tuple[tuple[tuple[int, ...], Callable[[int], jax.stages.Lowered]], ...] = ()

    def lower(self) -> jax.stages.Lowered:
        """As JAX's compilers take it."""
        return self.lower_items(self.items)

    def halved(self) -> Program:
        """The same of half as many items."""
        return dataclasses.replace(self, items=self.items // 2)

    def shallow_programs(self) -> tuple[tuple[tuple[int, ...], Program], ...]:
        """Numbers of blocks, and the same program of a network that has them."""
        return tuple((counts, Program(self.name, self.noun, self.items, lower)) for counts, lower in self.shallow)


@dataclasses.dataclass(frozen=True)
class Scoring:
    """What a scorer has on each device, and runs there.

    Attributes:
      weights: bytes of parameters on a device while it scores, by network.
      tables: bytes of the tables of latents and text states.
      usual_batch: triples of a step that the scorer chooses by itself.
      step: makes the denoising step of a number of triples on each device.
      encoders: the programs that fill the tables.
      staged: bytes of text encoders that are there only while texts are encoded, instead of the denoiser; 0 of those
        that stay.
    """

    weights: dict[str, int]
    tables: int
    usual_batch: int
    step: Callable[[int], Program]
    encoders: tuple[Program, ...]
    staged: int = 0

    @property
    def resident(self) -> int:
        """Bytes on a device while it scores, whatever runs there."""
        return sum(self.weights.values()) + self.tables

    @property
    def encoding(self) -> int:
        """The same while it encodes texts; the tables may be those of the texts before."""
        return self.resident - self.weights["denoiser"] + self.staged if self.staged else self.resident

    def beside(self, noun: str) -> int:
        """Bytes on a device beside what a program needs for itself, by what it works on."""
        return self.encoding if noun == TEXT else self.resident


def scoring(
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
    """The programs of a `DiffusionITM`.

    Args:
      pipeline: from `winobench.planning.abstract.make_pipeline`.
      mesh: of devices that need not be available.
      image_size: see `DiffusionITM`, like the rest.
      error: as there.
      target: as there.
      staged: whether the text encoders leave the devices before the scoring begins.
      batch: passes at once on each device; None for those that the scorer chooses by itself.
      shallow: numbers of blocks and pipelines with such denoisers, which are compiled instead of the pipeline's
        (`winobench.planning.few_blocks`). Encoders are left out then, as deep as they are.

    Raises:
      InputError: the image size does not fit the model.
    """
    image_size = pipeline.check_image_size(image_size)
    dtype = jnp.dtype(pipeline.denoiser.dtype).name
    _, params = pipeline.denoiser_function()
    image_function, image_params = pipeline.image_function()
    text_function, text_params = pipeline.text_function(dtype)
    ids = jax.tree.map(np.asarray, pipeline.tokenize([""], image_size=image_size))
    pixels = jax.ShapeDtypeStruct((1, image_size, image_size, 3), np.uint8)
    latents = jax.eval_shape(image_function, image_params, pixels)
    states = jax.eval_shape(text_function, text_params, ids)
    parts = mesh.shape.get(parallel.MODEL_AXIS, 1)
    weights = {
        "denoiser": memory.of_arrays(params) // parts,
        "autoencoder": memory.of_arrays(image_params) // parts,
        "text encoders": 0 if staged else memory.of_arrays(text_params) // parts,
    }
    tables_there = _Tables.of(latents, states, mesh)
    resident = sum(weights.values()) + tables_there.bytes

    def lowering(pipeline: Pipeline) -> Callable[[int], jax.stages.Lowered]:
        denoiser, params = pipeline.denoiser_function()
        how = denoising.Step(denoiser, pipeline.schedule_at(image_size), mesh, error, target, dtype)
        return functools.partial(_lower_step, how, params, tables_there)

    blocks = few_blocks.block_counts(pipeline.denoiser.config) if shallow else ()
    of_few = tuple((counts, lowering(one)) for counts, one in shallow)
    images, texts = pipeline_tables.image_batch(image_size, mesh), pipeline_tables.text_batch(ids, mesh)
    return Scoring(
        weights,
        tables_there.bytes,
        batch or denoising.usual_batch_size(pipeline, latents.shape[1:], mesh, resident),
        lambda items: Program("denoising step", "pass", items, lowering(pipeline), blocks, of_few),
        ()
        if shallow
        else (
            _encoder("image encoder", "image", image_function, image_params, pixels, images, mesh),
            _encoder("text encoder", TEXT, text_function, text_params, ids, texts, mesh),
        ),
        memory.of_arrays(text_params) // parts if staged else 0,
    )


@dataclasses.dataclass(frozen=True)
class _Tables:
    """Tables of latents and of text states: one row of each, and how many there are."""

    latents: Any
    latent_rows: int
    states: Any
    state_rows: int

    @classmethod
    def of(cls, latents: Any, states: Any, mesh: Mesh) -> _Tables:
        """As many rows as the scorer makes room for."""
        room = pipeline_tables.TABLE_BYTES.on(mesh)
        return cls(latents, limits.table_rows(latents, room), states, limits.table_rows(states, room))

    @property
    def bytes(self) -> int:
        """Of both, on each device."""
        of_latents = self.latent_rows * memory.of_arrays(self.latents)
        return of_latents + self.state_rows * memory.of_arrays(self.states)


def _lower_step(how: denoising.Step, params: Any, there: _Tables, items: int) -> jax.stages.Lowered:
    """The denoising step of a number of triples on each device."""
    mesh = how.mesh
    total = items * parallel.data_parallelism(mesh)
    whole = parallel.replicated(mesh)
    key = jax.eval_shape(lambda: samples.noise_key(0))
    return denoising.step_on(mesh).lower(
        how,
        placed(params, layouts.parameter_formats(params, mesh)),
        rows_like(there.latents, there.latent_rows, whole),
        rows_like(there.states, there.state_rows, whole),
        jax.ShapeDtypeStruct(key.shape, key.dtype, sharding=whole),
        jax.ShapeDtypeStruct((3, total), np.int32, sharding=parallel.split_axis(mesh, axis=1)),
        jax.ShapeDtypeStruct((total,), np.int32, sharding=parallel.split_axis(mesh)),
        None,
    )


def _encoder(name: str, noun: str, function: Any, params: Any, example: Any, batch: int, mesh: Mesh) -> Program:
    """What fills a table, of a number of items on each device."""

    def lower(items: int) -> jax.stages.Lowered:
        total = items * parallel.data_parallelism(mesh)
        arrays = placed(params, parallel.parameter_shardings(params, mesh))
        return tables.lower_encoder(function, mesh, arrays, rows_like(example, total, parallel.split_axis(mesh)))

    return Program(name, noun, batch, lower)


def placed(parameters: Any, where: Any) -> Any:
    """Shapes of arrays at their places."""
    return jax.tree.map(lambda a, place: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=place), parameters, where)


def rows_like(example: Any, rows: int, sharding: NamedSharding) -> Any:
    """Shapes of so many rows like those of a tree of arrays [1, ...]."""

    def of_leaf(leaf: Any) -> jax.ShapeDtypeStruct:
        spec = PartitionSpec(*sharding.spec) if len(leaf.shape) else PartitionSpec()
        place = NamedSharding(sharding.mesh, spec)
        return jax.ShapeDtypeStruct((rows, *leaf.shape[1:]), leaf.dtype, sharding=place)

    return jax.tree.map(of_leaf, example)
