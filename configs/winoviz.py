"""Asks language models what an object looks like in the state that a sentence puts it in (docs/winoviz.md).

python -m launch.eval --config=winoviz                                       # FLAN-T5-base, our small set, zero-shot
python -m launch.eval --config=winoviz:debug                                 # two items a task, every protocol
python -m launch.eval --config=winoviz --config.model=qwen3-8b --config.protocol=few_shot --config.dtype=bfloat16
python -m launch.eval --config=winoviz --config.model=openai:gpt-4o-mini --config.protocol=zero_shot_swapped
python -m launch.eval --config=winoviz --config.model=FOLDER                 # BERT after launch.train --config=nli
python -m launch.eval --config=winoviz --config.model=clip-vit-l14           # CLIP's text side, by cosine
python -m launch.eval --config=winoviz:table1 --config.model=flan-t5-xxl --config.dtype=bfloat16  # the paper's items
python -m launch.eval --config=winoviz:table2 --config.model=flan-t5-xxl --config.dtype=bfloat16
python -m launch.eval --config=winoviz:table3 --config.model=FOLDER
python -m launch.eval --config=winoviz:table4 --config.model=flan-t5-xxl --config.dtype=bfloat16

With images: five are drawn of each premise, and whoever sees them is asked about each. The majority decides.

python -m launch.eval --config=winoviz:pictures_debug              # does everything run? embedded model, a minute
python -m launch.eval --config=winoviz:pictures                    # SD 1.5 draws, CLIP says which hypothesis fits
python -m launch.eval --config=winoviz:pictures --config.model=sd21-base       # a diffusion model judges
python -m launch.eval --config=winoviz:pictures --config.model=flan-t5-xxl     # reads BLIP-2's captions
python -m launch.eval --config=winoviz:pictures --config.model=instructblip-flan-t5-xl --config.protocol=all
python -m launch.eval --config=winoviz:pictures --config.pictures=RUN_OF_PICTURES_OR_TABLE.csv
python -m launch.eval --config=winoviz:table6 --config.dtype=bfloat16          # the paper's models, its items
"""

from __future__ import annotations

import ml_collections
from ml_collections import config_dict

from configs import _responder
from winobench.base import options

LAUNCHER = "eval"

_PAPER = "winoviz_single,winoviz_multi"

FORMS = {
    "standard": ("winoviz_*", None, None),
    "debug": ("winoviz_*", "all", 2),
    # What the prompts and the order of the options do to a model.
    "protocols": ("winoviz_*", "all", None),
    # The paper's: they need its items, which are not public (docs/winoviz.md).
    "table1": (_PAPER, "zero_shot", None),
    "table2": (_PAPER, "zero_shot,few_shot,chain_of_thought", None),
    "table3": (_PAPER, "entailment", None),
    "table4": ("winoviz_decoupled", "zero_shot", None),
    # With images. Each model's first protocol that is about them.
    "pictures": ("winoviz_*", None, None),
    "pictures_debug": ("winoviz_mini_single", None, 2),
    "table6": ("winoviz_single", None, None),
}
"""Form -> (tasks, protocol, limit)."""

# Of the paper's InstructBLIP no more is said than its 11B parameters.
_TABLE_6 = "clip-vit-l14,flan-t5-xxl,Salesforce/instructblip-flan-t5-xxl"

# Form -> (model, drawer, captioner, images a premise, steps of each, samples of a diffusion model that judges).
_PICTURES = {
    "pictures": ("clip-vit-l14", "sd15", "blip2-flan-t5-xl", 5, 50, 32),
    "pictures_debug": ("clevr-tiny", "clevr-tiny", None, 2, 2, 2),
    "table6": (_TABLE_6, "sd15", "blip2-flan-t5-xl", 5, 50, 32),
}

