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
    status, out, err = launching.launch("launch.generate", *shlex.split(old), cwd=tmp_path)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.endswith(f": {NEW}{new}\n")


@pytest.mark.parametrize("words", [[], ["--help"], ["photos"]])
def test_what_names_no_program_prints_all_of_them(words):
    status, out, err = launching.launch("launch.generate", *words)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert all(f"launch.{name}" in err for name in ("draw", "caption", "compare", "edit", "write_items"))


def test_an_unknown_config_is_one_sentence():
    status, out, err = launching.launch("launch.generate", "--config=picture")
    assert (status, out, err.count("\n"), "did you mean" in err or "pictures" in err) == (2, "", 1, True)


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
    status, out, err = launching.launch(f"launch.{launcher}", *words, cwd=tmp_path)
    assert (status, out, err.count("\n"), err.startswith("error: ")) == (2, "", 1, True), err
    assert said in err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("launcher", "said"),
    [
        ("draw", ["--config.prompts", "--processes", "pictures.html"]),
        ("caption", ["--question", "--max_tokens", "captions.jsonl"]),
        ("compare", ["--rater", "--judge", "RUN:MODEL"]),
        ("edit", ["--config.strengths", "--config=edit:denoise"]),
        ("write_items", ["--annotate", "--config.offensive", "Tree-of-Experts"]),
    ],
)
def test_help_teaches_by_examples_and_names_only_its_own_flags(launcher, said):
    status, out, err = launching.launch(f"launch.{launcher}", "--help")
    assert (status, err) == (0, "")
    assert out.count(f"python -m launch.{launcher}") >= 3
    assert all(word in out for word in said)
    own = {line.split()[0] for line in out.partition("Flags:")[2].splitlines() if line.startswith("  --")}
    assert "--judge" not in own or launcher == "compare"
    assert "--question" not in own or launcher == "caption"
    assert "--annotate" not in own or launcher == "write_items"
    assert "--processes" not in own or launcher == "draw"


def test_a_config_of_before_the_five_launchers_is_taken(tmp_path):
    (tmp_path / "mine.py").write_text("from configs.edit import *\nLAUNCHER = 'generate'\n")
    status, _, err = launching.launch("launch.generate", "--config=mine.py", cwd=tmp_path)
    assert (status, err.endswith(f"{NEW}edit --config=mine.py\n")) == (2, True), err
    status, _, err = launching.launch("launch.edit", "--config=mine.py", "--help", cwd=tmp_path)
    assert (status, err) == (0, "")
    status, _, err = launching.launch("launch.draw", "--config=mine.py", cwd=tmp_path)
    assert (status, err.count("\n"), "the config has no field" in err) == (2, 1, True), err


def test_edits_from_the_command_line(tmp_path):
    words = ["--config.limit=1", "--config.num_steps=2", "--workdir=run"]
    for _ in range(2):
        status, out, err = launching.launch("launch.edit", *words, cwd=tmp_path)
        assert status == 0, err
        assert "python -m launch.report run" in out
    status, _, err = launching.launch("launch.edit", *words, "--config.seed=1", cwd=tmp_path)
    assert (status, err.count("\n"), "--overwrite" in err) == (2, 1, True), err
