"""Chooses the protocols of tasks that a config names and a model can answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from winobench.base import near_names
from winobench.base.errors import InputError
from winobench.runs.requests import KINDS
from winobench.tasks.questions import Protocol, TextTask

ALL = "all"
"""Instead of protocols: every one that the model can answer."""

_IN_RECORDS = {"image_match": "picture_match"}  # the second name is in the records of runs


class Available(NamedTuple):
    """Parts of a run next to the questions' texts: images of them, and a model that captions the images."""

    images: bool = False
    captions: bool = False


NOTHING = Available()


def resolve(
    tasks: Sequence[TextTask], wanted: str | None, kinds: frozenset[str], has: Available = NOTHING
) -> list[tuple[str | None, dict[str, Protocol]]]:
    """(name, task -> protocol) of each protocol that a config means. The name None means each task's first one."""
    return [
        (name, {task.name: choose(task, name, kinds, has) for task in tasks})
        for name in names(wanted, tasks, kinds, has)
    ]


def names(
    text: str | None, tasks: Sequence[TextTask], kinds: frozenset[str], has: Available = NOTHING
) -> list[str | None]:
    """The protocols that a config means; None means each task's first one that the model can answer."""
    if text is None:
        return [None]
    if text != ALL:
        wanted = [name.strip() for name in text.split(",") if name.strip()]
        return list(dict.fromkeys(_IN_RECORDS.get(name, name) for name in wanted)) or [text]
    able: list[str | None] = [
        name
        for name in tasks[0].protocols
        if all(name in task.protocols and _is_usual(task.protocols[name], kinds, has) for task in tasks)
    ]
    return able or [None]  # which is then refused with the reason


def choose(task: TextTask, name: str | None, kinds: frozenset[str], has: Available = NOTHING) -> Protocol:
    """A task's protocol of a name, or its first one that a model can answer."""
    if name is not None and name not in task.protocols:
        hint = near_names.did_you_mean(name, task.protocols, f"it has {', '.join(task.protocols)}.")
        raise InputError(f"task {task.name!r} has no protocol {name!r}: {hint}", code="unknown-name")
    does = " and ".join(kind for kind in KINDS if kind in kinds)
    meant = [protocol for protocol in task.protocols.values() if bool(protocol.needs) == has.images]
    able = [protocol for protocol in meant if protocol.kind in kinds]
    if not able and (name is None or task.protocols[name].kind not in kinds):
        about = " about images" if has.images else ""
        needed = ", ".join(dict.fromkeys(protocol.kind for protocol in meant)) or "images of nothing"
        raise InputError(
            f"the model can answer none of the protocols{about} of task {task.name!r}: it does {does}, and they need"
            f" {needed}.",
            code="kind-not-answered",
        )
    usual = [protocol for protocol in able if _is_usual(protocol, kinds, has)] or able
    chosen = usual[0] if name is None else task.protocols[name]
    if chosen.kind not in kinds:
        raise InputError(
            f"protocol {chosen.name!r} asks for {chosen.kind}, and the model does {does}: for task {task.name!r} it can"
            f" do {', '.join(protocol.name for protocol in able)}.",
            code="kind-not-answered",
        )
    if chosen.needs and not has.images:
        raise InputError(
            f"protocol {chosen.name!r} is about images: name them (--images=FOLDER), or the model that"
            " generates them (--generator=sd15)",
            code="no-pictures",
        )
    if chosen.needs == "captions" and not has.captions:
        raise InputError(
            f"protocol {chosen.name!r} needs captions of the images: name a model that writes them"
            " (--captioner=blip2-flan-t5-xl)",
            code="no-captioner",
        )
    return chosen


def _is_usual(protocol: Protocol, kinds: frozenset[str], has: Available) -> bool:
    """Whether a config without a protocol's name may mean this protocol."""
    fits = protocol.kind in kinds and bool(protocol.needs) == has.images
    return fits and (has.captions or protocol.needs != "captions")
