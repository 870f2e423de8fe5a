"""Lists of data sets, tasks and models: for ``winobench eval --list_tasks``, ``--list_models``, ``prepare --list``.

A list is a document of `launch.documents`, and its text is made of the document.
"""

from __future__ import annotations

import collections
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from winobench.base import near_names, registry
from winobench.base.errors import InputError
from winobench.tasks.base import BY_HAND, GATED, ONE_COMMAND, PARTLY, READY, DataSet, num_questions

from . import layout

if TYPE_CHECKING:
    from . import documents

_STATES = (READY, ONE_COMMAND, GATED, PARTLY, BY_HAND)
_NOTHING = "-"
# More matches than these are a line each.
_MOST_IN_DETAIL = 6

_BY_TORCH = "by_torch"
_KINDS = {
    "diffusion_itm": "Text-to-image models",
    _BY_TORCH: "Text-to-image models by torch under JAX (experimental, needs winobench[torch])",
    "image_likelihood": "Text-to-image models that predict tokens, by likelihood (need winobench[torch])",
    "contrastive": "CLIP and SigLIP",
    "itm_head": "BLIP",
    "vqa_score": "Vision-language models, by VQAScore",
    registry.LANGUAGE_MODEL: "Language models, for --config=winoviz and --config=wscplus",
    registry.HOSTED: "Hosted models and recorded answers",
    registry.PLUGGED_IN: "Of installed packages",
}


def data_sets(word: str = "", data_dir: str | None = None) -> documents.DataSets:
    """The data sets and tasks with a word in their name, groups or description. An empty word means all."""
    from winobench import tasks

    rows = _rows(tasks.data_sets(), data_dir)
    names = [name for row in rows for name in (row["name"], *(task["name"] for task in row["tasks"]))]
    found = [row | {"tasks": kept} for row in rows if (kept := _meant(row, word))]
    return {"data_sets": _some(found, word, names, "task", "--list_tasks")}


def prepared_sets(word: str = "", data_dir: str | None = None) -> documents.DataSets:
    """The data sets and training sets whose data others published. A word is the name of one, or of a task."""
    from winobench import tasks
    from winobench.training import coco_captions

    rows = _rows([each for each in (*tasks.data_sets(), *coco_captions.DATA_SETS) if each.is_prepared], data_dir)
    names = [name for row in rows for name in (row["name"], *(task["name"] for task in row["tasks"]))]
    found = [row for row in rows if not word or word in (row["name"], *(task["name"] for task in row["tasks"]))]
    return {"data_sets": _some(found, word, names, "data set", "--list")}


def _rows(declared: Iterable[DataSet], data_dir: str | None) -> list[dict[str, Any]]:
    """A `documents.DataSetRow` of each data set, the ready ones first."""
    from winobench import tasks
    from winobench.tasks import groups

    of_papers = {name: groups.members(f"{groups.MARK}{name}", tasks.TASKS) for name in groups.OF_PAPERS}
    rows = [
        {
            "name": data_set.name,
            "title": data_set.title,
            "description": data_set.description,
            "state": data_set.state(data_dir),
            "way": data_set.way if data_set.is_prepared else None,
            "questions": data_set.count(data_dir),
            "command": _command(data_set) if data_set.has_command else None,
            "downloads": data_set.downloads if data_set.is_prepared else "",
            "supplies": data_set.supplies,
            "licence": data_set.licences,
            "size": data_set.size,
            "tasks": [_task(task, data_dir, of_papers) for task in data_set.tasks],
        }
        for data_set in declared
    ]
    return sorted(rows, key=lambda row: (_STATES.index(row["state"]), row["name"]))


def _command(data_set: DataSet) -> str:
    return f"winobench prepare --tasks={data_set.word}{' --source=DIR' if data_set.supplies else ''}"


