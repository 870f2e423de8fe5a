"""Files of responses as models: how requests find their rows, and bad files."""

import csv

import pytest
from absl import logging

import winobench
from tests.expectations import raises
from winobench.base import registry
from winobench.responders.recorded import RecordedModel
from winobench.runs.requests import Generation, Options, Responder, Turn


def write(path, header, *rows):
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return f"recorded:{path}"


def generation(text, **options):
    return Generation((Turn("system", "Be brief."), Turn("user", text)), **options)


def texts(model, *requests):
    raws = dict(model.ask(requests))
    assert sorted(raws) == list(range(len(requests)))
    return [None if "error" in raws[n] else model.read(request, raws[n]).text for n, request in enumerate(requests)]


def test_prompts_are_looked_up(tmp_path):
    name = write(tmp_path / "x.csv", ["prompt", "response"], ["Which one?", "The first."], ["Who?", "Nobody."])
    model = RecordedModel(name)
    assert isinstance(model, Responder)
    assert registry.resolve(name).kind == registry.RECORDED
    assert texts(model, generation("Who?"), generation("Which one?")) == ["Nobody.", "The first."]
    # Neither white space nor quotation marks nor wrongly decoded characters matter.
    name = write(tmp_path / "y.csv", ["prompt", "response"], ["Is it Paulâ€™s “cat”?\r\nA:", "Itâ€™s his."], ["b", ""])
    assert texts(RecordedModel(name), generation('Is it Paul\'s  "cat"?\nA: '), generation("b")) == ["It’s his.", None]


def test_the_question_at_the_end_of_a_prompt_counts(tmp_path):
    questions = [f"What does {name!r} refer to in the sentence number {name}?" for name in "abc"]
    name = write(tmp_path / "x.csv", ["query", "response"], *([text, text[10:13]] for text in questions))
    model = RecordedModel(name)
    shots = "\n".join(f"Q: {text} A: 0" for text in questions)
    assert texts(model, generation(f"{shots}\nQ: {questions[1]}\nA:")) == ["'b'"]
    # An unknown question is not answered by one of its examples.
    unknown = f"{shots}\nQ: What does 'it' refer to in a long sentence that is not in the file and has a comma, too?"
    assert texts(model, generation(f"{unknown} Options: x, y. A:")) == [None]


def test_of_two_prompts_that_end_alike_the_longer_one_counts(tmp_path):
    rows = [["it?", "short"], ["What is it?", "long"]]
    model = RecordedModel(write(tmp_path / "x.csv", ["prompt", "response"], *rows))
    assert texts(model, generation("Q: What is it? A:"), generation("Q: Is it? A:")) == ["long", "short"]


def test_draws(tmp_path):
    rows = [["a", "first"], ["b", "other"], ["a", "second"]]
    model = RecordedModel(write(tmp_path / "x.csv", ["prompt", "response"], *rows))
    draws = [generation("a", temperature=1.0, sample=sample) for sample in range(3)]
    assert texts(model, *draws) == ["first", "second", None]
    rows = [["a", "second", "1"], ["a", "first", "0"]]
    model = RecordedModel(write(tmp_path / "y.csv", ["prompt", "response", "sample"], *rows))
    assert texts(model, *draws) == ["first", "second", None]


def test_columns_that_hold_the_same_are_one_draw(tmp_path):
    rows = [["a", "a", "first"], ["a", "b", "second"]]
    model = RecordedModel(write(tmp_path / "x.csv", ["ToE_query", "query", "response"], *rows))
    draws = [generation("a", temperature=1.0, sample=sample) for sample in range(3)]
    assert texts(model, *draws) == ["first", "second", None]
    assert texts(model, generation("b")) == ["second"]


def test_ids_are_bound_to_prompts(tmp_path):
    rows = [["q1", "one"], ["q2", "two"], ["q2", "two, swapped"]]
    model = RecordedModel(write(tmp_path / "x.csv", ["id", "response"], *rows))
    first, second, third = generation("a?"), generation("b? x or y"), generation("b? y or x")
    assert texts(model, first) == [None]
    model.bind([("q1", [first]), ("q2", [second, third]), ("q3", [generation("c?")])])
    assert texts(model, first, second, third, generation("c?")) == ["one", "two", "two, swapped", None]


def test_an_edited_question_takes_the_row_that_is_left(tmp_path):
    rows = [
        ["The cup broke because it was thin. What does it refer to?", "the cup"],
        ["The cup broke because it was old and thin. What does it refer to?", "edited"],
        ["Who sang?", "Ann"],
    ]
    name = write(tmp_path / "x.csv", ["prompt", "response"], *rows)
    thin, edited, other = (
        generation(text) for text in (rows[0][0], rows[1][0].replace("old", "very old"), "Why did nobody come?")
    )
    # More like the first row, which is another question's; and a question that is like none has no row.
    model = RecordedModel(name)
    model.bind([("a", (thin,)), ("b", (edited,)), ("c", (other,))])
    assert texts(model, thin, edited, other) == ["the cup", "edited", None]
    # Without knowing all questions, nobody could tell.
    assert texts(RecordedModel(name), thin, edited) == ["the cup", None]


