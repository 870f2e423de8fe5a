"""Edits the images of tasks towards their texts; what launch.generate does where the config has a method of editing."""

from __future__ import annotations

import pathlib
import shlex
from typing import TYPE_CHECKING, Any

from launch import configuration
from winobench.base import registry
from winobench.base.errors import InputError
from winobench.base.files import digest, user_path

if TYPE_CHECKING:
    import ml_collections

_EXAMPLE = "edit"


def main(config: ml_collections.ConfigDict, *, spec: str, workdir: str | None, overwrite: bool) -> None:
    """Edits what is missing, prints how often the smallest edit is the right one, and draws the figure.

    Args:
      config: of the form of ``configs/edit.py``.
      spec: what the config is called. Begins the default folder's name.
      workdir: the run's folder. One inside for each strength where there are several.
      overwrite: see `winobench.evaluate`.

    Raises:
      InputError: a name is unknown, or something of the config cannot be.
    """
    configuration.require(config, configuration.flat(configuration.load(_EXAMPLE)))
    if "," in config.model:
        raise InputError(f"--config.model={config.model} names several models: edit with one at a time")
    from winobench import parallel
    from winobench.base import caches
    from winobench.editing import figure
    from winobench.evaluation import evaluate
    from winobench.generation import loading
    from winobench.report import table

    caches.keep_compiled()
    parallel.one_device_per_core()
    tasks = evaluate.choose_tasks(config.tasks, config.data_dir)
    (drawer,) = loading.make_drawers(
        [config.model],
        [config.lora],
        dtype=config.dtype,
        variant=config.variant,
        revision=config.revision,
        allow_pickle=config.allow_pickle,
        lora_scale=config.lora_scale,
    )
    pipeline, runs = drawer.load(), []
    for strength in config.strengths if config.method == "denoise" else (None,):
        folder = _folder(config, spec, drawer.label, workdir, strength)
        if strength is not None:
            print(f"strength {strength:g}", flush=True)
        results = evaluate.evaluate(
            _editor(config, pipeline, folder, strength),
            tasks,
            folder,
            data_dir=config.data_dir,
            limit=config.limit,
            overwrite=overwrite,
            model=drawer.name,
            config=configuration.plain(config),
        )
        table.print_results(results)
        drawn = figure.draw(folder)
        if drawn is not None:
            print(f"before and after: {drawn}")
        runs.append(results["workdir"])
    print(f"the gallery of a report shows the edits: python -m launch.report {shlex.join(map(str, runs))}")


def _editor(config: ml_collections.ConfigDict, pipeline: Any, folder: pathlib.Path, strength: float | None) -> Any:
    from winobench.editing import EditDistance

    of_method = {"learning_rate": config.learning_rate, "timesteps": config.timesteps}
    if strength is not None:
        of_method = {"strength": strength, "guidance_scale": config.guidance_scale}
    return EditDistance(
        pipeline,
        folder,
        method=config.method,
        num_steps=config.num_steps,
        seed=config.seed,
        batch_size=config.batch_size,
        image_size=config.image_size,
        **of_method,
    )


def _folder(
    config: ml_collections.ConfigDict, spec: str, label: str, workdir: str | None, strength: float | None
) -> pathlib.Path:
    part = "" if strength is None or len(config.strengths) == 1 else f"strength-{strength:g}"
    if workdir:
        return pathlib.Path(user_path(workdir), part)
    settled = {name: value for name, value in configuration.plain(config).items() if name not in ("batch_size",)}
    name = f"{registry.model_label(spec)}-{label}-{digest([settled, strength])[:8]}"
    return pathlib.Path("runs", f"{name}-{part}" if part else name)
