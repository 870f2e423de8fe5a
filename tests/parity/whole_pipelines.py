"""Whole pipelines in small next to torch diffusers on the same folder: one description of each kind.

Errors of torch are those of a plain loop: squared errors [image, text, sample] in the space of its transformer.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from collections.abc import Callable
from typing import Any

import diffusers
import jax
import numpy as np
import torch
from diffusers import Flux2KleinPipeline, FluxPipeline

from tests import tiny_flux, tiny_flux2, tiny_sd3, tiny_sdxl, tiny_z_image
from tests.conftest import TINY_IMAGE_SIZE as SIZE
from tests.parity.test_scorer import make_images
from winobench import parallel
from winobench.diffusion import families
from winobench.scorers.diffusion_itm import DiffusionITM

TEXTS = ["a red cube left of the blue ball", "a photo", ""]
LEVELS = [0.031, 0.5, 0.988]
TIMESTEPS = [3, 400, 990]


def one_device(pipeline, devices=1, **keywords):
    """A scorer of a pipeline."""
    mesh = parallel.make_mesh(jax.devices()[:devices])
    return DiffusionITM(pipeline, batch_size=8 if devices > 1 else 4, mesh=mesh, image_size=SIZE, **keywords)


def errors_of(pipeline, noise, levels, **keywords):
    """Ours, of all `pictures` and `TEXTS`."""
    return one_device(pipeline, **keywords).errors(make_images(SIZE), TEXTS, noise=noise, timesteps=levels)


def torch_images(images=None):
    images = make_images(SIZE) if images is None else images
    return torch.tensor(np.stack(list(images)).transpose(0, 3, 1, 2) / 127.5 - 1, dtype=torch.float32)


def to_nchw(array):
    return torch.tensor(np.ascontiguousarray(np.asarray(array).transpose(0, 3, 1, 2)))


def _latents(pipeline, images=None):
    config = pipeline.vae.config
    mean = pipeline.vae.encode(torch_images(images)).latent_dist.mean
    return (mean - (config.shift_factor or 0)) * config.scaling_factor


def _loop(latents, noise, levels, predict, texts=TEXTS):
    """``predict(noisy, level, text)`` is the velocity of one noisy latent, [1, ...]."""
    errors = np.zeros((len(latents), len(texts), len(noise)))
    for i, z in enumerate(latents):
        for j in range(len(texts)):
            for s, (eps, level) in enumerate(zip(noise, levels, strict=True)):
                prediction = predict(((1 - level) * z + level * eps)[None], level, j)
                errors[i, j, s] = float(((eps - z - prediction[0]).double() ** 2).sum())
    return errors


@torch.inference_mode()
def _sdxl(pipeline, noise, levels=TIMESTEPS, *, zeros=False):
    scheduler = diffusers.DDPMScheduler.from_config(pipeline.scheduler.config)
    latents, noise = _latents(pipeline), to_nchw(noise)
    states, _, pooled, _ = pipeline.encode_prompt(TEXTS, device="cpu", do_classifier_free_guidance=False)
    if zeros:
        states[-1], pooled[-1] = 0, 0
    sizes = torch.tensor([[SIZE, SIZE, 0, 0, SIZE, SIZE]])
    errors = np.zeros((len(latents), len(TEXTS), len(noise)))
    for i, z in enumerate(latents):
        for j in range(len(TEXTS)):
            for s, (eps, t) in enumerate(zip(noise, torch.tensor(levels), strict=True)):
                noisy = scheduler.add_noise(z[None], eps[None], t[None])
                added = {"text_embeds": pooled[j : j + 1], "time_ids": sizes}
                prediction = pipeline.unet(noisy, t, states[j : j + 1], added_cond_kwargs=added).sample
                errors[i, j, s] = float(((eps - prediction[0]).double() ** 2).sum())
    return errors


@torch.inference_mode()
def errors_of_sd3(pipeline, noise, levels=LEVELS, *, text_tokens=256, images=None, texts=TEXTS):
    options = {"device": "cpu", "do_classifier_free_guidance": False, "max_sequence_length": text_tokens}
    states, _, pooled, _ = pipeline.encode_prompt(*[list(texts)] * 3, **options)

    def predict(noisy, level, j):
        time = torch.tensor([1000 * level])
        return pipeline.transformer(noisy, states[j : j + 1], pooled[j : j + 1], time).sample

    return _loop(_latents(pipeline, images), to_nchw(noise), levels, predict, texts)


def pack(latents):
    """[n, 16, h, w] -> the patches that FLUX.1's transformer takes."""
    return FluxPipeline._pack_latents(latents, *latents.shape)


