"""Where the programs of launch.generate went, and the flags that each of the five takes."""

import shlex

import pytest

from tests import launching

NEW = "python -m launch."


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("--config=pictures --config.seeds=0,1", "draw --config=pictures --config.seeds=0,1"),
        ("--config pictures:paper --processes=auto", "draw --config pictures:paper --processes=auto"),
        ("--config=pictures --help", "draw --config=pictures --help"),
        ("--caption 'my photos' --model=qwen3-vl-2b", "caption 'my photos' --model=qwen3-vl-2b"),
        ("--model=qwen3-vl-2b -caption=true a.png", "caption --model=qwen3-vl-2b a.png"),
        ("--compare RUN_A RUN_B --rater=anna", "compare RUN_A RUN_B --rater=anna"),
        ("RUN --compare --finish --judge=clevr-flow", "compare RUN --finish --judge=clevr-flow"),
        ("--config=edit:denoise", "edit --config=edit:denoise"),
        ("--config.model=openai:a", "write_items --config.model=openai:a"),
        ("--config=wscplus_generate:debug --workdir=run", "write_items --config=wscplus_generate:debug --workdir=run"),
        ("--workdir=runs/a --annotate=anna", "write_items --workdir=runs/a --annotate=anna"),
        ("--workdir=runs/a --finish", "write_items --workdir=runs/a --finish"),
        ("--config=gdbench", "eval --config=gdbench"),
    ],
)
def test_an_old_command_line_prints_the_new_one(old, new, tmp_path):
    launching.refuse("launch.generate", *shlex.split(old), named=[f": {NEW}{new}\n"], cwd=tmp_path)


@pytest.mark.parametrize("words", [[], ["--help"], ["photos"]])
def test_what_names_no_program_prints_all_of_them(words):
    new = [f"launch.{name}" for name in ("draw", "caption", "compare", "edit", "write_items")]
    launching.refuse("launch.generate", *words, named=new)


def test_an_unknown_config_is_one_sentence():
    launching.refuse("launch.generate", "--config=picture", named=["pictures"])


@pytest.mark.parametrize(
    ("launcher", "words", "said"),
    [
        ("draw", ["--judge=a"], "--judge"),
        ("draw", ["--annotate=a"], "--annotate"),
        ("caption", ["a.png", "--rater=a"], "--rater"),
        ("caption", ["a.png", "--config.seed=1"], "--config.seed"),
        ("caption", ["a.png", "--max_tokens=0"], "--max_tokens=0"),
        ("caption", ["a.png", "--dtype=float16"], "--dtype=float16"),
        ("compare", ["a", "b"], "--rater=NAME"),
        ("compare", ["a", "b", "--rater=anna", "--finish"], "--finish"),
        ("compare", ["a", "b", "--rater=anna", "--judge=c"], "--judge"),
        ("compare", ["a", "b", "--rater=anna", "--port=70000"], "--port=70000"),
        ("compare", ["a", "b", "--rater=anna", "--overwrite"], "--overwrite"),
        ("edit", ["--processes=auto"], "--processes"),
        ("edit", ["--config=pictures"], "launch.draw"),
        ("edit", ["--config.model=a,b"], "a,b"),
        ("edit", ["--config.strengths=0.5,2"], "--config.strengths"),
        ("write_items", ["--processes=auto", "--config.model=openai:a"], "--processes"),
        ("write_items", ["--config=edit"], "launch.edit"),
        ("write_items", ["photos"], "'photos'"),
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


def test_edits_from_the_command_line(tiny_pipeline, tmp_path):
    """By denoising; the refused command would optimise."""
    words = [f"--config.model={tiny_pipeline}", "--config.limit=1", "--config.num_steps=2", "--workdir=run"]
    words += ["--config.batch_size=1"]
    denoise = ["--config=edit:denoise", "--config.strengths=0.5"]
    for _ in range(2):
        status, out, err = launching.launch("launch.edit", *denoise, *words, cwd=tmp_path)
        assert status == 0, err
        assert "python -m launch.report run" in out
    launching.refuse("launch.edit", *words, named=["--overwrite"], cwd=tmp_path)
