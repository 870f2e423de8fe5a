"""Trains clevr-tokens: an image tokenizer, then a small language model like Janus's, on rendered scenes.

winobench train --config=clevr_tokens                            # the shipped recipe: about two hours on one CPU core
winobench train --config=clevr_tokens:debug                      # a minute, to see every part run
winobench train --config=clevr_tokens --decoder.num_steps=20000  # longer. Resumes where it was
"""

from __future__ import annotations

import dataclasses

from winobench.base import options
from winobench.base.options import option
from winobench.runs.training_settings import Stage

from . import clevr_flow, forms_of

LAUNCHER = "train"

_WIDTH = options.whole(1, 65_536)


@dataclasses.dataclass(frozen=True)
class Quantizer(Stage):
    num_codes: int = option(512, options.whole(2, 65_536), "codes of the image tokenizer")
    code_size: int = option(8, _WIDTH, "numbers of a code")
    codes_decay: float = option(0.99, options.DECAY, "decay of the moving averages that are the codes")


@dataclasses.dataclass(frozen=True)
class Decoder(Stage):
    hidden_size: int = option(128, _WIDTH, "width")
    intermediate_size: int = option(352, _WIDTH, "inner width of the feed-forward layers")
    num_layers: int = option(5, options.whole(1, 256), "layers")
    num_heads: int = option(4, _WIDTH, "attention heads")
    empty_text_fraction: float = option(0.1, options.number(0, 1), "share of captions that are emptied")
    replaced_rows: float = option(
        0.75, options.number(0, 1), "share of rows in which some of an image's earlier tokens are replaced"
    )


@dataclasses.dataclass(frozen=True)
class Settings:
    recipe: str = option("clevr_tokens", options.choice("clevr_tokens"), "the recipe of winobench train")
    seed: int = option(0, options.SEED, "random seed of everything")
    data: clevr_flow.Data = options.group(clevr_flow.Data)
    quantizer: Quantizer = options.group(Quantizer)
    decoder: Decoder = options.group(Decoder)
    pixels: Stage = options.group(Stage)


SETTINGS = Settings

_IMAGES = {"optimizer": "adamw", "batch_size": 32, "warmup_steps": 100, "ema_decay": 0.99, "checkpoint_every": 250}
_FULL = {
    "data.num_scenes": 30_000,
    "data.num_hard_scenes": 3_000,
    "data.captions_per_scene": 16,
    "data.max_length": 32,
    **{f"{stage}.{name}": value for stage in ("quantizer", "pixels") for name, value in _IMAGES.items()},
    "quantizer.num_steps": 1_500,
    "quantizer.decay_steps": 600,
    "decoder.batch_size": 64,
    "decoder.learning_rate": 4e-3,
    "decoder.ema_decay": 0.99,
    "decoder.num_steps": 2_000,
    "decoder.warmup_steps": 100,
    "decoder.decay_steps": 500,
    "pixels.num_steps": 600,
    "pixels.decay_steps": 300,
}
_SHORT = {"batch_size": 8, "num_steps": 20, "warmup_steps": 5, "decay_steps": 5, "checkpoint_every": 10}
FORMS = {
    "full": _FULL,
    "debug": {
        **_FULL,
        "data.num_scenes": 64,
        "data.num_hard_scenes": 64,
        **{f"{stage}.{name}": value for stage in ("quantizer", "decoder", "pixels") for name, value in _SHORT.items()},
    },
}

get_config = forms_of("clevr_tokens", Settings, FORMS)