@torch.inference_mode()
def _flux(pipeline, noise, levels=LEVELS, *, guidance=0.0):
    states, pooled, text_ids = pipeline.encode_prompt(TEXTS, TEXTS, device="cpu")
    ids = {"img_ids": FluxPipeline._prepare_latent_image_ids(1, 4, 4, "cpu", torch.float32), "txt_ids": text_ids}
    ids["guidance"] = torch.tensor([guidance]) if pipeline.transformer.config.guidance_embeds else None

    def predict(noisy, level, j):
        texts = {"encoder_hidden_states": states[j : j + 1], "pooled_projections": pooled[j : j + 1]}
        return pipeline.transformer(noisy, timestep=torch.tensor([level]), **texts, **ids).sample

    return _loop(pack(_latents(pipeline)), pack(to_nchw(noise)), levels, predict)


@torch.inference_mode()
def _klein(pipeline, noise, levels=LEVELS):
    latents = Flux2KleinPipeline._pack_latents(pipeline._encode_vae_image(torch_images(), generator=None))
    states, text_ids = pipeline.encode_prompt(TEXTS, device="cpu", text_encoder_out_layers=tiny_flux2.OUT_LAYERS)
    patches = Flux2KleinPipeline._patchify_latents(to_nchw(noise))
    image_ids = Flux2KleinPipeline._prepare_latent_ids(patches)[:1]

    def predict(noisy, level, j):
        texts = {"encoder_hidden_states": states[j : j + 1], "txt_ids": text_ids[:1]}
        time = torch.tensor([level])
        return pipeline.transformer(noisy, timestep=time, img_ids=image_ids, guidance=None, **texts).sample

    return _loop(latents, Flux2KleinPipeline._pack_latents(patches), levels, predict)


@torch.inference_mode()
def _z_image(pipeline, noise, levels=LEVELS):
    states, _ = pipeline.encode_prompt(list(TEXTS), do_classifier_free_guidance=False)

    def predict(noisy, level, j):
        time = (1000 - torch.tensor([1000 * level])) / 1000
        answer = pipeline.transformer([noisy[0][:, None]], time, [states[j]], return_dict=False)[0][0]
        return -answer[:, 0][None]

    return _loop(_latents(pipeline), to_nchw(noise), levels, predict)


@dataclasses.dataclass(frozen=True)
class Kind:
    """A pipeline: how its folder is written, both classes, torch's errors, and what generation begins with there."""

    write: Callable[[pathlib.Path], pathlib.Path]
    theirs: type
    ours: str
    torch_errors: Callable[..., np.ndarray]
    channels: int
    start: Callable[[torch.Tensor], dict[str, Any]] = lambda start: {"latents": start}
    levels: tuple[float, ...] = tuple(LEVELS)


_FLUX = (diffusers.FluxPipeline, "Flux", _flux, 16, lambda start: {"latents": pack(start)})
_KLEIN = (
    *(Flux2KleinPipeline, "Flux2Klein", _klein, tiny_flux2.CHANNELS),
    lambda start: {
        "latents": Flux2KleinPipeline._patchify_latents(start),
        "text_encoder_out_layers": tiny_flux2.OUT_LAYERS,
    },
)
KINDS = {
    "sdxl": Kind(
        *(tiny_sdxl.write, diffusers.StableDiffusionXLPipeline, "StableDiffusionXL", _sdxl, 4), levels=tuple(TIMESTEPS)
    ),
    "sd3": Kind(
        *(tiny_sd3.write, diffusers.StableDiffusion3Pipeline, "StableDiffusion3", errors_of_sd3, 16),
        lambda start: {"latents": start, "negative_prompt": [""] * len(start)},
    ),
    "flux": Kind(tiny_flux.write, *_FLUX),
    "schnell": Kind(functools.partial(tiny_flux.write, dev=False), *_FLUX),
    "klein": Kind(tiny_flux2.write, *_KLEIN),
    "klein-base": Kind(functools.partial(tiny_flux2.write, distilled=False), *_KLEIN),
    "z_image": Kind(tiny_z_image.write, diffusers.ZImagePipeline, "ZImage", _z_image, tiny_z_image.CHANNELS),
}


class Whole:
    """A folder of a kind, both pipelines of it, and their errors with the same noise, each made once."""

    def __init__(self, name: str, folder: pathlib.Path):
        self.name, self.kind, self.folder = name, KINDS[name], folder
        shape = (len(self.kind.levels), 8, 8, self.kind.channels)
        self.noise = np.random.default_rng(1).standard_normal(shape, np.float32)

    @functools.cached_property
    def theirs(self):
        return self.kind.theirs.from_pretrained(self.folder)

    @functools.cached_property
    def ours(self):
        return families.load_pipeline(self.folder)

    @functools.cached_property
    def expected(self):
        return self.torch_errors()

    @functools.cached_property
    def found(self):
        return self.errors()

    def torch_errors(self, pipeline=None, **options):
        return self.kind.torch_errors(pipeline or self.theirs, self.noise, self.kind.levels, **options)

    def errors(self, pipeline=None, **keywords):
        return errors_of(pipeline or self.ours, self.noise, list(self.kind.levels), **keywords)
