"""Trains clevr-flow: an autoencoder, then a small transformer like Stable Diffusion 3's, on rendered scenes.

python -m launch.train --config=clevr_flow           # the shipped recipe: some three and a half hours on one CPU core
python -m launch.train --config=clevr_flow:debug     # a few minutes, to see every part run
python -m launch.train --config=clevr_flow --config.denoiser.num_steps=20000     # longer. Resumes where it was
"""

from __future__ import annotations

import ml_collections

from configs import clevr_tiny
from winobench.base import options

LAUNCHER = "train"

_SHARED = ("seed", "data.", "autoencoder.", "text_encoder.", "denoiser.")
_NOT_HERE = ("denoiser.block_out_channels", "denoiser.layers_per_block", "denoiser.down_block_types")

RANGES = {
    **{
        name: values
        for name, values in clevr_tiny.RANGES.items()
        if name.startswith(_SHARED) and name not in (*_NOT_HERE, "denoiser.prediction_type")
    },
    "recipe": options.choice("clevr_flow"),
    "data.num_hard_scenes": options.whole(0, 10_000_000),
    **options.prefixed(
        "text_encoder_2",
        {
            name: clevr_tiny.RANGES[f"text_encoder.{name}"]
            for name in ("hidden_size", "num_hidden_layers", "num_attention_heads")
        },
    ),
    "denoiser.num_layers": options.whole(1, 256),
    "denoiser.head_dim": options.whole(1, 65_536),
    "denoiser.patch_size": options.whole(1, 64),
    "denoiser.shift": options.number(above=0, high=1_000),
}
"""Field -> what it may be."""


def get_config(size: str = "full") -> ml_collections.ConfigDict:
    """The recipe; ``size`` is ``full`` or ``debug``."""
    config = clevr_tiny.get_config(size)
    config.recipe = "clevr_flow"

    config.data.num_hard_scenes = config.data.num_scenes * 2 if size == "debug" else 60_000
    config.data.num_scenes = config.data.num_scenes if size == "debug" else 30_000
    config.data.captions_per_scene = 16

    config.autoencoder.latent_channels = 16
    if size == "full":
        config.autoencoder.num_steps = 1_200
        config.autoencoder.decay_steps = 400

    config.text_encoder_2 = ml_collections.ConfigDict()
    config.text_encoder_2.hidden_size = 64
    config.text_encoder_2.num_hidden_layers = 2
    config.text_encoder_2.num_attention_heads = 4

    of_unet = config.denoiser
    config.denoiser = ml_collections.ConfigDict()
    config.denoiser.num_layers = 6
    config.denoiser.num_heads = 5
    config.denoiser.head_dim = 32
    config.denoiser.patch_size = 2
    config.denoiser.shift = 3.0
    config.denoiser.timestep_range = (0, 1000)
    config.denoiser.timestep_power = 1.0
    config.denoiser.empty_text_fraction = 0.1
    config.denoiser.optimizer = "muon"
    config.denoiser.learning_rate = 2e-3
    config.denoiser.batch_size = 128 if size == "full" else of_unet.batch_size
    config.denoiser.num_steps = 4_000 if size == "full" else of_unet.num_steps
    config.denoiser.warmup_steps = of_unet.warmup_steps
    config.denoiser.decay_steps = 500 if size == "full" else of_unet.decay_steps
    config.denoiser.ema_decay = 0.999
    config.denoiser.log_every = of_unet.log_every
    config.denoiser.checkpoint_every = 250 if size == "full" else of_unet.checkpoint_every
    return config