def test_what_is_not_recorded_is_counted(tmp_path, caplog):
    model = RecordedModel(write(tmp_path / "x.csv", ["prompt", "response"], ["a", "b"]))
    logging.set_verbosity(logging.WARNING)
    raws = dict(model.ask([generation("a"), generation("Not there"), generation("Nor this")]))
    assert raws[0] == {"response": "b", "row": 1, "notes": {}}
    assert raws[1]["error"]["kind"] == "not recorded"
    assert model.missing == 2
    assert "has no response to 2 of 3 prompts, such as 'Not there'" in caplog.text


def test_the_fingerprint_is_the_content(tmp_path):
    first = RecordedModel(write(tmp_path / "x.csv", ["prompt", "response"], ["a", "b"])).fingerprint()
    assert first == RecordedModel(write(tmp_path / "y.csv", ["prompt", "response"], ["a", "b"])).fingerprint()
    assert first != RecordedModel(write(tmp_path / "y.csv", ["prompt", "response"], ["a", "c"])).fingerprint()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, ("no-such-file", "CSV")),
        (b"", ("empty-file", "CSV")),
        (b"\xef\xbb\xbf", ("empty-file", "header")),
        (b"prompt,response\n", ("empty-file", "rows")),
        (b"question,answer\n1,2\n", ("missing-column", "responses")),
        (b"question,response\n1,2\n", ("missing-column", "question, response")),
        (b"prompt,prompt,response\n1,2,3\n", ("repeated-column", "'prompt'")),
        (b"prompt,response\na,b,c\n", ("wrong-number-of-cells", "2", "3")),
        (b'prompt,response\na,"b\n', ("damaged-table", "2", "CSV")),
        (b"prompt,response\na,\xff\n", ("not-utf8", "UTF-8", "18")),
        (b"prompt,response,sample\na,b,c\n", ("not-a-number", "1", "'c'")),
    ],
)
def test_bad_files(tmp_path, content, message):
    path = tmp_path / "x.csv"
    if content is not None:
        path.write_bytes(content)
    with raises(*message) as raised:
        RecordedModel(f"recorded:{path}")
    assert "\n" not in str(raised.value)


def test_a_byte_order_mark_and_a_long_field(tmp_path):
    (tmp_path / "x.csv").write_text(f"\ufeffprompt,response\na,{'b' * 200_000}\n", encoding="utf-8")
    before = csv.field_size_limit()
    assert texts(RecordedModel(f"{tmp_path}/x.csv"), generation("a")) == ["b" * 200_000]
    assert csv.field_size_limit() == before


def test_other_kinds_are_refused_and_other_raw_answers_are_malformed(tmp_path):
    model = RecordedModel(write(tmp_path / "x.csv", ["prompt", "response"], ["a", "b"]))
    with raises("kind-not-answered"):
        list(model.ask([Options((Turn("user", "a"),), ("b", "c"))]))
    with pytest.raises(ValueError, match="no response"):
        model.read(generation("a"), {"body": "{}"})


@pytest.mark.parametrize("file", ["GPT4_results.csv", "GPT3_results.csv"])
def test_the_published_answers_are_found_by_every_prompt(reference_data, file):
    path = reference_data / "wscplus" / file
    with open(path, encoding="utf-8", newline="") as opened:
        rows = list(csv.DictReader(opened))
    model = RecordedModel(f"recorded:{path}")
    for write_prompt in (
        lambda row: row["ToE_query"],
        lambda row: row["query"],
        lambda row: f"Choose.\nQ: {rows[0]['query']}\nA: 0; because.\nQ: {row['query']}\nA:",
    ):
        requests = [generation(write_prompt(row)) for row in rows]
        raws = dict(model.ask(requests))
        assert [raws[index]["row"] for index in range(700)] == list(range(1, 701))
    assert [raws[index]["notes"]["predicted_answer"] for index in range(700)] == [r["predicted_answer"] for r in rows]
    assert sum(row["check"] == "same" for row in rows) == {"GPT4_results.csv": 481, "GPT3_results.csv": 310}[file]
    assert all(model.read(request, raws[index]).text for index, request in enumerate(requests))


def test_the_example_is_read_as_by_hand(tmp_path):
    """Of twelve questions, ten answers are right, one is wrong and one cannot be read."""
    results = winobench.evaluate_questions(
        RecordedModel("recorded:example"),
        "winoviz_mini_single",
        tmp_path / "run",
        settings=winobench.Asking(limit=6),
    )["tasks"]["winoviz_mini_single"]
    assert results["individual"]["value"] == pytest.approx(10 / 12)
    assert results["pair"]["value"] == pytest.approx(4 / 6)
    assert results["unparsable"]["value"] == pytest.approx(1 / 12)
