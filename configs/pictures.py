"""Draws images of a set of prompts by one or several models.

python -m launch.generate --config=pictures          # the embedded model, 70 prompts about its scenes: a minute or two
python -m launch.generate --config=pictures:debug    # 7 prompts, 4 steps: does everything run?
python -m launch.generate --config=pictures --config.prompts=FILE.txt --config.model=sd21-base,sdxl --config.seeds=0,1
python -m launch.generate --config=pictures:paper --config.prompts=drawbench:FILE --config.model=sd21-base \
    --config.lora=none,FOLDER                        # App. B: a model against its LoRA, 104 prompts x 2 seeds
"""

from __future__ import annotations

import ml_collections
from ml_collections import config_dict

from winobench.base import options

LAUNCHER = "generate"

FORMS = {
    "standard": ("clevr:70", (0,), 25, 3.0),
    # DiffusionITM, App. B: 104 prompts of DrawBench, two seeds. Steps and guidance are Stable Diffusion's usual ones.
    "paper": ("drawbench", (0, 1), 50, 7.5),
    "debug": ("clevr:7", (0,), 4, 3.0),
}
"""Form -> (prompts, seeds, steps, guidance)."""

HELP = {
    "prompts": "a .txt file (a prompt a line), a .csv or .tsv file (columns prompt, category, id), clevr:N,"
    " geneval:FILE, partiprompts:FILE, drawbench:FILE, or t2i_compbench:FILE_OR_FOLDER",
    "categories": "only prompts of these categories, with commas; none for all",
    "limit": "prompts, from the beginning of the set; none for all",
    "model": "a diffusion model of launch.eval --list_models, a folder, or a hub id; several with commas",
    "variant": "which of several weight files, such as fp16",
    "revision": "the hub repository's branch, tag or commit",
    "allow_pickle": "load .bin weights through a restricted unpickler",
    "lora": "LoRA for the model: a file, a folder, or a hub id; with commas one for each model, or several for one,"
    " of which none is the model as it is",
    "lora_scale": "what the LoRA's effect is multiplied by",
    "pipeline_options": "what only the model's family has, as name=value, such as zero_empty_text=false of SDXL",
    "encoders": "resident, or staged: text encoders and denoiser are never on the devices together",
    "dtype": "compute dtype of the denoiser: float32 or bfloat16",
    "seeds": "of the noise, with commas: a picture of each prompt for each; the noise of a picture depends on seed and"
    " number alone",
    "num_steps": "steps of the sampler",
    "guidance_scale": "classifier-free guidance; 1 or less for none",
    "sampler": "ddim, euler, euler_ancestral or dpm_solver, flow_euler of flow models; none follows the"
    " model's folder, or takes ddim where its scheduler is not among these",
    "image_size": "height and width in pixels; none for the model's own",
    "batch_size": "pictures at once on each device",
}

RANGES = {
    **options.CHECKPOINT,
    "prompts": options.text(4_096),
    "categories": options.text().or_none(),
    "limit": options.LIMIT,
    "lora": options.text().or_none(),
    "lora_scale": options.SCALE,
    "pipeline_options": options.text().or_none(),
    "encoders": options.choice("resident", "staged"),
    "seeds": options.items(options.SEED, 1, 1_000),
    "num_steps": options.whole(1, options.MAX_TIMESTEPS),
    "guidance_scale": options.GUIDANCE,
    "sampler": options.text(255).or_none(),
    "image_size": options.IMAGE_SIZE.or_none(),
    "batch_size": options.BATCH_SIZE,
}
"""Field -> what it may be."""


def get_config(form: str = "standard") -> ml_collections.ConfigDict:
    """The config in one of its ``FORMS``."""
    if form not in FORMS:
        raise ValueError(f"pictures comes as {', '.join(FORMS)}, not {form!r}.")
    prompts, seeds, num_steps, guidance_scale = FORMS[form]
    config = ml_collections.ConfigDict()
    config.kind = "draw"
    config.prompts = prompts
    config.categories = config_dict.placeholder(str)
    config.limit = config_dict.placeholder(int)

    config.model = "clevr-tiny"
    config.variant = config_dict.placeholder(str)
    config.revision = config_dict.placeholder(str)
    config.allow_pickle = False
    config.lora = config_dict.placeholder(str)
    config.lora_scale = 1.0
    config.pipeline_options = config_dict.placeholder(str)
    config.encoders = "resident"
    config.dtype = "float32"

    config.seeds = seeds
    config.num_steps = num_steps
    config.guidance_scale = guidance_scale
    config.sampler = config_dict.placeholder(str)
    config.image_size = config_dict.placeholder(int)
    config.batch_size = 8
    return config
