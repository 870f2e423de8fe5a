"""Trains the embedded model: an autoencoder, then a denoiser with its text encoder, on rendered CLEVR-style scenes.

winobench train --config=clevr_tiny                             # the shipped recipe: about an hour on two CPU cores
winobench train --config=clevr_tiny:debug                       # a few minutes, to see every part run
winobench train --config=clevr_tiny --denoiser.num_steps=20000  # longer. Resumes where it was
"""

from __future__ import annotations

import dataclasses

from winobench.base import options
from winobench.base.options import option
from winobench.runs.training_settings import Stage

from . import forms_of

LAUNCHER = "train"

_WIDTH = options.whole(1, 65_536)


@dataclasses.dataclass(frozen=True)
class Data:
    num_scenes: int = option(40_000, options.whole(1, 10_000_000), "scenes that are learned from")
    image_size: int = option(64, options.whole(8, 4_096), "height and width in pixels")
    task_like_fraction: float = option(
        0.75, options.number(0, 1), "share of scenes like the tasks'. In others objects may share attributes"
    )
    num_shards: int = option(8, options.whole(1, 10_000), "files that they are kept in")
    captions_per_scene: int = option(32, options.whole(1, 10_000), "captions of a scene")
    max_length: int = option(24, options.whole(3, 4_096), "tokens a caption, start and end included")


@dataclasses.dataclass(frozen=True)
class Autoencoder(Stage):
    block_out_channels: tuple = option((8, 16, 32, 64), options.items(_WIDTH, 1, 8), "channels of each block")
    layers_per_block: int = option(1, options.whole(1, 64), "residual layers of each block")
    latent_channels: int = option(8, _WIDTH, "channels of the latents")
    norm_num_groups: int = option(8, _WIDTH, "groups of the normalisations")
    pixel_noise: float = option(0.05, options.number(0, 100), "noise that is added to images, in half ranges of pixels")


@dataclasses.dataclass(frozen=True)
class TextEncoder:
    hidden_size: int = option(128, _WIDTH, "width")
    num_hidden_layers: int = option(3, options.whole(1, 256), "layers")
    num_attention_heads: int = option(4, _WIDTH, "attention heads")


@dataclasses.dataclass(frozen=True)
class Denoising(Stage):
    num_heads: int = option(4, _WIDTH, "attention heads")
    timestep_range: tuple = option((100, 1000), options.span(1_000), "first,end of the timesteps that are sampled")
    timestep_power: float = option(
        2.0, options.number(above=0, high=1_000), "density rises with the noise by it: the text decides most there"
    )
    empty_text_fraction: float = option(0.1, options.number(0, 1), "share of captions that are emptied")


@dataclasses.dataclass(frozen=True)
class Denoiser(Denoising):
    block_out_channels: tuple = option((64, 128), options.items(_WIDTH, 1, 8), "channels of each block")
    # Attention at 4 x 4 alone: at 8 x 8 it would take a third of the time.
    down_block_types: tuple = option(
        ("DownBlock2D", "CrossAttnDownBlock2D"),
        options.items(options.choice("CrossAttnDownBlock2D", "DownBlock2D"), 1, 8),
        "blocks, with attention to the text or without",
    )
    layers_per_block: int = option(1, options.whole(1, 64), "residual layers of each block")
    prediction_type: str = option(
        "v_prediction", options.choice("epsilon", "v_prediction"), "what the network predicts"
    )


@dataclasses.dataclass(frozen=True)
class Settings:
    recipe: str = option("clevr_tiny", options.choice("clevr_tiny"), "the recipe of winobench train")
    seed: int = option(0, options.SEED, "random seed of everything")
    data: Data = options.group(Data)
    autoencoder: Autoencoder = options.group(Autoencoder)
    text_encoder: TextEncoder = options.group(TextEncoder)
    denoiser: Denoiser = options.group(Denoiser)


SETTINGS = Settings

FULL = {
    "autoencoder.batch_size": 16,
    "autoencoder.num_steps": 1_800,
    "autoencoder.warmup_steps": 50,
    "autoencoder.decay_steps": 600,
    "autoencoder.ema_decay": 0.99,
    "autoencoder.log_every": 20,
    "autoencoder.checkpoint_every": 300,
}
DEBUG = {
    **FULL,
    "data.num_scenes": 256,
    "autoencoder.num_steps": 20,
    "autoencoder.decay_steps": 5,
    "autoencoder.checkpoint_every": 10,
    "denoiser.num_steps": 20,
    "denoiser.decay_steps": 5,
    "denoiser.batch_size": 8,
    "denoiser.checkpoint_every": 10,
}
FORMS = {"full": FULL, "debug": DEBUG}

get_config = forms_of("clevr_tiny", Settings, FORMS)
