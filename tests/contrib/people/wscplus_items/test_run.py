"""A whole generation: ask, resume, check, judge, filter and draw."""

import csv
import dataclasses
import json

import pytest
from PIL import Image

from tests.contrib.people.wscplus_items import fakes
from tests.expectations import names, raises
from winobench.base.errors import InputError
from winobench.contrib.people.wscplus_items import annotate, candidates, checks, parsing, prompts, run, validity
from winobench.data import wscplus
from winobench.runs.responses import ResponseStore

PROMPTS = prompts.make_prompts(["toe"], ["wdq", "ambiguous"], requests=3)


def generate(folder, *writers, asked=PROMPTS, **options):
    responders = {writer.name: (lambda writer=writer: writer) for writer in writers}
    return run.generate(responders, asked, folder, progress=False, **options)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def judge(folder, name, labels):
    """Labels items in the order of the page; the last label is for all others."""
    items = annotate.in_order(run.accepted_items(folder))
    with annotate.annotations(folder / run.ANNOTATIONS, name) as annotations:
        for number, item in enumerate(items):
            annotations.add(item.id, labels[min(number, len(labels) - 1)])


def test_what_is_answered_is_not_asked_again(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        generate(tmp_path / "a", fakes.Writer(stop_after=4))
    assert json.loads((tmp_path / "a" / "config.json").read_text())["status"] == "interrupted"
    second = fakes.Writer(failing=(2,), broken=(1,))
    answers = generate(tmp_path / "a", second)
    assert len(second.asked) == 2
    assert len(answers) == len(PROMPTS)
    third = fakes.Writer()
    answers = generate(tmp_path / "a", third)
    assert {answer.status for answer in answers} == {candidates.ANSWERED}
    assert len({(request.turns, request.sample) for request in third.asked}) == len(third.asked)
    # Nor by a run beside it, nor for more requests of the same prompts.
    beside = fakes.Writer()
    generate(tmp_path / "b", beside)
    assert beside.asked == []
    more = fakes.Writer()
    generate(tmp_path / "a", more, asked=prompts.make_prompts(["toe"], ["wdq", "ambiguous"], requests=5))
    assert len(more.asked) == 4
    with ResponseStore(tmp_path / "a" / "responses") as store:
        assert len(store) == 10
    alone = fakes.Writer()
    generate(tmp_path / "c", alone, reuse=False)
    assert len(alone.asked) == 6


def test_failed_calls_are_counted_and_are_no_items(tmp_path):
    generate(tmp_path / "run", fakes.Writer(failing=(0,), broken=(1,)))
    summary = run.check(tmp_path / "run")
    assert (summary["requests"], summary["failed"]) == (6, 4)
    assert summary["first_failure"] == "server: status 500"
    assert summary["accepted"] == {"traditional": 1, "ambiguous": 1}
    assert len((tmp_path / "run" / "responses" / "failures-0.jsonl").read_text().splitlines()) == 2
    again = fakes.Writer()
    generate(tmp_path / "run", again)
    assert len(again.asked) == 4


def test_items_of_an_answer_that_is_cut_off_are_not_taken(tmp_path):
    generate(tmp_path / "run", fakes.Writer(cut=(1,)))
    summary = run.check(tmp_path / "run")
    assert (summary["requests"], summary["failed"], summary["accepted"]) == (6, 2, {"traditional": 4, "ambiguous": 1})
    assert "max_tokens=2048" in summary["first_failure"]
    assert (summary["tokens"], summary["cost"]) == ({"input": 42, "output": 54}, pytest.approx(0.06))
    again = fakes.Writer()
    generate(tmp_path / "run", again)
    assert (len(again.asked), run.check(tmp_path / "run")["failed"]) == (2, 0)


def test_other_ends_of_lines_are_part_of_the_texts(tmp_path):
    class Separating(fakes.Writer):
        def read(self, request, raw):
            response = super().read(request, raw)
            return dataclasses.replace(response, text=response.text.replace("because", "\u2028because\x85", 1))

    generate(tmp_path, Separating())
    assert run.check(tmp_path)["accepted"] == {"traditional": 4, "ambiguous": 2}
    assert len(run.accepted_items(tmp_path)) == 6


def test_checks_are_repeated_without_a_model(tmp_path):
    generate(tmp_path, fakes.Writer(), asked=prompts.make_prompts(["toe"], ["wdq"], requests=3, offensive=True))
    summary = run.check(tmp_path)
    assert summary["candidates"] == 3 + 2 + 1 + 3
    assert summary["malformed"] == {parsing.REFUSED: 12, "no answer": 2}
    assert summary["refused"] == {checks.DUPLICATE: 3}
    assert summary["accepted"] == {"traditional": 4, "offensive": 2}
    assert summary["tokens"] == {"input": 7 * 18, "output": 9 * 18}
    assert summary["cost"] == pytest.approx(0.18)
    assert json.loads((tmp_path / run.CHECKS).read_text()) == summary
    verdicts = {line["id"]: line["verdict"] for line in lines(tmp_path / run.CANDIDATES)}
    assert sum(verdict is not None for verdict in verdicts.values()) == 3
    assert {line["type"] for line in lines(tmp_path / run.MALFORMED)} == {"traditional", "offensive"}

    known = tmp_path / "known.csv"
    one = fakes.both(fakes.PAIRS[3])[1]
    wscplus.write(
        known, [wscplus.Item("1", one.statement, "they", "they earned", ("a", "b"), 0, "", "x", "traditional")]
    )
    summary = run.check(tmp_path, [known], max_changed_words=0)
    assert summary["accepted"] == {"offensive": 2}
    assert summary["refused"] == {checks.TOO_DIFFERENT: 6, checks.DUPLICATE: 1}
    summary = run.check(tmp_path, [known])
    assert summary["accepted"] == {"traditional": 3, "offensive": 2}


def test_judging_filtering_and_drawing(tmp_path):
    asked = prompts.make_prompts(["toe", "cot"], ["wdq", "wiq"], requests=3, offensive=True)
    generate(tmp_path, fakes.Writer("writer"), fakes.Writer("other/model"), asked=asked)
    summary = run.check(tmp_path)
    assert summary["accepted"] == {"traditional": 4, "offensive": 2}
    assert json.loads((tmp_path / "config.json").read_text())["warning"]
    judge(tmp_path, "anna", ["semi-valid", "valid"])
    judge(tmp_path, "ben", ["valid", "invalid", "valid"])
    results = run.finish(tmp_path)
    assert results["annotators"] == ["anna", "ben"]
    assert sum(results["items"].values()) == 6
    assert sum(results["kept"].values()) == 4
    agreement = results["agreement"]["anna, ben"]
    assert agreement["n"] == 6
    assert agreement["agreed"] == pytest.approx(4 / 6)
    assert agreement["kappa"] == pytest.approx((4 / 6 - 25 / 36) / (1 - 25 / 36))

    # What stays is read back by the data's own reader.
    rows = wscplus.read(tmp_path / run.DATA)
    assert len(rows) == results["sentences"]
    assert {row.generator for row in rows} <= {"writer", "other/model"}
    assert sum(row.pair is not None for row in rows) == 2 * results["kept"]["traditional"]
    with (tmp_path / run.DATA).open(newline="") as file:
        assert tuple(next(csv.reader(file))) == wscplus.COLUMNS
    kept = [line for line in lines(tmp_path / run.ITEMS) if line["outcome"] == "valid"]
    assert {one["statement"] for line in kept for one in line["sentences"]} == {row.statement for row in rows}

    for name in results["files"]:
        assert (tmp_path / name).is_file()
    for name in ("validity_by_model", "validity_by_prompt"):
        with Image.open(tmp_path / f"{name}.png") as image:
            assert image.width > 600
    with (tmp_path / "validity_by_prompt.csv").open(newline="") as file:
        table = {(row["template"], row["query"]): row for row in csv.DictReader(file)}
    assert list(table) == [("cot", "wdq"), ("cot", "wiq"), ("toe", "wdq"), ("toe", "wiq")]
    # Of each model: six pairs, a malformed one among them; all of the later prompts and models are duplicates.
    assert table["toe", "wdq"]["n"] == "14"
    assert table["cot", "wiq"]["refused"] == "14"
    assert table["toe", "wdq"]["paper_valid_share"] == "0.493"
    with (tmp_path / "validity_by_model.csv").open(newline="") as file:
        shares = list(csv.DictReader(file))
    for row in shares:
        assert sum(float(row[f"{outcome}_share"]) for outcome in validity.OUTCOMES) == pytest.approx(1, abs=1e-5)
    assert sum(int(row["valid"]) for row in shares) == 4

    # A rerun with more requests keeps the labels, and asks for those of new items alone.
    first = {item.id for item in run.accepted_items(tmp_path)}
    generate(tmp_path, fakes.Writer("writer"), fakes.Writer("other/model"), asked=asked)
    run.check(tmp_path, similarity=99.0)
    assert first <= {item.id for item in run.accepted_items(tmp_path)}


def table_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_batches_types_and_repeats_are_drawn(tmp_path, monkeypatch):
    """Figures 12 to 14 by hand. Requests for one pair repeat what those for three have written."""
    later = {3: fakes.PAIRS[4], 4: fakes.PAIRS[5], 5: fakes.PAIRS[4]}
    first = fakes.answer

    def answer(prompt, sample):
        return fakes.written(later[sample]) if sample in later else first(prompt, sample)

    monkeypatch.setattr(fakes, "answer", answer)
    asked = prompts.make_prompts(["toe"], ["wdq"], batch=[3, 1], requests=3, repeats=2)
    assert len(asked) == 2 * 6
    generate(tmp_path, fakes.Writer(), asked=asked, config={"requests": 3, "repeats": 2})
    assert run.check(tmp_path)["accepted"] == {"traditional": 6}
    judge(tmp_path, "anna", ["valid"])
    judge(tmp_path, "ben", ["valid", "invalid", "valid"])
    results = run.finish(tmp_path)
    for name in ("batch", "type", "repeat"):
        assert {f"validity_by_{name}.png", f"validity_by_{name}.csv"} <= set(results["files"])
        with Image.open(tmp_path / f"validity_by_{name}.png") as image:
            assert image.width > 600
    # Six pairs, of which one is invalid, and a malformed one of each size, whose text nobody compares.
    batches = {row["batch"]: row for row in table_of(tmp_path / "validity_by_batch.csv")}
    assert list(batches) == ["1", "3"]
    counts = [[int(row[name]) for name in ("n", "valid", "invalid", "refused")] for row in batches.values()]
    assert counts == [[1, 0, 0, 1], [7, 5, 1, 1]]
    repeats = {(row["model"], row["repeat"]): row for row in table_of(tmp_path / "validity_by_repeat.csv")}
    assert list(repeats) == [("writer", "1"), ("writer", "2")]
    assert [(row["n"], row["refused"]) for row in repeats.values()] == [("6", "2"), ("2", "0")]
    (of_type,) = table_of(tmp_path / "validity_by_type.csv")
    shown = [of_type[name] for name in ("type", "model", "valid", "invalid")]
    assert shown == ["traditional", "writer", "5", "1"]

    # The numbers of requests are those of the last command, and are checked.
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "config": {"requests": "3", "repeats": 2}}))
    with raises("damaged-file", "config.json", "'3'"):
        run.finish(tmp_path)


