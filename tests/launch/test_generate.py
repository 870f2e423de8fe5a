"""Where the programs of launch.generate went, and the flags that each of the five takes."""

import shlex

import numpy as np
import pytest

from launch import prepare
from tests import launching
from tests.tasks import newer_layouts
from winobench import editing

NEW = "winobench "


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("--config=pictures --config.seeds=0,1", "draw --config=pictures --config.seeds=0,1"),
        ("--caption 'my photos' --model=qwen3-vl-2b", "caption 'my photos' --model=qwen3-vl-2b"),
        ("--compare RUN_A RUN_B --rater=anna", "compare RUN_A RUN_B --rater=anna"),
        ("--config=edit:denoise", "edit --config=edit:denoise"),
        ("--config.model=openai:a", "write_items --config.model=openai:a"),
        ("--workdir=runs/a --annotate=anna", "write_items --workdir=runs/a --annotate=anna"),
    ],
)
def test_an_old_command_line_prints_the_new_one(old, new, tmp_path):
    launching.refuse("launch.generate", *shlex.split(old), named=[f": {NEW}{new}\n"], cwd=tmp_path)


@pytest.mark.parametrize("words", [[], ["--help"], ["photos"]])
def test_what_names_no_program_prints_all_of_them(words):
    launching.refuse("launch.generate", *words, named=["winobench draw, caption, compare, edit and write_items"])


@pytest.mark.parametrize(
    ("launcher", "words", "said"),
    [
        ("draw", ["--rater=a"], "--rater"),
        ("caption", ["a.png", "--rater=a"], "--rater"),
        ("caption", ["a.png", "--max_tokens=0"], "--max_tokens=0"),
        ("caption", ["a.png", "--dtype=float8"], "--dtype=float8"),
        ("compare", ["a", "b"], "--rater=NAME"),
        ("compare", ["a", "b", "--rater=anna", "--finish"], "--finish"),
        ("compare", ["a", "b", "--rater=anna", "--judge=c"], "--judge"),
        ("edit", ["--config=pictures"], "winobench draw"),
        ("edit", ["--config.model=a,b"], "a,b"),
        ("edit", ["--config.strengths=0.5,2"], "--config.strengths"),
        ("write_items", ["--processes=auto", "--config.model=openai:a"], "--processes"),
    ],
)
def test_a_word_of_another_launcher_is_one_sentence(launcher, words, said, tmp_path):
    launching.refuse(f"launch.{launcher}", *words, named=[said], cwd=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_config_of_before_the_five_launchers_is_taken(tmp_path):
    (tmp_path / "mine.py").write_text("from configs.edit import *\nLAUNCHER = 'generate'\n")
    launching.refuse("launch.generate", "--config=mine.py", named=[f"{NEW}edit --config=mine.py\n"], cwd=tmp_path)
    status, _, err = launching.launch("launch.edit", "--config=mine.py", "--help", cwd=tmp_path)
    assert (status, err) == (0, "")
    launching.refuse("launch.draw", "--config=mine.py", named=["the config has no field"], cwd=tmp_path)


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
    source, data = newer_layouts.WRITERS["cola"](tmp_path / "cola"), tmp_path / "data"
    assert not prepare.prepare_tasks("cola", str(source), str(data), workers=1, allow_partial=True)
    words = [f"--config.model={tiny_pipeline}", "--config.limit=1", "--config.num_steps=2", "--workdir=run"]
    words += ["--config.tasks=cola", f"--config.data_dir={data}"]
    denoise = ["--config=edit:denoise", "--config.strengths=0.5"]
    for _ in range(2):
        status, out, err = launching.launch("launch.edit", *denoise, *words, cwd=tmp_path)
        assert status == 0, err
        assert "winobench report run" in out
    launching.refuse("launch.edit", *words, named=["--overwrite"], cwd=tmp_path)
    assert [(given["method"], given.get("strength"), given["num_steps"]) for given in made] == [
        *[("denoise", 0.5, 2)] * 2,
        ("optimize", None, 2),
    ]
