"""The denoising error of (image, text, sample) triples (Krojer et al. 2023, "Are Diffusion Models Vision-And-Language
Reasoners?", Eq. 1-5), and the compiled step that computes many of them.

Before: `winobench.evaluation.plan` lists the pairs, and `winobench.scorers.diffusion_itm` encodes images and texts.
After: `winobench.evaluation.runner` records the errors, and `winobench.evaluation.summary` averages them over samples.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from winobench import parallel
from winobench.base import memory
from winobench.diffusion.pipeline import Pipeline
from winobench.diffusion.schedules import Schedule
from winobench.engine import limits, sharing
from winobench.engine.limits import Limit
from winobench.models import float8, functional
from winobench.scorers import common, samples

ERRORS = ("squared_l2", "l2")
TARGETS = ("own", "epsilon")

Denoiser = Callable[..., jax.Array]

# Work of one step on each device, as positions of the latents (batch x height x width).
_POSITIONS_PER_STEP = Limit(131_072, cpu=8_192)
_MAX_BATCH = Limit(512, cpu=32)


class Triples(NamedTuple):
    """Some (image, text, sample) triples, in arrays with an element for each.

    Attributes:
      image: int32 [n], rows of the latents.
      text: int32 [n], rows of the text states.
      sample: int32 [n], the number of the sample, which decides its noise.
      timestep: [n], of the sample: int32, or the noise level, float32, of a flow model.
      group: int32 [n], where several texts share an image and a sample: ``image``, ``sample`` and ``timestep`` then
        describe m pairs of image and sample, [m], and this is the pair of each text. None otherwise.
    """

    image: jax.Array
    text: jax.Array
    sample: jax.Array
    timestep: jax.Array
    group: jax.Array | None = None


def denoising_errors(
    denoiser: Denoiser,
    params: Any,
    schedule: Schedule,
    latents: jax.Array,
    text_states: Any,
    triples: Triples,
    noise: jax.Array | samples.Antithetic,
    *,
    error: str = "squared_l2",
    target: str = "own",
    dtype: Any = jnp.float32,
) -> jax.Array:
    """Errors of some (image, text, sample) triples. Pure: call it inside a `jax.jit`, on any mesh.

    Args:
      denoiser: ``(params, noisy latents [n, h, w, c], times float32 [n], text states) -> prediction [n, h, w, c]``.
        Any network will do, such as one that is being trained. ``times`` come from `Schedule.model_time`: in Stable
        Diffusion, they are the timesteps. With a ``group``, the denoiser gets that as a fifth argument, and m noisy
        latents and times. Explicit axes of the caller's mesh stay explicit in it.
      params: passed on to the denoiser.
      schedule: which noisy latents a timestep means, and what the network predicts.
      latents: float32 [num_images, h, w, c], scaled as in training.
      text_states: [num_texts, length, width], or a pytree of arrays [num_texts, ...] for a denoiser that takes one.
      triples: which errors. The result is split over the mesh as ``triples.text`` is.
      noise: a key, such as `noise_key` makes for a seed: sample i's noise is ``normal(fold_in(key, i))``. Keys of
        `jax.random.PRNGKey` are accepted, too. Or `winobench.scorers.samples.Antithetic` of a key, or the noise of all
        samples, float32 [num_samples, h, w, c].
      error: ``squared_l2`` is the squared Euclidean distance (the paper), ``l2`` the distance (the published code).
      target: ``own`` compares in what the network predicts, noise or velocity; ``epsilon`` in noise, into which a
        velocity is converted.
      dtype: of the noisy latents for the denoiser. Noising, difference and sum are float32.

    Returns:
      float32 [n], lower = better match.

    Raises:
      InputError: for an unknown ``error`` or ``target``.
    """
    common.choice("error", error, ERRORS)
    common.choice("target", target, TARGETS)
    if not isinstance(noise, samples.Antithetic) and noise.dtype == jnp.uint32:
        noise = jax.random.wrap_key_data(noise)

    def noised(latents: jax.Array, text_states: Any, triples: Triples, noise: Any) -> tuple[Any, ...]:
        clean = jnp.asarray(latents)[triples.image].astype(jnp.float32)
        if isinstance(noise, samples.Antithetic) or jnp.issubdtype(noise.dtype, jax.dtypes.prng_key):
            eps = samples.draw_noise(noise, triples.sample, clean.shape[1:])
        else:
            eps = jnp.asarray(noise)[triples.sample].astype(jnp.float32)
        noisy = schedule.add_noise(clean, eps, triples.timestep)
        states = jax.tree.map(lambda table: jnp.asarray(table)[triples.text], text_states)
        return clean, eps, noisy, states, schedule.model_time(triples.timestep)

    def distance(clean: jax.Array, eps: jax.Array, noisy: jax.Array, prediction: jax.Array, triples: Triples) -> Any:
        def of_texts(array: jax.Array) -> jax.Array:
            return array if triples.group is None else array[triples.group]

        if target == "epsilon":
            prediction = schedule.as_noise(prediction, of_texts(noisy), of_texts(triples.timestep))
            wanted = of_texts(eps)
        else:
            wanted = of_texts(schedule.target(clean, eps, triples.timestep))
        squared = jnp.sum(jnp.square(wanted - prediction), axis=tuple(range(1, prediction.ndim)))
        return squared if error == "squared_l2" else jnp.sqrt(squared)

    # The denoiser alone meets the caller's explicit axes: it may be written for them.
    clean, eps, noisy, states, times = parallel.automatically(noised, triples.text)(
        latents, text_states, triples, noise
    )
    shared = () if triples.group is None else (triples.group,)
    prediction = denoiser(params, noisy.astype(dtype), times, states, *shared).astype(jnp.float32)
    return parallel.automatically(distance, triples.text)(clean, eps, noisy, prediction, triples)


@dataclasses.dataclass(frozen=True)
class Step:
    """Static argument of the fused step: equal values share a compilation."""

    denoiser: Denoiser
    schedule: Schedule
    mesh: Mesh
    error: str
    target: str
    dtype: str


def _step(
    how: Step,
    params: Any,
    latents: jax.Array,
    text_states: Any,
    noise: jax.Array,
    noised: jax.Array,
    texts: jax.Array,
    groups: jax.Array | None,
) -> jax.Array:
    """One error for each text row, float32 [n], in one compiled program.

    Args:
      noised: int32 [3, m]: image row, sample, timestep (`Schedule.as_whole_numbers`).
      texts: int32 [n], text rows.
      groups: int32 [n], `Triples.group`, which counts the columns of its own device; None if m is n.
    """

    def rows_of_one_device(params, latents, text_states, noise, noised, texts, groups):
        image, sample, timesteps = noised
        triples = Triples(image, texts, sample, how.schedule.from_whole_numbers(timesteps), groups)
        with functional.precision(how.dtype):
            return denoising_errors(
                how.denoiser,
                params,
                how.schedule,
                latents,
                text_states,
                triples,
                noise,
                error=how.error,
                target=how.target,
                dtype=how.dtype,
            )

    whole, split = PartitionSpec(), PartitionSpec(parallel.DATA_AXIS)
    in_specs = (whole, whole, whole, whole, PartitionSpec(None, parallel.DATA_AXIS), split, split)
    return parallel.map_over_data(rows_of_one_device, how.mesh, in_specs, split)(
        params, latents, text_states, noise, noised, texts, groups
    )


_step.__name__ = "fused_step"  # which profilers show
_steps = {
    platform: jax.jit(_step, static_argnames="how", compiler_options=options)
    for platform, options in parallel.COMPILER_OPTIONS.items()
}


def step_on(mesh: Mesh) -> Any:
    """`fused_step` as a function of `jax.jit` for devices of a mesh's kind."""
    return _steps[mesh.devices.flat[0].platform]


