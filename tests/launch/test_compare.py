"""winobench compare from the command line."""

import functools
import subprocess
import sys

import pytest

import winobench
from tests import launching
from tests.evaluation import fakes
from tests.report.conftest import Skilled, make_run

launch = functools.partial(launching.launch, "launch.compare")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    chosen = [fakes.text_task("clevr", 8, ("spatial", "recognition_color")), fakes.square_task("square")]
    return [
        make_run(Skilled(0.2), root / "a", chosen=chosen, num_samples=4),
        make_run(Skilled(0.7, weights="1"), root / "b", chosen=chosen, num_samples=4, model="other"),
    ]


def test_the_command_prints_the_comparison_of_python(folders):
    compared = winobench.compare(*folders)
    for format in ("csv", "markdown", "latex"):
        assert launch(*folders, f"--format={format}") == (0, compared.table(format), "")
    assert launch(*folders, "--format=csv", "--groups") == (0, compared.table("csv", groups=True), "")
    some = winobench.compare(*folders, tasks=["square", "clevr"])
    assert launch(*folders, "--format=csv", "--tasks=square,clevr") == (0, some.table("csv"), "")
    status, out, err = launch(*folders)
    assert (status, err, out.startswith(f"A: {compared.first}\nB: {compared.second}\n")) == (0, "", True)
    assert f"only A has right: {sum(flip.first_is_right for flip in compared.flips)}." in out


def test_runs_that_do_not_compare_are_one_sentence(folders):
    launching.refuse("launch.compare", *folders, "--tasks=pets", named=["'pets' is not in both runs"])


@pytest.mark.parametrize("flag", ["--rater=anna", "--finish"])
def test_the_study_with_people_has_a_new_name(flag, tmp_path):
    words = [sys.executable, "-m", "winobench", "compare", "a", "b", flag]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=launching.environment())
    new, error = done.stderr.splitlines()
    assert (done.returncode, new) == (2, "winobench compare with people is now winobench rate")
    assert error.startswith("error: ")
