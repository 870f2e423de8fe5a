"""Groups of tasks: ``@<skill>`` are those that declare the skill, ``@gdbench`` is Krojer et al.'s benchmark.

A group holds the tasks whose data are ready; those that are asked only when they are named are in none.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from winobench import options
from winobench.errors import InputError
from winobench.tasks.base import SKILLS, Task

MARK = "@"
"""What a group's name begins with."""

GDBENCH = (
    "flickr30k_image",
    "flickr30k_text",
    "winoground",
    "svo_subj",
    "svo_verb",
    "svo_obj",
    "imagecode_static",
    "imagecode",
    "aro_vg_relation",
    "aro_vg_attribution",
    "aro_coco_order",
    "aro_flickr_order",
    "pets_photo_all",
    "clevr",
    "mmbias",
    "genderbias",
)
"""The seven data sets of GDBench and its two of bias (Krojer et al. 2023, Tables 1 and 3), as the tables have them."""

GROUPS = (*SKILLS, "gdbench")


def members(word: str, known: Mapping[str, Task]) -> list[str]:
    """The names of a group's tasks, whether or not their data are there, in the order of ``known``.

    Args:
      word: the group, with its ``@``.
      known: name -> task.

    Raises:
      InputError: there is no such group; the message names near ones.
    """
    group = word.removeprefix(MARK)
    if group not in GROUPS:
        near = difflib.get_close_matches(group, GROUPS, n=1)
        hint = f"did you mean {MARK}{near[0]}? " if near else ""
        choices = ", ".join(MARK + name for name in GROUPS)
        raise InputError(
            f"there is no group of tasks {options.shown(word)}: {hint}the groups are {choices}", code="unknown-name"
        )
    if group == "gdbench":
        return [name for name in GDBENCH if name in known]
    return [name for name, task in known.items() if group in task.skills and not task.when_named]


def ready_members(word: str, known: Mapping[str, Task], data_dir: str | None) -> list[str]:
    """The same of those whose data are there.

    Raises:
      InputError: there is no such group, or no data of any of its tasks.
    """
    names = members(word, known)
    ready = [name for name in names if known[name].ready(data_dir) is None]
    if not ready:
        raise InputError(
            f"no task of {word} has its data yet: prepare one of {', '.join(names)} with"
            f" `python -m launch.prepare --task={names[0]}`",
            code="data-not-ready",
        )
    return ready