HELP = {
    "model": "a name of --list_models, a folder, a hub id, openai:MODEL, anthropic:MODEL, recorded:FILE; or several",
    "protocol": "names with commas (--list_tasks), all the model can answer, or none for the task's first such one",
    "tasks": "names with commas (--list_tasks); winoviz_* is every one whose data are there",
    "data_dir": "the folder with winoviz/items.jsonl; none for $WINOBENCH_DATA or ~/winobench_data",
    "limit": "items a task, of which each has two questions, or six if decoupled; none for all",
    "pictures": "a run of launch.generate --config=pictures that has drawn the premises, or a .csv or .jsonl file of"
    " your own pictures (premise, file); none has the drawer draw them first",
    "drawer": "the diffusion model that draws the premises; of a run by several models, the one that is meant",
    "pictures_per_premise": "pictures of each premise, of which the majority decides",
    "captioner": "what writes captions for protocol captions, such as blip2-flan-t5-xl",
    "drawing.num_steps": "steps of the sampler that draws",
    "drawing.guidance_scale": "classifier-free guidance; 1 or less for none",
    "drawing.sampler": "as of --config=pictures; none follows the model's folder",
    "drawing.image_size": "height and width in pixels; none for the model's own",
    "drawing.dtype": "compute dtype of the denoiser that draws: float32 or bfloat16",
    "drawing.variant": "which of the drawer's weight files, such as fp16",
    "drawing.encoders": "resident, or staged: text encoders and denoiser are never on the devices together",
    "drawing.batch_size": "pictures drawn at once on each device",
    "sampling.num_samples": "samples of noise and timestep for each picture, where a diffusion model judges",
    "sampling.timesteps": "of these samples, as of --config=gdbench; none for uniform",
    **_responder.HELP,
}

RANGES = {
    **options.RESPONDER,
    "model": options.text(),
    "protocol": options.text(4_096).or_none(),
    "tasks": options.text(),
    "data_dir": options.PATH.or_none(),
    "limit": options.LIMIT,
    "pictures": options.PATH.or_none(),
    "drawer": options.text().or_none(),
    "pictures_per_premise": options.whole(1, 1_000),
    "captioner": options.text().or_none(),
    "drawing.num_steps": options.whole(1, options.MAX_TIMESTEPS),
    "drawing.guidance_scale": options.GUIDANCE,
    "drawing.sampler": options.text(255).or_none(),
    "drawing.image_size": options.IMAGE_SIZE.or_none(),
    "drawing.dtype": options.DTYPE,
    "drawing.variant": options.text(255).or_none(),
    "drawing.encoders": options.choice("resident", "staged"),
    "drawing.batch_size": options.BATCH_SIZE,
    "sampling.num_samples": options.NUM_SAMPLES,
    "sampling.timesteps": options.TIMESTEPS.or_none(),
}
"""Field -> what it may be."""


def get_config(form: str = "standard") -> ml_collections.ConfigDict:
    """The config in one of its ``FORMS``."""
    if form not in FORMS:
        raise ValueError(f"winoviz comes as {', '.join(FORMS)}, not {form!r}.")
    tasks, protocol, limit = FORMS[form]
    model, drawer, captioner, count, num_steps, num_samples = _PICTURES.get(
        form, ("flan-t5-base", None, None, 5, 50, 32)
    )
    config = ml_collections.ConfigDict()
    config.kind = "ask"

    config.model = model
    config.protocol = config_dict.FieldReference(protocol, field_type=str)
    config.tasks = tasks
    config.data_dir = config_dict.placeholder(str)
    config.limit = config_dict.FieldReference(limit, field_type=int)

    config.pictures = config_dict.placeholder(str)
    config.drawer = config_dict.FieldReference(drawer, field_type=str)
    config.pictures_per_premise = count
    config.captioner = config_dict.FieldReference(captioner, field_type=str)
    config.drawing = ml_collections.ConfigDict()
    config.drawing.num_steps = num_steps
    config.drawing.guidance_scale = 7.5
    config.drawing.sampler = config_dict.placeholder(str)
    config.drawing.image_size = config_dict.placeholder(int)
    config.drawing.dtype = "float32"
    config.drawing.variant = config_dict.placeholder(str)
    config.drawing.encoders = "resident"
    config.drawing.batch_size = 8
    config.sampling = ml_collections.ConfigDict()
    config.sampling.num_samples = num_samples
    config.sampling.timesteps = config_dict.placeholder(str)

    _responder.add_fields(config)
    return config