def test_one_batch_and_one_repeat_have_no_figures(tmp_path):
    generate(tmp_path, fakes.Writer(), asked=PROMPTS, config={"requests": 3, "repeats": 1})
    run.check(tmp_path)
    for name in ("anna", "ben"):
        judge(tmp_path, name, ["valid"])
    files = run.finish(tmp_path)["files"]
    assert not {"validity_by_batch.png", "validity_by_repeat.png"} & set(files)
    assert {"validity_by_type.png", "validity_by_model.png"} <= set(files)


def test_bad_input(tmp_path):
    folder = tmp_path / "run"
    with raises("not-a-run", "nothing"):
        run.check(folder)
    scorer = fakes.Writer()
    scorer.kinds = frozenset({"entailment"})
    with pytest.raises(InputError, match=names("'writer'")):
        generate(folder, scorer)
    assert not folder.exists()
    generate(folder, fakes.Writer())
    with pytest.raises(InputError, match=names("candidates.jsonl")):
        run.accepted_items(folder)
    run.check(folder)
    with raises("too-few-annotators", "nobody"):
        run.finish(folder)
    judge(folder, "anna", ["valid"])
    with raises("too-few-annotators"):
        run.finish(folder)
    with annotate.annotations(folder / run.ANNOTATIONS, "ben") as ben:
        ben.add(run.accepted_items(folder)[0].id, "valid")
    with pytest.raises(InputError, match=names("5", "6", "--annotate=ben")):
        run.finish(folder)
    with raises("another-run"):
        generate(folder, fakes.Writer(), asked=prompts.make_prompts(["cot"], ["wdq"]))
    generate(folder, fakes.Writer(), asked=prompts.make_prompts(["cot"], ["wdq"]), overwrite=True)
    assert set(annotate.read_annotations(folder / run.ANNOTATIONS)) == {"anna", "ben"}
    with raises("no-such-file"):
        run.check(folder, [tmp_path / "absent.csv"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda record: {}, ("missing-field", "'origin'")),
        (lambda record: {**record, "origin": []}, ("wrong-value", "origin of the answer", "[]")),
        (lambda record: {**record, "origin": {**record["origin"], "more": 1}}, ("unknown-field", "origin", "'more'")),
        (lambda record: {**record, "status": 5}, ("wrong-value", "status", "5")),
        (lambda record: {**record, "surplus": None}, ("unknown-field", "'surplus'")),
    ],
)
def test_records_that_are_not_answers_are_named(tmp_path, change, message):
    generate(tmp_path, fakes.Writer())
    path = tmp_path / run.ANSWERS
    records = lines(path)
    path.write_text("".join(json.dumps(record) + "\n" for record in [records[0], change(records[0])]))
    with raises(*message, "answers.jsonl", "record 2"):
        run.check(tmp_path)
