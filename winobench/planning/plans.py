"""The plan of a config: which kind of programs it runs decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from winobench.base import options
from winobench.base.errors import InputError
from winobench.planning import asking, generating, scoring, training, vision_language
from winobench.planning.plan import Assumptions, Job, Plan
from winobench.planning.topologies import Target
from winobench.scorers import loading

if TYPE_CHECKING:
    import ml_collections


def make_plan(
    config: ml_collections.ConfigDict,
    target: Target,
    *,
    devices: Sequence[int] = (),
    price: float | None = None,
    largest: bool = False,
    assumed: Assumptions | None = None,
    few: bool = False,
    say: Callable[[str], None] = print,
) -> Plan:
    """Plans a config for some devices.

    Args:
      config: of images and texts, such as gdbench, for one diffusion model or vision-language model. Of fine-tuning,
        hardneg, for one diffusion model. Of texts, such as wscplus, for one language model. Or of generated images,
        for one or several diffusion models.
    """
    job = Job(config, target, devices, price, largest, assumed or Assumptions(), few, say)
    if config.kind == "draw":
        return generating.make_plan(job)
    model = config.get("model")
    if not isinstance(model, str) or "," in model:
        raise InputError(f"--config.model is {options.shown(model)}, but a plan is for one model: name one")
    if config.kind == "ask":
        return asking.make_plan(job)
    if config.kind == "train" and config.recipe == "hardneg":
        return training.make_plan(job)
    if config.kind != "score":
        raise InputError(
            "plans are for configs that evaluate a model, fine-tune it or generate images, such as gdbench, wscplus,"
            " winoviz, hardneg or pictures: name one"
        )
    if loading.resolve(model, config.revision).kind == "vqa_score":
        return vision_language.make_plan(job)
    return scoring.make_plan(job)
