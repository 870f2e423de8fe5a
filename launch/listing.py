"""Lists of tasks and models for ``winobench eval --list_tasks`` and ``--list_models``: in groups, ready ones first."""

from __future__ import annotations

import collections
import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from winobench.base import near_names, registry
from winobench.base.errors import InputError

from . import layout

READY, NEEDS_DATA = "ready", "needs data"
_OTHERS = "Others"
# What a description begins with: the name of its benchmark.
_TITLE = re.compile(r"([A-Z][\w'+ -]{1,20}?)(?=: |, |'s | \(| in question form)(: )?")
# More matches than these are a line each.
_MOST_IN_DETAIL = 6

_BY_TORCH = "by_torch"
_KINDS = {
    "diffusion_itm": "Text-to-image models",
    _BY_TORCH: "Text-to-image models by torch under JAX (experimental, needs winobench[torch])",
    "contrastive": "CLIP and SigLIP",
    "itm_head": "BLIP",
    "vqa_score": "Vision-language models, by VQAScore",
    registry.LANGUAGE_MODEL: "Language models, for --config=winoviz and --config=wscplus",
    registry.HOSTED: "Hosted models and recorded answers",
    registry.PLUGGED_IN: "Of installed packages",
}


class _Entry(NamedTuple):
    name: str
    description: str
    state: str
    group: str
    words: str  # in which a filter looks
    details: Callable[[], list[str]]


def tasks(word: str = "", data_dir: str | None = None) -> str:
    """The tasks whose name, groups or description have a word in them, all if that is empty."""
    from winobench.tasks import TASKS, TEXT_TASKS, groups

    of_papers = {name: groups.members(f"{groups.MARK}{name}", TASKS) for name in groups.OF_PAPERS}
    every = (*TASKS.values(), *TEXT_TASKS.values())
    benchmarks = _benchmarks(every)
    entries = []
    for task in every:
        named = [*getattr(task, "skills", ()), *(name for name, members in of_papers.items() if task.name in members)]
        marks = [groups.MARK + name for name in named]
        state = READY if task.ready(data_dir) is None else NEEDS_DATA
        words = " ".join([task.name, benchmarks[task.name], task.description, *marks])
        title = None if benchmarks[task.name] == _OTHERS else _TITLE.match(task.description)
        short = task.description[title.end() if title and title[2] else 0 :]
        entries.append(
            _Entry(task.name, short, state, benchmarks[task.name], words, _details_of(task, data_dir, marks))
        )
    matching = _matching(entries, word, "task", "--list_tasks")
    skills = {name: getattr(TASKS.get(name), "skills", ()) for name in benchmarks}
    titles = {
        title: _heading(title, [skills[name] for name in benchmarks if benchmarks[name] == title])
        for title in sorted(dict.fromkeys(benchmarks.values()), key=lambda title: title == _OTHERS)
    }
    marks = ", ".join(groups.MARK + name for name in groups.GROUPS)
    advice = [
        "--list_tasks=WORD shows some: a part of a name or description, or a group. For few tasks it adds"
        " the way to get their data, and the licence.",
        f"Groups: {marks}.",
    ]
    return _listing(matching, word, titles, "tasks", [] if word else advice)


def _benchmarks(tasks: Sequence[Any]) -> dict[str, str]:
    """Name of a task -> its benchmark; "Others" for benchmarks of one task."""
    titles: dict[str, str] = {}
    for task in tasks:
        title = _TITLE.match(task.description)
        titles[task.name] = title[1] if title else task.name.partition("_")[0].upper()
    counts = collections.Counter(titles.values())
    return {name: title if counts[title] > 1 else _OTHERS for name, title in titles.items()}


def _heading(title: str, skills: Iterable[Sequence[str]]) -> str:
    """A benchmark's name, with the groups of its tasks by skill."""
    marks = dict.fromkeys(f"@{skill}" for each in skills for skill in each)
    return title if title == _OTHERS or not marks else f"{title} ({', '.join(marks)})"


def models(word: str = "") -> str:
    """The models whose name, kind, description or hub id have a word in them, all if that is empty."""
    entries = []
    for known in (registry.MODELS, registry.LANGUAGE_MODELS):
        for name, model in known.items():
            is_gated = "gated" in model.description.lower()
            description = re.sub(r"(?i)[.,]? \(?gated\)?|, VQAScore", "", model.description)
            state = READY if os.path.isdir(model.source) else "gated" if is_gated else "on hub"
            kind = _BY_TORCH if registry.is_by_torch(name) else model.scorer
            entries.append(_model(name, description, state, kind, model.source))
    for name, api in registry.apis().items():
        state = READY if os.environ.get(api.key_variable) else "needs a key"
        entries.append(_model(f"{name}:MODEL", api.description, state, registry.HOSTED, f"key: {api.key_variable}"))
    said = "a CSV file of recorded answers"
    entries.append(_model(f"{registry.RECORDED}:FILE.csv", said, "needs a file", registry.HOSTED, ""))
    for name, point in registry.plugged_in().items():
        said = registry.entry_point(point)
        entries.append(_model(name, f"plugged in ({point.value})", READY, registry.PLUGGED_IN, said))
    matching = _matching(entries, word, "model", "--list_models")
    advice = [
        "Models on the hub are downloaded when they are first used. Gated ones need an account that has accepted their"
        " terms: `hf auth login`. A folder or a hub id (owner/name) is a model's name, too.",
        "--list_models=WORD shows some: a part of a name, a kind or a description. For few models it names the source.",
    ]
    return _listing(matching, word, _KINDS, "models", [] if word else advice)


