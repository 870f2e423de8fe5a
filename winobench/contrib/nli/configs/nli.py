"""Fine-tunes a BERT on natural language inference, so that it can judge WinoViz: its section 3.4 and Table 3.

winobench train --config=nli                                      # bert-large-uncased on SNLI and ANLI, from the hub
winobench train --config=nli --data.folder=DIR                    # SNLI and ANLI unpacked in DIR
winobench train --config=nli --model=DIR                          # another BERT; VL-BERT and Oscar, text side only
winobench train --config=nli:debug --model=DIR --data.folder=DIR  # a few steps, for a small BERT
"""

from __future__ import annotations

import dataclasses

from winobench.base import options
from winobench.base.options import option
from winobench.runs.model_settings import Checkpoint
from winobench.runs.training_settings import Training

from . import forms_of

LAUNCHER = "train"


@dataclasses.dataclass(frozen=True)
class Data:
    folder: str | None = option(
        None,
        options.PATH.or_none(),
        "where the files of SNLI and ANLI are (winobench/contrib/nli/pair_files.py names them). None for the hub",
    )
    sets: str = option("snli,anli", options.words("snli", "anli"), "snli, anli or both, with a comma")
    max_tokens: int = option(256, options.whole(4, 65_536), "longest pair. Longer ones are truncated")


@dataclasses.dataclass(frozen=True)
class Optimizer(options.Optimizer):
    """Values of BERT's authors for such tasks. The paper does not state any."""

    warmup_share: float = option(0.1, options.DECAY, "share of the steps from zero to the learning rate")


@dataclasses.dataclass(frozen=True)
class Validation:
    limit: int | None = option(
        None, options.LIMIT, "pairs of each part of the validation set, evenly chosen. None for all"
    )
    batch_size: int = option(32, options.BATCH_SIZE, "pairs at once on each device")


@dataclasses.dataclass(frozen=True)
class Settings(Training, Checkpoint):
    recipe: str = option("nli", options.choice("nli"), "the recipe of winobench train")
    model: str = option(
        "google-bert/bert-large-uncased", options.text(), "folder or hub id of a BERT in transformers' layout"
    )
    dtype: str = option(
        "float32", options.DTYPE, f"compute dtype: {options.DTYPE_NAMES}. Parameters are always float32"
    )
    data: Data = options.group(Data)
    optimizer: Optimizer = options.group(Optimizer)
    validation: Validation = options.group(Validation)
    seed: int = option(0, options.SEED, "random seed for the new head, the order of pairs and dropout")


SETTINGS = Settings

# The paper names model and data. It has no word about how long and how fast it trained.
_PAPER = {
    "validate_every": 2_000,
    "checkpoint_every": 2_000,
    "log_every": 50,
    "optimizer.learning_rate": 2e-5,
    "optimizer.schedule": "linear",
    "optimizer.eps": 1e-6,
}
FORMS = {
    "paper": _PAPER,
    "debug": {
        **_PAPER,
        "batch_size": 4,
        "num_steps": 4,
        "data.max_tokens": 64,
        "optimizer.warmup_share": 0.25,
        "validate_every": 2,
        "validation.limit": 8,
        "validation.batch_size": 4,
        "checkpoint_every": 2,
        "log_every": 1,
    },
}

get_config = forms_of("nli", Settings, FORMS)


def check(config: Settings) -> None:
    options.check_batch(config.batch_size, config.accumulate)
