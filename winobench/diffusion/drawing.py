"""Draws pictures with a pipeline: by DDIM, or Euler's method of flow models, with the guidance that the family has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from winobench import memory, options
from winobench.diffusion import pure_functions
from winobench.diffusion.pure_functions import Tree
from winobench.errors import InputError
from winobench.texts import checked_texts

if TYPE_CHECKING:
    from winobench.diffusion.pipeline import Pipeline

# Of pictures in a run; the numbers above are kept for keys of other kinds.
_NUMBERS = options.whole(0, 2**31 - 1)


class Drawing:
    """What a `Pipeline` has to draw pictures with."""

    def generate(
        self,
        texts: Sequence[str],
        *,
        num_steps: int = 50,
        guidance_scale: float = 7.5,
        seed: int | Sequence[int] = 0,
        numbers: Sequence[int] | None = None,
        sampler: str | None = None,
        batch_size: int = 8,
        image_size: int | None = None,
    ) -> np.ndarray:
        """Draws a picture for each text, with the family's guidance.

        Args:
          texts: strings.
          num_steps: number of steps.
          guidance_scale: 1 for none; finite.
          seed: of all pictures, or of each.
          numbers: of the pictures within their run, whole numbers ``[n]``; 0, 1, ... when None. All that is random of a
            picture depends on its seed and its number alone, so that a run can be cut into parts.
          sampler: a name in `winobench.diffusion.samplers.SAMPLERS`; the family's usual one when None: ``ddim``, or
            ``flow_euler`` of flow models.
          batch_size: pictures that are drawn at once.
          image_size: height and width in pixels; the model's own when None.

        Returns:
          uint8 ``[n, image_size, image_size, 3]``.

        Raises:
          InputError: an argument is not as described, or a batch does not fit into memory.
        """
        pipeline = cast("Pipeline", self)
        texts = checked_texts(texts)
        options.whole(1, pipeline.schedule.num_train_timesteps).check("num_steps", num_steps)
        usual = "flow_euler" if pipeline.schedule.is_continuous else "ddim"
        if sampler not in (None, usual):
            raise InputError(f"the sampler is {options.shown(sampler)}, but it must be {usual}")
        guidance_scale = options.GUIDANCE.check("guidance_scale", guidance_scale)
        keys = _keys(seed, numbers, len(texts))
        batch_size = options.BATCH_SIZE.check("batch_size", batch_size)
        size = pipeline.check_image_size(image_size)
        shape = pipeline.latent_shape(size)
        device = jax.local_devices()[0]
        pipeline.check_memory(size, batch_size, device)
        pipeline.check_denoising(shape, batch_size, device)
        memory.check(f"{len(texts):,} pictures", 3 * size**2 * len(texts), "draw fewer at once")
        pipeline, guidance_scale = pipeline.guided(guidance_scale)
        states = pipeline.encode_texts(texts, batch_size=batch_size)
        noise = jax.vmap(lambda key: jax.random.normal(key, shape))(keys)
        empty = pipeline.encode_texts([""]) if guidance_scale != 1 else None
        function, params = pipeline.denoiser_function()
        schedule = pipeline.schedule_at(size)
        levels = schedule.sampling_levels(num_steps, evenly=pipeline.EVEN_LEVELS) if schedule.is_continuous else None

        def draw(noise: jax.Array, states: Tree) -> jax.Array:
            return pure_functions.draw(
                function, schedule, num_steps, params, noise, states, empty, guidance_scale, levels
            )

        latents = pure_functions.in_batches(draw, noise, states, batch_size=batch_size)
        return pipeline.decode_latents(latents, batch_size=batch_size)


def _keys(seed: int | Sequence[int], numbers: ArrayLike | None, total: int) -> jax.Array:
    """The key of each picture, of its seed and its number in the run."""
    seeds = (
        _of_each("seed", seed, options.SEED, total) if np.ndim(seed) else [options.SEED.check("the seed", seed)] * total
    )
    numbers = _of_each("numbers", range(total) if numbers is None else numbers, _NUMBERS, total)
    roots = {one: jax.random.key(one) for one in set(seeds)}
    roots = jnp.stack([roots[one] for one in seeds])
    return jax.vmap(jax.random.fold_in)(roots, jnp.asarray(numbers, jnp.uint32))


def _of_each(name: str, values: ArrayLike, allowed: options.Range, total: int) -> list[int]:
    """One whole number for each picture, checked."""
    if np.shape(values) != (total,):
        raise InputError(
            f"{name} has the shape {list(np.shape(values))}, but there are {total:,} texts: give one for each"
        )
    return [allowed.check(f"{name}[{place}]", value) for place, value in enumerate(values)]
