"""Options of trainings. The configs of other recipes extend them."""

from __future__ import annotations

import dataclasses

from winobench.base import options
from winobench.base.options import option
from winobench.runs.model_settings import Checkpoint


@dataclasses.dataclass(frozen=True)
class Mesh:
    model_parallel: int = option(
        1,
        options.DEVICES,
        "devices that share one copy of the parameters, or of frozen weights (FSDP); 1 gives each its own",
    )


@dataclasses.dataclass(frozen=True)
class Training:
    batch_size: int = option(32, options.BATCH_SIZE, "rows a step, over all devices and micro-batches")
    accumulate: int = option(
        1,
        options.BATCH_SIZE,
        "micro-batches that a step is made of, one after the other. A loss of means has them over each",
    )
    num_steps: int | None = option(None, options.STEPS.or_none(), "steps in all. None for as many as the epochs are")
    epochs: float = option(3.0, options.number(above=0, high=1e6), "times that every row is seen")
    explosion_factor: float | None = option(
        None,
        options.FACTOR,
        "stop when the loss (hardneg: of positives) exceeds so many times its running median. None for never",
    )
    validate_every: int | None = option(
        None, options.STEPS.or_none(), "steps between validations, each with a checkpoint. None for no validation"
    )
    checkpoint_every: int = option(100, options.STEPS, "steps between checkpoints")
    log_every: int = option(10, options.STEPS, "steps between lines of metrics")
    mesh: Mesh = options.group(Mesh, short=("model_parallel",))
    wandb: str | None = option(
        None,
        options.text(255).or_none(),
        "project of Weights & Biases. None leaves it to the environment (WANDB_*)",
    )


@dataclasses.dataclass(frozen=True)
class Stage:
    optimizer: str = option("muon", options.OPTIMIZER_NAME, "adamw or muon")
    learning_rate: float = option(2e-3, options.LEARNING_RATE, "between warm-up and decay")
    batch_size: int = option(96, options.BATCH_SIZE, "rows a step")
    num_steps: int = option(2_600, options.STEPS, "steps in all")
    warmup_steps: int = option(300, options.WARMUP_STEPS, "from zero to the learning rate")
    decay_steps: int = option(1_000, options.WARMUP_STEPS, "from the learning rate to zero, at the end")
    ema_decay: float = option(0.999, options.DECAY, "decay of the weights' moving average, which is exported")
    log_every: int = option(50, options.STEPS, "steps between lines of metrics")
    checkpoint_every: int = option(400, options.STEPS, "steps between checkpoints")


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
    """The loss of `winobench.training.hard_negatives`."""

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
class HardNegData:
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
class HardNegOptimizer(options.Optimizer):
    """torch's AdamW, as in the published code."""

    warmup_steps: int = option(20, options.WARMUP_STEPS, "from zero to the learning rate")


@dataclasses.dataclass(frozen=True)
class HardNegValidation:
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
class HardNeg(Training, Checkpoint):
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
    data: HardNegData = options.group(HardNegData, short=("data_dir",))
    optimizer: HardNegOptimizer = options.group(HardNegOptimizer)
    ema_decay: float | None = option(
        None,
        options.EMA_DECAY,
        "decay of the adapters' moving average, which is then validated and exported. None for no average",
    )
    validation: HardNegValidation = options.group(HardNegValidation)
    seed: int = option(0, options.SEED, "random seed for scenes, adapters, order, noise and timesteps")
