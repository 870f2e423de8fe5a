"""mypy finds no fault in the packages that pyproject.toml lists, nor (--strict) in a program of a user."""

import os
import pathlib
import subprocess
import sys
import tomllib

import pytest

import winobench

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "tests" / "typed_program.py"


def test_the_program_uses_every_public_name():
    source = PROGRAM.read_text()
    assert not [name for name in winobench.__all__ if name not in source]


@pytest.mark.slow  # mypy reads the package and its libraries
def test_a_users_program_passes_mypy(tmp_path):
    pytest.importorskip("mypy")
    config = tmp_path / "mypy.ini"
    (skipped,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["overrides"]
    config.write_text(f"[mypy]\n[mypy-{','.join(skipped['module'])}]\nfollow_imports = {skipped['follow_imports']}\n")
    # Errors within the package are not the user's: type checkers leave out installed packages, too.
    words = ("--strict", "--follow-imports=silent", f"--cache-dir={tmp_path}", "--no-error-summary")
    run = subprocess.run(
        [sys.executable, "-m", "mypy", f"--config-file={config}", *words, str(PROGRAM)],
        env={**os.environ, "MYPYPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (run.returncode, run.stdout) == (0, ""), run.stdout + run.stderr


@pytest.mark.slow  # mypy reads the libraries of the packages
def test_the_listed_packages_pass_mypy(tmp_path):
    pytest.importorskip("mypy")
    words = [sys.executable, "-m", "mypy", f"--cache-dir={tmp_path}", "--no-error-summary"]
    run = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (0, ""), run.stdout + run.stderr
