"""Generates images of a set of prompts by one or several models.

winobench generate --config=images        # the embedded model, 70 prompts about its scenes: a minute or two
winobench generate --config=images:debug  # 7 prompts, 4 steps: does everything run?
winobench generate --config=images --prompts=FILE.txt --model=sd21-base,sdxl --seeds=0,1
winobench generate --config=images:paper --prompts=drawbench:FILE --model=sd21-base \
    --lora=none,FOLDER                    # App. B: a model against its LoRA, 104 prompts x 2 seeds
"""

from __future__ import annotations

import dataclasses

from winobench.base import options, registry
from winobench.base.errors import InputError
from winobench.base.options import option
from winobench.runs import model_settings

from . import forms_of

LAUNCHER = "generate"


@dataclasses.dataclass(frozen=True)
class Settings(model_settings.Sampler, model_settings.Pipeline):
    prompts: str = option(
        "clevr:70",
        options.text(4_096),
        "a .txt file (a prompt a line), a .csv or .tsv file (columns prompt, category, id, shown), clevr:N, or the"
        " files of a benchmark, such as geneval2:FILE or dpg_bench:FOLDER (docs/howto/generate_images.md lists all)",
    )
    categories: str | None = option(
        None, options.text().or_none(), "only prompts of these categories, with commas. None for all"
    )
    shown: str | None = option(
        None,
        options.PATH.or_none(),
        "a .csv or .tsv file with columns prompt and shown: the rewritten text that models get for each prompt. Judges"
        " read the prompt",
    )
    limit: int | None = option(None, options.LIMIT, "prompts, from the beginning of the set. None for all")
    model: str = option(
        "clevr-tiny",
        options.text(),
        "a diffusion model or one that predicts tokens (winobench eval --list_models), a folder, a hub id, a"
        " .safetensors file, or openai:MODEL. Several with commas",
    )
    lora: str | None = option(
        None,
        options.text().or_none(),
        "LoRA for the model: a file, a folder, or a hub id. With commas one for each model, or several for one,"
        " of which none is the model as it is",
    )
    negative_prompt: str | None = option(
        None, options.text().or_none(), "the text from which guidance leads away. None for the empty text"
    )
    pipeline_options: str | None = option(
        None,
        options.text().or_none(),
        "what only the model's family has, as name=value, such as zero_empty_text=false of SDXL",
    )
    backend: str = option(
        "auto",
        options.BACKEND,
        "native: families in Flax. torch: diffusers' own code under JAX, experimental. auto: the first that can",
    )
    model_parallel: int = option(
        1, options.DEVICES, "devices that share one copy of a model that predicts tokens; 1 gives each its own"
    )
    api: model_settings.ImageApi = options.group(model_settings.ImageApi)
    seeds: tuple = option(
        (0,),
        options.items(options.SEED, 1, 1_000),
        "of the noise, with commas: an image of each prompt for each. The noise of an image depends on seed and"
        " number alone",
    )

    def of_diffusion(self) -> Settings:
        """The settings of diffusion models, where these have None."""
        own = {"num_steps": 25, "guidance_scale": 3.0}
        return dataclasses.replace(self, **{name: value for name, value in own.items() if getattr(self, name) is None})


# Fields that have an effect on hosted models. Others are for diffusion models.
_OF_ALL = ("prompts", "shown", "categories", "limit", "model", "image_size", "seeds")


SETTINGS = Settings

FORMS = {
    "standard": {},
    # DiffusionITM, App. B: 104 prompts of DrawBench, two seeds. Steps and guidance are Stable Diffusion's usual ones.
    "paper": {"prompts": "drawbench", "seeds": (0, 1), "num_steps": 50, "guidance_scale": 7.5},
    "debug": {"prompts": "clevr:7", "num_steps": 4},
}

get_config = forms_of("images", Settings, FORMS)


def check(settings: Settings) -> None:
    """Refuses options of diffusion models where all models are hosted ones, and options of hosted ones without any."""
    models, usual = options.comma_separated(settings.model) or [settings.model], options.values(Settings())
    of_api = {bool(registry.api_of(model)) for model in models}
    for name, value in options.values(settings).items():
        suits = {True} if name.startswith("api.") else {True, False} if name in _OF_ALL else {False}
        is_given = value not in (usual[name], *(form[name] for form in FORMS.values() if name in form))
        if is_given and not suits & of_api:
            kind = "hosted" if suits == {True} else "diffusion"
            raise InputError(
                f"--{name} is for {kind} models, so that it has no effect on {models[0]!r}: leave it out",
                code="option-of-others",
            )
