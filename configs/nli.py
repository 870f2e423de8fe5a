"""Fine-tunes a BERT on natural language inference, so that it can judge WinoViz: its section 3.4 and Table 3.

python -m launch.train --config=nli                              # bert-large-uncased on SNLI and ANLI, from the hub
python -m launch.train --config=nli --config.data.folder=DIR     # SNLI and ANLI unpacked in DIR
python -m launch.train --config=nli --config.model=DIR           # another BERT; VL-BERT and Oscar, text side only
python -m launch.train --config=nli:debug --config.model=DIR --config.data.folder=DIR    # a few steps, for a small BERT
"""

from __future__ import annotations

import ml_collections
from ml_collections import config_dict

from winobench.base import options

LAUNCHER = "train"

FORMS = ("paper", "debug")

HELP = {
    "recipe": "what launch.train runs with this config",
    "model": "folder or hub id of a BERT in transformers' layout",
    "variant": "which of several weight files, such as fp16",
    "revision": "the hub repository's branch, tag or commit",
    "allow_pickle": "load .bin weights through a restricted unpickler",
    "dtype": "compute dtype: float32 or bfloat16; parameters are always float32",
    "data.folder": "where the files of SNLI and ANLI are (winobench/data/nli.py names them); none for the hub",
    "data.sets": "snli, anli or both, with a comma",
    "data.max_tokens": "longest pair; longer ones are truncated",
    "batch_size": "pairs a step, over all devices and micro-batches",
    "accumulate": "micro-batches that a step is made of, one after the other",
    "num_steps": "steps in all; none for as many as the epochs are",
    "epochs": "times that every pair is seen",
    "optimizer.name": "adamw or muon",
    "optimizer.learning_rate": "the highest, after the warm-up",
    "optimizer.schedule": "then constant, cosine or linear down to zero",
    "optimizer.warmup_share": "share of the steps from zero to the learning rate",
    "optimizer.weight_decay": "decoupled, times the learning rate",
    "optimizer.b1": "Adam's decay of the first moment",
    "optimizer.b2": "Adam's decay of the second moment",
    "optimizer.eps": "Adam's term in the denominator",
    "optimizer.clip_norm": "largest global norm of a gradient; none for no limit",
    "explosion_factor": "stop when the loss exceeds so many times its running median; none for never",
    "validate_every": "steps between validations, each with a checkpoint; none for no validation",
    "validation.limit": "pairs of each part of the validation set, evenly chosen; none for all",
    "validation.batch_size": "pairs at once on each device",
    "checkpoint_every": "steps between checkpoints",
    "log_every": "steps between lines of metrics",
    "seed": "random seed for the new head, the order of pairs and dropout",
    "mesh.model_parallel": "devices that share one copy of the parameters (FSDP); 1 gives each its own",
    "wandb": "project of Weights & Biases; none leaves it to the environment (WANDB_*)",
}

RANGES = {
    **options.CHECKPOINT,
    "recipe": options.choice("nli"),
    "data.folder": options.PATH.or_none(),
    "data.sets": options.words("snli", "anli"),
    "data.max_tokens": options.whole(4, 65_536),
    "batch_size": options.BATCH_SIZE,
    "accumulate": options.BATCH_SIZE,
    "num_steps": options.STEPS.or_none(),
    "epochs": options.number(above=0, high=1e6),
    **{name: one for name, one in options.prefixed("optimizer", options.OPTIMIZER).items() if "warmup" not in name},
    "optimizer.warmup_share": options.DECAY,
    "explosion_factor": options.FACTOR,
    "validate_every": options.STEPS.or_none(),
    "validation.limit": options.LIMIT,
    "validation.batch_size": options.BATCH_SIZE,
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


def get_config(form: str = "paper") -> ml_collections.ConfigDict:
    """The config in one of its ``FORMS``."""
    if form not in FORMS:
        raise ValueError(f"nli comes as {', '.join(FORMS)}, not {form!r}.")
    config = ml_collections.ConfigDict()
    config.kind = "train"
    config.recipe = "nli"
    config.seed = 0

    # The paper names model and data. It has no word about how long and how fast it trained. What follows is as BERT's
    # authors fine-tuned on such tasks.
    config.model = "google-bert/bert-large-uncased"
    config.variant = config_dict.placeholder(str)
    config.revision = config_dict.placeholder(str)
    config.allow_pickle = False
    config.dtype = "float32"

    config.data = ml_collections.ConfigDict()
    config.data.folder = config_dict.placeholder(str)
    config.data.sets = "snli,anli"
    config.data.max_tokens = 256

    config.batch_size = 32
    config.accumulate = 1
    config.num_steps = config_dict.placeholder(int)
    config.epochs = 3.0

    config.optimizer = ml_collections.ConfigDict()
    config.optimizer.name = "adamw"
    config.optimizer.learning_rate = 2e-5
    config.optimizer.schedule = "linear"
    config.optimizer.warmup_share = 0.1
    config.optimizer.weight_decay = 1e-2
    config.optimizer.b1 = 0.9
    config.optimizer.b2 = 0.999
    config.optimizer.eps = 1e-6
    config.optimizer.clip_norm = config_dict.FieldReference(1.0, field_type=float)
    config.explosion_factor = config_dict.placeholder(float)

    config.validate_every = config_dict.FieldReference(2000, field_type=int)
    config.validation = ml_collections.ConfigDict()
    config.validation.limit = config_dict.placeholder(int)
    config.validation.batch_size = 32
    config.checkpoint_every = 2000
    config.log_every = 50

    config.mesh = ml_collections.ConfigDict()
    config.mesh.model_parallel = 1
    config.wandb = config_dict.placeholder(str)

    if form == "debug":
        config.batch_size = 4
        config.num_steps = 4
        config.data.max_tokens = 64
        config.optimizer.warmup_share = 0.25
        config.validate_every = 2
        config.validation.limit = 8
        config.validation.batch_size = 4
        config.checkpoint_every = 2
        config.log_every = 1
    return config
