"""Generates images with a pipeline: which noise, which steps, on which devices."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from numpy.typing import ArrayLike

from winobench import parallel
from winobench.base import memory, options, random_numbers
from winobench.base.errors import InputError
from winobench.base.texts import checked_texts
from winobench.diffusion import pure_functions, samplers
from winobench.diffusion.pure_functions import Decoded, ImageDecoding, LatentGeneration, Rows, Shared
from winobench.diffusion.schedules import Schedule
from winobench.models import snapshots
from winobench.models.any_pipeline import AnyPipeline

if TYPE_CHECKING:
    from winobench.models.base import Network

_STRENGTH = options.number(above=0, high=1)
_USUAL_STRENGTH = 0.8
# Of images in a run, and that which stands instead of a number for the noise of random samplers' steps.
_NUMBERS = options.whole(0, 2**31 - 1)
_STEPS = 2**32 - 1


class Run(NamedTuple):
    """Checked arguments of `ImageGeneration.generate`. The image and its strength are not checked yet."""

    num_steps: int
    guidance_scale: float
    sampler: str | None
    image: ArrayLike | None
    strength: float | None
    batch_size: int
    image_size: int
    mesh: Mesh
    decoding: bool  # whether images are made of the latents
    negative_prompt: str | None = None


class ImageGeneration:
    """The parts of a `Pipeline` that generate images."""

    @parallel.without_mesh
    def generate(
        self,
        texts: Sequence[str],
        *,
        num_steps: int = 50,
        guidance_scale: float = 7.5,
        seed: int | Sequence[int] = 0,
        numbers: Sequence[int] | None = None,
        sampler: str | None = None,
        image: ArrayLike | None = None,
        strength: float | None = None,
        latents: ArrayLike | None = None,
        return_latents: bool = False,
        batch_size: int = 8,
        image_size: int | None = None,
        mesh: Mesh | None = None,
        negative_prompt: str | None = None,
    ) -> np.ndarray:
        """Generates an image for each text, with the family's guidance.

        Of a pipeline that was loaded with ``on_host``, the text encoders leave the devices before the denoiser is put
        there, in each call.

        Args:
          texts: strings.
          num_steps: number of steps.
          guidance_scale: 1 or less for none, and 0 or less of Z-Image, as in diffusers' pipelines. Finite.
          seed: of all images, or of each.
          numbers: of the images within their run, whole numbers ``[n]``; 0, 1, ... when None. All that is random of a
            image depends on its seed and its number alone: a run can be cut into parts, up to rounding.
          sampler: a name in `winobench.diffusion.samplers.SAMPLERS`; None follows the folder's scheduler, and
            takes ``ddim`` where that one is not among them, such as PNDM. `TorchPipeline` takes None alone, and
            diffusers' own scheduler.
          image: images to begin with, one for each text: uint8 ``[n, image_size, image_size, 3]`` or floats in
            [-1, 1], of which the autoencoder's mean is taken. Or their latents, like ``latents``.
          strength: above 0 and up to 1, 0.8 when None: how much of an image is noise at first. The last of so many
            parts of the steps are taken, as diffusers' pipelines from image to image do it.
          latents: float ``[n, h, w, c]``, standard normal noise to begin with instead of the seed's.
          return_latents: return latents instead of images; `Pipeline.decode_latents` makes images of them.
          batch_size: images that are generated at once, by all devices together.
          image_size: height and width in pixels. The image's or else the model's own when None.
          mesh: the devices, from `winobench.parallel.make_mesh`, which must divide ``batch_size``. When None, so many
            of this process's devices as can share it evenly: the images are the same up to rounding.
          negative_prompt: the text from which guidance leads away, instead of the empty one.

        Returns:
          uint8 ``[n, image_size, image_size, 3]``. Or latents, float32 ``[n, h, w, c]``, scaled as in training.

        Raises:
          InputError: an argument is not as described, no step is left, a batch does not fit into memory, a network
            gives NaN or infinite numbers, or there is a negative prompt without guidance.
        """
        pipeline = cast(AnyPipeline, self).snapshot()  # all parts of an image are of one moment
        total = len(texts := checked_texts(texts))
        options.whole(1, pipeline.schedule.num_train_timesteps).check("num_steps", num_steps)
        pipeline.check_sampler(sampler, pipeline.schedule)
        guidance_scale = options.GUIDANCE.check("guidance_scale", guidance_scale)
        pipeline.check_negative_prompt(negative_prompt, guidance_scale)
        keys = image_keys(seed, numbers, total)
        batch_size = options.BATCH_SIZE.check("batch_size", batch_size)
        size = pipeline.check_image_size(_size_of(image) if image_size is None else image_size)
        shape, params = pipeline.latent_shape(size), pipeline.denoiser_function()[1]
        mesh = _devices(params, batch_size) if mesh is None else _checked_mesh(mesh, batch_size)
        _check_memory(pipeline, size, total, batch_size, mesh)
        noise = _drawn(keys[0], shape) if latents is None else _checked_latents("latents", latents, (total, *shape))
        _check_strength(strength, image)
        run = Run(
            *(num_steps, guidance_scale, sampler, image, strength, batch_size, size, mesh),
            decoding=not return_latents,
            negative_prompt=negative_prompt,
        )
        drawn, decoded = pipeline._run(run, texts, noise, keys[1])
        names = names_of(texts, seed)
        is_finite = np.isfinite(drawn).reshape(total, -1).all(axis=1)
        check_finite(is_finite, "the latent array of", names, pipeline.networks.values())
        if decoded is None:
            return drawn
        check_finite(decoded.finite, "the image of", names, [pipeline.autoencoder])
        return decoded.images

    @staticmethod
    def check_sampler(name: str | None, schedule: Schedule) -> None:
        """Raises InputError unless this pipeline generates with this sampler."""
        samplers.find_sampler(name, schedule)

    def check_negative_prompt(self, negative_prompt: str | None, guidance_scale: float) -> None:
        """Raises InputError unless this pipeline can lead images away from a text with this guidance."""
        if negative_prompt is None:
            return
        is_guided = cast(AnyPipeline, self).guided(guidance_scale)[1] != 1
        check_has_effect(negative_prompt, self, guidance_scale, is_guided)

    def _run(
        self, run: Run, texts: Sequence[str], noise: jax.Array, keys: jax.Array
    ) -> tuple[np.ndarray, Decoded | None]:
        """Latents of texts, from noise and from keys of the steps' noise, and their images where they are decoded."""
        pipeline, total, size = cast(AnyPipeline, self), len(texts), run.image_size
        sampler = samplers.find_sampler(run.sampler, pipeline.schedule)
        function, params = pipeline.denoiser_function()
        first, clean = 0, None
        if run.image is not None:
            strength = _STRENGTH.check("strength", _USUAL_STRENGTH if run.strength is None else run.strength)
            first = sampler.first_step(run.num_steps, strength)
            clean = _clean(pipeline, run.image, (total, size, size, 3), noise.shape, run.batch_size)
        plan = sampler.plan(pipeline.schedule_at(size), run.num_steps, first=first, evenly=pipeline.EVEN_LEVELS)
        if isinstance(params[0], np.ndarray):
            pipeline._copies.pop("denoiser", None)  # off the devices while texts are encoded
        conditioned, guidance_scale = pipeline.guided(run.guidance_scale)
        encoding = {"image_size": size, "batch_size": run.batch_size}
        states = conditioned.encode_texts(texts, **encoding)
        negative = [run.negative_prompt or ""]
        empty = pipeline.unconditional().encode_texts(negative, **encoding) if guidance_scale != 1 else None
        rows = Rows(noise, states, clean, jax.random.key_data(keys) if sampler.is_random else None)
        whole = jax.tree.map(lambda leaf: parallel.put(leaf, parallel.replicated(run.mesh)), (plan, empty))
        shared = Shared(self._copied("denoiser", params, run.mesh), *whole, guidance_scale)
        return self._drawn(LatentGeneration(sampler, function), shared, rows, run)

    def _drawn(self, draw: LatentGeneration, shared: Shared, rows: Rows, run: Run) -> tuple[np.ndarray, Decoded | None]:
        """Latents and, where they are decoded, their images, a batch at a time."""
        function, params = cast(AnyPipeline, self).image_function()
        decode = ImageDecoding(function.family, function.structure)
        batch_size, mesh, decoding = run.batch_size, run.mesh, run.decoding
        params = self._copied("autoencoder", params, mesh) if decoding else None
        split, total = parallel.split_axis(mesh), len(rows.noise)
        latents, decoded = [], []
        for start in range(0, total, batch_size):
            batch = pure_functions.padded_rows(rows, start, batch_size)
            batch = jax.tree.map(lambda leaf: parallel.put(leaf, split), batch)
            drawn = parallel.wait_if_cpu(mesh, pure_functions.call_on_rows(draw, mesh, shared, batch))
            latents.append(drawn)
            if decoding:
                decoded.append(parallel.wait_if_cpu(mesh, pure_functions.call_on_rows(decode, mesh, params, drawn)))
        latents, decoded = (
            jax.tree.map(lambda *batches: np.concatenate([np.asarray(batch) for batch in batches])[:total], *parts)
            if parts
            else None
            for parts in (latents, decoded)
        )
        return latents, decoded

    _copies = functools.cached_property(lambda self: {})

    def _copied(self, name: str, params: list[jax.Array], mesh: Mesh) -> list[jax.Array]:
        """A network's parameters on all devices of a mesh, kept for as long as they are the same arrays."""
        copies = self._copies
        before = copies.get(name)
        if before is None or not before[0].matches(mesh, params):
            state = snapshots.WeakSnapshot(mesh, params, lambda: copies.pop(name, None))
            before = copies[name] = (state, parallel.place_parameters(params, mesh))
        return before[1]


