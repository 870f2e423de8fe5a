"""Matching and generation of the same models, skill by skill, on one page.

winobench understand                            # clevr-tiny and clevr-flow, offline: some minutes on a laptop
winobench understand --config=understand:debug  # a few prompts and samples: does everything run?
winobench understand --model=sd21-base,sdxl --prompts=geneval2:FILE --judge=qwen3-vl-8b \
    --tasks=@spatial,@counting,@attribute_binding --dtype=bfloat16
"""

from __future__ import annotations

import dataclasses

from winobench.base import options
from winobench.base.options import option

from . import forms_of

LAUNCHER = "understand"


@dataclasses.dataclass(frozen=True)
class Settings:
    model: str = option(
        "clevr-tiny,clevr-flow",
        options.text(),
        "models of winobench eval --list_models that generate images, folders or hub ids, with commas",
    )
    prompts: str = option("clevr:210", options.text(4_096), "the prompts, as winobench generate takes them")
    judge: str | None = option(
        None,
        options.text().or_none(),
        "the judge of the images (winobench judge). None for the verifier, which supports the prompts clevr only",
    )
    tasks: str = option("clevr,clevr_hard", options.text(), "the tasks of matching, as winobench eval takes them")
    limit: int | None = option(100, options.LIMIT, "scenes or questions of each task. None for all")
    num_samples: int = option(16, options.whole(1, 100_000), "noises and timesteps of each pair that is matched")
    num_prompts: int | None = option(None, options.LIMIT, "prompts, from the beginning of the set. None for all")
    num_steps: int | None = option(
        None, options.whole(1, options.MAX_TIMESTEPS).or_none(), "steps of the sampler. None for 25 of diffusion models"
    )
    guidance_scale: float | None = option(
        None,
        options.GUIDANCE.or_none(),
        "classifier-free guidance; 1 or less for none. None for 3 of diffusion models, and for the published scale of"
        " models that predict tokens",
    )
    seeds: tuple = option((0,), options.items(options.SEED, 1, 1_000), "of the images' noise, with commas")
    dtype: str = option("float32", options.DTYPE, f"compute dtype: {options.DTYPE_NAMES}")


SETTINGS = Settings

FORMS = {"standard": {}, "debug": {"prompts": "clevr:28", "limit": 4, "num_samples": 2, "num_steps": 4}}

get_config = forms_of("understand", Settings, FORMS)
