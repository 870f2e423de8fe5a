"""Asks language models what an object looks like in the state that a sentence puts it in (docs/howto/winoviz.md).

winobench eval --config=winoviz                                              # FLAN-T5-base, our small set, zero-shot
winobench eval --config=winoviz:debug                                        # two items a task, every protocol
winobench eval --config=winoviz --model=qwen3-8b --protocol=few_shot --dtype=bfloat16
winobench eval --config=winoviz --model=openai:gpt-4o-mini --protocol=zero_shot_swapped
winobench eval --config=winoviz --model=FOLDER                               # BERT fine-tuned on NLI
winobench eval --config=winoviz --model=clip-vit-l14                         # CLIP's text side, by cosine
winobench eval --config=winoviz:table1 --model=flan-t5-xxl --dtype=bfloat16  # the paper's items
winobench eval --config=winoviz:table2 --model=flan-t5-xxl --dtype=bfloat16
winobench eval --config=winoviz:table3 --model=FOLDER
winobench eval --config=winoviz:table4 --model=flan-t5-xxl --dtype=bfloat16

With images: five are generated of each premise, and the model answers about each. The majority decides.

winobench eval --config=winoviz:images_debug                # does everything run? embedded model, a minute
winobench eval --config=winoviz:images                      # SD 1.5 generates, CLIP says which hypothesis fits
winobench eval --config=winoviz:images --model=sd21-base    # a diffusion model judges
winobench eval --config=winoviz:images --model=flan-t5-xxl  # reads BLIP-2's captions
winobench eval --config=winoviz:images --model=instructblip-flan-t5-xl --protocol=all
winobench eval --config=winoviz:images --images=RUN_OF_IMAGES_OR_TABLE.csv
winobench eval --config=winoviz:table6 --dtype=bfloat16     # the paper's models, its items
"""

from __future__ import annotations

import dataclasses

from winobench.base import options
from winobench.base.options import option
from winobench.runs import model_settings, settings

from . import forms_of

LAUNCHER = "eval"


@dataclasses.dataclass(frozen=True)
class Generation(model_settings.Sampler):
    dtype: str = option("float32", options.DTYPE, f"compute dtype of the denoiser that samples: {options.DTYPE_NAMES}")
    variant: str | None = option(
        None, options.text(255).or_none(), "variant of the generator's weight files, such as fp16"
    )


@dataclasses.dataclass(frozen=True)
class Sampling:
    num_samples: int = option(
        32, options.NUM_SAMPLES, "samples of noise and timestep for each image, where a diffusion model judges"
    )
    timesteps: str | None = option(
        None, options.TIMESTEPS.or_none(), "of these samples, see --config=gdbench. None for uniform"
    )


@dataclasses.dataclass(frozen=True)
class Settings(settings.Asking, model_settings.Responder):
    tasks: str = option(
        "winoviz_*",
        options.text(),
        "names with commas (--list_tasks); winoviz_* is every one whose data are there",
    )
    data_dir: str | None = option(
        None,
        options.PATH.or_none(),
        "the folder with winoviz/items.jsonl. None for $WINOBENCH_DATA or ~/winobench_data",
    )
    limit: int | None = option(
        None, options.LIMIT, "items a task, of which each has two questions, or six if decoupled. None for all"
    )
    images: str | None = option(
        None,
        options.PATH.or_none(),
        "a run of winobench generate that has generated the premises, or a .csv or .jsonl file of"
        " your own images (premise, file). None has the generator generate them first",
    )
    generator: str | None = option(
        None,
        options.text().or_none(),
        "the model that generates the premises. Names one model of a run by several",
    )
    images_per_premise: int = option(
        5, options.whole(1, 1_000), "images of each premise, of which the majority decides"
    )
    captioner: str | None = option(
        None, options.text().or_none(), "what writes captions for protocol captions, such as blip2-flan-t5-xl"
    )
    generation: Generation = options.group(Generation)
    sampling: Sampling = options.group(Sampling)


SETTINGS = Settings

_PAPER = "winoviz_single,winoviz_multi"
_GENERATED = {"generator": "sd15", "captioner": "blip2-flan-t5-xl"}

FORMS = {
    "standard": {},
    "debug": {"protocol": "all", "limit": 2},
    # What the prompts and the order of the options do to a model.
    "protocols": {"protocol": "all"},
    # The paper's: they need its items, which are not public (docs/howto/winoviz.md).
    "table1": {"tasks": _PAPER, "protocol": "zero_shot"},
    "table2": {"tasks": _PAPER, "protocol": "zero_shot,few_shot,chain_of_thought"},
    "table3": {"tasks": _PAPER, "protocol": "entailment"},
    "table4": {"tasks": "winoviz_decoupled", "protocol": "zero_shot"},
    # With images. Each model's first protocol that is about them.
    "images": {"model": "clip-vit-l14", **_GENERATED},
    "images_debug": {
        "tasks": "winoviz_mini_single",
        "limit": 2,
        "model": "clevr-tiny",
        "generator": "clevr-tiny",
        "images_per_premise": 2,
        "generation.num_steps": 2,
        "sampling.num_samples": 2,
    },
    # Of its InstructBLIP the paper names the 11B parameters alone.
    "table6": {
        "tasks": "winoviz_single",
        "model": "clip-vit-l14,flan-t5-xxl,Salesforce/instructblip-flan-t5-xxl",
        **_GENERATED,
    },
}

get_config = forms_of("winoviz", Settings, FORMS)
