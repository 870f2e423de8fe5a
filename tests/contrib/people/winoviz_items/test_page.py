"""The page on which a person writes WinoViz items, by real requests: what it stores, refuses and resumes."""

import json
import signal

import pytest

from tests import launching
from tests.expectations import raises
from tests.web.asking import Address, ask
from winobench.contrib.people.winoviz_items import page
from winobench.contrib.people.winoviz_items.__main__ import main
from winobench.contrib.people.winoviz_items.written import STATEMENTS, Written, read_objects
from winobench.data import winoviz

GOOD = {
    "object": "ball",
    "attribute_kind": "shape",
    "properties": ["pumped up", "without a valve"],
    "attributes": ["round", "flat"],
    "premises": [
        "After the match Tom pumped the ball up again until it was firm.",
        "After the match Tom pulled the valve out of the ball and sat on it.",
    ],
    "hypotheses": ["The ball was round.", "The ball was flat."],
    "chosen": [0, 1],
    "confirmed": [True] * STATEMENTS,
    "anyway": False,
}


@pytest.fixture
def opened(tmp_path):
    with Written(tmp_path, "anna", ["ball", "red kite"]) as written, page.serve(written, 0) as server:
        yield written, server


def post(server, path, **content):
    status, text = ask(server, "POST", path, content)
    return status, json.loads(text)["problems"]


def test_the_page_loads_nothing(opened):
    _, server = opened
    status, html = ask(server, "GET", "/")
    assert status == 200
    assert html.count("<script nonce=") == html.count("<script") == 1
    for other in ("http://", "https://", "src="):
        assert other not in html
    assert json.loads(ask(server, "GET", "/items")[1]) == {"left": ["ball", "red kite"], "written": 0}


def test_an_item_is_on_disk_and_can_be_evaluated(opened):
    written, server = opened
    assert post(server, "/item", **GOOD) == (200, [])
    (item,) = winoviz.read_items(written.path)
    assert (item.id, item.object, item.version, item.attribute_kind) == ("single/ball-anna", "ball", "single", "shape")
    assert (list(item.premises), list(item.hypotheses)) == (GOOD["premises"], GOOD["hypotheses"])
    assert winoviz.check_item(item) == []
    assert json.loads(ask(server, "GET", "/items")[1]) == {"left": ["red kite"], "written": 1}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"object": "boat"}, "not on the list"),
        ({"premises": ["one"]}, "'premises'"),
        ({"hypotheses": ["The ball was flat."] * 2}, "the same text twice"),
        ({"attribute_kind": "smell"}, "'smell'"),
        ({"chosen": [1, 0]}, "puzzle is not solved"),
        ({"chosen": [0, None]}, "puzzle is not solved"),
        ({"confirmed": [True] * (STATEMENTS - 1) + [False]}, "not every statement".capitalize()),
        ({"premises": ["Tom pumped the ball up again.", GOOD["premises"][1]]}, "has 6 words"),
    ],
)
def test_what_is_refused(opened, changes, said):
    written, server = opened
    status, problems = post(server, "/item", **{**GOOD, **changes})
    assert status == 400
    assert said in " ".join(problems)
    assert not written.path.exists()


def test_rules_can_be_overruled_and_the_puzzle_not(opened):
    written, server = opened
    short = {**GOOD, "premises": ["Tom pumped the ball up again.", GOOD["premises"][1]], "anyway": True}
    assert post(server, "/item", **{**short, "chosen": [1, 1]})[0] == 400
    assert post(server, "/item", **short) == (200, [])
    assert len(written.items) == 1


def test_bad_requests_and_a_full_disk(opened, monkeypatch):
    written, server = opened
    assert ask(server, "POST", "/item", "[1]")[0] == 400
    assert ask(server, "POST", "/item", "{")[0] == 400
    assert ask(server, "POST", "/skip", "[]")[0] == 400
    assert post(server, "/skip", object="boat")[0] == 400
    assert ask(server, "GET", "/items", token="wrong")[0] == 403
    for name, path in (("add", "/item"), ("skip", "/skip")):

        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(written, name, full)
        status, problems = post(server, path, **GOOD)
        assert (status, "No space left" in problems[0]) == (500, True)


def test_a_writer_resumes(tmp_path):
    objects = ["ball", "red kite", "lamp"]
    with Written(tmp_path, "anna", objects) as written:
        assert written.add(GOOD) == []
        written.skip("lamp")
        with raises("in-use", "anna"), Written(tmp_path, "anna", objects):
            pass
    with Written(tmp_path, "anna", objects) as again, Written(tmp_path, "ben", objects) as ben:
        assert (again.left, again.skipped, len(again.items)) == (["red kite"], ["lamp"], 1)
        assert ben.left == objects


def test_bad_input(tmp_path, capsys):
    path = tmp_path / "objects.txt"
    path.write_text("banana\n\n  lamp \nbanana\n")
    assert read_objects(path) == ["banana", "lamp"]
    path.write_text("\n")
    with raises("empty-file", "objects.txt"):
        read_objects(path)
    with raises("bad-name", "'../anna'"):
        Written(tmp_path, "../anna", ["ball"])
    with raises("repeated-id"):
        Written(tmp_path, "anna", ["T-shirt", "t shirt"])
    for words in (["write"], ["write", str(tmp_path / "absent.txt"), str(tmp_path), "anna"]):
        with pytest.raises(SystemExit):
            main(["", *words])
        assert capsys.readouterr().err.startswith("error: ")


def test_the_program_serves_until_it_is_ended(tmp_path):
    (tmp_path / "objects.txt").write_text("ball\nlamp\n")
    words = ("write", "objects.txt", "items", "anna", "0")
    process = launching.start("winobench.contrib.people.winoviz_items", *words, cwd=tmp_path)
    address = process.stdout.readline().partition(" is the page of anna")[0]
    try:
        assert post(Address.parse(address), "/item", **GOOD) == (200, [])
    finally:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, "")
    assert "items written: 1, objects left: 1" in out
    assert len(winoviz.read_items(tmp_path / "items" / "anna.jsonl")) == 1
