"""Draws pictures with a pipeline: by DDIM, or Euler's method of flow models, with the guidance that the family has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from winobench import memory, options
from winobench.diffusion import pure_functions
from winobench.diffusion.pure_functions import Tree
from winobench.texts import checked_texts

if TYPE_CHECKING:
    from winobench.diffusion.pipeline import Pipeline


def generate(
    pipeline: Pipeline, texts: Sequence[str], *, num_steps: int, guidance_scale: float, seed: int, batch_size: int
) -> np.ndarray:
    """Draws a picture for each text; arguments, result and errors as of `Pipeline.generate`."""
    texts = checked_texts(texts)
    options.whole(1, pipeline.schedule.num_train_timesteps).check("num_steps", num_steps)
    guidance_scale = options.GUIDANCE.check("guidance_scale", guidance_scale)
    seed = options.SEED.check("the seed", seed)
    batch_size = options.BATCH_SIZE.check("batch_size", batch_size)
    size = pipeline.check_image_size()
    shape = pipeline.latent_shape(size)
    device = jax.local_devices()[0]
    pipeline.check_memory(size, batch_size, device)
    pipeline.check_denoising(shape, batch_size, device)
    memory.check(f"{len(texts):,} pictures", 3 * size**2 * len(texts), "draw fewer at once")
    pipeline, guidance_scale = pipeline.guided(guidance_scale)
    states = pipeline.encode_texts(texts, batch_size=batch_size)
    key = jax.random.key(seed)
    noise = jax.vmap(lambda i: jax.random.normal(jax.random.fold_in(key, i), shape))(jnp.arange(len(texts)))
    empty = pipeline.encode_texts([""]) if guidance_scale != 1 else None
    function, params = pipeline.denoiser_function()
    schedule = pipeline.schedule_at(size)
    levels = schedule.sampling_levels(num_steps, evenly=pipeline.EVEN_LEVELS) if schedule.is_continuous else None

    def draw(noise: jax.Array, states: Tree) -> jax.Array:
        return pure_functions.draw(function, schedule, num_steps, params, noise, states, empty, guidance_scale, levels)

    latents = pure_functions.in_batches(draw, noise, states, batch_size=batch_size)
    return pipeline.decode_latents(latents, batch_size=batch_size)
