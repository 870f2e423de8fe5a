"""Edits the images of a task towards its texts: how far must an image move until the text fits?

python -m launch.generate --config=edit                        # clevr_image by optimisation, minutes on a laptop
python -m launch.generate --config=edit:denoise                # noise to strength 0.4, 0.5, 0.6 and 0.7, and back
python -m launch.generate --config=edit --config.tasks=winoground --config.model=sd15 --config.limit=20
"""

from __future__ import annotations

import ml_collections
from ml_collections import config_dict

from winobench.base import options

LAUNCHER = "generate"

FORMS = ("optimize", "denoise")

HELP = {
    "model": "a name of launch.eval --list_models, a folder, or a hub id",
    "variant": "which of several weight files, such as fp16",
    "revision": "the hub repository's branch, tag or commit",
    "allow_pickle": "load .bin weights through a restricted unpickler",
    "lora": "LoRA for the model: a file, a folder, or a hub id; none for the model as it is",
    "lora_scale": "what the LoRA's effect is multiplied by",
    "dtype": "compute dtype: float32 or bfloat16",
    "tasks": "names with commas (launch.eval --list_tasks)",
    "data_dir": "where launch.prepare has put the data; none for $WINOBENCH_DATA or ~/winobench_data",
    "limit": "scenes or items a task; none for all",
    "method": "optimize the latents on the denoising error (Figure 6), or denoise from a strength (Figure 7)",
    "num_steps": "of the optimisation, or of a whole denoising",
    "learning_rate": "optimize: of Adam",
    "timesteps": "optimize: fixed (the middle of the schedule), several at once, or random, one a step",
    "strengths": "denoise: how much noise is added, above 0 and up to 1; several are runs of their own",
    "guidance_scale": "denoise: 1 or less for none",
    "seed": "random seed for the noise",
    "batch_size": "edits at once on each device",
    "image_size": "pixels that images are resized to; none for the model's own size",
}

RANGES = {
    **options.CHECKPOINT,
    "lora": options.PATH.or_none(),
    "lora_scale": options.SCALE,
    "tasks": options.text(),
    "data_dir": options.PATH.or_none(),
    "limit": options.LIMIT,
    "method": options.choice("optimize", "denoise"),
    "num_steps": options.whole(1, 100_000),
    "learning_rate": options.LEARNING_RATE,
    "timesteps": options.choice("fixed", "several", "random"),
    "strengths": options.items(options.NOISE_LEVEL, 1, 20),
    "guidance_scale": options.GUIDANCE,
    "seed": options.SEED,
    "batch_size": options.BATCH_SIZE,
    "image_size": options.IMAGE_SIZE.or_none(),
}
"""Field -> what it may be."""


def get_config(form: str = "optimize") -> ml_collections.ConfigDict:
    """The config in one of its ``FORMS``; numbers of the paper's Appendix C."""
    if form not in FORMS:
        raise ValueError(f"edit comes as {', '.join(FORMS)}, not {form!r}.")
    config = ml_collections.ConfigDict()
    config.kind = "edit"
    config.model = "clevr-tiny"
    config.variant = config_dict.placeholder(str)
    config.revision = config_dict.placeholder(str)
    config.allow_pickle = False
    config.lora = config_dict.placeholder(str)
    config.lora_scale = 1.0
    config.dtype = "float32"
    config.tasks = "clevr_image"
    config.data_dir = config_dict.placeholder(str)
    config.limit = config_dict.FieldReference(8, field_type=int)
    config.method = form
    config.num_steps = 200 if form == "optimize" else 50
    config.learning_rate = 0.05
    config.timesteps = "fixed"
    config.strengths = (0.4, 0.5, 0.6, 0.7)
    config.guidance_scale = 7.5
    config.seed = 0
    config.batch_size = 8
    config.image_size = config_dict.placeholder(int)
    return config
