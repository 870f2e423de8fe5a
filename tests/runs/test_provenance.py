"""The commit is the package's own, whatever folder or repository the program runs in."""

import json
import os
import subprocess

import pytest

import winobench
from winobench.runs import provenance


def _git(folder, *arguments):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    identity = ("-c", "user.name=someone", "-c", "user.email=someone@example.org")
    done = subprocess.run(
        ["git", *identity, "-C", str(folder), *arguments], check=True, capture_output=True, text=True, env=environment
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path):
    """A repository with a package, and an environment inside of it into which another package is installed."""
    root = tmp_path / "project"
    package, installed = root / "winobench", root / ".venv" / "lib" / "winobench"
    for folder in (package, installed):
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("")
    (root / ".gitignore").write_text(".venv/\nruns/\n")
    _git(root, "init", "-q")
    _git(root, "add", "winobench", ".gitignore")
    _git(root, "commit", "-q", "-m", "start")
    return root


def test_the_commit_is_that_of_the_packages_repository(repository, tmp_path, monkeypatch):
    other = tmp_path / "other"
    other.mkdir()
    _git(other, "init", "-q")
    monkeypatch.chdir(other)
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    found = {"commit": _git(repository, "rev-parse", "HEAD"), "dirty": False}
    assert provenance.package_commit(repository / "winobench") == found
    # Other files do not make it dirty, and changed and new ones of the package do.
    (repository / "notes.txt").write_text("x")
    (repository / "runs").mkdir()
    (repository / "runs" / "results.json").write_text("{}")
    assert provenance.package_commit(repository / "winobench") == found
    for change in ("winobench/__init__.py", "winobench/new.py"):
        (repository / change).write_text("x = 1")
        assert provenance.package_commit(repository / "winobench")["dirty"] is True
        _git(repository, "add", change)
        _git(repository, "commit", "-q", "-m", "change")
    # Neither an installation inside another project's repository nor a machine without git has one.
    none = {"commit": None, "dirty": None}
    assert provenance.package_commit(repository / ".venv" / "lib" / "winobench") == none
    monkeypatch.setenv("PATH", "/nowhere")
    assert provenance.package_commit(repository / "winobench") == none


def test_an_installation_from_a_repositorys_address_knows_its_commit(tmp_path, monkeypatch):
    package = tmp_path / "winobench"
    package.mkdir()

    class Distribution:
        def locate_file(self, name):
            return tmp_path / name

        def read_text(self, name):
            assert name == "direct_url.json"
            return json.dumps({"url": "https://example.org/x.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}})

    monkeypatch.setattr(provenance.importlib.metadata, "distribution", lambda name: Distribution())
    assert provenance.package_commit(package) == {"commit": "abc", "dirty": None}
    # Another copy of the package, which runs in place of the installed one, has not that commit.
    assert provenance.package_commit(tmp_path / "elsewhere" / "winobench")["commit"] is None


def test_software_and_devices_are_named():
    found = provenance.software()
    assert found["winobench"]["version"] == winobench.__version__
    assert set(found["winobench"]) == {"version", "commit", "dirty"}
    assert {"jax", "numpy", "pillow"} <= set(found["libraries"])
    json.dumps(found)
    devices = provenance.devices()
    assert set(devices) == {"platform", "kind", "count", "processes"}
    assert devices["processes"] == 1
