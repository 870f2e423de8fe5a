"""Trains clevr-flow: an autoencoder, then a small transformer like Stable Diffusion 3's, on rendered scenes.

winobench train --config=clevr_flow                             # the shipped recipe: 3.5 hours on one CPU core
winobench train --config=clevr_flow:debug                       # a few minutes, to see every part run
winobench train --config=clevr_flow --denoiser.num_steps=20000  # longer. Resumes where it was
"""

from __future__ import annotations

import dataclasses

from winobench.base import options
from winobench.base.options import option

from . import clevr_tiny, forms_of

LAUNCHER = "train"


@dataclasses.dataclass(frozen=True)
class Data(clevr_tiny.Data):
    num_hard_scenes: int = option(60_000, options.whole(0, 10_000_000), "more scenes, each with hard negatives")


@dataclasses.dataclass(frozen=True)
class Denoiser(clevr_tiny.Denoising):
    num_layers: int = option(6, options.whole(1, 256), "layers")
    head_dim: int = option(32, options.whole(1, 65_536), "width of an attention head")
    patch_size: int = option(2, options.whole(1, 64), "height and width of a patch of latents")
    shift: float = option(3.0, options.number(above=0, high=1_000), "of the noise levels, towards more noise")


@dataclasses.dataclass(frozen=True)
class Settings(clevr_tiny.Settings):
    recipe: str = option("clevr_flow", options.choice("clevr_flow"), "the recipe of winobench train")
    data: Data = options.group(Data)
    text_encoder_2: clevr_tiny.TextEncoder = options.group(clevr_tiny.TextEncoder)
    denoiser: Denoiser = options.group(Denoiser)


SETTINGS = Settings

_SHARED = {
    "data.captions_per_scene": 16,
    "autoencoder.latent_channels": 16,
    "text_encoder_2.hidden_size": 64,
    "text_encoder_2.num_hidden_layers": 2,
    "denoiser.num_heads": 5,
    "denoiser.timestep_range": (0, 1000),
    "denoiser.timestep_power": 1.0,
}
FORMS = {
    "full": {
        **clevr_tiny.FULL,
        **_SHARED,
        "data.num_scenes": 30_000,
        "autoencoder.num_steps": 1_200,
        "autoencoder.decay_steps": 400,
        "denoiser.batch_size": 128,
        "denoiser.num_steps": 4_000,
        "denoiser.decay_steps": 500,
        "denoiser.checkpoint_every": 250,
    },
    "debug": {**clevr_tiny.DEBUG, **_SHARED, "data.num_hard_scenes": 512},
}

get_config = forms_of("clevr_flow", Settings, FORMS)
