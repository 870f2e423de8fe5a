"""Trains the verifier: a small detector that lists the objects of a CLEVR-style image.

python -m launch.train --config=clevr_verifier           # the shipped recipe
python -m launch.train --config=clevr_verifier:debug     # a minute or two, to see every part run
python -m launch.train --config=clevr_verifier --config.training.num_steps=20000     # longer. Resumes where it was
"""

from __future__ import annotations

import ml_collections

from winobench.base import options

LAUNCHER = "train"

RANGES = {
    "recipe": options.choice("clevr_verifier"),
    "seed": options.SEED,
    "data.num_scenes": options.whole(1, 10_000_000),
    "data.num_shards": options.whole(1, 10_000),
    "data.latent_noise": options.number(0, 10),
    "data.num_held_out": options.whole(1, 100_000),
    "network.widths": options.items(options.whole(1, 4_096), 2, 2),
    "network.num_blocks": options.items(options.whole(1, 64), 3, 3),
    "training.optimizer": options.OPTIMIZER_NAME,
    "training.learning_rate": options.LEARNING_RATE,
    "training.batch_size": options.BATCH_SIZE,
    "training.num_steps": options.STEPS,
    "training.warmup_steps": options.WARMUP_STEPS,
    "training.decay_steps": options.WARMUP_STEPS,
    "training.ema_decay": options.DECAY,
    "training.log_every": options.STEPS,
    "training.checkpoint_every": options.STEPS,
}
"""Field -> what it may be."""


def get_config(size: str = "full") -> ml_collections.ConfigDict:
    """The recipe; ``size`` is ``full`` or ``debug``."""
    config = ml_collections.ConfigDict()
    config.kind = "train"
    config.recipe = "clevr_verifier"
    config.seed = 0

    config.data = ml_collections.ConfigDict()
    config.data.num_scenes = 16_384
    config.data.num_shards = 8
    config.data.latent_noise = 0.4  # most noise in the latents of a reconstruction, in spreads of latents
    config.data.num_held_out = 500  # scenes of each group that accuracy is measured on

    config.network = ml_collections.ConfigDict()
    config.network.widths = (32, 64)
    config.network.num_blocks = (1, 1, 2)

    config.training = ml_collections.ConfigDict()
    config.training.optimizer = "muon"
    config.training.learning_rate = 2e-3
    config.training.batch_size = 32
    config.training.num_steps = 3_000
    config.training.warmup_steps = 100
    config.training.decay_steps = 1_000
    config.training.ema_decay = 0.995
    config.training.log_every = 50
    config.training.checkpoint_every = 250

    if size == "debug":
        config.data.num_scenes = 128
        config.data.num_held_out = 8
        config.training.num_steps = 20
        config.training.warmup_steps = 5
        config.training.decay_steps = 5
        config.training.batch_size = 8
        config.training.checkpoint_every = 10
    elif size != "full":
        raise ValueError(f"clevr_verifier knows the sizes full and debug, not {size!r}.")
    return config
