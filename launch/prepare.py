"""Prepares the published data of tasks and training sets: winobench prepare --tasks=winoground --source=DIR"""

from __future__ import annotations

import dataclasses
import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from absl import flags

from winobench.base import near_names, registry
from winobench.base.errors import InputError
from winobench.base.files import user_path

from . import BAD_INPUT, configuration, listing, output
from .overrides import split

if TYPE_CHECKING:
    from winobench.tasks.base import PublishedData, Task
    from winobench.training.coco_captions import TrainingSet

    from . import documents

USAGE = """
Reads the published files of a task or a training set, checks them, and writes them as ArrayRecord files.

  winobench prepare --list                             the data sets: how to get each, its size and its licence
  winobench prepare --list=svo                         one of them: its tasks, and the files that you supply
  winobench prepare --tasks=pets                       download what may be downloaded, and prepare it
  winobench prepare --tasks=svo_subj,svo_verb,svo_obj --allow_partial      what is still on the web, in hours
  winobench prepare --tasks=winoground --source=DIR    from a folder with the published files
  winobench prepare --tasks=@sugarcrepe,@spatial       the tasks of a data set or a group
  winobench prepare --tasks=all                        every task whose files can be had or are there already
  winobench prepare --tasks=flickr30k_text --source=DIR --lists=openclip-vit-h14   candidates by this model
  winobench prepare --tasks=coco_hardneg_train         COCO with hard negatives, for winobench train
  winobench prepare --tasks=captions_hardneg_train --source=DIR --lists=clip-rn50x64   negatives of ours

Without --source, files are looked for in, and downloaded to, <data_dir>/sources/<task>. The same command resumes an
interrupted run. For gated data sets on the Hugging Face hub, log in with `hf auth login` or set HF_TOKEN.
"""

_MAX_PROBLEM_LINES = 20


def main(_: Sequence[str]) -> None:
    """Lists the tasks, or prepares those that are named. Exits with status 2 where one fails."""
    given = flags.FLAGS
    if given.list is not None:
        document = listing.prepared_sets(given.list, given.data_dir)
        print(listing.prepared_text(document, given.list))
        output.print_json(document)
        return
    options: dict[str, Any] = {name: given[name].value for name in ("workers", "allow_partial", "overwrite", "lists")}
    reasons: dict[str, str] = {}
    failed = prepare_tasks(given.tasks, given.source, given.data_dir, reasons=reasons, **options)
    done = [task.name for task in choose_tasks(given.tasks, given.data_dir) if task.name not in failed]
    output.print_json({"prepared": [_document(name, given.data_dir) for name in done], "failed": reasons})
    if failed:
        sys.exit(BAD_INPUT)


def prepare_tasks(
    names: str | None,
    source: str | None = None,
    data_dir: str | None = None,
    *,
    workers: int | None = None,
    allow_partial: bool = False,
    overwrite: bool = False,
    lists: str | None = None,
    reasons: dict[str, str] | None = None,
) -> list[str]:
    """Prepares tasks one after the other, and returns the names of those that failed, which stop no other.

    ``reasons`` gets the error of each.
    """
    from winobench.data import prepared

    tasks = choose_tasks(names, data_dir)
    folder = None if source is None else pathlib.Path(user_path(source))
    if folder is not None and not folder.is_dir():
        raise InputError(
            f"--source={source} is not a folder: name the one that holds the published files.", code="no-such-folder"
        )
    with_lists = None if lists is None else _list_maker(lists, tasks)
    failed = []
    fetched: set[Any] = set()
    for task in tasks:
        try:
            target = prepared.task_folder(task.name, data_dir)
            state = prepared.read_state(target)
            if overwrite or with_lists is not None or (state is not None and state["task_version"] != task.version):
                state = None  # it is made again
            if state is not None and (allow_partial or not state["is_partial"]):
                print(f"{task.name}: is ready, {prepared.describe(state)} in {target}; --overwrite prepares it again")
            else:
                if with_lists is not None:
                    task = with_lists(task, folder or _download(task, data_dir, fetched))
                print(_prepare(task, folder, data_dir, workers, allow_partial, fetched))
        except InputError as error:
            problems, said = getattr(error, "problems", ()), " ".join(str(error).split())
            lines = [f"  {line}" for line in problems[:_MAX_PROBLEM_LINES]]
            if len(problems) > _MAX_PROBLEM_LINES:
                lines.append(f"  and {len(problems) - _MAX_PROBLEM_LINES:,} more")
            print(*lines, f"error: {task.name}: {said}", sep="\n", file=sys.stderr)
            failed.append(task.name)
            if reasons is not None:
                reasons[task.name] = said
    if failed and len(tasks) > 1:
        print(f"{len(failed)} of {len(tasks)} tasks could not be prepared: {', '.join(failed)}", file=sys.stderr)
    return failed


