"""Edit the images of tasks towards their texts: winobench edit --config=edit"""

from __future__ import annotations

import pathlib
import shlex
from typing import TYPE_CHECKING, Any

from absl import flags

from winobench.base.errors import InputError
from winobench.base.files import digest, user_path

from . import configuration, output, text

if TYPE_CHECKING:
    from configs.edit import Settings

DEFAULT_CONFIG = "edit"

USAGE = """
Edits each candidate image of a task towards the text, and reports how often the right image needs the smallest edit
(DiffusionITM, Appendix C, docs/howto/generate_images.md):

  winobench edit                                   by optimisation of the latents, Figure 6
  winobench edit --config=edit:denoise             by noise and denoising, Figure 7: a run for each strength
  winobench edit --tasks=winoground --model=sd15 --limit=20

Distances are recorded like scores. The same command resumes an interrupted run. edits.png in the run's folder shows
images before and after, and winobench report makes a page.
"""

_WORKDIR = flags.DEFINE_string(
    "workdir", None, "The run's folder, with a folder for each strength, runs/<config>-<model>-<hash> by default."
)
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Delete another run's records in --workdir instead of refusing it.")


def main(config: Settings) -> None:
    """Makes the missing edits, prints how often the smallest edit is the right one, and draws the figure."""
    if "," in config.model:
        raise InputError(f"--model={config.model} names several models: edit with one at a time")
    from winobench.evaluation import choice

    tasks = choice.choose_tasks(config.tasks, config.data_dir)
    from winobench import parallel
    from winobench.base import caches
    from winobench.contrib.editing import figure
    from winobench.evaluation import evaluate
    from winobench.generation import loading
    from winobench.report import table

    caches.keep_compiled()
    parallel.one_device_per_core()
    names = ("dtype", "variant", "revision", "allow_pickle", "lora_scale", "embeddings")
    (generator,) = loading.make_generators(
        [config.model], [config.lora], **{name: getattr(config, name) for name in names}
    )
    pipeline, runs = generator.load(), []
    for strength in config.strengths if config.method == "denoise" else (None,):
        folder = _folder(config, generator.label, strength)
        if strength is not None:
            print(f"strength {strength:g}", flush=True)
        results = evaluate.evaluate(
            _editor(config, pipeline, folder, strength),
            tasks,
            folder,
            data_dir=config.data_dir,
            limit=config.limit,
            overwrite=_OVERWRITE.value,
            model=generator.name,
            config=configuration.plain(config),
        )
        table.print_results(results)
        if (drawn := figure.draw(folder)) is not None:
            print(f"before and after: {drawn}")
        runs.append(text.evaluated(generator.name, results))
    folders = [str(run["folder"]) for run in runs]
    print(f"the gallery of a report shows the edits: winobench report {shlex.join(folders)}")
    output.print_json({"runs": runs})


def _editor(config: Settings, pipeline: Any, folder: pathlib.Path, strength: float | None) -> Any:
    from winobench.contrib.editing import EditDistance

    names = ["method", "num_steps", "seed", "batch_size", "image_size"]
    names += ["learning_rate", "timesteps"] if strength is None else ["guidance_scale"]
    given = {name: getattr(config, name) for name in names} | ({} if strength is None else {"strength": strength})
    return EditDistance(pipeline, folder, **given)


def _folder(config: Settings, label: str, strength: float | None) -> pathlib.Path:
    part = "" if strength is None or len(config.strengths) == 1 else f"strength-{strength:g}"
    if _WORKDIR.value:
        return pathlib.Path(user_path(_WORKDIR.value), part)
    settled = {name: value for name, value in configuration.plain(config).items() if name != "batch_size"}
    name = f"{configuration.chosen_name(DEFAULT_CONFIG)}-{label}-{digest([settled, strength])[:8]}"
    return pathlib.Path("runs", f"{name}-{part}" if part else name)


if __name__ == "__main__":
    output.define_json()
    configuration.start(main, launcher="edit", default=DEFAULT_CONFIG, usage=USAGE)
