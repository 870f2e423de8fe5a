"""Fine-tunes a diffusion model with hard negatives, by LoRA: HardNeg-DiffusionITM.

winobench train --config=hardneg                          # the embedded model, minutes on two CPU cores
winobench train --config=hardneg --config.loss.kind=hard_text
winobench train --config=hardneg --config.loss.threshold=none       # without the threshold
winobench train --config=hardneg --config.model=FOLDER    # another model of rendered scenes
winobench train --config=hardneg:paper                    # SD 2.1-base on COCO, as the paper
winobench train --config=hardneg:debug                    # a few steps: does everything run?
"""

from __future__ import annotations

import dataclasses

import ml_collections

from winobench.base import options
from winobench.base.errors import InputError
from winobench.base.options import option

from . import _shared, forms_of

LAUNCHER = "train"


@dataclasses.dataclass(frozen=True)
class Lora:
    targets: str = option(
        "all",
        options.choice("cross", "all"),
        "layers that are adapted: cross (attention to the text, the paper) or all (the published code)",
    )
    rank: int = option(8, options.whole(1, 65_536), "width of the adapters")
    alpha: float | None = option(
        None, options.number(above=0, high=1e6).or_none(), "their product is multiplied by alpha / rank. None for 1"
    )
    dropout: float = option(0.0, options.DECAY, "share of an adapter's inputs that training sets to zero")
    text_encoder: bool = option(True, options.flag(), "adapt the text encoder as well")


@dataclasses.dataclass(frozen=True)
class Loss:
    kind: str = option(
        "mixed",
        options.choice("none", "random_text", "hard_text", "hard_image", "mixed"),
        "negatives: none, random_text, hard_text, hard_image, or mixed (1/4, 1/4, 1/2)",
    )
    threshold: float | None = option(
        1.1,
        options.number(above=0, high=1e6).or_none(),
        "lambda: a negative's error counts up to so many times its positive's. None for no limit",
    )
    threshold_over: str = option(
        "example",
        options.choice("batch", "example"),
        "compare means over the batch (the paper), or each example by itself (ours)",
    )
    objective: str = option(
        "hinged",
        options.choice("hinged", "relativistic"),
        "hinged (the paper), or relativistic: distance of the two predictions",
    )
    mixing: str = option(
        "batch",
        options.choice("batch", "example"),
        "mixed samples once a batch (the published code), or for each example",
    )
    # On these the embedded model is judged.
    timestep_range: tuple | None = option(
        (300, 800),
        options.span(options.MAX_TIMESTEPS).or_none(),
        "first,end of the timesteps that are sampled. None for all of them (the published code)",
    )


@dataclasses.dataclass(frozen=True)
class Data:
    name: str = option(
        "clevr",
        options.text(255),
        "clevr (rendered here), or a set of winobench prepare: coco_hardneg_train, captions_hardneg_train",
    )
    num_scenes: int = option(
        400, options.whole(2, 10_000_000), "clevr: number of scenes, with 14 captions and 7 images each"
    )
    data_dir: str | None = option(
        None,
        options.PATH.or_none(),
        "where winobench prepare has put the data. None for $WINOBENCH_DATA or ~/winobench_data",
    )
    cache_dir: str | None = option(
        None, options.PATH.or_none(), "where encoded images are kept. None for the folder latents next to the run's"
    )


@dataclasses.dataclass(frozen=True)
class Optimizer(options.Optimizer):
    """torch's AdamW, as in the published code."""

    warmup_steps: int = option(20, options.WARMUP_STEPS, "from zero to the learning rate")


@dataclasses.dataclass(frozen=True)
class Validation:
    tasks: str | None = option(
        None,
        options.text().or_none(),
        "names with commas. None for both sides of the training set's own hard negatives",
    )
    limit: int | None = option(20, options.LIMIT, "scenes or items a task. None for all")
    num_samples: int = option(
        8, options.NUM_SAMPLES, "pairs of noise and timestep that each image-text pair is judged on"
    )
    timestep_range: tuple | str | None = option(
        None, options.TIMESTEP_RANGE, "first,end of these timesteps, or all. None for the range in the model's folder"
    )
    batch_size: int | None = option(
        None, options.BATCH_SIZE.or_none(), "passes at once on each device. None lets the scorer choose"
    )


@dataclasses.dataclass(frozen=True)
class Settings(_shared.Training, _shared.Checkpoint):
    recipe: str = option("hardneg", options.choice("hardneg"), "the recipe of winobench train")
    dtype: str = option(
        "float32",
        options.DTYPE,
        f"dtype of the frozen UNet and its computation: {options.DTYPE_NAMES}. Trained parameters are float32",
    )
    remat: bool = option(
        False,
        options.flag(),
        "compute activations again for the gradient rather than keep them: less memory, a third more time",
    )
    image_size: int | None = option(
        None, options.IMAGE_SIZE.or_none(), "pixels that images are resized to. None for the model's own size"
    )
    lora: Lora = options.group(Lora)
    loss: Loss = options.group(Loss)
    data: Data = options.group(Data)
    optimizer: Optimizer = options.group(Optimizer)
    ema_decay: float | None = option(
        None,
        options.EMA_DECAY,
        "decay of the adapters' moving average, which is then validated and exported. None for no average",
    )
    validation: Validation = options.group(Validation)
    seed: int = option(0, options.SEED, "random seed for scenes, adapters, order, noise and timesteps")


SETTINGS = Settings

_CLEVR = {
    "batch_size": 48,
    "num_steps": 300,
    "epochs": 8.0,
    "optimizer.learning_rate": 3e-3,
    "optimizer.schedule": "cosine",
    "explosion_factor": 10.0,
    "validate_every": 100,
}
FORMS = {
    "clevr": _CLEVR,
    "paper": {
        **_CLEVR,
        "model": "sd21-base",
        "dtype": "bfloat16",
        "remat": True,
        "lora.targets": "cross",
        "lora.rank": 4,
        "lora.text_encoder": False,
        "loss.threshold": 1.0,
        "loss.threshold_over": "batch",
        "loss.timestep_range": None,
        "data.name": "coco_hardneg_train",
        "batch_size": 112,
        "num_steps": None,
        "optimizer.learning_rate": 1e-4,
        "optimizer.schedule": "constant",
        "optimizer.warmup_steps": 0,
        "validate_every": 500,
        "checkpoint_every": 500,
        # The rows and the number of samples of the published code.
        "validation.tasks": "coco_hardneg_text_328,coco_hardneg_image_328",
        "validation.limit": None,
        "validation.num_samples": 4,
    },
    "debug": {
        **_CLEVR,
        "data.num_scenes": 2,
        "batch_size": 4,
        "num_steps": 4,
        "optimizer.warmup_steps": 1,
        "validate_every": 2,
        "validation.limit": 1,
        "validation.num_samples": 1,
        "checkpoint_every": 2,
        "log_every": 1,
    },
}

get_config = forms_of("hardneg", Settings, "train", FORMS)


def check(config: ml_collections.ConfigDict) -> None:
    options.check_batch(config.batch_size, config.accumulate)
    steps, warmup = config.num_steps, config.optimizer.warmup_steps
    if steps is not None and config.optimizer.schedule != "constant" and warmup >= steps:
        raise InputError(
            f"--config.optimizer.warmup_steps is {warmup:,}, which leaves nothing of {steps:,} steps for the"
            f" {config.optimizer.schedule} schedule: shorten the warm-up"
        )
