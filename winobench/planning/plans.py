"""A config's plan: which programs it will run, compiled for the devices, with hours and dollars."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from winobench import options, parallel
from winobench.errors import InputError
from winobench.planning import abstract, estimate, fit, language_plan, programs, training_plan, work
from winobench.planning.estimate import Assumptions
from winobench.planning.language_plan import LanguagePlan
from winobench.planning.table import Plan
from winobench.planning.topologies import Target
from winobench.planning.training_plan import TrainingPlan
from winobench.tasks import TASKS, groups

if TYPE_CHECKING:
    import ml_collections

_ALL_TASKS = "ready"


def make_plan(
    config: ml_collections.ConfigDict,
    target: Target,
    *,
    devices: Sequence[int] = (),
    price: float | None = None,
    largest: bool = False,
    assumed: Assumptions | None = None,
    say: Callable[[str], None] = print,
) -> Plan | LanguagePlan | TrainingPlan:
    """Plans a config for some devices.

    Args:
      config: of images and texts, such as gdbench, or of fine-tuning, hardneg, for one diffusion model; or of texts,
        such as wscplus, for one language model.
      target: the devices.
      devices: numbers of them to estimate the time for; those of the target when empty.
      price: dollars per device and hour.
      largest: also look for the largest step; of a language model the largest batch is its usual one.
      assumed: what no compiler knows.
      say: is told what is compiled next.

    Raises:
      InputError: the config is of another kind, its model is unknown or several, or the compiler is not installed.
    """
    model = config.get("model")
    if not isinstance(model, str) or "," in model:
        raise InputError(f"--config.model is {options.shown(model)}, but a plan is for one model: name one")
    assumed = assumed or Assumptions()
    if "protocol" in config:
        return language_plan.make_plan(config, model, target, devices, price, assumed, say)
    if config.get("recipe") == "hardneg":
        return training_plan.make_plan(config, model, target, devices, price, assumed, say)
    if "sampling" not in config:
        raise InputError(
            "a plan is for configs that evaluate or fine-tune a model, such as gdbench, wscplus, winoviz or hardneg:"
            " name one"
        )
    return _plan_scoring(config, model, target, devices, price, largest, assumed, say)


def _plan_scoring(
    config: ml_collections.ConfigDict,
    model: str,
    target: Target,
    devices: Sequence[int],
    price: float | None,
    largest: bool,
    assumed: Assumptions,
    say: Callable[[str], None],
) -> Plan:
    if not abstract.is_pipeline(model):
        raise InputError(f"{model} is no diffusion model, whose denoiser a plan compiles: name one, such as sd21-base")
    description = abstract.read_description(model, revision=config.revision)
    pipeline = abstract.make_pipeline(description, config.dtype)
    mesh = parallel.make_mesh(target.devices, model_parallel=config.model_parallel)
    scoring = programs.scoring(
        pipeline,
        mesh,
        image_size=config.image_size,
        error=config.error,
        target=config.target,
        staged=config.encoders == "staged",
        batch=config.batch_size if isinstance(config.batch_size, int) else None,
    )
    found = fit.fit_scorer(scoring, target, largest=largest, say=say)
    words = [] if config.tasks == _ALL_TASKS else config.tasks.split(",")
    tasks = [name for word in words for name in (groups.members(word, TASKS) if word.startswith("@") else [word])]
    total = work.total(tasks, config.sampling.num_samples, config.sampling.num_bias_samples, config.limit)
    notes = [f"tasks of unknown size are left out: {', '.join(total.unknown)}"] if total.unknown else []
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
    )
