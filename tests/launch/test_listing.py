"""winobench eval --list_tasks and --list_models: one line each, in 80 columns, in groups, with filters."""

import dataclasses
import functools

import pytest

import winobench
from launch import layout, listing
from tests import launching
from winobench.base import registry
from winobench.tasks import TEXT_TASKS, groups

launch = functools.partial(launching.launch, "launch.eval")


def _rows(text):
    return [line.split() for line in text.splitlines() if line.startswith("  ") and not line.startswith("   ")]


def test_all_tasks_are_a_line_each_with_the_ready_ones_first(tmp_path):
    status, out, err = launch("--list_tasks", f"--config.data_dir={tmp_path}")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) < 260
    every = {**winobench.TASKS, **TEXT_TASKS}
    states = {row[0]: " ".join(row[-2:] if row[-1] == "data" else row[-1:]) for row in _rows(out)}
    assert states == {
        name: "ready" if task.ready(str(tmp_path)) is None else "needs data" for name, task in every.items()
    }
    blocks = [_rows(block) for block in out.split("\n\n")[:-1]]
    ready = [[row[-1] == "ready" for row in block] for block in blocks]
    assert ready == [sorted(block, reverse=True) for block in ready]  # within a group
    assert [any(block) for block in ready] == sorted((any(block) for block in ready), reverse=True)
    count = sum(state == "ready" for state in states.values())
    assert f"{len(states)} tasks: {count} ready, {len(states) - count} need data" in lines
    assert all(f"@{group}" in out.partition("Groups: ")[2] for group in groups.GROUPS)


def test_models_are_a_line_each_in_groups():
    status, out, err = launch("--list_models")
    assert (status, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    named = [row[0] for row in _rows(out)]
    assert {*registry.MODELS, *registry.LANGUAGE_MODELS, "recorded:FILE.csv", "openai:MODEL"} <= {*named}
    assert named[:2] == ["clevr-tiny", "clevr-flow"]
    assert f"{len(named)} models: 2 ready" in out
    assert "Language models" in out


@pytest.mark.parametrize(
    ("word", "among", "missing"),
    [
        ("@spatial", ["clevr", "whatsup_a"], ["winoground"]),
        ("@gdbench", ["winoground", "mmbias"], ["colorswap"]),
        ("sugarcrepe_", ["sugarcrepe_add_att"], ["clevr"]),
        ("SUGARCREPE", ["sugarcrepe_add_att", "sugarcrepe_swap_obj"], ["clevr"]),
    ],
)
def test_a_word_filters_tasks(word, among, missing):
    status, out, _ = launch(f"--list_tasks={word}")
    named = {row[0] for row in _rows(out)}
    assert status == 0
    assert {*among} <= named
    assert not {*missing} & named


def test_few_tasks_come_with_their_data_and_licence():
    status, out, _ = launch("--list_tasks=pets_photo_all")
    assert status == 0
    assert out.startswith("pets_photo_all (version 1)\n")
    words = " ".join(out.split())
    assert "1 image x 37 texts, metric accuracy" in words
    assert "`winobench prepare --task=pets_photo_all" in words
    assert "download: images.tar.gz (0.8 GB, CC BY-SA 4.0)" in words
    assert "paper: Parkhi et al. 2012 licence: CC BY-SA 4.0 url: https://www.robots.ox.ac.uk/~vgg/data/pets" in words
    assert out.endswith("1 task: 1 needs data\n")
    _, out, _ = launch("--list_tasks=clevr")
    assert out.startswith("clevr (version 1)\n")  # the task of this name, and then the others
    assert "clevr_winoground" in out
    _, out, _ = launch("--list_tasks=winoviz_mini_single")
    assert all(f"      {name} " in out for name in TEXT_TASKS["winoviz_mini_single"].protocols)


def test_a_word_filters_models():
    _, out, _ = launch("--list_models=siglip2")
    assert "google/siglip2-so400m-patch14-384" in out
    _, out, _ = launch("--list_models=language")
    named = {row[0] for row in _rows(out)}
    assert "flan-t5-xl" in named
    assert "sd15" not in named


def test_a_word_that_nothing_has_is_refused():
    for flag in ("--list_tasks", "--list_models"):
        launching.refuse("launch.eval", f"{flag}=qqqqqqq", named=["'qqqqqqq'", flag])


def test_plugged_in_tasks_of_any_description_fit(monkeypatch):
    odd = dataclasses.replace(winobench.get_task("clevr_image"), name="odd", description="x" * 200, skills=())
    monkeypatch.setattr(winobench.tasks, "TASKS", {"odd": odd})
    assert max(map(len, listing.tasks().splitlines())) <= 80


def test_a_long_text_keeps_what_tells_it_from_others():
    assert layout.shortened("which of two is true; the red one.", 25) == "... the red one."
    assert layout.shortened("a text without any clause at all", 20) == "a text without..."
    assert layout.shortened("short", 20) == "short"
