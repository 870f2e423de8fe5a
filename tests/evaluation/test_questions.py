"""The flow of text tasks with a responder that follows a script: asked once, recorded, resumed, summarised."""

import collections
import dataclasses
import json
import pathlib

import pytest

from tests.evaluation import text_fakes
from tests.evaluation.fakes import config, examples
from tests.evaluation.text_fakes import PaidResponder, ScriptedResponder
from tests.expectations import names, raises
from winobench.base.errors import InputError
from winobench.evaluation import questions
from winobench.runs import provenance, responses
from winobench.runs.requests import LazyResponder
from winobench.tasks import winoviz_images

TASKS = (text_fakes.text_task(), text_fakes.text_task("shapes", pairs=2))
NUM_QUESTIONS = 8  # those of the second task are among those of the first


def run(responder, workdir, tasks=TASKS, **changes):
    return questions.evaluate_questions(responder, tasks, workdir, progress=False, **{"reuse": False, **changes})


def numbers(results):
    return {key: value for key, value in results.items() if key not in ("seconds", "asked", "workdir")}


def stored(workdir):
    """Key of every line that holds a response."""
    lines = [line for path in sorted((workdir / "responses").glob("part-*.jsonl")) for line in path.open("rb")]
    return [entry["key"] for entry in map(json.loads, lines) if "raw" in entry]


def test_every_request_is_made_once_and_summarised(tmp_path):
    responder = ScriptedResponder()
    results = run(responder, tmp_path / "run")
    assert len(responder.asked) == len(set(responder.asked)) == NUM_QUESTIONS
    assert results.pop("workdir") == str(tmp_path / "run")
    assert json.loads((tmp_path / "run" / "results.json").read_text()) == results
    assert list(results["tasks"]) == ["colours", "shapes"]
    assert list(results["tasks"]["colours"]) == ["accuracy", "even/accuracy", "odd/accuracy"]
    assert (results["failed"], results["failed_calls"], results["cost"]) == ({}, None, None)
    assert questions.failure_line(results) is None
    assert results["requests"] == results["asked"] == NUM_QUESTIONS
    assert results["tokens"] == {"input": 7 * NUM_QUESTIONS, "output": 3 * NUM_QUESTIONS}
    assert results["seconds"] > 0
    assert results["config"] == {"tasks": ["colours", "shapes"], "protocol": None, "data_dir": None, "limit": None}
    assert results["versions"]["scorer"]["scorer"] == "scripted"
    rows = examples(tmp_path / "run", "colours")
    assert [row["id"] for row in rows][:2] == ["0-0", "0-1"]
    assert rows[0]["texts"] == [("premise", "The fruit 0 has the state 0")]
    assert rows[0]["options"] == ["It is green.", "It is brown."]
    for row in rows:
        assert (row["status"], row["responses"]) == ("answered", [f"Option {row['choice'] + 1}."])
        assert row["correct"] == (row["choice"] == row["answer"])
    right = sum(row["correct"] for row in rows) / len(rows)
    assert results["tasks"]["colours"]["accuracy"]["value"] == right
    assert 0 < right < 1
    described = config(tmp_path / "run")
    assert described["status"] == "finished"
    assert described["identity"]["protocol"] == {"colours": "generated", "shapes": "generated"}
    names = {"config.json", "results.json", "examples", "responses"}
    assert {path.name for path in (tmp_path / "run").iterdir()} == names


def test_a_response_is_on_disk_before_it_is_read(tmp_path):
    class Reader(PaidResponder):
        def read(self, request, raw):
            lines = [line for path in (tmp_path / "run").glob("responses/part-*") for line in path.open()]
            assert json.loads(lines[-1])["raw"] == raw
            return super().read(request, raw)

    assert run(Reader(), tmp_path / "run")["requests"] == NUM_QUESTIONS


