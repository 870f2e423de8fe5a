"""The qualification task: twelve questions, their answers, and the page by real requests."""

import collections
import json
import signal

from tests import launching
from tests.web.asking import Address, ask, click
from winobench.contrib.people.winoviz_items import qualification
from winobench.data import winoviz


def test_the_questions():
    content = json.loads((winoviz.ASSETS / "qualification.json").read_text())
    questions = content["questions"]
    assert len({one["id"] for one in questions}) == len(questions) == 12
    assert collections.Counter(one["right"] for one in questions) == dict.fromkeys(content["reasons"], 3)
    for one in questions:
        assert one["right"] in one["reasons"]
        assert set(one["reasons"]) in ({"mismatch", "both"}, {"not_visual", "weak"})
        assert len(set(one["properties"])) == len(set(one["attributes"])) == 2
    right = qualification.right_answers()
    assert set(right.values()) == set(qualification.LABELS)
    assert right["tomato"] == "first"
    assert right["cup"] == "second"
    assert qualification.num_right({}) == 0
    assert qualification.num_right(right) == 12
    assert qualification.num_right({**right, "cup": "first"}) == 11
    # Neither one key nor two in turn pass.
    for labels in (qualification.LABELS * 6, [qualification.FIRST] * 12):
        assert qualification.num_right(dict(zip(right, labels, strict=True))) == 6


def test_the_page_does_not_tell_the_answers(tmp_path):
    with qualification.answers(tmp_path, "anna") as given, qualification.serve(given, 0) as server:
        status, html = ask(server, "GET", "/")
        assert status == 200
        assert "writer anna" in html
        items = json.loads(ask(server, "GET", "/items")[1])["items"]
    assert [set(item) for item in items] == [{"id", "object", "pairs", "reasons"}] * 12
    assert items[0]["pairs"] == [["unripe", "green"], ["ripe", "blue"]]


def test_the_program_counts_right_answers(tmp_path):
    process = launching.start("winobench.contrib.people.winoviz_items", "qualify", "clicks", "anna", "0", cwd=tmp_path)
    page = Address.parse(process.stdout.readline().partition(" is the page of anna")[0])
    try:
        for name in qualification.right_answers():
            assert click(page, name, "first")[0] == 200
    finally:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, "")
    assert f"right: {list(qualification.right_answers().values()).count('first')} of 12" in out
    assert len((tmp_path / "clicks" / "anna.jsonl").read_text().splitlines()) == 12
