"""Fine-tunes a diffusion model with hard negatives, by LoRA: HardNeg-DiffusionITM.

python -m launch.train --config=hardneg                          # the embedded model, minutes on two CPU cores
python -m launch.train --config=hardneg --config.loss.kind=hard_text
python -m launch.train --config=hardneg --config.loss.threshold=none       # without the threshold
python -m launch.train --config=hardneg --config.model=FOLDER    # another model of rendered scenes
python -m launch.train --config=hardneg:paper                    # SD 2.1-base on COCO, as the paper
python -m launch.train --config=hardneg:debug                    # a few steps: does everything run?
"""

from __future__ import annotations

import ml_collections
from ml_collections import config_dict

from winobench.base import options
from winobench.base.errors import InputError

LAUNCHER = "train"

FORMS = ("clevr", "paper", "debug")

HELP = {
    "recipe": "what launch.train runs with this config",
    "model": "a name of launch.eval --list_models (clevr-tiny, sd21-base, ...), a folder, or a hub id",
    "variant": "which of several weight files, such as fp16",
    "revision": "the hub repository's branch, tag or commit",
    "allow_pickle": "load .bin weights through a restricted unpickler",
    "dtype": "dtype of the frozen UNet and its computation: float32 or bfloat16; trained parameters are float32",
    "remat": "compute activations again for the gradient rather than keep them: less memory, a third more time",
    "image_size": "pixels that images are resized to; none for the model's own size",
    "lora.targets": "layers that are adapted: cross (attention to the text, the paper) or all (the published code)",
    "lora.rank": "width of the adapters",
    "lora.alpha": "their product is multiplied by alpha / rank; none for 1",
    "lora.dropout": "share of an adapter's inputs that training sets to zero",
    "lora.text_encoder": "adapt the text encoder as well",
    "loss.kind": "negatives: none, random_text, hard_text, hard_image, or mixed (1/4, 1/4, 1/2)",
    "loss.threshold": "lambda: a negative's error counts up to so many times its positive's; none for no limit",
    "loss.threshold_over": "compare means over the batch (the paper), or each example by itself (ours)",
    "loss.objective": "hinged (the paper), or relativistic: distance of the two predictions",
    "loss.mixing": "mixed draws once a batch (the published code), or for each example",
    "loss.timestep_range": "first,end of the timesteps that are drawn; none for all of them (the published code)",
    "data.name": "clevr (rendered here), or a set of launch.prepare: coco_hardneg_train, captions_hardneg_train",
    "data.num_scenes": "clevr: number of scenes, with 14 captions and 7 images each",
    "data.data_dir": "where launch.prepare has put the data; none for $WINOBENCH_DATA or ~/winobench_data",
    "data.cache_dir": "where encoded images are kept; none for the folder latents beside the run's",
    "batch_size": "rows a step, over all devices and micro-batches",
    "accumulate": "micro-batches that a step is made of, one after the other; the loss compares means over each",
    "num_steps": "steps in all; none for as many as the epochs are",
    "epochs": "times that every row is seen",
    "optimizer.name": "adamw or muon",
    "optimizer.learning_rate": "after the warm-up",
    "optimizer.schedule": "then constant, cosine or linear down to zero",
    "optimizer.warmup_steps": "from zero to the learning rate",
    "optimizer.weight_decay": "decoupled, times the learning rate",
    "optimizer.b1": "Adam's decay of the first moment",
    "optimizer.b2": "Adam's decay of the second moment",
    "optimizer.eps": "Adam's term in the denominator",
    "optimizer.clip_norm": "largest global norm of a gradient; none for no limit",
    "ema_decay": "decay of the adapters' moving average, which is then validated and exported; none for no average",
    "explosion_factor": "stop when the positives' error exceeds so many times its running median; none for never",
    "validate_every": "steps between validations, each with a checkpoint; none for no validation",
    "validation.tasks": "names with commas; none for both sides of the training set's own hard negatives",
    "validation.limit": "scenes or items a task; none for all",
    "validation.num_samples": "pairs of noise and timestep that each image-text pair is judged on",
    "validation.timestep_range": "first,end of these timesteps; all; or none for what the model's folder says",
    "validation.batch_size": "passes at once on each device; none lets the scorer choose",
    "checkpoint_every": "steps between checkpoints",
    "log_every": "steps between lines of metrics",
    "seed": "random seed for scenes, adapters, order, noise and timesteps",
    "mesh.model_parallel": "devices that share one copy of the frozen weights (FSDP); 1 gives each its own",
    "wandb": "project of Weights & Biases; none leaves it to the environment (WANDB_*)",
}

