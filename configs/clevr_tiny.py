"""Trains the embedded model: an autoencoder, then a denoiser with its text encoder, on rendered CLEVR-style scenes.

python -m launch.train --config=clevr_tiny           # the shipped recipe: about an hour on two CPU cores
python -m launch.train --config=clevr_tiny:debug     # a few minutes, to see every part run
python -m launch.train --config=clevr_tiny --config.denoiser.num_steps=20000     # longer. Resumes where it was
"""

from __future__ import annotations

import ml_collections

from winobench.base import options

LAUNCHER = "train"

# Of the autoencoder and of the denoiser.
_STAGE = {
    "block_out_channels": options.items(options.whole(1, 65_536), 1, 8),
    "layers_per_block": options.whole(1, 64),
    "optimizer": options.OPTIMIZER_NAME,
    "learning_rate": options.LEARNING_RATE,
    "batch_size": options.BATCH_SIZE,
    "num_steps": options.STEPS,
    "warmup_steps": options.WARMUP_STEPS,
    "decay_steps": options.WARMUP_STEPS,
    "ema_decay": options.DECAY,
    "log_every": options.STEPS,
    "checkpoint_every": options.STEPS,
}

RANGES = {
    "recipe": options.choice("clevr_tiny"),
    "seed": options.SEED,
    "data.num_scenes": options.whole(1, 10_000_000),
    "data.image_size": options.whole(8, 4_096),
    "data.task_like_fraction": options.number(0, 1),
    "data.num_shards": options.whole(1, 10_000),
    "data.captions_per_scene": options.whole(1, 10_000),
    "data.max_length": options.whole(3, 4_096),
    **options.prefixed("autoencoder", _STAGE),
    "autoencoder.latent_channels": options.whole(1, 65_536),
    "autoencoder.norm_num_groups": options.whole(1, 65_536),
    "autoencoder.pixel_noise": options.number(0, 100),
    "text_encoder.hidden_size": options.whole(1, 65_536),
    "text_encoder.num_hidden_layers": options.whole(1, 256),
    "text_encoder.num_attention_heads": options.whole(1, 65_536),
    **options.prefixed("denoiser", _STAGE),
    "denoiser.down_block_types": options.items(options.choice("CrossAttnDownBlock2D", "DownBlock2D"), 1, 8),
    "denoiser.num_heads": options.whole(1, 65_536),
    "denoiser.prediction_type": options.choice("epsilon", "v_prediction"),
    "denoiser.timestep_range": options.span(1_000),
    "denoiser.timestep_power": options.number(above=0, high=1_000),
    "denoiser.empty_text_fraction": options.number(0, 1),
}
"""Field -> what it may be."""


def get_config(size: str = "full") -> ml_collections.ConfigDict:
    """The recipe; ``size`` is ``full`` or ``debug``."""
    config = ml_collections.ConfigDict()
    config.kind = "train"
    config.recipe = "clevr_tiny"
    config.seed = 0

    config.data = _data()

    config.autoencoder = _autoencoder()

    config.text_encoder = ml_collections.ConfigDict()
    config.text_encoder.hidden_size = 128
    config.text_encoder.num_hidden_layers = 3
    config.text_encoder.num_attention_heads = 4

    config.denoiser = _denoiser()

    if size == "debug":
        config.data.num_scenes = 256
        config.autoencoder.num_steps = 20
        config.autoencoder.decay_steps = 5
        config.autoencoder.checkpoint_every = 10
        config.denoiser.num_steps = 20
        config.denoiser.decay_steps = 5
        config.denoiser.batch_size = 8
        config.denoiser.checkpoint_every = 10
    elif size != "full":
        raise ValueError(f"clevr_tiny knows the sizes full and debug, not {size!r}.")
    return config


def _data() -> ml_collections.ConfigDict:
    data = ml_collections.ConfigDict()
    data.num_scenes = 40_000
    data.image_size = 64
    data.task_like_fraction = 0.75  # the rest are freer scenes, whose objects may share attributes
    data.num_shards = 8
    data.captions_per_scene = 32
    data.max_length = 24  # tokens a caption, start and end included
    return data


def _autoencoder() -> ml_collections.ConfigDict:
    autoencoder = ml_collections.ConfigDict()
    autoencoder.block_out_channels = (8, 16, 32, 64)
    autoencoder.layers_per_block = 1
    autoencoder.latent_channels = 8
    autoencoder.norm_num_groups = 8
    autoencoder.pixel_noise = 0.05
    autoencoder.optimizer = "muon"
    autoencoder.learning_rate = 2e-3
    autoencoder.batch_size = 16
    autoencoder.num_steps = 1_800
    autoencoder.warmup_steps = 50
    autoencoder.decay_steps = 600
    autoencoder.ema_decay = 0.99
    autoencoder.log_every = 20
    autoencoder.checkpoint_every = 300
    return autoencoder


def _denoiser() -> ml_collections.ConfigDict:
    denoiser = ml_collections.ConfigDict()
    denoiser.block_out_channels = (64, 128)
    # Attention at 4 x 4 alone: at 8 x 8 it would take a third of the time.
    denoiser.down_block_types = ("DownBlock2D", "CrossAttnDownBlock2D")
    denoiser.layers_per_block = 1
    denoiser.num_heads = 4
    denoiser.prediction_type = "v_prediction"
    denoiser.timestep_range = (100, 1000)
    denoiser.timestep_power = 2.0  # density rises with the noise: the text decides most there
    denoiser.empty_text_fraction = 0.1
    denoiser.optimizer = "muon"
    denoiser.learning_rate = 2e-3
    denoiser.batch_size = 96
    denoiser.num_steps = 2_600
    denoiser.warmup_steps = 300
    denoiser.decay_steps = 1_000
    denoiser.ema_decay = 0.999
    denoiser.log_every = 50
    denoiser.checkpoint_every = 400
    return denoiser
