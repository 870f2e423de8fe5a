"""winobench eval --list_tasks and --list_models, winobench prepare --list: in 80 columns, with filters."""

import dataclasses
import functools

import pytest

import winobench
from launch import layout, listing
from tests import launching
from winobench.base import registry
from winobench.tasks import DATA_SETS, TEXT_TASKS, groups
from winobench.tasks.base import DataSet

launch = functools.partial(launching.launch, "launch.eval")


def _rows(text):
    return [line.split() for line in text.splitlines() if line.startswith("  ") and not line.startswith("   ")]


def test_all_tasks_are_rows_of_data_sets_with_the_ready_ones_first(tmp_path):
    status, out, err = launch("--list_tasks", f"--data_dir={tmp_path}")
    assert (status, err) == (0, "")
    table, _, rest = out.partition("\n\n")
    header, *lines = table.splitlines()
    assert max(map(len, out.splitlines())) <= 80
    place, end = header.index("state"), header.index("questions about")
    states = {line.split()[0]: line[place:end].strip() for line in lines}
    assert states == {name: each.state(str(tmp_path)) for name, each in DATA_SETS.items()}
    order = ["ready", "one command", "gated", "partly", "by hand"]
    assert list(states.values()) == sorted(states.values(), key=order.index)
    every = [task for each in DATA_SETS.values() for task in each.tasks]
    counts = [sum(task.ready(str(tmp_path)) is None for task in of.values()) for of in (winobench.TASKS, TEXT_TASKS)]
    words = " ".join(rest.split())
    assert words.startswith(f"{len(every)} tasks in {len(states)} data sets: {len(winobench.TASKS)} about images")
    assert f"about images ({counts[0]} ready), {len(TEXT_TASKS)} about texts alone ({counts[1]} ready)." in words
    assert all(f"@{group}" in rest for group in groups.GROUPS)


def test_a_row_has_the_whole_description_and_the_number_of_questions(tmp_path):
    _, out, _ = launch("--list_tasks", f"--data_dir={tmp_path}")
    rows = {line.split()[0]: line for line in out.partition("\n\n")[0].splitlines()}
    for name, each in DATA_SETS.items():
        assert rows[name].endswith(f"  {each.description}")
    assert rows["mmvp"].split()[1] == "135"  # nine tasks of 15 pairs
    assert rows["spec"].split()[1] == "-"  # nobody knows before its files are here