def check_has_effect(negative_prompt: str, model: Any, guidance_scale: float, is_guided: bool) -> None:
    """Raises InputError for a negative prompt of a model that generates without guidance by texts."""
    checked_texts([negative_prompt])
    if not is_guided:
        raise InputError(
            f"negative_prompt is {options.quote(negative_prompt)}, but a {type(model).__name__} with guidance_scale"
            f" {guidance_scale:g} has no guidance by texts: leave it out, or raise the scale",
            code="no-effect",
        )


def names_of(texts: Sequence[str], seed: int | Sequence[int]) -> list[str]:
    """Images by their texts and seeds, for `check_finite`."""
    seeds = np.resize(seed, len(texts))
    return [f"{options.quote(text)} (seed {number})" for text, number in zip(texts, seeds, strict=True)]


def check_finite(finite: ArrayLike, what: str, names: Sequence[str], networks: Iterable[Network]) -> None:
    """Raises InputError for rows that are not finite: bool ``[n]``, with their names."""
    (wrong,) = np.nonzero(~np.asarray(finite))
    if len(wrong):
        is_half = any(jnp.dtype(network.dtype) == jnp.float16 for network in networks)
        advice = "float16 may overflow, load it in bfloat16 or float32" if is_half else "check the weights and the LoRA"
        raise InputError(
            f"{what} {names[wrong[0]]} has NaN or infinite numbers: {advice}",
            code="not-finite",
        )