def fused_step(how: Step, *arguments: Any) -> jax.Array:
    return step_on(how.mesh)(how, *arguments)


def make_step(
    how: Step, params: Callable[[], Any], texts: int
) -> Callable[[jax.Array, jax.Array, jax.Array, np.ndarray], jax.Array]:
    """(latents, text states, noise, int [4, n] of the host: image row, text row, sample, timestep) -> errors."""
    split, split_columns = parallel.split_axis(how.mesh), parallel.split_axis(how.mesh, axis=1)
    parts = parallel.data_parallelism(how.mesh)

    def step(latents: jax.Array, text_states: jax.Array, noise: jax.Array, index: np.ndarray) -> jax.Array:
        index = index.astype(np.int32)
        noised, groups = sharing.group(index[[0, 2, 3]], parts, texts)
        errors = fused_step(
            how,
            params(),
            latents,
            text_states,
            noise,
            parallel.put(noised, split_columns),
            parallel.put(index[1], split),
            None if groups is None else parallel.put(groups, split),
        )
        return parallel.wait_if_cpu(how.mesh, errors)

    return step


def in_8_bits(pipeline: Pipeline) -> Pipeline:
    """A pipeline whose denoiser's products have factors of 8 bits (`winobench.models.float8`)."""
    return pipeline.replace(**{pipeline.DENOISER: float8.rounded(pipeline.denoiser)})


def usual_batch_size(pipeline: Pipeline, latent_shape: tuple[int, ...], mesh: Mesh, resident: int) -> int:
    """Triples that a device works on at once by default. ``resident``: bytes of parameters and tables on it."""
    device = mesh.devices.flat[0]
    positions = latent_shape[0] * latent_shape[1]
    chosen = min(max(1, _POSITIONS_PER_STEP.on(mesh) // positions), _MAX_BATCH.on(mesh))
    if device.platform == "cpu":
        return chosen
    # Other networks than ours need not say how wide they are.
    width = getattr(getattr(pipeline.denoiser, "config", None), "width_per_position", latent_shape[2])
    itemsize = jnp.dtype(pipeline.denoiser.dtype).itemsize
    return min(chosen, limits.steps_that_fit(positions, width, itemsize, memory.device_bytes(device), resident))
