"""Fine-tunes a diffusion model with hard negatives, by LoRA: HardNeg-DiffusionITM.

winobench train --config=hardneg                        # the embedded model, minutes on two CPU cores
winobench train --config=hardneg --loss.kind=hard_text
winobench train --config=hardneg --loss.threshold=none  # without the threshold
winobench train --config=hardneg --model=FOLDER         # another model of rendered scenes
winobench train --config=hardneg:paper                  # SD 2.1-base on COCO, as the paper
winobench train --config=hardneg:debug                  # a few steps: does everything run?
"""

from __future__ import annotations

from winobench.base import options
from winobench.base.errors import InputError
from winobench.runs import training_settings

from . import forms_of

LAUNCHER = "train"

SETTINGS = training_settings.HardNeg

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

get_config = forms_of("hardneg", SETTINGS, FORMS)


def check(config: training_settings.HardNeg) -> None:
    options.check_batch(config.batch_size, config.accumulate)
    steps, warmup = config.num_steps, config.optimizer.warmup_steps
    if steps is not None and config.optimizer.schedule != "constant" and warmup >= steps:
        raise InputError(
            f"--optimizer.warmup_steps is {warmup:,}, which leaves nothing of {steps:,} steps for the"
            f" {config.optimizer.schedule} schedule: shorten the warm-up"
        )
