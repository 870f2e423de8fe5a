"""Judges a text-to-image model: python -m launch.eval --config=gdbench"""

from __future__ import annotations

from typing import TYPE_CHECKING

from absl import flags

import winobench
from launch import configuration
from winobench import registry

if TYPE_CHECKING:
    import ml_collections

DEFAULT_CONFIG = "gdbench"

USAGE = """
Scores images against texts with a text-to-image model, task by task: accuracy, 95% interval, chance level, ties.

  python -m launch.eval --config=gdbench                          the embedded model, a few minutes on a laptop
  python -m launch.eval --config=gdbench:full                     the same with 1,000 scenes and 32 samples
  python -m launch.eval --config=gdbench --config.tasks=clevr,clevr_image --config.limit=10
  python -m launch.eval --config=gdbench --config.model=sd21-base --config.dtype=bfloat16
  python -m launch.eval --list_tasks                              what can be asked, and how to get the data

Errors are recorded while they come in; a run that was stopped goes on when the same command is given again.
"""

_WORKDIR = flags.DEFINE_string("workdir", None, "The run's folder; runs/<config>-<model>-<hash> by default.")
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Delete another run's records in --workdir instead of refusing it.")
_LIST_TASKS = flags.DEFINE_bool("list_tasks", False, "List the tasks: what they ask, and how to get their data.")


def main(config: ml_collections.ConfigDict) -> None:
    """Evaluates the config's model on its tasks and prints a table of the results; or lists the tasks."""
    configuration.require(config, configuration.flat(configuration.load(DEFAULT_CONFIG)))
    if _LIST_TASKS.value:
        print(task_listing(config.data_dir))
        return
    # Late, so that --help and --list_tasks answer at once.
    from winobench import parallel
    from winobench.evaluation import evaluate, table

    parallel.one_device_per_core()

    # What is cheap to check comes before the model is loaded.
    registry.model_source(config.model)
    tasks = evaluate.choose_tasks(config.tasks, config.data_dir)
    spec = flags.FLAGS.config or DEFAULT_CONFIG
    results = evaluate.evaluate(
        load_scorer(config),
        tasks,
        _WORKDIR.value or None,
        data_dir=config.data_dir,
        limit=config.limit,
        num_samples=config.sampling.num_samples,
        seed=config.seed,
        timesteps=parse_timesteps(config.sampling.timesteps),
        normalize=config.normalize,
        overwrite=_OVERWRITE.value,
        name=f"{registry.model_label(spec.removesuffix('.py'))}-{registry.model_label(config.model)}",
        config=configuration.plain(config),
    )
    table.print_results(results)
    if config.tasks == evaluate.READY:
        print(_how_to_get_data(config.data_dir), end="")


def load_scorer(config: ml_collections.ConfigDict) -> winobench.DiffusionITM:
    """Loads the model that the config names.

    Raises:
      InputError: the source is no pipeline, or an option is not one of its choices.
    """
    named = config.model in registry.MODELS
    return winobench.DiffusionITM.from_pretrained(
        config.model if named else registry.model_source(config.model),
        config.dtype,
        variant=config.variant,
        revision=config.revision,
        allow_pickle=config.allow_pickle,
        error=config.error,
        target=config.target,
        image_size=config.image_size,
        timestep_range=config.sampling.timestep_range,
        batch_size=config.batch_size,
    )


def parse_timesteps(text: str) -> str | list[int]:
    """The name of a rule as it is, or timesteps with commas as numbers."""
    words = [word.strip() for word in text.split(",")]
    return [int(word) for word in words] if all(word.isdigit() for word in words) else text


def task_listing(data_dir: str | None) -> str:
    """What ``--list_tasks`` prints."""
    lines = []
    for name in winobench.TASKS:
        task = winobench.get_task(name)
        images, texts = map(_counted, task.shape, ("image", "text"))
        chance = ", ".join(f"{metric} {100 * level:.3g}%" for metric, level in task.chance.items())
        lines += [
            f"{name} (version {task.version})",
            f"    {task.description}",
            f"    {images} x {texts}, metric {task.metric} (chance: {chance})",
            f"    data: {task.ready(data_dir) or 'ready'}",
        ]
    return "\n".join(lines)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count != 1 else ''}"


def _how_to_get_data(data_dir: str | None) -> str:
    """A line for each task that could not be evaluated."""
    missing = {name: winobench.get_task(name).ready(data_dir) for name in winobench.TASKS}
    return "".join(f"not evaluated: {name}: {reason}\n" for name, reason in missing.items() if reason is not None)


if __name__ == "__main__":
    configuration.start(main, launcher="eval", default=DEFAULT_CONFIG, usage=USAGE)
