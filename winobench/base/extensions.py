"""What other packages add to winobench by entry points: commands, configs, recipes, tasks and further parts.

A package that adds a command, a recipe or a table of tasks may have the folders ``launch`` and ``configs``. Their
modules become part of winobench's packages of these names.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import pathlib
from collections.abc import Mapping
from typing import Any

from winobench.base import registry
from winobench.base.errors import InputError

COMMANDS, RECIPES, JUDGEMENTS = "winobench.commands", "winobench.recipes", "winobench.image_judgements"
TASKS, TORCH_FAMILIES = "winobench.tasks", "winobench.torch_families"
REPORT_SECTIONS, EXPORTS = "winobench.report_sections", "winobench.exports"
PROMPTS, RUBRICS = "winobench.prompts", "winobench.rubrics"
RATING_METRICS, PARTS, NAMES = "winobench.rating_metrics", "winobench.parts", "winobench.names"
"""Groups of entry points. A command's value is its package, a recipe's its module.

`winobench.tasks` describes the values of tasks. The value of a judgement is a function: folder of a run of images ->
image's path in it -> judge -> words. The name of a torch family is a class of diffusers. Its value is a
`Family`, as `docs/howto/extend.md` describes. A section of the report is a function as in `winobench.report.page`. The
name of an export is a format, and its value a function: run, path -> the paths of its files. A value of prompts is name
-> `winobench.prompts.prompt_files.NamedSet`, and one of rubrics a sequence of `winobench.rubrics.base.Rubric`.
A rating metric has the name of its `winobench.metrics.ratings.RatingMetric`.
The names of parts are those that winobench's own modules look for by `find`. Names are public names of `winobench`.
"""


@functools.cache
def added(group: str) -> Mapping[str, str]:
    """Name -> value of the entry points of a group, without packages that are gone."""
    chosen = sorted((entry for entry in entries() if entry.group == group), key=lambda entry: entry.name)
    return {entry.name: entry.value for entry in chosen if _is_there(entry.value)}


@functools.cache
def entries() -> tuple[importlib.metadata.EntryPoint, ...]:
    """All entry points of winobench's groups."""
    # ``entry_points`` keeps one distribution of a name: an old ``winobench.egg-info`` would hide the installed one.
    all_entries = (entry for each in importlib.metadata.distributions() for entry in each.entry_points)
    return tuple(entry for entry in all_entries if entry.group.startswith("winobench."))


def load(value: str) -> Any:
    """The module, or the object in it, that an entry point names."""
    module, _, attribute = value.partition(":")
    loaded = importlib.import_module(module)
    return getattr(loaded, attribute) if attribute else loaded


def find(group: str, name: str) -> Any:
    """The object of one entry point.

    Raises:
      InputError: no package has it (``missing-package``), or it cannot be loaded (``broken-plug-in``).
    """
    value = added(group).get(name)
    if value is None:
        raise InputError(
            f"no installed package has the entry point {name!r} of {group}: install winobench again",
            code="missing-package",
        )
    with registry.foreign_code(f"the entry point {name!r} ({value})"):
        return load(value)


def loaded(group: str) -> dict[str, Any]:
    """Name -> object of the entry points of a group, as `find` loads them."""
    return {name: find(group, name) for name in added(group)}


@functools.cache
def folders(name: str) -> tuple[str, ...]:
    """The folders of this name in the packages that add commands, recipes or tables of tasks."""
    packages = [*added(COMMANDS).values(), *(module.rpartition(".")[0] for module in added(RECIPES).values())]
    packages += [value for value in added(TASKS).values() if ":" not in value]
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