@pytest.mark.parametrize("protocol", ["generated", "scored", "voted"])
def test_a_finished_run_asks_nothing_again(protocol, tmp_path):
    first = run(ScriptedResponder(), tmp_path / "run", protocol=protocol)
    again = ScriptedResponder()
    assert numbers(run(again, tmp_path / "run", protocol=protocol)) == numbers(first)
    assert again.asked == []
    assert first["requests"] == NUM_QUESTIONS * (3 if protocol == "voted" else 1)
    row = examples(tmp_path / "run", "colours")[0]
    assert (row["scores"] is not None) == (protocol == "scored")
    assert len(row["choices"]) == (3 if protocol == "voted" else 1)


def _later(counts, files="1", **changes):
    """The scripted responder, which is loaded when it is needed. Each loading and each question is counted."""

    def load():
        counts["responder"] += 1
        return ScriptedResponder(**changes)

    return LazyResponder(frozenset(text_fakes.KINDS), files, load)


def _changes(name, old, new):
    def change(folder, commit):
        content = (folder / name).read_text()
        assert old in content
        (folder / name).write_text(content.replace(old, new, 1))

    return change


# What happens to a finished run -> whether its next call loads the model and the questions, and how many it asks.
_AFTERWARDS = {
    "nothing": (lambda folder, commit: None, False, 0),
    "another commit": (lambda folder, commit: commit.update(commit="2"), True, 0),
    "uncommitted changes": (lambda folder, commit: commit.update(dirty=True), True, 0),
    "a lost part": (lambda folder, commit: (folder / "responses/part-0-00000.jsonl").unlink(), True, NUM_QUESTIONS),
    "a damaged line": (_changes("responses/part-0-00000.jsonl", '"raw":{', '"raw":'), True, 1),
    "a damaged table": (lambda f, c: (f / "examples/colours.parquet").write_bytes(b"PAR1"), True, 0),
    "lost results": (lambda folder, commit: (folder / "results.json").unlink(), True, 0),
    "an incomplete answer": (_changes("results.json", '"cut_off": 0', '"cut_off": 1'), True, 0),
    "of an earlier version": (_changes("config.json", '"recorded"', '"other"'), True, 0),
}


@pytest.fixture
def commit(monkeypatch):
    """The version that runs: one without uncommitted changes, whose tasks are winobench's own."""
    found = {"commit": "1", "dirty": False}
    monkeypatch.setattr(provenance, "software", lambda: {"winobench": dict(found)})
    return found


def _own_task(counts):
    task = text_fakes.text_task()

    def load(*args):
        counts["questions"] += 1
        return task.load(*args)

    for function in (load, task.metrics):
        function.__module__ = "winobench.tasks.fake"
    return dataclasses.replace(task, load=load)


@pytest.mark.parametrize("place", ["named", "usual"])
@pytest.mark.parametrize("event", _AFTERWARDS)
def test_a_finished_run_loads_nothing_where_nothing_has_changed(tmp_path, monkeypatch, commit, event, place):
    monkeypatch.chdir(tmp_path)
    happen, loads, asks = _AFTERWARDS[event]
    counts = collections.Counter()
    workdir, arguments = (tmp_path / "run" if place == "named" else None), {"tasks": [_own_task(counts)]}
    first = run(_later(counts), workdir, **arguments)
    assert (counts, first["asked"]) == ({"responder": 1, "questions": 1}, NUM_QUESTIONS)
    happen(pathlib.Path(first["workdir"]), commit)
    counts.clear()
    again = run(_later(counts), workdir, **arguments)
    assert counts == ({"responder": 1, "questions": 1} if loads else {})
    assert again["asked"] == asks
    names = ("tasks", "endings", "requests", "workdir")
    assert [again[name] for name in names] == [first[name] for name in names]
    if not loads:
        assert again | {"asked": first["asked"]} == first
    assert config(pathlib.Path(first["workdir"]))["status"] == "finished"
    counts.clear()
    if event != "uncommitted changes":  # what was made again is whole
        run(_later(counts), workdir, **arguments)
        assert counts == {}