def _model(name: str, description: str, state: str, kind: str, source: str) -> _Entry:
    def details() -> list[str]:
        return [f"{name} ({state})", *layout.wrapped(description, 4), *layout.wrapped(source, 4)]

    words = " ".join([name, description, state, _KINDS[kind], source, kind])
    return _Entry(name, description, state, kind, words, details)


def _matching(entries: Sequence[_Entry], word: str, noun: str, flag: str) -> list[_Entry]:
    wanted = word.strip().casefold()
    found = [entry for entry in entries if wanted in entry.words.casefold()]
    if not found:
        hint = near_names.did_you_mean(word, [entry.name for entry in entries], f"{flag} alone lists all.")
        raise InputError(f"no {noun} has {word!r:.80} in its name, group or description: {hint}", code="unknown-name")
    return found


def _listing(entries: Sequence[_Entry], word: str, titles: dict[str, str], noun: str, advice: Sequence[str]) -> str:
    """All lines. The few entries that a word means are explained, and the one that it names."""
    exact = [entry for entry in entries if entry.name == word]
    explained = exact or (entries if word and len(entries) <= _MOST_IN_DETAIL else [])
    others = [entry for entry in entries if entry not in explained]
    lines: list[str] = []
    for entry in explained:
        lines += [*entry.details(), ""]
    groups = [name for name in titles if any(entry.group == name for entry in others)]
    for name in sorted(groups, key=lambda name: all(entry.state != READY for entry in others if entry.group == name)):
        members = [entry for entry in others if entry.group == name]
        lines += [*layout.wrapped(titles[name], 0), *_lines(members), ""]
    counts = {
        state: sum(entry.state == state for entry in entries) for state in dict.fromkeys(e.state for e in entries)
    }
    counted = ", ".join(
        f"{count} {state if count == 1 else state.replace('needs', 'need')}"
        for state, count in sorted(counts.items(), key=lambda entry_count: entry_count[0] != READY)
    )
    lines.append(f"{len(entries)} {noun if len(entries) > 1 else noun[:-1]}: {counted}")
    for sentence in advice:
        lines += layout.wrapped(sentence, 0)
    return "\n".join(lines)


def _lines(entries: Sequence[_Entry]) -> list[str]:
    """A line for each entry of a group, the ready ones first."""
    name_width, state_width = (max(len(getattr(one, part)) for one in entries) for part in ("name", "state"))
    room = layout.NARROWEST - name_width - state_width - 6
    ordered = sorted(entries, key=lambda entry: entry.state != READY)
    texts = [layout.shortened(one.description, room, whole=one.group == _OTHERS) for one in ordered]
    return [
        f"  {one.name:<{name_width}}  {text:<{room}}  {one.state}" for one, text in zip(ordered, texts, strict=True)
    ]


def _details_of(task: Any, data_dir: str | None, marks: Sequence[str]) -> Callable[[], list[str]]:
    """A function that returns all about a task: its description, its numbers, and how to get its data."""

    def details() -> list[str]:
        lines = [task.description]
        shape = getattr(task, "shape", None)
        if shape is not None:
            images, texts = (_counted(count, noun) for count, noun in zip(shape, ("image", "text"), strict=True))
            lines.append(f"{images} x {texts}, metric {task.metric}")
        if chance := ", ".join(
            f"{name} {100 * level:.3g}%" for name, level in task.chance.items() if level is not None
        ):
            lines.append(f"chance: {chance}")
        if marks:
            lines.append(f"groups: {', '.join(marks)}")
        lines += [f"{field}: {text}" for field in ("paper", "licence", "url") if (text := getattr(task, field))]
        problem, count = task.ready(data_dir), task.count(data_dir)
        number = "" if count is None else f", {count:,} {'questions' if shape is None else 'examples'}"
        lines.append(f"data: {READY}{number}" if problem is None else f"data: {problem}")
        source = getattr(task, "source", None)
        for file in source.downloads if source is not None else ():
            lines.append(f"download: {file.to}{f' ({file.note})' if file.note else ''}")
        shown = [f"{task.name} (version {task.version})", *(part for line in lines for part in layout.wrapped(line, 4))]
        if protocols := getattr(task, "protocols", None):
            shown.append("    protocols:")
            wide = max(map(len, protocols))
            for protocol in protocols.values():
                first, *rest = layout.wrapped(f"{protocol.description} ({protocol.kind})", 8 + wide)
                shown += [f"      {protocol.name:<{wide}}{first[6 + wide :]}", *rest]
        return shown

    return details


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count != 1 else ''}"