def test_models_are_a_line_each_in_groups():
    status, out, err = launch("--list_models")
    assert (status, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    named = [row[0] for row in _rows(out)]
    assert {*registry.MODELS, *registry.LANGUAGE_MODELS, "recorded:FILE.csv", "openai:MODEL"} <= {*named}
    assert named[:2] == ["clevr-tiny", "clevr-flow"]
    assert f"{len(named)} models: 3 ready" in out
    assert "Language models" in out


@pytest.mark.parametrize(
    ("word", "among", "missing"),
    [
        ("@spatial", ["clevr", "clevr_spatial_selfbench"], ["winoground"]),
        ("@gdbench", ["winoground", "mmbias"], ["colorswap"]),
        ("CLEVR", ["clevr", "clevr_hard"], ["winoground"]),
    ],
)
def test_a_word_filters_tasks(word, among, missing):
    status, out, _ = launch(f"--list_tasks={word}")
    named = {row[0] for row in _rows(out)}
    assert status == 0
    assert {*among} <= named
    assert not {*missing} & named


@pytest.mark.parametrize("word", ["svo", "@svo"])
def test_a_data_set_shows_its_tasks_and_its_command(word, tmp_path):
    _, out, _ = launch(f"--list_tasks={word}", f"--data_dir={tmp_path}")
    assert out.startswith("svo (one command)\n")
    assert "command: winobench prepare --tasks=@svo\n" in out
    assert [row[0] for row in _rows(out)] == ["task", "svo_subj", "svo_verb", "svo_obj"]
    assert out.endswith("3 tasks: 0 ready\n")


def test_few_tasks_come_with_their_data_and_licence():
    status, out, _ = launch("--list_tasks=pets_photo_all")
    assert status == 0
    assert out.startswith("pets_photo_all (version 1)\n")
    words = " ".join(out.split())
    assert "1 image x 37 texts, metric accuracy" in words
    assert "`winobench prepare --tasks=pets_photo_all" in words
    assert "download: images.tar.gz (0.8 GB, CC BY-SA 4.0)" in words
    assert "paper: Parkhi et al. 2012 licence: CC BY-SA 4.0 url: https://www.robots.ox.ac.uk/~vgg/data/pets" in words
    assert out.endswith("1 task: 0 ready\n")
    _, out, _ = launch("--list_tasks=clevr")
    assert out.startswith("clevr (version 1)\n")
    _, out, _ = launch("--list_tasks=pets")  # a data set and a task have this name
    assert out.startswith("pets (")
    assert "pets (version 1)" in out
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
    odd = dataclasses.replace(winobench.get_task("clevr_image"), name="odd", description="x " * 100, skills=())
    monkeypatch.setattr(winobench.tasks, "TASKS", {"odd": odd})
    text = listing.tasks_text(listing.data_sets())
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("x") >= 100


def test_long_texts_of_a_table_take_several_lines():
    lines = layout.table(("name", "n"), [("a", "one two three"), ("bcdefg", "four")], columns=20)
    assert lines == ["name    n", "a       one two", "        three", "bcdefg  four"]
    assert layout.table(("n", ""), [("10", "ten"), ("5", "five")], right=(0,)) == [" n", "10  ten", " 5  five"]


def test_prepared_data_sets_are_a_table_and_one_has_its_files(tmp_path):
    launch_prepare = functools.partial(launching.launch, "launch.prepare", f"--data_dir={tmp_path}")
    status, out, err = launch_prepare("--list")
    assert (status, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    rows = {line.split()[0]: line for line in out.partition("\n\n")[0].splitlines()}
    assert {name for name, each in DATA_SETS.items() if each.is_prepared} <= rows.keys()
    assert "clevr_image" not in rows  # winobench makes it
    assert rows["pets"].split()[1:] == ["one", "command", "0.8", "GB", "CC", "BY-SA", "4.0"]
    _, out, _ = launch_prepare("--list=svo_verb")
    assert out.startswith("svo (one command)\n")
    assert out.count("DIR holds") == 1  # the three tasks have the same files
    launching.refuse("launch.prepare", "--list=svoo", named=["'svoo'", "svo"])


def test_a_data_set_comes_by_one_command_where_nothing_is_supplied():
    for name, each in DATA_SETS.items():
        sources = [task.source for task in each.tasks if getattr(task, "source", None) is not None]
        gets = [bool(source.downloads or source.fetch) for source in sources]
        assert all(gets) if each.downloads else not any(gets), name
        words = " ".join(source.how_to_get for source in sources)
        assert each.is_gated == any("gated" in file.note for source in sources for file in source.downloads), name
        assert not (each.way == "one command" and "hf download" in words), name


def test_every_task_belongs_to_one_data_set_whose_texts_fit():
    placed = [task.name for each in DATA_SETS.values() for task in each.tasks]
    assert sorted(placed) == sorted([*winobench.TASKS, *TEXT_TASKS])
    assert not {*groups.GROUPS} & {*DATA_SETS}
    for each in DATA_SETS.values():
        lengths = [len(text) for text in (each.name, each.description, each.licences, each.size)]
        assert all(length <= most for length, most in zip(lengths, (22, 32, 34, 8), strict=True)), each.name


def test_the_state_of_a_data_set_is_that_of_its_tasks(tmp_path):
    ready, other = winobench.get_task("clevr_image"), winobench.get_task("pets")
    assert DataSet("a", "A", "", (ready,)).state(str(tmp_path)) == "ready"
    assert DataSet("a", "A", "", (ready, other)).state(str(tmp_path)) == "one command"
    assert DataSet("a", "A", "", (other,), supplies="x").state(str(tmp_path)) == "partly"
    assert DataSet("a", "A", "", (other,), downloads="", supplies="x").state(str(tmp_path)) == "by hand"
    assert DataSet("a", "A", "", (other,), is_gated=True).state(str(tmp_path)) == "gated"
    assert DataSet("a", "A", "", (ready, other)).count(str(tmp_path)) == 3_000 + 3_669
