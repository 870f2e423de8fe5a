"""Which runs there are and how far each got, whatever is in their folders and whoever changes them."""

import json
import os
import pathlib
import shutil
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.expectations import raises
from winobench.base import files
from winobench.runs.image_runs import KIND
from winobench.runs.reading import read_runs
from winobench.viewer import library

PROPORTION = {"value": 0.5, "low": 0.25, "high": 0.75, "chance": 0.25, "n": 8, "ties": 0}
METRIC = {"name": "winoground", "headline": "group", "shown": ["text", "image", "group"]}


def make(folder, status="finished", results=True, **changes):
    for name in ("errors", "examples", "gallery"):
        (folder / name).mkdir(parents=True)
    identity = {"scorer": {"scorer": "fake"}, "tasks": {"square": {}}}
    config = {"schema": 2, "status": status, "started": "2026-01-02T03:04:05+00:00", "model": "org/tiny"}
    write(folder / "config.json", {**config, "identity": identity, "metrics": {"square": METRIC}, **changes})
    if results:
        rows = {name: PROPORTION for name in ("text", "image", "group", "colour/group")}
        write(folder / "results.json", {"tasks": {"square": rows}})
    return folder


def write(path, value):
    files.write_text(path, json.dumps(value))


def write_part(folder, number, count):
    rows = pa.table({"image": ["i"], "text": ["t"], "first_sample": [0], "errors": [[0.5] * count]})
    pq.write_table(rows, folder / "errors" / f"part-0-{number:05d}.parquet")


def the_run(*paths):
    (run,) = library.Library(paths).runs()
    return run


def test_a_finished_run(tmp_path):
    run = the_run(make(tmp_path / "run"))
    assert run["slug"] == "run"
    assert run["folder"] == str(tmp_path / "run")
    assert (run["label"], run["model"], run["kind"]) == ("tiny", "org/tiny", "images")
    assert (run["status"], run["reason"], run["progress"]) == ("finished", None, None)
    assert run["started"] == "2026-01-02T03:04:05+00:00"
    assert run["tasks"] == ["square"]
    row = {name: PROPORTION[name] for name in ("value", "low", "high", "chance", "n")} | {"too_few": False}
    assert run["headline"] == [{"task": "square", "label": "Square", "metric": "group", **row, "unit": "%"}]


@pytest.mark.parametrize(
    ("recorded", "unit"), [("effect_size", ""), ("accuracy", "%"), (None, "%")], ids=["bias", "accuracy", "older"]
)
def test_units(tmp_path, recorded, unit):
    metric = {"task": {"name": recorded, "headline": "accuracy", "shown": ["accuracy"]}} if recorded else {}
    make(tmp_path / "run", metrics=metric)
    write(tmp_path / "run" / "results.json", {"tasks": {"task": {"accuracy": PROPORTION}}})
    assert [row["unit"] for row in the_run(tmp_path)["headline"]] == [unit]


def test_kinds(tmp_path):
    make(tmp_path / "images")
    make(tmp_path / "text", identity={"protocol": {"wscplus": "toe"}})
    identity = {"models": {"one": {}, "two": {}}, "seeds": [0, 1], "prompts": {"count": 3}}
    make(tmp_path / "drawn", "interrupted", results=False, kind=KIND, identity=identity)
    (tmp_path / "drawn" / "drawn").mkdir()
    (tmp_path / "drawn" / "drawn" / "part-0-00000.jsonl").write_text("{}\n" * 5)
    (tmp_path / "drawn" / "drawn" / "prompts.jsonl").write_text("{}\n" * 3)
    runs = {run["slug"]: run for run in library.Library([tmp_path]).runs()}
    assert {key: run["kind"] for key, run in runs.items()} == {"images": "images", "text": "text", "drawn": "generated"}
    assert runs["drawn"]["progress"] == {"done": 5, "total": 12, "unit": "images"}


def test_a_run_that_is_being_written_says_how_far_it_is(tmp_path):
    folder = make(tmp_path / "run", "running", results=False, total=100)
    found = library.Library([tmp_path])
    write_part(folder, 0, 30)
    lock = os.open(folder / "examples", os.O_RDONLY)
    assert files.lock(lock)
    (run,) = found.runs()
    assert (run["status"], run["progress"]) == ("running", {"done": 30, "total": 100, "unit": "errors"})
    write_part(folder, 1, 16)
    (run,) = found.runs()
    assert run["progress"]["done"] == 46
    os.close(lock)
    (run,) = found.runs()
    assert (run["status"], run["progress"]["done"]) == ("interrupted", 46)
    lock = os.open(folder / "examples", os.O_RDONLY)
    assert files.lock(lock)  # a look does not keep it
    os.close(lock)


