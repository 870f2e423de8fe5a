"""What other packages add by entry points, and what a bad one cannot do."""

import importlib.metadata
import runpy
import sys
import types

import pytest

from launch import configuration
from tests.expectations import raises
from winobench import __main__ as command_line
from winobench.base import extensions
from winobench.prompts import named_sets
from winobench.report import exports, page
from winobench.rubrics import named_rubrics
from winobench.training import recipes


@pytest.fixture
def install(monkeypatch, tmp_path):
    """Adds entry points (group, name, value). Modules lie in a new folder on the path."""

    def add(*points):
        entries = [importlib.metadata.EntryPoint(name, value, group) for group, name, value in points]
        monkeypatch.setattr(importlib.metadata, "distributions", lambda: [types.SimpleNamespace(entry_points=entries)])
        return tmp_path

    monkeypatch.syspath_prepend(tmp_path)
    cached = (extensions.entries, extensions.added, extensions.folders)
    cached += (command_line.commands, configuration.config_files)
    for function in cached:
        function.cache_clear()
    yield add
    monkeypatch.undo()
    for function in cached:
        function.cache_clear()


def test_a_package_adds_a_command_with_its_description(install):
    folder = install((extensions.COMMANDS, "brighten", "brightness"))
    (folder / "brightness" / "launch").mkdir(parents=True)
    (folder / "brightness" / "__init__.py").touch()
    (folder / "brightness" / "launch" / "brighten.py").write_text('"""Brighten images: winobench brighten RUN"""\n')
    assert extensions.folders("launch") == (str(folder / "brightness" / "launch"),)
    assert command_line.commands()["brighten"] == "brighten images"


def test_broken_and_missing_packages_take_nothing_away(install):
    folder = install(
        (extensions.COMMANDS, "one", "broken.inner"),
        (extensions.COMMANDS, "two", "no_such_package"),
        (extensions.COMMANDS, "three", ""),
        (extensions.RECIPES, "four", "lonely"),
    )
    (folder / "broken").mkdir()
    (folder / "broken" / "__init__.py").write_text("1 / 0\n")
    (folder / "lonely.py").write_text("def run(): ...\n")
    assert command_line.commands() == command_line.OWN_COMMANDS
    assert extensions.added(extensions.RECIPES) == {"four": "lonely"}
    assert extensions.folders("launch") == ()


def test_names_of_winobench_stay_its_own(install, monkeypatch):
    folder = install((extensions.COMMANDS, "eval", "other"), (extensions.RECIPES, "hardneg", "other.hardneg"))
    (folder / "other" / "configs").mkdir(parents=True)
    for name in ("__init__.py", "hardneg.py", "configs/gdbench.py"):
        (folder / "other" / name).touch()
    assert command_line.commands() == command_line.OWN_COMMANDS
    assert recipes.names() == recipes.OWN_RECIPES
    import configs

    own = configuration.config_files()["gdbench"]
    monkeypatch.setattr(configs, "__path__", [*configs.__path__, str(folder / "other" / "configs")])
    configuration.config_files.cache_clear()
    assert configuration.config_files()["gdbench"] == own


def test_parts_of_packages_stand_next_to_winobenchs_own(install):
    added = ((extensions.PROMPTS, "SETS"), (extensions.RUBRICS, "RUBRICS"), (extensions.REPORT_SECTIONS, "section"))
    folder = install(
        *((group, "mine", f"parts_of_others:{value}") for group, value in added),
        *((extensions.EXPORTS, name, "parts_of_others:write") for name in ("csv", "yaml")),
    )
    (folder / "parts_of_others.py").write_text(
        "import dataclasses\n"
        "from winobench.rubrics import geneval2\n"
        "SETS = {'clevr': None, 'other': None}\n"
        "RUBRICS = [dataclasses.replace(geneval2.RUBRICS[0], name=name) for name in ('vqa_score', 'other')]\n"
        "def section(report_data): ...\n"
        "def write(run, path): ...\n"
    )
    sets = runpy.run_path(named_sets.__file__)["NAMED_SETS"]
    assert list(sets)[-1] == "other"
    assert sets["clevr"] is not None
    rubrics = runpy.run_path(named_rubrics.__file__)["RUBRICS"]
    assert list(rubrics)[-2:] == ["other", "vqa_score"]
    assert rubrics["vqa_score"] == named_rubrics.RUBRICS["vqa_score"]
    formats = runpy.run_path(exports.__file__)["FORMATS"]
    assert (formats[0], formats[-1], formats.count("csv")) == ("csv", "yaml", 1)
    assert "section" in [section.__name__ for section in runpy.run_path(page.__file__)["SECTIONS"]]
    (folder / "parts_of_others.py").write_text("1 / 0\n")
    del sys.modules["parts_of_others"]
    with raises("broken-plug-in", "parts_of_others:SETS", "ZeroDivisionError"):
        extensions.loaded(extensions.PROMPTS)
