"""Scores images against texts with a diffusion model on the tasks of GDBench.

winobench eval --config=gdbench           # 100 scenes, 16 samples: minutes on a laptop
winobench eval --config=gdbench:full      # everything, 32 samples: the figure to quote
winobench eval --config=gdbench:race      # everything, up to 250 samples, until each question is decided
winobench eval --config=gdbench:debug     # 4 scenes, 2 samples: does everything run?
winobench eval --config=gdbench:table1 --model=sd21-base --dtype=bfloat16
winobench eval --config=gdbench:table1 --model=sd21-base --normalize=none  # Diffusion Classifier
winobench eval --config=gdbench:table2 --model=sd21-base
winobench eval --config=gdbench:table3 --model=sd15
winobench eval --config=gdbench:table2 --model=sd21-base --lora=FOLDER  # fine-tuned by LoRA
winobench eval --config=gdbench --model=openai:gpt-4o  # VQAScore of a hosted model
"""

from __future__ import annotations

import dataclasses

from winobench.base import options
from winobench.base.errors import InputError
from winobench.base.options import option
from winobench.runs import model_settings, settings

from . import forms_of

LAUNCHER = "eval"

_DIFFUSION, _LIKELIHOOD = (settings.DIFFUSION,), (settings.LIKELIHOOD,)


@dataclasses.dataclass(frozen=True)
class Sampling(settings.Sampling):
    timestep_range: tuple | str | None = option(
        None,
        options.TIMESTEP_RANGE,
        "first,end of the timesteps that are sampled, or all. None for the range in the model's folder",
        only_for=_DIFFUSION,
    )


@dataclasses.dataclass(frozen=True)
class Settings(settings.Scoring, model_settings.Pipeline):
    model: str = option(
        "clevr-tiny",
        options.text(),
        "a name of --list_models, a folder, a hub id, a .safetensors file, or API:MODEL (openai:MODEL). Several with"
        " commas",
    )
    pipeline_options: str | None = option(
        None,
        options.text().or_none(),
        "what only the model's family has, as name=value, such as zero_empty_text=true of SDXL",
        only_for=_DIFFUSION,
    )
    encoders: str = option(
        "resident",
        options.choice("resident", "staged"),
        "resident, or staged: texts are encoded first. Text encoders and denoiser are never on the devices together",
        only_for=_DIFFUSION,
    )
    backend: str = option(
        "auto",
        options.BACKEND,
        "native: families in Flax. torch: diffusers' own code under JAX, experimental. auto: the first that can",
        only_for=_DIFFUSION,
    )
    float8: bool = option(
        False,
        options.flag(),
        "products of the denoiser have factors of 8 bits. For large transformers on H100 and newer GPUs",
        only_for=_DIFFUSION,
    )
    autoencoder_dtype: str = option(
        "float32",
        options.choice("float32", "bfloat16"),
        "dtype in which images are encoded. bfloat16 is faster on GPUs and TPUs, and changes few decisions",
        only_for=_DIFFUSION,
    )
    tasks: str = option(
        "ready", options.text(), "names with commas, or ready for every task whose data are there (--list_tasks)"
    )
    error: str = option(
        "squared_l2",
        options.choice("squared_l2", "l2"),
        "squared_l2 (the paper) or l2 (the published code)",
        only_for=_DIFFUSION,
    )
    target: str = option(
        "own",
        options.choice("own", "epsilon"),
        "own compares in the network's own target, noise or velocity. epsilon compares noise",
        only_for=_DIFFUSION,
    )
    scored_by: str = option(
        "likelihood",
        options.choice("likelihood", "answers"),
        "of models that predict tokens: the likelihood of an image, or the answer to a question about it (VQAScore)",
        only_for=_LIKELIHOOD,
    )
    guidance: float | None = option(
        None,
        options.GUIDANCE.or_none(),
        "guidance of the logits, of models that predict tokens (janus-pro-1b). None for the text's own. Two passes",
        only_for=_LIKELIHOOD,
    )
    preprocessing: str = option(
        "squash",
        options.choice("squash", "crop"),
        "images of models that predict tokens: squash resizes all of it, crop takes the middle, as in their training",
        only_for=_LIKELIHOOD,
    )
    max_pixels: int | None = option(
        None,
        options.MAX_PIXELS.or_none(),
        "pixels beyond which images are made smaller, of models that take any shape (qwen3-vl-2b). None for"
        " 1003520, or what the model's files allow",
    )
    batch_size: int | str | None = option(
        None,
        (options.BATCH_SIZE | options.choice("search")).or_none(),
        "passes at once on each device. None for a usual number, search to measure which is fastest",
    )
    model_parallel: int = option(1, options.DEVICES, "devices that share one copy of the model; 1 gives each its own")
    sampling: Sampling = options.group(Sampling, short=("num_samples",))
    api: model_settings.Api = options.group(model_settings.Api)


SETTINGS = Settings

FORMS = {
    "standard": {"limit": 100, "sampling.num_samples": 16},
    "full": {"sampling.num_samples": 32},
    "race": {"sampling.num_samples": 250, "sampling.mode": "race"},
    "debug": {"limit": 4, "sampling.num_samples": 2, "sampling.num_bias_samples": 2},
    # The paper's: Tables 1, 6 and figures with 250 samples, Table 2 with 10, Tables 3 and 5 with 20 (footnote 6).
    "table1": {"sampling.num_samples": 250},
    "table2": {"sampling.num_samples": 10},
    "table3": {"sampling.num_samples": 20, "tasks": "mmbias"},
}

get_config = forms_of("gdbench", Settings, FORMS)


def check(config: Settings) -> None:
    sampling = config.sampling
    rule = sampling.timesteps
    if sampling.mode == settings.FIXED and rule == options.IMPORTANCE:
        raise InputError(
            "--sampling.timesteps=importance is for --sampling.mode=race: choose antithetic_importance, or another rule"
        )
    if sampling.mode == settings.RACE and rule == options.ANTITHETIC_IMPORTANCE:
        raise InputError("--sampling.timesteps=antithetic_importance is not for a race: choose importance")
    listed = rule is not None and rule[0].isdigit()
    if (listed or rule == "published") and sampling.timestep_range not in (None, options.ALL):
        raise InputError(
            f"--sampling.timesteps={options.quote(rule)} says itself what the timesteps are, so that"
            f" --sampling.timestep_range={','.join(map(str, sampling.timestep_range))} would do nothing: leave"
            " one of them out"
        )