def _document(name: str, data_dir: str | None) -> documents.PreparedSet:
    """What ``--json`` prints about a task or training set that is prepared."""
    from winobench.data import prepared

    folder = prepared.task_folder(name, data_dir)
    state = prepared.read_state(folder) or {}
    return {
        "task": name,
        "folder": str(folder),
        "examples": state["num_examples"],
        "published": state["num_published"],
        "images": state["num_images"],
        "bytes": state["num_bytes"],
        "is_partial": state["is_partial"],
        "left_out": state.get("left_out", {}).get("reasons", {}),
    }


def choose_tasks(names: str | None, data_dir: str | None = None) -> list[Task | TrainingSet]:
    """The tasks and training sets that ``--tasks`` means: ``all``, names, and ``@`` with a data set or a group."""
    from winobench.tasks import DATA_SETS, TASKS, TEXT_TASKS, get_task, groups
    from winobench.training.coco_captions import TRAINING_SETS

    published = {name: task for name, task in TASKS.items() if task.source is not None}
    words = split(names)
    if not words:
        raise InputError(
            "no task is named: give --tasks=NAME, or --tasks=all for all that can be had. winobench prepare --list"
            " shows the data sets, and how to get each.",
            code="nothing-named",
        )
    if words == ["all"]:
        return list(published.values())
    named = [_members(word, published) if word.startswith(groups.MARK) else [word] for word in words]
    words = list(dict.fromkeys(name for members in named for name in members))
    for word in words:
        if word in TEXT_TASKS:
            problem = TEXT_TASKS[word].ready(data_dir)
            way = "its data are ready" if problem is None else problem
            raise InputError(
                f"winobench prepare does not make the data of task {word!r}: {way}", code="nothing-to-prepare"
            )
        if word in DATA_SETS and word not in TASKS:
            members = ", ".join(task.name for task in DATA_SETS[word].tasks)
            raise InputError(
                f"{word!r} is a data set: write --tasks={groups.MARK}{word} for all its tasks, or some of {members}",
                code="unknown-name",
            )
        if word not in TASKS and word not in TRAINING_SETS:
            hint = near_names.did_you_mean(word, [*TASKS, *TRAINING_SETS], "--list lists them.")
            raise InputError(f"task or training set {word!r} is unknown: {hint}", code="unknown-name")
    tasks = [TRAINING_SETS[word] if word in TRAINING_SETS else get_task(word) for word in words]
    for task in tasks:
        _published(task)
    return tasks


def _published(task: Task | TrainingSet) -> PublishedData:
    if task.source is None:
        raise InputError(
            f"task {task.name!r} makes its own data: there is nothing to prepare.", code="nothing-to-prepare"
        )
    return task.source


def _members(word: str, published: Mapping[str, Task]) -> list[str]:
    """The tasks of a data set or of a group."""
    from winobench.tasks import DATA_SETS, groups

    data_set = DATA_SETS.get(word.removeprefix(groups.MARK))
    return [task.name for task in data_set.tasks] if data_set else groups.members(word, published, DATA_SETS)


def _list_maker(
    model: str, tasks: Sequence[Task | TrainingSet]
) -> Callable[[Task | TrainingSet, pathlib.Path], Task | TrainingSet]:
    """Makes a task's lists of candidates or negatives with a model, from the files in a folder."""
    from winobench.scorers import loading
    from winobench.scorers.contrastive import Contrastive

    makers = {}
    for task in tasks:
        maker = _published(task).with_lists
        if maker is None:
            raise InputError(f"task {task.name!r} has no lists of candidates: leave out --lists.", code="no-candidates")
        makers[task.name] = maker
    scorer = loading.load_scorer(model)
    if not isinstance(scorer, Contrastive):
        raise InputError(
            f"--lists={model} is not a contrastive model: name one such as clip-rn50x64 or openclip-vit-h14.",
            code="wrong-kind-of-model",
        )

    def with_lists(task: Task | TrainingSet, folder: pathlib.Path) -> Task | TrainingSet:
        return dataclasses.replace(task, source=makers[task.name](folder, scorer, registry.model_label(model)))

    return with_lists