def _devices(params: Sequence[jax.Array], batch_size: int) -> Mesh:
    """The most devices that can share a batch evenly."""
    devices = list(parallel.default_mesh(params).devices.flat)
    while batch_size % len(devices):
        devices.pop()
    return parallel.make_mesh(devices)


def _check_strength(strength: float | None, image: ArrayLike | None) -> None:
    if image is None and strength is not None:
        raise InputError(
            f"strength is {options.quote(strength)}, but no image is named to begin with: name one",
            code="missing-images",
        )


def _checked_mesh(mesh: Mesh, batch_size: int) -> Mesh:
    mesh = parallel.as_mesh(mesh)
    if parallel.is_multihost(mesh):
        raise InputError(
            "the mesh has other processes' devices: let each process generate its own images", code="several-processes"
        )
    parts = parallel.data_parallelism(mesh)
    if batch_size % parts:
        raise InputError(
            f"batch_size is {batch_size:,}, but the mesh splits it into {parts:,} parts: use a multiple",
            code="indivisible-batch",
        )
    return mesh


def _check_memory(pipeline: AnyPipeline, size: int, total: int, batch_size: int, mesh: Mesh) -> None:
    rows, device = batch_size // parallel.data_parallelism(mesh), mesh.devices.flat[0]
    # The devices of a CPU have one memory.
    rows = batch_size if device.platform == "cpu" else rows
    pipeline.check_memory(size, rows, device)
    pipeline.check_denoising(pipeline.latent_shape(size), rows, device)
    memory.check(f"{total:,} images", 3 * size**2 * total, "generate fewer at once")