RANGES = {
    **options.CHECKPOINT,
    "recipe": options.choice("hardneg"),
    "remat": options.flag(),
    "image_size": options.IMAGE_SIZE.or_none(),
    "lora.targets": options.choice("cross", "all"),
    "lora.rank": options.whole(1, 65_536),
    "lora.alpha": options.number(above=0, high=1e6).or_none(),
    "lora.dropout": options.DECAY,
    "lora.text_encoder": options.flag(),
    "loss.kind": options.choice("none", "random_text", "hard_text", "hard_image", "mixed"),
    "loss.threshold": options.number(above=0, high=1e6).or_none(),
    "loss.threshold_over": options.choice("batch", "example"),
    "loss.objective": options.choice("hinged", "relativistic"),
    "loss.mixing": options.choice("batch", "example"),
    "loss.timestep_range": options.span(options.MAX_TIMESTEPS).or_none(),
    "data.name": options.text(255),
    "data.num_scenes": options.whole(2, 10_000_000),
    "data.data_dir": options.PATH.or_none(),
    "data.cache_dir": options.PATH.or_none(),
    "batch_size": options.BATCH_SIZE,
    "accumulate": options.BATCH_SIZE,
    "num_steps": options.STEPS.or_none(),
    "epochs": options.number(above=0, high=1e6),
    **options.prefixed("optimizer", options.OPTIMIZER),
    "ema_decay": options.EMA_DECAY,
    "explosion_factor": options.FACTOR,
    "validate_every": options.STEPS.or_none(),
    "validation.tasks": options.text().or_none(),
    "validation.limit": options.LIMIT,
    "validation.num_samples": options.NUM_SAMPLES,
    "validation.timestep_range": options.TIMESTEP_RANGE,
    "validation.batch_size": options.BATCH_SIZE.or_none(),
    "checkpoint_every": options.STEPS,
    "log_every": options.STEPS,
    "seed": options.SEED,
    "mesh.model_parallel": options.DEVICES,
    "wandb": options.text(255).or_none(),
}
"""Field -> what it may be."""


def check(config: ml_collections.ConfigDict) -> None:
    """Raises InputError for fields that do not go together, each of them being allowed."""
    options.check_batch(config.batch_size, config.accumulate)
    steps, warmup = config.num_steps, config.optimizer.warmup_steps
    if steps is not None and config.optimizer.schedule != "constant" and warmup >= steps:
        raise InputError(
            f"--config.optimizer.warmup_steps is {warmup:,}, which leaves nothing of {steps:,} steps for the"
            f" {config.optimizer.schedule} schedule: shorten the warm-up"
        )


