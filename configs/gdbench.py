"""Scores images against texts with a diffusion model on the tasks of GDBench.

python -m launch.eval --config=gdbench           # 100 scenes, 16 samples: minutes on a laptop
python -m launch.eval --config=gdbench:full      # everything, 32 samples: the figure to quote
python -m launch.eval --config=gdbench:race      # everything, up to 250 samples, until each question is decided
python -m launch.eval --config=gdbench:debug     # 4 scenes, 2 samples: does everything run?
python -m launch.eval --config=gdbench:table1 --config.model=sd21-base --config.dtype=bfloat16
python -m launch.eval --config=gdbench:table1 --config.model=sd21-base --config.normalize=none  # Diffusion Classifier
python -m launch.eval --config=gdbench:table2 --config.model=sd21-base
python -m launch.eval --config=gdbench:table3 --config.model=sd15
python -m launch.eval --config=gdbench:table2 --config.model=sd21-base --config.lora=FOLDER  # fine-tuned by LoRA
python -m launch.eval --config=gdbench --config.model=openai:gpt-4o  # VQAScore of a hosted model
"""

from __future__ import annotations

import ml_collections
from ml_collections import config_dict

from configs import _responder
from winobench.base import options
from winobench.base.errors import InputError
from winobench.metrics import normalization, sample_mean, timestep_weights

LAUNCHER = "eval"

FORMS = {
    "standard": (100, 16, "ready"),
    "full": (None, 32, "ready"),
    "race": (None, 250, "ready"),
    "debug": (4, 2, "ready"),
    # The paper's: Tables 1, 6 and figures with 250 samples, Table 2 with 10, Tables 3 and 5 with 20 (footnote 6).
    "table1": (None, 250, "ready"),
    "table2": (None, 10, "ready"),
    "table3": (None, 20, "mmbias"),
}
"""Form -> (scenes or items a task, samples a pair, tasks)."""

HELP = {
    "model": "a name of --list_models, a folder, a hub id, openai:MODEL or anthropic:MODEL; several with commas",
    "variant": "which of several weight files, such as fp16",
    "revision": "the hub repository's branch, tag or commit",
    "allow_pickle": "load .bin weights through a restricted unpickler",
    "lora": "LoRA for the model: a file, a folder, or a hub id; none for the model as it is",
    "lora_scale": "what the LoRA's effect is multiplied by",
    "pipeline_options": "what only the model's family has, as name=value, such as zero_empty_text=true of SDXL",
    "encoders": "resident, or staged: texts are encoded first; text encoders and denoiser are never on the devices"
    " together",
    "dtype": "compute dtype: float32 or bfloat16",
    "tasks": "names with commas, or ready for every task whose data are there (--list_tasks)",
    "data_dir": "where launch.prepare has put the data; none for $WINOBENCH_DATA or ~/winobench_data",
    "limit": "scenes or items a task, or images of each group for bias; none for all",
    "normalize": "auto, unconditional (less the error under the empty text), gray_image, or none",
    "error": "squared_l2 (the paper) or l2 (the published code)",
    "reduce_dtype": "what each error is rounded to before the mean; float16 does as the published code (docs/ties.md)",
    "target": "own compares in what the network predicts, noise or velocity; epsilon in noise",
    "image_size": "pixels that images are resized to; none for the model's own size",
    "max_pixels": "pixels beyond which images are made smaller, of models that take any shape (qwen3-vl-2b); none for"
    " 1003520, or what the model's files allow",
    "batch_size": "passes at once on each device; none for a usual number, search to measure which is fastest",
    "model_parallel": "devices that share one copy of the model; 1 gives each its own",
    "seed": "random seed for noise and timesteps",
    "sampling.num_samples": "pairs of noise and timestep that each image-text pair is judged on",
    "sampling.num_bias_samples": "the same for tasks of social bias",
    "sampling.mode": "fixed, or race: samples are drawn until a question is decided, num_samples at most",
    "sampling.alpha": "race: largest share of questions that may be decided differently than with all samples",
    "sampling.rare_share": "race: smallest share of the samples that may hold all evidence for a candidate",
    "sampling.timesteps": "uniform, low_discrepancy, stratified, even, published, or timesteps with commas, one a"
    " sample; a race also importance, those where candidates differ; none for uniform, and for importance in a race",
    "sampling.timestep_weights": "how much timesteps count: uniform, sigma_sqrt, cosmap, logit_normal, or a file that"
    " launch.report --fit_timesteps wrote",
    "sampling.timestep_range": "first,end of the timesteps that are drawn; all; none for what the model's folder says",
    **_responder.API_HELP,
}