def _prepare(
    task: Task | TrainingSet,
    source: pathlib.Path | None,
    data_dir: str | None,
    workers: int | None,
    allow_partial: bool,
    fetched: set[Any],
) -> str:
    """Prepares a task or training set. Returns lines about it and the examples that it lacks."""
    from winobench.base.progress import Progress
    from winobench.data import prepared, preparing, sources

    folder, published = prepared.task_folder(task.name, data_dir), _published(task)
    root = _download(task, data_dir, fetched) if source is None else source
    read = (published.read_partial if allow_partial else None) or published.read
    try:
        with Progress(f"preparing {task.name}", "images") as progress:
            state = preparing.prepare(
                folder,
                read(root),
                task=task.name,
                task_version=task.version,
                root=root,
                num_published=published.num_examples,
                allow_partial=allow_partial,
                workers=workers,
                on_start=progress.start,
                on_progress=progress.advance,
                note=progress.say,
            )
    except sources.SourceError as error:
        error.args = (f"{error}; {root} must hold {published.how_to_get}",)
        raise
    line = f"{task.name}: {prepared.describe(state)} in {folder}"
    line += "" if source is not None else f"; {root} is not needed any more"
    return "\n  ".join([line, *prepared.describe_left_out(state)])


def _download(task: Task | TrainingSet, data_dir: str | None, fetched: set[Any]) -> pathlib.Path:
    """Downloads what may be downloaded of a task, and returns the folder where it is."""
    from winobench.base.progress import Progress
    from winobench.data import downloads, prepared

    published = _published(task)
    root = prepared.data_folder(data_dir) / "sources" / (published.shared_folder or task.name)
    if not published.downloads and published.fetch is None and not (root.is_dir() and any(root.iterdir())):
        raise InputError(
            f"its files cannot be downloaded: make the folder {root}, or name another one with --source=DIR, that holds"
            f" {published.how_to_get}, and give the same command again",
            code="cannot-download",
        )
    names = _downloads_into(root.name)
    try:
        for file in published.downloads:
            name = file.to + (f" ({file.note})" if file.note else "")
            with Progress(f"downloading {name}", "bytes") as progress:
                downloads.fetch(file, root, progress, others=names)
        if published.fetch is not None and (published.fetch, root) not in fetched:
            print(f"{task.name}: {published.fetch(root, Progress)}")
            fetched.add((published.fetch, root))
    except InputError as error:
        raise InputError(
            f"{error}. Or name with --source=DIR a folder that holds {published.how_to_get}", code=error.code
        ) from error
    return root


def _downloads_into(folder: str) -> set[str]:
    """The files that all tasks download into a folder of sources."""
    from winobench.tasks import TASKS
    from winobench.training.coco_captions import TRAINING_SETS

    tasks: list[Task | TrainingSet] = [*TASKS.values(), *TRAINING_SETS.values()]
    sources = {task.name: task.source for task in tasks if task.source is not None}
    here = (source for name, source in sources.items() if (source.shared_folder or name) == folder)
    return {file.to for source in here for file in source.downloads}


if __name__ == "__main__":
    # Not above: launchers have flags of the same name, and absl has one set of flags for all modules.
    flags.DEFINE_string("tasks", None, "Names of tasks or training sets with commas, or all tasks.")
    flags.DEFINE_alias("task", "tasks")
    flags.DEFINE_string("source", None, "The folder of the published files. For all tasks that are named.")
    flags.DEFINE_string("data_dir", None, "Where prepared data go; $WINOBENCH_DATA or ~/winobench_data by default.")
    flags.DEFINE_integer("workers", None, "Number of processes. One a core by default.", lower_bound=1)
    flags.DEFINE_bool("allow_partial", False, "Prepare the files that exist of an incomplete source.")
    flags.DEFINE_bool("overwrite", False, "Prepare ready data again.")
    flags.DEFINE_string("lists", None, "A contrastive model that makes lists of candidates or negatives again.")
    flags.DEFINE_flag(
        configuration.WordFlag("list", "List the data sets, with =NAME the tasks, the files and the command of one.")
    )
    output.define_json()
    configuration.start_without_config(main, usage=USAGE)