def _task(task: Any, data_dir: str | None, of_papers: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """A `documents.TaskRow` of a task or a training set."""
    from winobench.data import prepared
    from winobench.tasks import groups

    problem, source = task.ready(data_dir), getattr(task, "source", None)
    folder = prepared.task_folder(task.name, data_dir)
    state = prepared.read_state(folder) if source is not None and problem is None else None
    here = READY if state is None else f"{READY}, {prepared.describe(state)} in {folder}"
    images, texts = getattr(task, "shape", (None, None))
    named = [*getattr(task, "skills", ()), *(name for name, members in of_papers.items() if task.name in members)]
    return {
        "name": task.name,
        "version": task.version,
        "description": task.description,
        "ready": problem is None,
        "prepared": source is not None and prepared.has_state(folder),
        "data": here if problem is None else problem,
        "questions": num_questions(task, data_dir),
        "only_by_name": getattr(task, "when_named", False),
        "groups": [groups.MARK + name for name in named],
        "images": images,
        "texts": texts,
        "metric": getattr(task, "metric", None),
        "chance": {name: level for name, level in getattr(task, "chance", {}).items() if level is not None},
        **{field: getattr(task, field, None) for field in ("paper", "licence", "url")},
        "files": None if source is None else source.how_to_get,
        "downloads": [{"file": file.to, "note": file.note} for file in getattr(source, "downloads", ())],
        "protocols": [
            {"name": protocol.name, "kind": protocol.kind, "description": protocol.description}
            for protocol in getattr(task, "protocols", {}).values()
        ],
    }


def _meant(row: Mapping[str, Any], word: str) -> list[dict[str, Any]]:
    """The tasks of a data set that a word means: those that have it, or all where the data set has it."""
    wanted = word.strip().casefold()
    if wanted in (row["name"], f"@{row['name']}") or wanted in f"{row['title']} {row['description']}".casefold():
        return row["tasks"]
    return [
        task
        for task in row["tasks"]
        if wanted in " ".join([task["name"], task["description"], *task["groups"]]).casefold()
    ]


def _some(rows: list[Any], word: str, names: Sequence[str], noun: str, flag: str) -> list[Any]:
    """The rows, of which there must be any. Those that the word names alone are all that it means."""
    if not rows:
        hint = near_names.did_you_mean(word, names, f"{flag} alone lists all.")
        raise InputError(f"no {noun} has {word!r:.80} in its name, group or description: {hint}", code="unknown-name")
    exact = [row for row in rows if row["name"] == word.removeprefix("@")]
    return exact or rows


def tasks_text(document: documents.DataSets, word: str = "") -> str:
    """A row for each data set. With a word, a row for each task that it means, or all about a few."""
    rows = document["data_sets"]
    tasks = [task for row in rows for task in row["tasks"]]
    if not word:
        lines = layout.table(
            ("data set", "questions", "state", "questions about"),
            [(row["name"], _number(row["questions"]), row["state"], row["description"]) for row in rows],
            right=(1,),
        )
        return "\n".join([*lines, "", *_about_tasks(tasks, rows)])
    named = [task for task in tasks if task["name"] == word]
    lines = []
    if len(rows) == 1 and rows[0]["name"] == word.removeprefix("@") and len(tasks) > 1:
        lines += [*_about_data_set(rows[0]), *_task_lines(rows[0]), ""]
    elif named or len(tasks) <= _MOST_IN_DETAIL:
        named = named or tasks
    for task in named:
        lines += [*_about_task(task), ""]
    if not lines:
        for row in rows:
            lines += [f"{row['title']} ({row['state']})", *_task_lines(row), ""]
    ready = sum(task["ready"] for task in tasks)
    return "\n".join([*lines, f"{_counted(len(tasks), 'task')}: {ready} ready"])


def _about_tasks(tasks: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The lines below the table of all data sets."""
    from winobench.tasks import groups

    about_images = [task["ready"] for task in tasks if task["images"] is not None]
    others = [task["ready"] for task in tasks if task["images"] is None]
    marks = ", ".join(groups.MARK + name for name in groups.GROUPS)
    return [
        line
        for sentence in (
            f"{len(tasks)} tasks in {len(rows)} data sets: {len(about_images)} about images ({sum(about_images)}"
            f" ready), {len(others)} about texts alone ({sum(others)} ready).",
            "--list_tasks=NAME shows the tasks of a data set and how to get them. --list_tasks=WORD shows the tasks"
            " that have a word in their name, group or description.",
            f"`winobench prepare --tasks=@NAME` gets data sets with {ONE_COMMAND!r}, and with {GATED!r} once you have"
            f" accepted the terms on the hub. For {PARTLY!r} and {BY_HAND!r} you supply files.",
            f"--tasks=@NAME takes a data set or a group: {marks}.",
        )
        for line in layout.wrapped(sentence, 0)
    ]


def prepared_text(document: documents.DataSets, word: str = "") -> str:
    """A row for each data set that is prepared, or all about one."""
    rows = document["data_sets"]
    if word:
        return "\n".join(line for row in rows for line in (*_about_data_set(row), *_files(row)))
    lines = layout.table(
        ("data set", "how", "size", "licence"),
        [(row["name"], _how(row), row["size"] or _NOTHING, row["licence"] or _NOTHING) for row in rows],
    )
    counts = collections.Counter(_how(row) for row in rows)
    said = ", ".join(f"{counts[how]} {how}" for how in _STATES if counts[how])
    return "\n".join(
        [
            *lines,
            "",
            f"{len(rows)} data sets: {said}.",
            *layout.wrapped("--list=NAME shows one: its tasks, its command, and the files that you supply.", 0),
            *layout.wrapped("`winobench prepare --tasks=@NAME` prepares one, --tasks=all what can be had.", 0),
        ]
    )


def _how(row: Mapping[str, Any]) -> str:
    """Ready, or the way to get the data."""
    return READY if row["state"] == READY and any(task["prepared"] for task in row["tasks"]) else row["way"]


def _about_data_set(row: Mapping[str, Any]) -> list[str]:
    lines = [f"{row['name']} ({row['state']})"]
    paper, url = (", ".join(dict.fromkeys(filter(None, (t[of] for t in row["tasks"])))) for of in ("paper", "url"))
    about = {
        "": f"{row['title']}: {row['description']}",
        "paper": paper,
        "page": url,
        "licence": row["licence"],
        "size": row["size"],
        "winobench downloads": row["downloads"],
        "you supply": row["supplies"],
        "command": "" if _how(row) == READY else row["command"] or "",
    }
    for field, text in about.items():
        if text:
            lines += layout.wrapped(f"{field}: {text}" if field else text, 4)
    return lines


def _files(row: Mapping[str, Any]) -> list[str]:
    """The state of each task, and once for all tasks with the same files what the user's folder must hold."""
    lines, of_files = [], collections.defaultdict(list)
    for task in row["tasks"]:
        if task["ready"] or task["prepared"] or task["files"] is None:
            lines += layout.wrapped(f"{task['name']}: {task['data']}", 4)
        else:
            of_files[task["files"]].append(task["name"])
    for files, names in of_files.items():
        lines += layout.wrapped(f"for {', '.join(names)}, DIR holds {files}", 4)
    return lines


def _task_lines(row: Mapping[str, Any]) -> list[str]:
    """A line for each task of a data set, without the name of the data set."""
    title = f"{row['title']}: "
    shown = [
        (f"  {task['name']}", _number(task["questions"]), task["description"].removeprefix(title))
        for task in row["tasks"]
    ]
    return layout.table(("  task", "questions", "question"), shown, right=(1,))


def _about_task(task: Mapping[str, Any]) -> list[str]:
    """All about a task: its description, its numbers, and how to get its data."""
    lines = [task["description"]]
    if task["images"] is not None:
        sides = f"{_counted(task['images'], 'image')} x {_counted(task['texts'], 'text')}"
        lines.append(f"{sides}, metric {task['metric']}")
    if chance := ", ".join(f"{name} {100 * level:.3g}%" for name, level in task["chance"].items()):
        lines.append(f"chance: {chance}")
    if task["groups"]:
        lines.append(f"groups: {', '.join(task['groups'])}")
    if task["only_by_name"]:
        lines.append("runs only by name: --tasks=ready leaves it out")
    lines += [f"{field}: {task[field]}" for field in ("paper", "licence", "url") if task[field]]
    lines.append(f"data: {task['data']}")
    if task["data"] == READY and task["questions"] is not None:
        lines[-1] += f", {task['questions']:,} questions"
    for file in task["downloads"]:
        lines.append(f"download: {file['file']}" + (f" ({file['note']})" if file["note"] else ""))
    shown = [f"{task['name']} (version {task['version']})"]
    shown += [part for line in lines for part in layout.wrapped(line, 4)]
    if task["protocols"]:
        shown.append("    protocols:")
        rows = [(f"      {row['name']}", f"{row['description']} ({row['kind']})") for row in task["protocols"]]
        shown += layout.table((), rows)
    return shown


def models(word: str = "") -> documents.Models:
    """The models whose name, kind, description or hub id have a word in them, all if that is empty."""
    rows = []
    for known in (registry.MODELS, registry.LANGUAGE_MODELS):
        for name, model in known.items():
            is_gated = "gated" in model.description.lower()
            description = re.sub(r"(?i)[.,]? \(?gated\)?|, VQAScore", "", model.description)
            state = READY if os.path.isdir(model.source) else GATED if is_gated else "on hub"
            kind = _BY_TORCH if model.options == registry.BY_TORCH else model.scorer
            rows.append(_model(name, description, state, kind, model.source))
    for name, api in registry.apis().items():
        state = READY if os.environ.get(api.key_variable) else "needs a key"
        rows.append(_model(f"{name}:MODEL", api.description, state, registry.HOSTED, f"key: {api.key_variable}"))
    said = "a CSV file of recorded answers"
    rows.append(_model(f"{registry.RECORDED}:FILE.csv", said, "needs a file", registry.HOSTED, ""))
    for name, point in registry.plugged_in().items():
        said = registry.entry_point(point)
        rows.append(_model(name, f"plugged in ({point.value})", READY, registry.PLUGGED_IN, said))
    wanted = word.strip().casefold()
    matching = [row for row in rows if wanted in " ".join([*row.values(), _KINDS[row["kind"]]]).casefold()]
    return {"models": _some(matching, word, [row["name"] for row in rows], "model", "--list_models")}


def _model(name: str, description: str, state: str, kind: str, source: str) -> dict[str, str]:
    return {"name": name, "description": description, "state": state, "kind": kind, "source": source}


def models_text(document: documents.Models, word: str = "") -> str:
    """A line for each model, by kind, or all about a few."""
    rows = document["models"]
    lines: list[str] = []
    if word and len(rows) <= _MOST_IN_DETAIL:
        for row in rows:
            lines += [f"{row['name']} ({row['state']})"]
            lines += [*layout.wrapped(row["description"], 4), *layout.wrapped(row["source"], 4), ""]
    else:
        for kind, title in _KINDS.items():
            if members := [row for row in rows if row["kind"] == kind]:
                shown = [(f"  {row['name']}", row["state"], row["description"]) for row in members]
                lines += [*layout.wrapped(title, 0), *layout.table((), shown), ""]
    counts = collections.Counter(row["state"] for row in rows)
    said = ", ".join(f"{counts[s]} {s if counts[s] == 1 else s.replace('needs', 'need')}" for s in _ready_first(counts))
    lines.append(f"{_counted(len(rows), 'model')}: {said}")
    advice = (
        "Models on the hub are downloaded when they are first used. Gated ones need an account that has accepted their"
        " terms: `hf auth login`. A folder or a hub id (owner/name) is a model's name, too.",
        "--list_models=WORD shows some: a part of a name, a kind or a description. For few models it names the source.",
    )
    for sentence in () if word else advice:
        lines += layout.wrapped(sentence, 0)
    return "\n".join(lines)


def _ready_first(states: Iterable[str]) -> list[str]:
    return sorted(states, key=lambda state: state != READY)


def _number(count: int | None) -> str:
    return _NOTHING if count is None else f"{count:,}"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' if count != 1 else ''}"