def get_config(form: str = "clevr") -> ml_collections.ConfigDict:
    """The config in one of its ``FORMS``."""
    if form not in FORMS:
        raise ValueError(f"hardneg comes as {', '.join(FORMS)}, not {form!r}.")
    config = ml_collections.ConfigDict()
    config.kind = "train"
    config.recipe = "hardneg"
    config.seed = 0

    config.model = "clevr-tiny"
    config.variant = config_dict.placeholder(str)
    config.revision = config_dict.placeholder(str)
    config.allow_pickle = False
    config.dtype = "float32"
    config.remat = False
    config.image_size = config_dict.placeholder(int)

    config.lora = _lora()
    config.loss = _loss()
    config.data = _data()
    config.batch_size = 48
    config.accumulate = 1
    config.num_steps = config_dict.FieldReference(300, field_type=int)
    config.epochs = 8.0

    config.optimizer = _optimizer()
    config.ema_decay = config_dict.placeholder(float)
    config.explosion_factor = config_dict.FieldReference(10.0, field_type=float)

    config.validate_every = config_dict.FieldReference(100, field_type=int)
    config.validation = _validation()
    config.checkpoint_every = 100
    config.log_every = 10

    config.mesh = ml_collections.ConfigDict()
    config.mesh.model_parallel = 1
    config.wandb = config_dict.placeholder(str)

    if form == "paper":
        _as_published(config)
    elif form == "debug":
        _for_debugging(config)
    return config


def _lora() -> ml_collections.ConfigDict:
    lora = ml_collections.ConfigDict()
    lora.targets = "all"
    lora.rank = 8
    lora.alpha = config_dict.placeholder(float)
    lora.dropout = 0.0
    lora.text_encoder = True
    return lora


def _loss() -> ml_collections.ConfigDict:
    loss = ml_collections.ConfigDict()
    loss.kind = "mixed"
    loss.threshold = config_dict.FieldReference(1.1, field_type=float)
    loss.threshold_over = "example"
    loss.objective = "hinged"
    loss.mixing = "batch"
    # On these the embedded model is judged.
    loss.timestep_range = config_dict.FieldReference((300, 800), field_type=tuple)
    return loss


def _data() -> ml_collections.ConfigDict:
    data = ml_collections.ConfigDict()
    data.name = "clevr"
    data.num_scenes = 400
    data.data_dir = config_dict.placeholder(str)
    data.cache_dir = config_dict.placeholder(str)
    return data


def _optimizer() -> ml_collections.ConfigDict:
    optimizer = ml_collections.ConfigDict()
    optimizer.name = "adamw"
    optimizer.learning_rate = 3e-3
    optimizer.schedule = "cosine"
    optimizer.warmup_steps = 20
    # torch's AdamW, as in the published code.
    optimizer.weight_decay = 1e-2
    optimizer.b1 = 0.9
    optimizer.b2 = 0.999
    optimizer.eps = 1e-8
    optimizer.clip_norm = config_dict.FieldReference(1.0, field_type=float)
    return optimizer


def _validation() -> ml_collections.ConfigDict:
    validation = ml_collections.ConfigDict()
    validation.tasks = config_dict.placeholder(str)
    validation.limit = config_dict.FieldReference(20, field_type=int)
    validation.num_samples = 8
    validation.timestep_range = config_dict.placeholder(tuple | str)
    validation.batch_size = config_dict.placeholder(int)
    return validation


def _as_published(config: ml_collections.ConfigDict) -> None:
    config.model = "sd21-base"
    config.dtype = "bfloat16"
    config.remat = True
    config.lora.targets = "cross"
    config.lora.rank = 4
    config.lora.text_encoder = False
    config.loss.threshold = 1.0
    config.loss.threshold_over = "batch"
    config.loss.timestep_range = None
    config.data.name = "coco_hardneg_train"
    config.batch_size = 112
    config.num_steps = None
    config.optimizer.learning_rate = 1e-4
    config.optimizer.schedule = "constant"
    config.optimizer.warmup_steps = 0
    config.validate_every = 500
    config.checkpoint_every = 500
    # The rows and the number of samples of the published code.
    config.validation.tasks = "coco_hardneg_text_328,coco_hardneg_image_328"
    config.validation.limit = None
    config.validation.num_samples = 4


def _for_debugging(config: ml_collections.ConfigDict) -> None:
    config.data.num_scenes = 2
    config.batch_size = 4
    config.num_steps = 4
    config.optimizer.warmup_steps = 1
    config.validate_every = 2
    config.validation.limit = 1
    config.validation.num_samples = 1
    config.checkpoint_every = 2
    config.log_every = 1