RANGES = {
    **options.CHECKPOINT,
    "lora": options.PATH.or_none(),
    "lora_scale": options.SCALE,
    "pipeline_options": options.text().or_none(),
    "encoders": options.choice("resident", "staged"),
    "tasks": options.text(),
    "data_dir": options.PATH.or_none(),
    "limit": options.LIMIT,
    "normalize": normalization.choice(),
    "error": options.choice("squared_l2", "l2"),
    "reduce_dtype": sample_mean.choice(),
    "target": options.choice("own", "epsilon"),
    "image_size": options.IMAGE_SIZE.or_none(),
    "max_pixels": options.MAX_PIXELS.or_none(),
    "batch_size": (options.BATCH_SIZE | options.choice("search")).or_none(),
    "model_parallel": options.DEVICES,
    "seed": options.SEED,
    "sampling.num_samples": options.NUM_SAMPLES,
    "sampling.num_bias_samples": options.NUM_SAMPLES,
    "sampling.mode": options.choice("fixed", "race"),
    "sampling.alpha": options.ALPHA,
    "sampling.rare_share": options.RARE_SHARE,
    "sampling.timesteps": options.TIMESTEPS.or_none(),
    "sampling.timestep_weights": options.PATH,
    "sampling.timestep_range": options.TIMESTEP_RANGE,
    **options.API,
}
"""Field -> what it may be."""


def check(config: ml_collections.ConfigDict) -> None:
    """Raises InputError for fields that do not go together, each of them being allowed."""
    sampling = config.sampling
    rule = sampling.timesteps
    unusual = {
        "sampling.timestep_weights": timestep_weights.parse(sampling.timestep_weights) != timestep_weights.UNIFORM,
        "reduce_dtype": config.reduce_dtype != sample_mean.DTYPES[0],
    }
    for name in [name for name, is_asked in unusual.items() if is_asked and sampling.mode == "race"]:
        raise InputError(
            f"--config.{name} is not for --config.sampling.mode=race, which decides by plain means: leave one of them"
            " out"
        )
    listed = rule is not None and rule[0].isdigit()
    if sampling.mode == "fixed" and rule == "importance":
        raise InputError(
            "--config.sampling.timesteps=importance is for --config.sampling.mode=race: choose another rule"
        )
    if (listed or rule == "published") and sampling.timestep_range not in (None, options.ALL):
        raise InputError(
            f"--config.sampling.timesteps={options.shown(rule)} says itself what the timesteps are, so that"
            f" --config.sampling.timestep_range={','.join(map(str, sampling.timestep_range))} would do nothing: leave"
            " one of them out"
        )


def get_config(form: str = "standard") -> ml_collections.ConfigDict:
    """The config in one of its ``FORMS``."""
    if form not in FORMS:
        raise ValueError(f"gdbench comes as {', '.join(FORMS)}, not {form!r}.")
    limit, num_samples, tasks = FORMS[form]
    config = ml_collections.ConfigDict()
    config.kind = "score"

    config.model = "clevr-tiny"
    config.variant = config_dict.placeholder(str)
    config.revision = config_dict.placeholder(str)
    config.allow_pickle = False
    config.lora = config_dict.placeholder(str)
    config.lora_scale = 1.0
    config.pipeline_options = config_dict.placeholder(str)
    config.encoders = "resident"
    config.dtype = "float32"

    config.tasks = tasks
    config.data_dir = config_dict.placeholder(str)
    config.limit = config_dict.FieldReference(limit, field_type=int)

    config.normalize = "auto"
    config.error = "squared_l2"
    config.reduce_dtype = "float32"
    config.target = "own"
    config.image_size = config_dict.placeholder(int)
    config.max_pixels = config_dict.placeholder(int)
    config.batch_size = config_dict.placeholder(int | str)
    config.model_parallel = 1
    config.seed = 0
    config.sampling = ml_collections.ConfigDict()
    config.sampling.num_samples = num_samples
    config.sampling.num_bias_samples = 2 if form == "debug" else 20
    config.sampling.mode = "race" if form == "race" else "fixed"
    config.sampling.alpha = 0.01
    config.sampling.rare_share = 0.04
    config.sampling.timesteps = config_dict.placeholder(str)
    config.sampling.timestep_weights = "uniform"
    config.sampling.timestep_range = config_dict.placeholder(tuple | str)
    _responder.add_api(config)
    return config
