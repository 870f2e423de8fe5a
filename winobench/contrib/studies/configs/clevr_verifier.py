"""Trains the verifier: a small detector that lists the objects of a CLEVR-style image.

winobench train --config=clevr_verifier                             # the shipped recipe
winobench train --config=clevr_verifier:debug                       # a minute or two, to see every part run
winobench train --config=clevr_verifier --training.num_steps=20000  # longer. Resumes where it was
"""

from __future__ import annotations

import dataclasses

from winobench.base import options
from winobench.base.options import option
from winobench.runs.training_settings import Stage

from . import forms_of

LAUNCHER = "train"


@dataclasses.dataclass(frozen=True)
class Data:
    num_scenes: int = option(16_384, options.whole(1, 10_000_000), "scenes that are learned from")
    num_shards: int = option(8, options.whole(1, 10_000), "files that they are kept in")
    latent_noise: float = option(
        0.4, options.number(0, 10), "most noise in the latents of a reconstruction, in spreads of latents"
    )
    num_held_out: int = option(500, options.whole(1, 100_000), "scenes of each group that accuracy is measured on")


@dataclasses.dataclass(frozen=True)
class Network:
    widths: tuple = option((32, 64), options.items(options.whole(1, 4_096), 2, 2), "channels")
    num_blocks: tuple = option((1, 1, 2), options.items(options.whole(1, 64), 3, 3), "residual blocks")


@dataclasses.dataclass(frozen=True)
class Settings:
    recipe: str = option("clevr_verifier", options.choice("clevr_verifier"), "the recipe of winobench train")
    seed: int = option(0, options.SEED, "random seed of everything")
    data: Data = options.group(Data)
    network: Network = options.group(Network)
    training: Stage = options.group(Stage)


SETTINGS = Settings

_FULL = {
    "training.batch_size": 32,
    "training.num_steps": 3_000,
    "training.warmup_steps": 100,
    "training.decay_steps": 1_000,
    "training.ema_decay": 0.995,
    "training.checkpoint_every": 250,
}
FORMS = {
    "full": _FULL,
    "debug": {
        **_FULL,
        "data.num_scenes": 128,
        "data.num_held_out": 8,
        "training.num_steps": 20,
        "training.warmup_steps": 5,
        "training.decay_steps": 5,
        "training.batch_size": 8,
        "training.checkpoint_every": 10,
    },
}

get_config = forms_of("clevr_verifier", Settings, FORMS)
