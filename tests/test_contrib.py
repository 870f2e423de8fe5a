"""Contrib packages plug into the core, which names none of them and works without each."""

import json
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from tests import launching
from winobench.base import extensions

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGES = sorted(path.parent.name for path in (ROOT / "winobench" / "contrib").glob("*/__init__.py"))


def test_there_are_some_and_each_plugs_in():
    assert PACKAGES
    groups = [group for name, group in vars(extensions).items() if name.isupper()]
    added = [extensions.added(group).values() for group in groups]
    assert {value.split(".")[2] for values in added for value in values if ".contrib." in value} == {*PACKAGES}


def test_no_file_of_the_core_names_a_contrib_package():
    for folder in ("winobench", "launch", "configs"):
        for path in (ROOT / folder).rglob("*.py"):
            if "contrib" not in path.relative_to(ROOT).parts:
                assert not re.search(r"winobench[./]contrib[./]\w", path.read_text()), path


def test_no_test_of_the_core_names_a_contrib_package():
    for path in (ROOT / "tests").rglob("*.py"):
        if "contrib" not in path.relative_to(ROOT).parts and path != pathlib.Path(__file__):
            names = re.findall(rf"contrib[./](?:{'|'.join(PACKAGES)})\b", path.read_text())
            assert not names or path.name in ("conftest.py", "test_release.py"), path


# What a new process makes of commands: the list of all, and the status of each that is given.
_SEEN = """
import json, sys
from winobench import __main__ as command_line
from winobench.base import extensions

statuses = []
for name in sys.argv[1:]:
    sys.argv[1:] = [name]
    try:
        statuses.append(command_line.main())
    except SystemExit as error:
        statuses.append(error.code)
families = [*extensions.added(extensions.TORCH_FAMILIES)]
print(json.dumps({"usage": command_line.usage(), "statuses": statuses, "families": families}))
"""


@pytest.mark.slow  # collects all tests of the core
def test_the_core_works_without(tmp_path):
    """A missing package takes its own commands and families away. Without all packages, the core is collected."""
    left_out = shutil.ignore_patterns(".git", ".venv*", "runs", "*.egg-info", "_build", "_generated")
    copy = shutil.copytree(ROOT, tmp_path / "copy", ignore=left_out)
    environment = launching.environment() | {"PYTHONPATH": str(copy)}

    def call(*words):
        words = [sys.executable, *words]
        return subprocess.run(words, cwd=copy, env=environment, capture_output=True, text=True)

    for package in PACKAGES:
        folder = copy / "winobench" / "contrib" / package
        hidden = folder.rename(tmp_path / package)
        gone = [name for name, value in extensions.added(extensions.COMMANDS).items() if value.endswith(f".{package}")]
        seen = json.loads(call("-c", _SEEN, *gone).stdout)
        assert "  eval " in seen["usage"]
        assert not [name for name in gone if f"  {name} " in seen["usage"]]
        assert seen["statuses"] == [2] * len(gone)
        families = extensions.added(extensions.TORCH_FAMILIES)
        lost = {name for name, value in families.items() if value.startswith(f"winobench.contrib.{package}.")}
        assert {*seen["families"]} == families.keys() - lost
        hidden.rename(folder)
    # The folder itself stays: without it, an editable installation would find the checkout's.
    for package in PACKAGES:
        shutil.rmtree(copy / "winobench" / "contrib" / package)
    shutil.rmtree(copy / "tests" / "contrib")
    assert call("-m", "winobench", "train", "--help").returncode == 0
    listed = call("-m", "winobench", "eval", "--list_tasks")
    assert "winoground" in listed.stdout
    assert "vismin" not in listed.stdout
    assert not listed.stderr
    collected = call("-m", "pytest", "--collect-only", "-q", "--ignore=tests/benchmarks", "tests")
    assert collected.returncode == 0, collected.stdout[-2000:]
