"""Edits the images of a task towards its texts: how far must an image move until the text fits?

winobench edit --config=edit          # clevr_image by optimisation, minutes on a laptop
winobench edit --config=edit:denoise  # noise to strength 0.4, 0.5, 0.6 and 0.7, and back
winobench edit --config=edit --tasks=winoground --model=sd15 --limit=20
"""

from __future__ import annotations

import dataclasses

from winobench.base import options
from winobench.base.options import option
from winobench.runs import model_settings, settings

from . import forms_of

LAUNCHER = "edit"


@dataclasses.dataclass(frozen=True)
class Settings(settings.Data, model_settings.Pipeline):
    """Options of edits of images towards texts, with the numbers of the paper's Appendix C."""

    limit: int | None = option(8, options.LIMIT, "scenes or items a task. None for all")
    tasks: str = option("clevr_image", options.text(), "names with commas (winobench eval --list_tasks)")
    method: str = option(
        "optimize",
        options.choice("optimize", "denoise"),
        "optimize the latents on the denoising error (Figure 6), or denoise from a strength (Figure 7)",
    )
    num_steps: int = option(200, options.whole(1, 100_000), "of the optimisation, or of a whole denoising")
    learning_rate: float = option(0.05, options.LEARNING_RATE, "optimize: of Adam")
    timesteps: str = option(
        "fixed",
        options.choice("fixed", "several", "random"),
        "optimize: fixed (the middle of the schedule), several at once, or random, one a step",
    )
    strengths: tuple = option(
        (0.4, 0.5, 0.6, 0.7),
        options.items(options.NOISE_LEVEL, 1, 20),
        "denoise: how much noise is added, above 0 and up to 1. Several are separate runs",
    )
    guidance_scale: float = option(7.5, options.GUIDANCE, "denoise: 1 or less for none")
    seed: int = option(0, options.SEED, "random seed for the noise")
    batch_size: int = option(8, options.BATCH_SIZE, "edits at once on each device")


SETTINGS = Settings

FORMS = {"optimize": {}, "denoise": {"method": "denoise", "num_steps": 50}}

get_config = forms_of("edit", Settings, FORMS)