def _size_of(image: ArrayLike | None) -> int | None:
    """The size of images. None for latents and anything else."""
    shape = np.shape(image) if image is not None else ()
    return shape[1] if len(shape) == 4 and shape[1] == shape[2] and shape[3] == 3 else None


def _clean(
    pipeline: AnyPipeline, image: ArrayLike, images: tuple[int, ...], latents: tuple[int, ...], batch_size: int
) -> jax.Array:
    """The latents of images, which may be these latents."""
    shape = np.shape(image)
    if shape == images:
        return pipeline.encode_images(np.asarray(image), batch_size=batch_size)
    if shape == latents:
        return _checked_latents("image: its latents", image, latents)
    raise InputError(
        f"image has the shape {list(shape)}, but must be images {list(images)}, one for each text, or their latents"
        f" {list(latents)}",
        code="wrong-shape",
    )


def _checked_latents(name: str, latents: ArrayLike, shape: tuple[int, ...]) -> jax.Array:
    latents = np.asarray(latents)
    # Rounded to float32 first: an overflow there is not finite, either.
    if latents.shape != shape or not jnp.issubdtype(latents.dtype, jnp.floating):
        raise InputError(
            f"{name} are {latents.dtype} {list(latents.shape)}, but must be floats {list(shape)}", code="wrong-shape"
        )
    with np.errstate(over="ignore"):
        latents = latents.astype(np.float32)
    if not np.isfinite(latents).all():
        raise InputError(f"{name} hold NaN or infinite numbers: check what made them", code="not-finite")
    return jnp.asarray(latents)


def _drawn(keys: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return jax.vmap(lambda key: random_numbers.normal(key, shape))(keys)


def image_keys(seed: int | Sequence[int], numbers: ArrayLike | None, total: int) -> tuple[jax.Array, jax.Array]:
    """Two keys of each image, from its seed and number: for the first noise, and for the noise of the steps."""
    seeds = _of_each("seed", seed, options.SEED, total) if np.ndim(seed) else [options.SEED.check("the seed", seed)]
    seeds = seeds * total if len(seeds) == 1 else seeds
    numbers = _of_each("numbers", range(total) if numbers is None else numbers, _NUMBERS, total)
    roots = {seed: random_numbers.seed_key(seed) for seed in set(seeds)}
    roots = jnp.stack([roots[seed] for seed in seeds])
    fold = jax.vmap(jax.random.fold_in)
    numbers = jnp.asarray(numbers, jnp.uint32)
    return fold(roots, numbers), fold(fold(roots, jnp.full_like(numbers, _STEPS)), numbers)


def _of_each(name: str, values: ArrayLike, allowed: options.Range, total: int) -> list[int]:
    if np.shape(values) != (total,):
        shape = list(np.shape(values))
        raise InputError(
            f"{name} has the shape {shape}, but there are {total:,} texts: give one for each", code="wrong-shape"
        )
    return [allowed.check(f"{name}[{number}]", value) for number, value in enumerate(values)]