@pytest.mark.parametrize(
    "changed",
    [
        *({"files": "2"}, {"files": None}, {"protocol": "scored"}, {"limit": 3}, {"data": "new"}, {"version": 2}),
        *({"overwrite": True}, {"config": {"model": "b"}}),
    ],
)
def test_another_run_is_planned(tmp_path, monkeypatch, commit, changed):
    """By the usual folder of a run, which another one does not share."""
    monkeypatch.chdir(tmp_path)
    counts = collections.Counter()
    task = _own_task(counts)
    how = {"config": {"model": "a"}}
    run(_later(counts), None, [task], **how)
    counts.clear()
    changed = dict(changed)
    files = changed.pop("files", "1")
    of_task = {name: changed.pop(name) for name in ("version",) if name in changed}
    if (data := changed.pop("data", None)) is not None:
        of_task["data_fingerprint"] = lambda data_dir, limit: data
    run(_later(counts, files), None, [dataclasses.replace(task, **of_task)], **{**how, **changed})
    assert counts == {"responder": 1, "questions": 1}


def test_a_loaded_model_is_known_by_its_fingerprint(tmp_path, commit):
    counts = collections.Counter()
    task = _own_task(counts)
    run(ScriptedResponder(), tmp_path / "run", [task])
    again = ScriptedResponder()
    assert run(again, tmp_path / "run", [task])["asked"] == len(again.asked) == 0
    assert counts == {"questions": 1}
    with raises("another-run", "scorer.model"):
        run(ScriptedResponder(seed=1), tmp_path / "run", [task])


def test_a_finished_run_of_another_packages_task_is_judged_again(tmp_path, commit):
    counts = collections.Counter()
    for _ in range(2):
        run(_later(counts), tmp_path / "run")
    assert counts["responder"] == 2


def test_a_finished_run_with_failed_calls_asks_again(tmp_path, commit):
    counts = collections.Counter()
    task = _own_task(counts)
    run(_later(counts, failing=["fruit 1 "]), tmp_path / "run", [task])
    assert run(_later(counts), tmp_path / "run", [task])["asked"] == 2
    assert run(_later(counts), tmp_path / "run", [task])["asked"] == 0
    assert counts["responder"] == 2