def test_responses_are_counted_as_they_come(tmp_path):
    folder = make(tmp_path / "run", "interrupted", results=False, total=9, identity={"protocol": {}})
    (folder / "responses").mkdir()
    part = folder / "responses" / "part-0-00000.jsonl"
    found = library.Library([tmp_path])
    for done, content in enumerate(("", '{"key": 1}\n', '{"key": 2}\n{"cut')):
        with part.open("a") as file:
            file.write(content)
        (run,) = found.runs()
        assert run["progress"] == {"done": done, "total": 9, "unit": "responses"}


@pytest.mark.parametrize(
    ("status", "expected", "reason"),
    [("interrupted", "interrupted", None), ("failed: a: b", "failed", "a: b"), ("odd", "unreadable", "odd")],
)
def test_status(tmp_path, status, expected, reason):
    run = the_run(make(tmp_path / "run", status, results=False))
    assert run["status"] == expected
    assert reason is None or reason in run["reason"]


def test_runs_come_and_go(tmp_path):
    found = library.Library([tmp_path])
    assert found.runs() == []
    make(tmp_path / "one")
    make(tmp_path / "two")
    (tmp_path / "no run").mkdir()
    assert sorted(run["slug"] for run in found.runs()) == ["one", "two"]
    shutil.rmtree(tmp_path / "one")
    assert [run["slug"] for run in found.runs()] == ["two"]
    with raises("no-such-folder", "one"):
        found.find("one")
    make(tmp_path / "one")
    assert found.find("one").root == str(tmp_path / "one")


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (("tiny", "tiny-race"), {"tiny (tiny)", "tiny (tiny-race)"}),
        (("tiny-race", "race"), {"tiny (tiny-race)", "tiny (race)"}),
        (("one",), {"tiny"}),
    ],
)
def test_labels_say_what_differs(tmp_path, names, labels):
    for name in names:
        make(tmp_path / name)
    assert {run["label"] for run in library.Library([tmp_path]).runs()} == labels


def test_labels_are_those_of_reports(tmp_path, viewed):
    for number, folder in enumerate([*viewed[:3], viewed[0]]):
        copy = shutil.copytree(folder, tmp_path / f"run {number}")
        config = json.loads((copy / "config.json").read_text())
        if number == 2:
            config["name"] = "my run"
        if number == 3:
            config["identity"]["limit"] = 4
        (copy / "config.json").write_text(json.dumps(config))
    folders = sorted(tmp_path.iterdir())
    reports = {run.path.name: run.label for run in read_runs(folders)}
    assert {"my run", "clevr-tiny (limit 4)", "clevr-tiny (all questions)"} < set(reports.values())
    assert {pathlib.Path(run["folder"]).name: run["label"] for run in library.Library([tmp_path]).runs()} == reports


def test_a_changed_file_is_read_again(tmp_path):
    folder = make(tmp_path / "run")
    found = library.Library([folder])
    assert found.runs()[0]["headline"][0]["value"] == 0.5
    write(folder / "results.json", {"tasks": {"square": {"group": {**PROPORTION, "value": 0.25}}}})
    assert found.runs()[0]["headline"][0]["value"] == 0.25


def test_slugs_and_labels_tell_runs_apart(tmp_path):
    names = ("a b", "a-b", "ü/a-b", ".hidden", "...")
    for name in names:
        make(tmp_path / name)
    found = library.Library([tmp_path / name for name in (*names, "a b")])
    folders = found.run_folders()
    assert [folder.slug for folder in folders] == ["a-b", "a-b-2", "a-b-3", ".hidden", "run"]
    labels = {run["label"] for run in found.runs()}
    assert labels == {"tiny (a-b)", "tiny (a-b-2)", "tiny (a-b-3)", "tiny (.hidden)", "tiny (run)"}
    shutil.rmtree(tmp_path / "a b")
    assert [folder.slug for folder in found.run_folders()] == ["a-b-2", "a-b-3", ".hidden", "run"]


