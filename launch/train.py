"""Trains a model: winobench train --config=hardneg"""

from __future__ import annotations

import pathlib
from typing import Any

from absl import flags

from winobench.base import options, trackers
from winobench.base.errors import InputError
from winobench.base.files import user_path

from . import configuration

USAGE = """
Trains a model and exports it. The same command resumes an interrupted run.

Fine-tuning with hard negatives, by LoRA:

  winobench train --config=hardneg                         the embedded model, minutes on two CPU cores
  winobench train --config=hardneg --loss.kind=hard_text
  winobench train --config=hardneg:paper                   Stable Diffusion 2.1-base on COCO, as the paper
  winobench train --config=hardneg --help                  all that can be chosen
  winobench train --config=hardneg --max_minutes=60        stop after an hour, with a checkpoint and an export
  winobench train --config=hardneg:paper --processes=auto  on every host of a pod, with a --workdir for all
"""

_WORKDIR = flags.DEFINE_string("workdir", None, "Run folder. Default: runs/<config>-<hash>.")
_NAME = flags.DEFINE_string(
    "name", None, "What experiment trackers call the run. The same command with another name resumes the same run."
)
_MAX_MINUTES = flags.DEFINE_float(
    "max_minutes", None, "Stop training after this time, with a checkpoint and an export.", lower_bound=0.0
)
_PROCESSES = flags.DEFINE_string(
    "processes",
    None,
    "Join a run of several processes that train together and share --workdir: auto (TPU pod, SLURM, Open MPI), or"
    " host:port,count,number.",
)
_LOG = flags.DEFINE_string(
    "log",
    "",
    f"Experiment trackers that follow the run, with commas: {', '.join(trackers.NAMES)}. By default, fine-tuning writes"
    " for TensorBoard.",
)


def main(config: Any) -> None:
    from winobench import parallel
    from winobench.base import memory, progress
    from winobench.training import recipes

    memory.keep_freed()
    progress.say_what_compiles()
    options.number(0, 1e9).or_none().check("--max_minutes", _MAX_MINUTES.value)
    run_name = options.text().or_none().check("--name", _NAME.value or None)
    log = trackers.read(_LOG.value)
    recipe = recipes.load(config.recipe)
    if _PROCESSES.value:
        if recipes.needs_one_process(config.recipe):
            raise InputError(
                f"--processes is not for --config={config.recipe}, which one process trains: leave it out",
                code="option-of-others",
            )
        parallel.one_device_per_core()
        parallel.join_processes(_PROCESSES.value)
    free, values = {"recipe", *recipe.free_fields(config)}, configuration.plain(config)
    name = recipe.default_name(config, flags.FLAGS.config, recipes.digest(values, free=free))
    workdir = pathlib.Path(user_path(_WORKDIR.value or f"runs/{name}"))
    alone = not _PROCESSES.value or parallel.is_main_process()
    with recipes.run_folder(values, workdir, free=free, alone=alone, name=run_name):
        minutes = _MAX_MINUTES.value
        report = recipe.run(config, workdir, max_seconds=None if minutes is None else 60.0 * minutes, log=log)
        if parallel.is_main_process():
            print(report)


if __name__ == "__main__":
    configuration.start(main, launcher="train", default=None, usage=USAGE)
