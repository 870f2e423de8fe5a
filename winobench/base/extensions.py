"""Commands, configs, recipes, tasks and families of diffusers that other packages add to winobench, by entry points.

A package that adds a command or a recipe may have the folders ``launch`` and ``configs``. Their modules become part of
winobench's packages of these names.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import pathlib
from collections.abc import Mapping
from typing import Any

COMMANDS, RECIPES, JUDGEMENTS = "winobench.commands", "winobench.recipes", "winobench.image_judgements"
TASKS, TORCH_FAMILIES = "winobench.tasks", "winobench.torch_families"
"""Groups of entry points. A command's value is its package, a recipe's its module.

`winobench.tasks` describes the values of tasks. The value of a judgement is a function: folder of a run of images ->
image's path in it -> judge -> words. The name of a torch family is a class of diffusers. Its value is a
`winobench.torch_pipelines.families.Family`.
"""


@functools.cache
def added(group: str) -> Mapping[str, str]:
    """Name -> value of the entry points of a group, without packages that are gone."""
    # ``entry_points`` keeps one distribution of a name: an old ``winobench.egg-info`` would hide the installed one.
    entries = [entry for each in importlib.metadata.distributions() for entry in each.entry_points]
    chosen = sorted((entry for entry in entries if entry.group == group), key=lambda entry: entry.name)
    return {entry.name: entry.value for entry in chosen if _is_there(entry.value)}


def load(value: str) -> Any:
    """The module, or the object in it, that an entry point names."""
    module, _, attribute = value.partition(":")
    loaded = importlib.import_module(module)
    return getattr(loaded, attribute) if attribute else loaded


@functools.cache
def folders(name: str) -> tuple[str, ...]:
    """The folders of this name in the packages that add commands or recipes."""
    packages = [*added(COMMANDS).values(), *(module.rpartition(".")[0] for module in added(RECIPES).values())]
    places = [place for package in dict.fromkeys(filter(None, packages)) for place in _places(package)]
    return tuple(str(place / name) for place in places if (place / name).is_dir())


def _places(package: str) -> list[pathlib.Path]:
    spec = importlib.util.find_spec(package)
    return [pathlib.Path(place) for place in (spec and spec.submodule_search_locations) or ()]


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name.partition(":")[0]) is not None
    except Exception:  # a broken package must not take the other commands away
        return False