HOSTILE = {
    "no object": ("config.json", "[]"),
    "no JSON": ("config.json", "{"),
    "no text": ("config.json", b"\xff\xfe"),
    "deep": ("config.json", "[" * 100_000),
    "odd identity": ("config.json", '{"identity": 1}'),
    "odd model": ("config.json", '{"identity": {}, "model": {"a": [1]}, "config": 3}'),
    "odd kind": ("config.json", f'{{"identity": {{"models": 1}}, "kind": "{KIND}"}}'),
    "surrogate": ("config.json", '{"identity": {}, "model": "\\ud800"}'),
    "no tasks": ("results.json", "{}"),
    "odd tasks": ("results.json", '{"tasks": [1]}'),
    "odd entries": ("results.json", '{"tasks": {"square": 1}}'),
    "cut off": ("results.json", '{"tasks": {"squ'),
    "missing": ("results.json", None),
}


@pytest.mark.parametrize("fault", HOSTILE)
def test_a_damaged_run_is_said_in_a_sentence(tmp_path, fault):
    name, content = HOSTILE[fault]
    folder = make(tmp_path / "run")
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    make(tmp_path / "other")
    runs = {run["slug"]: run for run in library.Library([tmp_path]).runs()}
    assert runs["run"]["status"] == "unreadable"
    assert 10 < len(runs["run"]["reason"]) < 600
    assert "\n" not in runs["run"]["reason"]
    assert runs["other"]["status"] == "finished"
    json.dumps(runs, allow_nan=False).encode()


def test_odd_numbers_are_left_out(tmp_path):
    folder = make(tmp_path / "run")
    odd = '{"tasks": {"square": {"group": {"value": NaN, "low": 1e999, "high": "<b>", "chance": null, "n": 3}}}}'
    (folder / "results.json").write_text(odd)
    (row,) = the_run(folder)["headline"]
    assert [row[name] for name in ("value", "low", "high", "chance", "n")] == [None, None, None, None, 3]


def test_very_large_results_are_not_read(tmp_path):
    folder = make(tmp_path / "run")
    os.truncate(folder / "results.json", 2**30)
    began = time.process_time()
    run = the_run(folder)
    assert time.process_time() - began < 0.1
    assert (run["status"], "1,024 MB" in run["reason"]) == ("unreadable", True)


@pytest.mark.parametrize("name", ["config.json", "results.json"])
@pytest.mark.parametrize("kind", ["outside", "circle", "gone", "pipe", "folder", "device"])
def test_what_is_no_file_of_the_run_is_not_read(tmp_path, name, kind):
    other = make(tmp_path / "other")
    folder = make(tmp_path / "runs" / "run")
    place = folder / name
    place.unlink()
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    else:
        targets = {"outside": other / name, "circle": place, "gone": tmp_path / "absent", "device": "/dev/zero"}
        place.symlink_to(targets[kind])
    run = the_run(tmp_path / "runs")
    assert (run["status"], bool(run["reason"])) == ("unreadable", True)
    assert run["headline"] == []


def test_files_outside_of_a_run_are_not_opened(tmp_path):
    (tmp_path / "secret").write_text("secret")
    folder = make(tmp_path / "run")
    (folder / "examples" / "link.parquet").symlink_to(tmp_path / "secret")
    (folder / "inner.parquet").symlink_to(folder / "results.json")
    (folder / "up").symlink_to(tmp_path, target_is_directory=True)
    os.mkfifo(folder / "pipe")
    root = str(folder)
    outside = ("examples/link.parquet", "../secret", "up/secret", str(tmp_path / "secret"))
    for name in (*outside, "", ".", "pipe", "errors", "absent", "x" * 5_000):
        with pytest.raises(OSError, match="Errno"):
            os.close(library.opened(root, name))
    for name in ("results.json", "inner.parquet"):
        descriptor = library.opened(root, name)
        assert os.read(descriptor, 8) == b'{"tasks"'
        os.close(descriptor)


def test_two_hundred_runs_are_listed_at_once(tmp_path):
    for number in range(200):
        make(tmp_path / f"run-{number}")
    found = library.Library([tmp_path])
    assert len(found.runs()) == 200
    began = time.process_time()
    found.runs()
    assert time.process_time() - began < 0.3
