"""Old names of commands, configs, fields, flags and folders work, and the new one is printed."""

import pathlib
import types

import pytest

import winobench
from launch import configuration, renamed, reproduce
from tests import launching
from winobench.evaluation import protocols
from winobench.runs import lifecycle

WORDS = [
    ("--config=pictures", "--config=images"),
    ("--config=pictures:debug", "--config=images:debug"),
    ("--config=winoviz:pictures_debug", "--config=winoviz:images_debug"),
    ("--config.pictures=FOLDER", "--config.images=FOLDER"),
    ("--config.drawing.num_steps=4", "--config.generation.num_steps=4"),
    ("--config.drawer", "--config.generator"),
    ("--drawn=a,b", "--images=a,b"),
]


@pytest.mark.parametrize(("old", "new"), WORDS)
def test_an_old_word_becomes_the_new_one_with_a_line(old, new, capsys):
    assert renamed.words(["winobench", old, "drawn"]) == ["winobench", new, "drawn"]
    (line,) = capsys.readouterr().err.splitlines()
    before, _, after = line.partition(" is now ")
    assert old.startswith(before)
    assert new.startswith(after.partition(": the old name")[0])
    assert renamed.words([new]) == [new]
    assert not capsys.readouterr().err


def test_new_names_exist():
    assert set(renamed.CONFIGS.values()) >= {"images"}
    assert "images" in configuration.config_names("generate")
    for spec in renamed.CONFIGS.values():
        configuration.load(spec)
    assert set(renamed.FIELDS.values()) <= {name.partition(".")[0] for name in configuration.options_of("winoviz")}


def test_the_old_command_runs_the_new_one(tmp_path):
    status, printed, errors = launching.launch_process("winobench", "draw", "--help", cwd=tmp_path)
    assert (status, "num_steps" in printed) == (0, True)
    assert "winobench draw is now winobench generate" in errors


@pytest.mark.parametrize(("old", "new"), [("read_pictures", "read_images"), ("Pictures", "Images")])
def test_old_names_of_python_warn(old, new):
    with pytest.warns(DeprecationWarning, match=f"winobench.{old} is now winobench.{new}"):
        assert getattr(winobench, old) is getattr(winobench, new)


@pytest.mark.parametrize("name", ["images-a", "winoviz-images_debug-images-a", "winoviz-images-a"])
def test_a_run_stays_in_its_older_folder(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    new = lifecycle.folder_for(None, name, {"a": 1}).path
    assert name in new.name
    older = pathlib.Path("runs") / new.name.replace("images", "pictures")
    older.mkdir(parents=True)
    assert lifecycle.folder_for(None, name, {"a": 1}).path == older
    new.mkdir()
    assert lifecycle.folder_for(None, name, {"a": 1}).path == new


def test_a_protocol_has_a_new_name():
    assert protocols.names("image_match, vqa,picture_match", [], frozenset()) == ["picture_match", "vqa"]


def test_the_command_of_an_older_run_has_new_names(tmp_path):
    """Older runs of WinoViz have recorded the older fields."""
    recorded = configuration.plain(configuration.load("winoviz"))
    older = {new: old for old, new in renamed.FIELDS.items()}
    recorded = {older.get(name, name): value for name, value in recorded.items()} | {"drawer": "sdxl"}
    run = types.SimpleNamespace(is_text=True, tasks=["winoviz_mini_single"], config={"config": recorded})
    assert reproduce.eval_command(run) == "winobench eval --config=winoviz \\\n  --generator=sdxl"
