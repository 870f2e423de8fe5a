"""A config's plan: which programs it will run, compiled for the devices, with hours and dollars."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from winobench import parallel
from winobench.base import options
from winobench.base.errors import InputError
from winobench.planning import (
    abstract,
    drawing_plan,
    estimate,
    few_blocks,
    fit,
    language_plan,
    programs,
    training_plan,
    vision_language_plan,
    work,
)
from winobench.planning.drawing_plan import DrawingPlan
from winobench.planning.estimate import Assumptions
from winobench.planning.fit import Fit
from winobench.planning.language_plan import LanguagePlan
from winobench.planning.programs import Scoring
from winobench.planning.table import Plan
from winobench.planning.topologies import Target
from winobench.planning.training_plan import TrainingPlan
from winobench.planning.vision_language_plan import VisionLanguagePlan
from winobench.scorers import loading

if TYPE_CHECKING:
    import ml_collections

    from winobench.diffusion.folders import Description


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
) -> Plan | LanguagePlan | TrainingPlan | DrawingPlan | VisionLanguagePlan:
    """Plans a config for some devices.

    Args:
      config: of images and texts, such as gdbench, for one diffusion model or vision-language model. Of fine-tuning,
        hardneg, for one diffusion model. Of texts, such as wscplus, for one language model. Or of images, for one or
        several diffusion models.
      target: the devices.
      devices: numbers of them to estimate the time for. Those of the target when empty.
      price: dollars per device and hour.
      largest: also look for the largest step. Of a language model the largest batch is its usual one, and of images
        the config's is not raised.
      assumed: what no compiler knows.
      few: compile a diffusion transformer's step with few blocks and extrapolate (`winobench.planning.few_blocks`),
        without the encoders, or a vision-language model. A network whose blocks are no more than these is compiled
        as it is.
      say: is told what is compiled next.

    Raises:
      InputError: the config is of another kind, its model is unknown or several, or the compiler is not installed.
    """
    assumed = assumed or Assumptions()
    if config.kind == "draw":
        return drawing_plan.make_plan(config, target, devices, price, assumed, few, say)
    model = config.get("model")
    if not isinstance(model, str) or "," in model:
        raise InputError(f"--config.model is {options.shown(model)}, but a plan is for one model: name one")
    if config.kind == "ask":
        return language_plan.make_plan(config, model, target, devices, price, assumed, say)
    if config.kind == "train" and config.recipe == "hardneg":
        return training_plan.make_plan(config, model, target, devices, price, assumed, say)
    if config.kind != "score":
        raise InputError(
            "a plan is for configs that evaluate or fine-tune a model or have it draw, such as gdbench, wscplus,"
            " winoviz, hardneg or pictures: name one"
        )
    if loading.resolve(model, config.revision).kind == "vqa_score":
        return vision_language_plan.make_plan(config, model, target, devices, price, assumed, few, say)
    return _plan_scoring(config, model, target, devices, price, largest, assumed, few, say)


def _plan_scoring(
    config: ml_collections.ConfigDict,
    model: str,
    target: Target,
    devices: Sequence[int],
    price: float | None,
    largest: bool,
    assumed: Assumptions,
    few: bool,
    say: Callable[[str], None],
) -> Plan:
    if not abstract.is_pipeline(model):
        raise InputError(f"{model} is no diffusion model, whose denoiser a plan compiles: name one, such as sd21-base")
    settings = options.settings().or_none().check("--config.pipeline_options", config.get("pipeline_options"))
    description = abstract.read_description(model, revision=config.revision, settings=settings)
    scoring = _programs(config, description, target, few)
    found = fit.fit_scorer(scoring, target, largest=largest, say=say)
    total = work.total(
        work.names(config.tasks), config.sampling.num_samples, config.sampling.num_bias_samples, config.limit
    )
    notes = [f"tasks of unknown size are left out: {', '.join(total.unknown)}"] if total.unknown else []
    notes += _notes(found, config, target)
    durations = ()
    if found.step is not None:
        numbers = devices or (len(target.devices),)
        durations = tuple(estimate.duration(found, target, total, number, assumed) for number in numbers)
        notes.append(
            f"hours are for {total.passes:,} passes and {total.images:,} images, by the tasks' published sizes, with"
            f" storage of {assumed.storage_rate / 1e9:g} GB/s a host (an assumption)"
        )
    return Plan(
        target=target.text,
        weights=scoring.weights,
        others=scoring.tables,
        usable=target.accelerator.usable_memory,
        programs=(found.step, *found.encoders),
        largest=found.largest,
        durations=durations,
        price=price,
        per_second="passes/s",
        notes=tuple(notes),
        staged=scoring.staged,
    )


def _programs(config: ml_collections.ConfigDict, description: Description, target: Target, few: bool) -> Scoring:
    """What the scorer will have on the target's devices, and run there."""
    pipeline = abstract.make_pipeline(description, config.dtype)
    whole = description.denoiser_config
    counts = few_blocks.shallow_counts(few_blocks.block_counts(whole)) if few else ()
    return programs.scoring(
        pipeline,
        parallel.make_mesh(target.devices, model_parallel=config.model_parallel),
        image_size=config.image_size,
        error=config.error,
        target=config.target,
        staged=config.encoders == "staged",
        batch=config.batch_size if isinstance(config.batch_size, int) else None,
        shallow=[(each, abstract.with_denoiser(pipeline, whole.with_block_counts(*each))) for each in counts],
    )


def _notes(found: Fit, config: ml_collections.ConfigDict, target: Target) -> list[str]:
    """How a plan was made, where it is not the compiler's word for all, and what to do where nothing fits."""
    scoring, there = found.scoring, target.accelerator.usable_memory
    more = f"--config.model_parallel={2 * config.model_parallel}"
    notes = []
    if found.step is None:
        one_of_both = scoring.resident - min(scoring.weights["denoiser"], scoring.weights["text encoders"])
        staged = config.encoders != "staged" and one_of_both <= there
        notes.append(
            f"{target.text}: weights and tables take {scoring.resident / 1e9:.1f} GB of {there / 1e9:.1f}: try"
            f" {'--config.encoders=staged' if staged else more}"
        )
    elif found.step.blocks:
        kinds = " + ".join(map(str, found.step.blocks))
        notes.append(
            f"{target.text}: the step of all {kinds} blocks is extrapolated from few; encoders are not compiled"
        )
    if scoring.staged and scoring.encoding > there:
        notes.append(
            f"{target.text}: while texts are encoded, weights and tables take {scoring.encoding / 1e9:.1f} GB of"
            f" {there / 1e9:.1f}: encode them elsewhere first, whose results are kept, or try {more}"
        )
    return notes
