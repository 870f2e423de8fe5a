"""Scores by the size of the edit that makes a text fit an image: texts that do not fit need larger edits.

Krojer et al. 2023, Appendix C: Figure 6 optimises the image's latents on the denoising error; Figure 7 adds noise to a
strength and removes it again under the text.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from winobench import parallel
from winobench.base import options
from winobench.base.texts import checked_list, checked_texts
from winobench.contrib.editing import optimization
from winobench.data import images as image_files
from winobench.data.images import ImageSource
from winobench.diffusion.pipeline import Pipeline
from winobench.diffusion.schedules import Schedule
from winobench.engine import layouts
from winobench.models.snapshots import HasSnapshots
from winobench.runs.edits import Edit, EditWriter, edit_files
from winobench.scorers import common, denoising, samples

METHODS = ("optimize", "denoise")

# Raised whenever a distance could change by more than rounding.
VERSION = 1

# Samples of the errors before and after. The optimisation has not seen their noise.
_JUDGED_SAMPLES = 16
_JUDGED_STREAM = 1


class EditDistance(HasSnapshots):
    """Scores images against texts by how little an image must be edited towards a text: minus the distance.

    A `winobench.scorers.base.Scorer`, which each call holds with its weights. Each edit's images are in ``edits`` of
    the run's ``folder`` before its score is handed out (`winobench.runs.edits`).

    ``num_steps`` is for the optimisation (the paper: 200), or for a whole denoising, of which ``strength``, above
    0 and up to 1, is done. ``learning_rate`` (of Adam) and ``timesteps`` are for ``optimize``; ``strength`` and
    ``guidance_scale`` (1 or less for none) for ``denoise``. Each device edits ``batch_size`` images at once.
    """

    MODEL = "pipeline"

    def __init__(
        self,
        pipeline: Pipeline,
        folder: str | os.PathLike,
        *,
        method: str = "optimize",
        num_steps: int = 200,
        learning_rate: float = 0.05,
        timesteps: str = "fixed",
        strength: float = 0.5,
        guidance_scale: float = 7.5,
        seed: int = 0,
        batch_size: int = 8,
        image_size: int | None = None,
        mesh: Mesh | None = None,
    ):
        self.pipeline = pipeline
        self._method = common.choice("method", method, METHODS)
        self._num_steps = options.whole(1, 100_000).check("num_steps", num_steps)
        self._learning_rate = options.LEARNING_RATE.check("learning_rate", learning_rate)
        self._timesteps = common.choice("timesteps", timesteps, optimization.TIMESTEPS)
        self._strength = options.NOISE_LEVEL.check("strength", strength)
        self._guidance_scale = options.GUIDANCE.check("guidance_scale", guidance_scale)
        self._seed = options.SEED.check("the seed", seed)
        self._batch_size = options.BATCH_SIZE.check("batch_size", batch_size)
        self.image_size = pipeline.check_image_size(image_size)
        self.mesh = common.mesh_for(pipeline.denoiser_function()[1], mesh)
        self._writer = EditWriter(folder, parallel.process_number())
        self.snapshot()

    def _place(self, pipeline: Pipeline) -> None:
        pipeline.check_image_size(self.image_size)
        self._params = None  # frees memory for the new ones
        self._denoiser, params = pipeline.denoiser_function()
        self._params = layouts.place_parameters(params, self.mesh)
        self._schedule = pipeline.schedule_at(self.image_size)
        self._sampler = None if self._schedule.is_continuous else "ddim"
        self._dtype = jnp.dtype(pipeline.denoiser.dtype).name

    def fingerprint(self) -> dict[str, Any]:
        """Everything that can change a distance, as JSON values; ``model`` is the pipeline's fingerprint."""
        drawn = self.pipeline.generation_identity(self._guidance_scale, self._sampler, self.image_size)
        size = {name: drawn[name] for name in ("conditioned_size",) if name in drawn}
        of_method = {
            "optimize": {"learning_rate": self._learning_rate, "timesteps": self._timesteps, **size},
            "denoise": {"strength": self._strength, "guidance_scale": self._guidance_scale, **drawn},
        }
        snapshot = self.snapshot()
        return {
            "scorer": "edit_distance",
            "version": VERSION,
            "model": snapshot.pipeline.fingerprint,
            "method": self._method,
            "num_steps": self._num_steps,
            **of_method[self._method],
            "seed": self._seed,
            "image_size": self.image_size,
            "dtype": snapshot._dtype,
        }

    def score(self, images: Sequence[ImageSource], texts: Sequence[str]) -> np.ndarray:
        """Minus the distances, float32 ``[num_images, num_texts]``. Higher = better match."""
        images, texts = checked_list("images", images), checked_texts(texts)
        pairs = np.array([(image, text) for image in range(len(images)) for text in range(len(texts))])
        scores = np.empty(len(pairs), np.float32)
        for numbers, found in self.iter_scores(images, texts, pairs):
            scores[numbers] = found
        return common.finite_scores(scores.reshape(len(images), len(texts)))

    def iter_scores(
        self, images: Sequence[ImageSource], texts: Sequence[str], pairs: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Edits pairs, int ``[n, 2]`` (image, text), batch by batch, with the images on disk before a batch is yielded.

        Yields (int ``[b]``, which of the pairs, float32 ``[b]``, minus the distances).
        """
        return self.snapshot()._edits(images, texts, common.checked_pairs(pairs, len(images), len(texts)))

    def _edits(
        self, images: Sequence[ImageSource], texts: Sequence[str], pairs: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        rows = self._batch_size * parallel.data_parallelism(self.mesh)
        for start in range(0, len(pairs), rows):
            numbers = np.arange(start, min(start + rows, len(pairs)))
            # The last batch is filled up with pairs that are there already.
            padded = pairs[np.resize(numbers, rows)]
            sources = [images[image] for image in padded[: len(numbers), 0]]
            before = np.stack([image_files.load_image(source, self.image_size) for source in sources])
            wanted = [texts[text] for text in padded[:, 1]]
            edited = self._edit(before[np.resize(np.arange(len(numbers)), rows)], wanted, len(numbers))
            for row, source in enumerate(sources):
                image = image_files.image_hash(source)
                distance, *errors = (float(values[row]) for values in edited[1:])
                names = edit_files(image, wanted[row])
                self._writer.add(Edit(image, wanted[row], distance, *errors, *names), before[row], edited[0][row])
            yield numbers, -edited[1].astype(np.float32)

    def _edit(self, before: np.ndarray, texts: list[str], count: int) -> tuple[np.ndarray, ...]:
        """(images after, distances, errors before, errors after) of the first ``count`` rows of a whole batch."""
        latents = self.pipeline.encode_images(before, batch_size=self._batch_size)
        conditions = self.pipeline.encode_texts(texts, image_size=self.image_size, batch_size=self._batch_size)
        moved = self._optimized(latents, conditions) if self._method == "optimize" else self._denoised(latents, texts)
        distances = jnp.sqrt(jnp.sum(jnp.square(moved - latents), axis=(1, 2, 3)))
        errors = [self._mean_errors(some, conditions) for some in (latents, moved)]
        after = self.pipeline.decode_latents(moved[:count], batch_size=self._batch_size)
        return after, *(np.asarray(values)[:count] for values in (distances, *errors))

    def _optimized(self, latents: jax.Array, conditions: Any) -> jax.Array:
        timesteps = optimization.step_timesteps(self._schedule, self._timesteps, self._num_steps, self._seed)
        key = samples.noise_key(self._seed)
        work = functools.partial(optimization.optimize_latents, learning_rate=self._learning_rate, dtype=self._dtype)
        return self._on_devices("optimize", work, latents, conditions, key, timesteps)

    def _denoised(self, latents: jax.Array, texts: list[str]) -> jax.Array:
        # The same noise for all: images of one question differ in nothing but themselves.
        return self.pipeline.generate(
            texts,
            num_steps=self._num_steps,
            guidance_scale=self._guidance_scale,
            sampler=self._sampler,
            seed=self._seed,
            numbers=[0] * len(texts),
            image=latents,
            strength=self._strength,
            batch_size=self._batch_size,
            image_size=self.image_size,
            return_latents=True,
        )

    def _mean_errors(self, latents: jax.Array, conditions: Any) -> jax.Array:
        timesteps = optimization.step_timesteps(self._schedule, "fixed", _JUDGED_SAMPLES, 0)[:, 0]
        key = jax.random.fold_in(samples.noise_key(self._seed), _JUDGED_STREAM)
        work = functools.partial(optimization.mean_errors, dtype=self._dtype)
        return self._on_devices("judge", work, latents, conditions, key, timesteps)

    @parallel.without_mesh
    def _on_devices(self, name: str, work: Any, latents: jax.Array, conditions: Any, *others: Any) -> jax.Array:
        """Calls a pure function of latents and conditions, whose rows the devices share."""
        split = parallel.split_axis(self.mesh)
        rows = jax.tree.map(lambda leaf: parallel.put(leaf, split), (latents, conditions))
        found = _compiled(
            name, work.func, tuple(sorted(work.keywords.items())), self._denoiser, self._schedule, self.mesh
        )(self._params, *rows, *others)
        return jnp.asarray(parallel.fetch(found))


@functools.lru_cache(maxsize=8)
def _compiled(
    name: str,
    function: Any,
    keywords: tuple[tuple[str, Any], ...],
    denoiser: denoising.Denoiser,
    schedule: Schedule,
    mesh: Mesh,
) -> Any:
    """A pure function over one device's rows as a program of all devices."""
    whole, split = PartitionSpec(), PartitionSpec(parallel.DATA_AXIS)

    def of_one_device(params: Any, latents: jax.Array, conditions: Any, key: jax.Array, times: jax.Array) -> jax.Array:
        return function(denoiser, schedule, params, latents, conditions, key, times, **dict(keywords))

    program = parallel.map_over_data(of_one_device, mesh, (whole, split, split, whole, whole), split)
    program.__name__ = name  # which profilers show
    return jax.jit(program)
