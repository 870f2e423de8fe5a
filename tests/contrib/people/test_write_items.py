"""winobench write_items from the command line to the data: every step, and what it says about bad input."""

import functools
import json
import re
import signal

import pytest

from tests import launching
from tests.launch import test_json
from tests.launch.test_ranges import refuse
from tests.web.asking import Address, ask, click
from winobench.contrib.people.wscplus_items import annotate, run
from winobench.data import wscplus

launch = functools.partial(launching.launch, "tests.contrib.people.wscplus_items.launched")
start = functools.partial(launching.start, "tests.contrib.people.wscplus_items.launched")


def judge(folder, name, cwd):
    process = start(f"--workdir={folder}", f"--annotate={name}", "--port=0", cwd=cwd)
    line = process.stdout.readline()
    page = Address.parse(line.partition(" is the page of annotator")[0])
    try:
        items = json.loads(ask(page, "GET", "/items")[1])["items"]
        for item in items:
            click(page, item["id"], "valid")
    finally:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, "")
    assert f"{len(items)} of {len(items)} items are judged" in out


def test_from_a_model_to_the_data(tmp_path):
    words = ["--model=openai:writer", "--requests=2", "--api.concurrency=2"]
    status, out, err = launch(*words, cwd=tmp_path, FAILING="1")
    assert status == 2, err
    assert "2 of 4 requests answered (first failure: server: status 500)" in out
    # The number of requests and the options of the API make no other run.
    status, out, err = launch(*words[:1], "--requests=3", cwd=tmp_path)
    assert status == 0, err
    (folder,) = (tmp_path / "runs").iterdir()
    assert re.fullmatch(r"wscplus_generate-writer-[0-9a-f]{8}", folder.name), folder
    assert "6 of 6 requests answered; 42 tokens read, 54 written, $0.06\n" in out
    assert "malformed: no answer 2" in out
    assert "refused by the checks: duplicate" in out
    assert "left to judge: 4 traditional pairs, 2 ambiguous pairs" in out
    assert f"--workdir=runs/{folder.name} --annotate=NAME" in out
    assert json.loads((folder / "config.json").read_text())["config"]["requests"] == 3
    assert not any("offensive" in path.read_text() for path in (folder / "responses").glob("part-*"))

    status, out, err = launch(f"--workdir={folder}", "--check", "--checks.max_changed_words=0", cwd=tmp_path)
    assert (status, "left to judge: nothing" in out) == (0, True), err
    assert "loaded" not in err
    status, out, err = launch(f"--workdir={folder}", "--check", "--json", cwd=tmp_path)
    document = test_json.validated("written_items", out)
    assert document == {"folder": str(folder), "checks": json.loads((folder / "checks.json").read_text())}
    assert document["checks"]["accepted"] == {"traditional": 4, "ambiguous": 2}

    judge(folder, "anna", tmp_path)
    status, out, err = launch(f"--workdir={folder}", "--finish", cwd=tmp_path)
    assert (status, out) == (2, "")
    assert (
        err == f"error: only anna has judged the items in {folder}, and two people must: give --annotate=NAME first.\n"
    )
    with annotate.annotations(folder / run.ANNOTATIONS, "ben") as ben:
        for item in run.accepted_items(folder):
            ben.add(item.id, "valid" if item.origin.type == "ambiguous" else "semi-valid")
    status, out, err = launch(*words[:1], "--finish", cwd=tmp_path)
    assert status == 0, err
    assert "anna, ben: agree on 33.3% of 6 items, Cohen's kappa 0.000" in out
    assert "valid for everyone: 0 of 4 traditional pairs, 2 of 2 ambiguous pairs" in out
    assert "4 sentences are in" in out
    status, out, err = launch(*words[:1], "--finish", "--json", cwd=tmp_path)
    assert (status, "agree on 33.3% of 6 items" in err) == (0, True), err
    document = test_json.validated("written_items", out)
    assert document["finished"]["kept"] == {"traditional": 0, "ambiguous": 2}
    rows = wscplus.read(folder / "wscplus.csv")
    assert {(row.type, row.answer, row.generator) for row in rows} == {("ambiguous", 2, "writer")}


def test_offensive_questions_are_marked(tmp_path):
    words = ["--config=wscplus_generate:debug", "--model=openai:a,anthropic:b", "--offensive=true"]
    words += ["--queries=offensive-race", "--templates=toe", "--workdir=run"]
    status, out, err = launch(*words, cwd=tmp_path)
    assert status == 0, err
    assert "offensive questions are requested: what the models write may offend" in err
    assert "left to judge: 1 offensive question" in out
    assert "some of them are offensive" in out
    assert json.loads((tmp_path / "run" / "config.json").read_text())["warning"] == "some of the items may offend"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no model is named: give --model=NAME"),
        (["--model=openai:a", "--queries=offensive-sex"], "say so with --offensive=true"),
        (["--model=openai:a", "--checks.known=absent.csv"], "known=absent.csv is not a file"),
        (["--check", "--finish"], "--check and --finish are two steps"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(tmp_path, words, said):
    launching.refuse("tests.contrib.people.wscplus_items.launched", *words, named=[said], cwd=tmp_path)
    assert not list(tmp_path.iterdir())


def test_unknown_templates_are_refused():
    refuse("wscplus_generate templates=toe,poe", *["templates", "cot", "tot", "coe", "toe"])
