"""winobench edit: its help, flags of other commands, and runs."""

import numpy as np
import pytest

from launch import prepare
from tests import launching
from tests.launch import test_json
from tests.launch.test_help import check_commands, check_teaches, read_help
from tests.tasks import published_layouts
from winobench.contrib import editing


def test_help_teaches_by_examples():
    text = read_help("edit")
    check_teaches(text, "edit", ["--strengths", "--config=edit:denoise"])
    check_commands([text], 3)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--config=images"], "winobench generate"),
        (["--model=a,b"], "a,b"),
        (["--strengths=0.5,2"], "--strengths"),
    ],
)
def test_a_word_of_another_launcher_is_one_sentence(words, said, tmp_path):
    launching.refuse("launch.edit", *words, named=[said], cwd=tmp_path)
    assert not list(tmp_path.iterdir())


class Editor:
    """In place of `EditDistance`: all edits are of one size."""

    def __init__(self, pipeline, folder, **given):
        self.given = given

    def fingerprint(self):
        return {"scorer": "edit_distance", "scoring_version": 1, **self.given}

    def score(self, images, texts):
        return np.zeros((len(images), len(texts)))


def test_edits_from_the_command_line(tiny_pipeline, tmp_path, monkeypatch):
    """By denoising; the refused command would optimise."""
    made = []
    monkeypatch.setattr(editing, "EditDistance", lambda *words, **given: made.append(given) or Editor(*words, **given))
    source, data = published_layouts.write_winoground(tmp_path / "source"), tmp_path / "data"
    assert not prepare.prepare_tasks("winoground", str(source), str(data), workers=1, allow_partial=True)
    words = [f"--model={tiny_pipeline}", "--limit=1", "--num_steps=2", "--workdir=run"]
    words += ["--tasks=winoground", f"--data_dir={data}"]
    denoise = ["--config=edit:denoise", "--strengths=0.5"]
    for _ in range(2):
        status, out, err = launching.launch("launch.edit", *denoise, *words, cwd=tmp_path)
        assert status == 0, err
        assert "winobench report run" in out
    status, out, err = launching.launch("launch.edit", *denoise, *words, "--json", cwd=tmp_path)
    assert (status, "winobench report run" in err) == (0, True), err
    (edited,) = test_json.validated("evaluations", out)["runs"]
    assert edited["folder"] == "run"
    assert list(edited["results"]["tasks"]) == ["winoground"]
    launching.refuse("launch.edit", *words, named=["--overwrite"], cwd=tmp_path)
    assert [(given["method"], given.get("strength"), given["num_steps"]) for given in made] == [
        *[("denoise", 0.5, 2)] * 3,
        ("optimize", None, 2),
    ]
