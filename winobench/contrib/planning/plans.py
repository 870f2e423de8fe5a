"""The plan of a config: which kind of programs it runs decides."""

from __future__ import annotations

from typing import Any

from winobench.base import options, registry
from winobench.base.errors import InputError
from winobench.contrib.planning import asking, generating, scoring, token_models, training, vision_language
from winobench.contrib.planning.plan import Job, Plan
from winobench.contrib.planning.topologies import Target
from winobench.runs import model_settings, settings, training_settings
from winobench.scorers import loading


def make_plan(config: Any, target: Target, **how: Any) -> Plan:
    """Plans a config for some devices. `how` are the other fields of `Job`."""
    job = Job(config, target, **how)
    for name in options.comma_separated(getattr(config, "model", None) or ""):
        _check_has_weights(name)
    if isinstance(config, model_settings.Sampler):
        return generating.make_plan(job)
    model = getattr(config, "model", None)
    if not isinstance(model, str) or "," in model:
        raise InputError(f"--model is {options.quote(model)}, but a plan is for one model: name one")
    if isinstance(config, settings.Asking):
        return asking.make_plan(job)
    if isinstance(config, training_settings.HardNeg):
        return training.make_plan(job)
    if not isinstance(config, settings.Scoring):
        raise InputError(
            "plans are for configs that evaluate a model, fine-tune it or generate images, such as gdbench, wscplus,"
            " winoviz, hardneg or images: name one"
        )
    kind = loading.resolve(model, revision=config.revision).kind
    if kind == "vqa_score":
        return vision_language.make_plan(job)
    if kind == loading.TOKENS:
        return token_models.make_plan(job)
    return scoring.make_plan(job)


def _check_has_weights(name: str) -> None:
    """Refuses a model without weights, which no accelerator runs."""
    if registry.resolve(name).is_checkpoint:
        return
    raise InputError(
        f"{options.quote(name)} runs elsewhere, so there is nothing to plan: name a model with weights. --dry_run of"
        " winobench judge and generate counts the tokens of a hosted one",
        code="wrong-kind-of-model",
    )
