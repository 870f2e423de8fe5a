"""The programs that draw pictures, as they will run on a mesh, not yet compiled; and how many pictures fit at once."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, SingleDeviceSharding

from winobench import parallel
from winobench.base import memory, random_numbers
from winobench.diffusion import pure_functions, samplers
from winobench.diffusion.pipeline import Pipeline
from winobench.diffusion.pure_functions import LatentDrawing, PictureDecoding, Rows, Shared
from winobench.planning import few_blocks
from winobench.planning.compiling import Compiled
from winobench.planning.programs import TEXT, Program, placed, rows_like


@dataclasses.dataclass(frozen=True)
class Drawing:
    """What drawing has on the first device of a process, which has the text encoders next to the rest, and runs.

    Attributes:
      weights: bytes of parameters there, by network.
      programs: makes the programs for a number of images on each device: the sampler's loop, the decoder, and the
        text encoders, which read the texts of all of the process's devices. Those are left out where the loop's network
        has few blocks.
      others: the same number -> bytes of what goes in and comes out.
      encodings: runs of the text encoders for a batch: one more for the empty text where guidance needs it.
      staged: whether text encoders and denoiser are never there together.
    """

    weights: dict[str, int]
    programs: Callable[[int], tuple[Program, ...]]
    others: Callable[[int], int]
    encodings: int
    staged: bool = False


@dataclasses.dataclass(frozen=True)
class _Inputs:
    """What `Drawing.programs` are given: shapes of one picture, and what all share."""

    ids: Any
    states: Any
    latents: jax.ShapeDtypeStruct
    picture: jax.ShapeDtypeStruct
    keys: jax.ShapeDtypeStruct | None
    plan: samplers.Plan
    guidance_scale: float

    @property
    def rows(self) -> Rows:
        return Rows(self.latents, self.states, None, self.keys)

    @property
    def empty(self) -> Any:
        return self.states if self.guidance_scale != 1 else None


def drawing(
    pipeline: Pipeline,
    mesh: Mesh,
    *,
    num_steps: int,
    guidance_scale: float,
    sampler: str | None = None,
    image_size: int | None = None,
    staged: bool = False,
    shallow: Sequence[tuple[tuple[int, ...], Pipeline]] = (),
) -> Drawing:
    """What `Pipeline.generate` compiles of images that are drawn from noise alone.

    Args:
      pipeline: from `winobench.planning.abstract.make_pipeline`.
      mesh: a process's devices, which need not be available.
      num_steps: see `Pipeline.generate`, like the rest.
      guidance_scale: as there.
      sampler: as there.
      image_size: as there.
      staged: whether the pipeline is loaded with ``on_host``.
      shallow: see `winobench.planning.programs.scoring`.

    Raises:
      InputError: the sampler or the image size does not fit the model.
    """
    size = pipeline.check_image_size(image_size)
    told, scale = pipeline.guided(guidance_scale)
    chosen = samplers.find_sampler(sampler, pipeline.schedule)
    text_function, text_params = told.text_function()
    image_function, image_params = pipeline.image_function()
    ids = told.tokenize([""])
    keys = jax.eval_shape(lambda: jax.random.key_data(random_numbers.seed_key(0)))
    inputs = _Inputs(
        ids=jax.tree.map(np.asarray, ids),
        states=jax.eval_shape(text_function, text_params, ids),
        latents=jax.ShapeDtypeStruct((1, *pipeline.latent_shape(size)), np.float32),
        picture=jax.ShapeDtypeStruct((1, size, size, 3), np.uint8),
        keys=jax.ShapeDtypeStruct((1, *keys.shape), keys.dtype) if chosen.is_random else None,
        plan=chosen.plan(pipeline.schedule_at(size), num_steps, evenly=pipeline.EVEN_LEVELS),
        guidance_scale=scale,
    )

    def loop(pipeline: Pipeline) -> Callable[[int], jax.stages.Lowered]:
        function, params = pipeline.denoiser_function()
        return functools.partial(_lower_loop, LatentDrawing(chosen, function), params, inputs, mesh)

    decode = PictureDecoding(image_function.family, image_function.structure)
    blocks = few_blocks.block_counts(pipeline.denoiser.config) if shallow else ()
    of_few = tuple((counts, loop(one)) for counts, one in shallow)

    def programs(items: int) -> tuple[Program, ...]:
        texts = Program(
            "text encoders",
            TEXT,
            items * mesh.size,
            functools.partial(_lower_texts, text_function, text_params, inputs, mesh),
        )
        return (
            Program(f"loop of {len(inputs.plan.numbers)} steps", "picture", items, loop(pipeline), blocks, of_few),
            Program("decoder", "picture", items, functools.partial(_lower_decoder, decode, image_params, inputs, mesh)),
            *([] if shallow else [texts]),
        )

    networks = {"denoiser": pipeline.denoiser_function()[1], "autoencoder": image_params, "text encoders": text_params}
    return Drawing(
        weights={name: memory.of_arrays(params) for name, params in networks.items()},
        programs=programs,
        others=functools.partial(_bytes_of_rows, inputs, mesh),
        encodings=2 if scale != 1 else 1,
        staged=staged,
    )


def beside(weights: Mapping[str, int], noun: str, *, staged: bool) -> int:
    """Bytes of parameters that are on the device while a program runs, by what the program works on."""
    away = ("denoiser" if noun == TEXT else "text encoders") if staged else None
    return sum(number for name, number in weights.items() if name != away)


def fit(
    found: Drawing, batch: int, room: int, compiled: Callable[[Program], Compiled | None]
) -> tuple[int, tuple[Compiled, ...]]:
    """The programs for as many images at once as asked for, or for half as many until they fit.

    Args:
      found: the programs.
      batch: images on each device.
      room: bytes of a device that programs can use.
      compiled: compiles a program; None if its compiler finds that it does not fit.

    Returns:
      Images on each device and what the compilers say, in the order of the programs; 0 and nothing if none fits.
    """
    least = min(beside(found.weights, noun, staged=found.staged) for noun in (TEXT, "picture"))
    while batch and least + found.others(batch) <= room:
        results: list[Compiled] = []
        # The loop takes longest to compile, and is left out where another program does not fit.
        for program in reversed(found.programs(batch)):
            result = compiled(program)
            weights = beside(found.weights, program.noun, staged=found.staged)
            if result is None or weights + found.others(batch) + result.temporaries + result.code > room:
                break
            results.insert(0, result)
        else:
            return batch, tuple(results)
        batch //= 2
    return 0, ()


def _lower_loop(
    draw: LatentDrawing, params: list[jax.ShapeDtypeStruct], inputs: _Inputs, mesh: Mesh, items: int
) -> jax.stages.Lowered:
    whole = parallel.replicated(mesh)
    steps = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=whole), inputs.plan)
    params = placed(params, parallel.parameter_shardings(params, mesh))
    shared = Shared(params, steps, rows_like(inputs.empty, 1, whole), inputs.guidance_scale)
    rows = rows_like(inputs.rows, items * mesh.size, parallel.split_axis(mesh))
    return pure_functions.call_on_rows.lower(draw, mesh, shared, rows)


def _lower_decoder(
    decode: PictureDecoding, params: list[jax.ShapeDtypeStruct], inputs: _Inputs, mesh: Mesh, items: int
) -> jax.stages.Lowered:
    params = placed(params, parallel.parameter_shardings(params, mesh))
    latents = rows_like(inputs.latents, items * mesh.size, parallel.split_axis(mesh))
    return pure_functions.call_on_rows.lower(decode, mesh, params, latents)


def _lower_texts(
    encode: Callable[..., Any], params: dict[str, list[Any]], inputs: _Inputs, mesh: Mesh, items: int
) -> jax.stages.Lowered:
    # On the first device alone, without a mesh, as `Pipeline.encode_texts`.
    first = SingleDeviceSharding(mesh.devices.flat[0])
    params = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=first), params)

    def of_all(leaf: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((items, *leaf.shape[1:]), leaf.dtype, sharding=first)

    return pure_functions.call.lower(encode, params, jax.tree.map(of_all, inputs.ids))


def _bytes_of_rows(inputs: _Inputs, mesh: Mesh, items: int) -> int:
    """Bytes of noise, texts, latents and pictures on the first device, where those of all devices begin."""
    of_one = memory.of_arrays(inputs.rows)
    results = memory.of_arrays((inputs.latents, inputs.picture))
    before = 0 if mesh.size == 1 else mesh.size * of_one
    return items * (of_one + results + before) + memory.of_arrays(inputs.empty)
