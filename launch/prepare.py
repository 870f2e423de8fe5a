"""Prepares the published data of tasks: python -m launch.prepare --task=winoground --source=DIR"""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from absl import flags

from launch import configuration
from winobench.errors import InputError

if TYPE_CHECKING:
    from winobench.tasks.base import Task

USAGE = """
Reads the published files of a task, checks them, and writes them as ArrayRecord files that evaluations read.

  python -m launch.prepare --list                             the tasks, what is ready, and how to get the rest
  python -m launch.prepare --task=pets                        download what may be downloaded, and prepare it
  python -m launch.prepare --task=svo_subj,svo_verb,svo_obj --source=DIR
  python -m launch.prepare --task=all                         every task whose files can be had or are there already

Without --source, files are looked for in, and downloaded to, <data_dir>/sources/<task>. A run that was stopped goes on
when the same command is given again. For gated data sets on the Hugging Face hub, log in with `hf auth login` or set
HF_TOKEN.
"""

ALL = "all"

_MAX_PROBLEM_LINES = 20
_BAD_INPUT = 2

_TASK = flags.DEFINE_string("task", None, "Names of tasks with commas, or all.")
_SOURCE = flags.DEFINE_string("source", None, "The folder of the published files; for all tasks that are named.")
_DATA_DIR = flags.DEFINE_string(
    "data_dir", None, "Where prepared data go; $WINOBENCH_DATA, or ~/winobench_data, by default."
)
_WORKERS = flags.DEFINE_integer("workers", None, "Number of processes; one a core by default.", lower_bound=1)
_ALLOW_PARTIAL = flags.DEFINE_bool("allow_partial", False, "Prepare what is there of an incomplete source.")
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Prepare anew what is ready.")
_LIST = flags.DEFINE_bool("list", False, "List the tasks: what is ready, and how to get the rest.")


def main(_: Sequence[str]) -> None:
    """Prepares the tasks that are named, one after the other; exits with status 2 where one fails."""
    if _LIST.value:
        print(listing(_DATA_DIR.value))
        return
    tasks = choose_tasks(_TASK.value)
    source = None
    if _SOURCE.value is not None:
        source = pathlib.Path(_SOURCE.value).expanduser()
        if not source.is_dir():
            raise InputError(f"--source={_SOURCE.value} is no folder: name the one that holds the published files.")
    failed = []
    for task in tasks:
        try:
            print(prepare_task(task, source))
        except InputError as error:
            _print_problems(getattr(error, "problems", ()))
            print(f"error: {task.name}: {' '.join(str(error).split())}", file=sys.stderr)
            failed.append(task.name)
    if failed:
        if len(tasks) > 1:
            print(f"{len(failed)} of {len(tasks)} tasks could not be prepared: {', '.join(failed)}", file=sys.stderr)
        sys.exit(_BAD_INPUT)


def choose_tasks(names: str | None) -> list[Task]:
    """The tasks that ``--task`` means.

    Raises:
      InputError: no task, an unknown one, or one that makes its own data.
    """
    from winobench.tasks import TASKS, get_task

    published = [task for task in TASKS.values() if task.source is not None]
    words = list(dict.fromkeys(word.strip() for word in (names or "").split(",") if word.strip()))
    if not words:
        choices = ", ".join(task.name for task in published)
        raise InputError(f"no task is named: give --task=NAME with one of {choices}, or --task={ALL}.")
    if words == [ALL]:
        return published
    tasks = [get_task(word) for word in words]
    for task in tasks:
        if task.source is None:
            raise InputError(f"task {task.name!r} makes its own data: there is nothing to prepare.")
    return tasks


def prepare_task(task: Task, source: pathlib.Path | None) -> str:
    """Prepares a task and returns a line about it.

    Args:
      task: has a ``source``.
      source: the folder of its published files; None to download them, as far as that is allowed.

    Raises:
      InputError: the files are missing, incomplete or wrong; says what to get where.
    """
    from winobench.data import prepared, preparing
    from winobench.data.progress import Progress

    folder = prepared.task_folder(task.name, _DATA_DIR.value)
    state = prepared.read_state(folder)
    is_current = state is not None and state["task_version"] == task.version
    if is_current and not _OVERWRITE.value and (_ALLOW_PARTIAL.value or not state["is_partial"]):
        return f"{task.name}: is ready, {prepared.describe(state)} in {folder}; --overwrite prepares it anew"
    root = download(task) if source is None else source
    try:
        with Progress(f"preparing {task.name}", "images") as progress:
            state = preparing.prepare(
                folder,
                task.source.read(root),
                task=task.name,
                task_version=task.version,
                root=root,
                num_published=task.source.num_examples,
                allow_partial=_ALLOW_PARTIAL.value,
                workers=_WORKERS.value,
                on_start=progress.start,
                on_progress=progress.advance,
                note=progress.say,
            )
    except InputError as error:
        if source is None:
            error.args = (f"{error}; {root} must hold {task.source.how_to_get}",)
        raise
    line = f"{task.name}: {prepared.describe(state)} in {folder}"
    return line if source is not None else f"{line}; {root} is not needed any more"


def download(task: Task) -> pathlib.Path:
    """Downloads what may be downloaded of a task, and returns the folder where it is.

    Raises:
      InputError: nothing is there and nothing may be downloaded, or a download fails; says what to get where.
    """
    from winobench.data import downloads, prepared
    from winobench.data.progress import Progress

    published = task.source
    root = prepared.data_folder(_DATA_DIR.value) / "sources" / (published.shared_folder or task.name)
    if not published.downloads and not (root.is_dir() and any(root.iterdir())):
        raise InputError(
            f"its files cannot be downloaded: make the folder {root}, or name another one with --source=DIR, that holds"
            f" {published.how_to_get}, and give the same command again"
        )
    for file in published.downloads:
        name = file.to + (f" ({file.note})" if file.note else "")
        try:
            with Progress(f"downloading {name}", "bytes") as progress:
                downloads.fetch(file, root, progress)
        except InputError as error:
            raise InputError(
                f"{error}; or name with --source=DIR a folder that holds {published.how_to_get}"
            ) from error
    return root


def listing(data_dir: str | None) -> str:
    """What ``--list`` prints."""
    from winobench.data import prepared
    from winobench.tasks import TASKS

    lines = []
    for task in TASKS.values():
        problem = task.ready(data_dir)
        if task.source is None:
            what = "makes its own data"
        elif problem is not None:
            what = problem
        else:
            folder = prepared.task_folder(task.name, data_dir)
            state = prepared.read_state(folder)
            what = "makes its own data" if state is None else f"ready, {prepared.describe(state)} in {folder}"
        lines += [task.name, f"    {what}"]
    return "\n".join(lines)


def _print_problems(problems: Sequence[str]) -> None:
    for line in problems[:_MAX_PROBLEM_LINES]:
        print(f"  {line}", file=sys.stderr)
    if len(problems) > _MAX_PROBLEM_LINES:
        print(f"  and {len(problems) - _MAX_PROBLEM_LINES:,} more", file=sys.stderr)


if __name__ == "__main__":
    configuration.start_without_config(main, usage=USAGE)