def test_an_interrupted_run_goes_on(tmp_path):
    whole = run(PaidResponder(), tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(ScriptedResponder(stop_after=0), tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()
    with pytest.raises(KeyboardInterrupt):
        run(PaidResponder(stop_after=5), tmp_path / "run")
    assert config(tmp_path / "run")["status"] == "interrupted"
    assert not (tmp_path / "run" / "results.json").exists()
    rest = PaidResponder()
    results = run(rest, tmp_path / "run")
    assert numbers(results) == numbers(whole)
    assert results["asked"] == len(rest.asked) == NUM_QUESTIONS - 5
    assert results["cost"] == pytest.approx(0.01 * NUM_QUESTIONS)  # whoever asked for the answers
    assert len(stored(tmp_path / "run")) == len(set(stored(tmp_path / "run"))) == NUM_QUESTIONS


def test_runs_beside_each_other_share(tmp_path, capsys):
    run(ScriptedResponder(), tmp_path / "one", [TASKS[1]], reuse=True)
    questions.evaluate_questions(ScriptedResponder(), TASKS[1:2], tmp_path / "again")
    assert "4 of 4 responses are from one\n" in capsys.readouterr().err
    for name, seed, reuse, asked in (
        ("two", 0, True, NUM_QUESTIONS - 4),
        ("three", 0, False, NUM_QUESTIONS),
        ("four", 1, True, NUM_QUESTIONS),  # another model's answers are not taken
    ):
        responder = ScriptedResponder(seed=seed)
        assert run(responder, tmp_path / name, reuse=reuse)["asked"] == len(responder.asked) == asked


def test_failed_calls_are_counted_and_asked_again(tmp_path):
    malformed = run(ScriptedResponder(malformed=["fruit 2 "]), tmp_path / "malformed", TASKS[:1])
    assert malformed["failed_calls"] == {"requests": 2, "questions": 2, "first": "malformed: the body has no text"}
    results = run(ScriptedResponder(failing=["fruit 1 "]), tmp_path / "run", TASKS[:1])
    assert results["failed_calls"] == {"requests": 2, "questions": 2, "first": "server: status 500"}
    assert questions.failure_line(results) == (
        "2 of 8 calls failed and 2 questions are left out (first: server: status 500): give the same command again, "
        "which sends only the missing requests"
    )
    assert results["tasks"]["colours"]["accuracy"]["n"] == 6
    for row in examples(tmp_path / "run", "colours")[2:4]:
        assert (row["correct"], row["status"], row["responses"]) == (None, "failed", [None])
    mended = ScriptedResponder()
    results = run(mended, tmp_path / "run", TASKS[:1])
    assert len(mended.asked) == 2
    assert results["failed_calls"] is None
    assert numbers(results) == numbers(run(ScriptedResponder(), tmp_path / "whole", TASKS[:1]))


def test_a_task_without_any_answer_has_no_numbers(tmp_path):
    mute = ScriptedResponder(failing=["fruit 2 ", "fruit 3 "])
    late = text_fakes.text_task("late", load=lambda data_dir, limit: list(TASKS[0].load(data_dir, None))[4:], pairs=4)
    results = run(mute, tmp_path / "run", [TASKS[1], late])
    assert list(results["tasks"]) == ["shapes"]
    assert results["failed"] == {"late": "all 4 questions of late have failed calls, the first one: server: status 500"}
    with raises("all-calls-failed", "4"):
        run(ScriptedResponder(failing=["fruit"]), tmp_path / "none", [late])
    # The failures' notes stay.
    assert list((tmp_path / "none" / "responses").iterdir())


def test_what_cannot_be_parsed_is_wrong_and_no_failure(tmp_path):
    results = run(ScriptedResponder(silent=["fruit 0 "], skill=1.0), tmp_path / "run", TASKS[:1])
    assert results["failed_calls"] is None
    assert results["tasks"]["colours"]["accuracy"]["n"] == 8
    assert results["tasks"]["colours"]["accuracy"]["value"] == 6 / 8
    for row in examples(tmp_path / "run", "colours")[:2]:
        assert (row["correct"], row["status"], row["responses"]) == (False, "unparsable", ["I would rather not say"])


def test_the_first_protocol_that_the_model_can_answer_is_the_default(tmp_path):
    results = run(ScriptedResponder(kinds=["options"]), tmp_path / "run")
    assert config(tmp_path / "run")["identity"]["protocol"]["colours"] == "scored"
    assert results["requests"] == NUM_QUESTIONS


def test_another_run_is_refused(tmp_path):
    run(ScriptedResponder(), tmp_path / "run")
    with pytest.raises(InputError, match=names("scorer.model", '"0"', '"1"')):
        run(ScriptedResponder(seed=1), tmp_path / "run")
    with pytest.raises(InputError, match=names("protocol.colours", '"generated"', '"scored"')):
        run(ScriptedResponder(), tmp_path / "run", protocol="scored")
    other = ScriptedResponder(seed=1)
    run(other, tmp_path / "run", overwrite=True)
    assert len(other.asked) == NUM_QUESTIONS
    assert len(stored(tmp_path / "run")) == NUM_QUESTIONS


def test_a_task_whose_data_are_broken_is_left_out(tmp_path):
    def load(data_dir, limit):
        raise InputError("its file is torn", code="torn-file")

    results = run(ScriptedResponder(), tmp_path / "run", [TASKS[0], text_fakes.text_task("torn", load=load)])
    assert list(results["tasks"]) == ["colours"]
    assert results["failed"] == {"torn": "its file is torn"}
    with raises("torn-file"):
        run(ScriptedResponder(), tmp_path / "other", [text_fakes.text_task("torn", load=load)])


def test_two_questions_of_one_id_are_a_mistake_of_the_task(tmp_path):
    twice = text_fakes.text_task(load=lambda data_dir, limit: 2 * list(TASKS[0].load(data_dir, limit)))
    with pytest.raises(ValueError, match=names("'0-0'")):
        run(ScriptedResponder(), tmp_path / "run", [twice])


def test_the_folder_of_a_run_is_named_by_what_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for changes in ({}, {"protocol": "scored"}):
        run(ScriptedResponder(), None, name="text", **changes)
    assert len(list(tmp_path.glob("runs/text-*"))) == 2


def test_only_what_is_paid_for_is_synced_one_by_one(tmp_path, monkeypatch):
    seconds, real = {}, responses.ResponseStore.close
    monkeypatch.setattr(
        responses.ResponseStore,
        "close",
        lambda self: real(self) or seconds.update({self.folder.parent.name: self.seconds_between_syncs}),
    )
    run(PaidResponder(), tmp_path / "paid")
    run(ScriptedResponder(), tmp_path / "local")
    assert seconds["paid"] == 0 < seconds["local"]


def test_a_responder_may_be_told_all_questions(tmp_path):
    class Curious(ScriptedResponder):
        def bind(self, asked):
            self.known = dict(asked)

    responder = Curious()
    run(responder, tmp_path / "run", TASKS[:1], limit=1)
    assert len(responder.asked) == 2
    assert len(responder.known) == 8
    assert set(responder.known["0-0"]) <= set(responder.asked)


def test_a_task_with_images_says_which_text_they_show(tmp_path):
    task = dataclasses.replace(TASKS[0], protocols={"vqa": winoviz_images.PROTOCOLS["vqa"]})
    with raises("no-pictures", task.name, "illustrated"):
        run(ScriptedResponder(kinds=["picture_text"]), tmp_path / "run", [task], images={"": ()})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"limit": 1.5}, ("bad-value", "limit", "1.5", "1", "none")),
        ({"tasks": 5}, ("wrong-type", "tasks", "5", "TextTask")),
        ({"tasks": [None]}, ("wrong-type", "tasks", "None")),
        ({"tasks": b"colours"}, ("wrong-type", "tasks")),
        ({"tasks": "colors"}, ("unknown-name", "'colors'")),
        ({"tasks": ""}, ("nothing-named",)),
        ({"workdir": 5}, ("wrong-type", "workdir", "5")),
        ({"protocol": ["generated"]}, ("wrong-type", "protocol")),
        ({"protocol": "generate"}, ("unknown-name", "'colours'", "'generate'")),
        (
            {"protocol": "generated", "responder": ScriptedResponder(kinds=["options"])},
            ("kind-not-answered", "'generated'", "'colours'"),
        ),
        ({"responder": ScriptedResponder(kinds=["similarity"])}, ("kind-not-answered", "'colours'")),
        ({"data_dir": 5}, ("wrong-type", "data_dir", "5")),
        ({"responder": object()}, ("wrong-type", "responder")),
    ],
)
def test_bad_arguments_are_one_sentence_and_write_nothing(arguments, message, tmp_path):
    given = {"responder": ScriptedResponder(), "tasks": TASKS[:1], "workdir": tmp_path / "run", **arguments}
    with raises(*message):
        questions.evaluate_questions(progress=False, **given)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id": "\ud83d"}, ("lone-surrogate",)),
        ({"texts": {"premise": "half \ud83d 0"}}, ("lone-surrogate", r"half \ud83d 0")),
        ({"options": ("a", "\ude00")}, ("lone-surrogate", r"\ude00")),
        ({"texts": {"premise": "x" * 10_000_000}}, ("text-too-long", "10,000,014")),
        ({"texts": {"premise": "a", "more": 5}}, ("wrong-type", "5", "int")),
        ({"answer": None}, ("target-not-among-candidates", "None")),
        ({"answer": 2}, ("target-not-among-candidates", "2")),
    ],
)
def test_a_question_that_cannot_be_asked_is_named_before_anything_is(changes, message, tmp_path):
    good = next(iter(text_fakes.text_task().load(None, 1)))
    task = text_fakes.text_task(load=lambda data_dir, limit: [dataclasses.replace(good, **changes)])
    responder = ScriptedResponder()
    with raises(*message, "colours") as error:
        questions.evaluate_questions(responder, [task], tmp_path / "run", progress=False)
    assert len(str(error.value)) < 400
    assert responder.asked == []
    assert not (tmp_path / "run").exists()
