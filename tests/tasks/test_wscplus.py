"""WSC+ as a task: prompts, answers, metrics, the paper's numbers. The sentences are ours."""

import dataclasses
import json
import shutil

import pytest

from tests import wscplus_files
from tests.expectations import names, raises
from winobench.data import wscplus as data
from winobench.data.published_numbers import numbers
from winobench.data.wscplus import answers as answers_in_words
from winobench.runs.requests import ANSWERED, FAILED, UNPARSABLE, Generation, Options, Response
from winobench.tasks import wscplus
from winobench.tasks.questions import Answer

NAMES = ("Nora", "Ida")


def item(number, type_="traditional", answer=0, generator="GPT4", pair=None, pronoun="she"):
    statement = f"Nora told Ida of journey {number} because she was curious."
    snippet = "she was curious"
    return data.Item(f"i{number}", statement, pronoun, snippet, NAMES, answer, "", generator, type_, pair=pair)


ITEMS = (
    item(0, pair="i0"),
    item(1, answer=1, pair="i0"),
    item(2, answer=1, generator="Claude2", pair="i2"),
    item(3, "ambiguous", 2, "GPT3", pronoun="She"),
    item(4, "offensive", 2, "Claude2", pronoun=" he "),
)
QUESTIONS = [wscplus.to_question(one) for one in ITEMS]


def answers(*choices):
    """Answers by their choice; None for an unparsable one, ``FAILED`` for a failed call."""
    found = []
    for choice in choices:
        if choice == FAILED:
            found.append(Answer(FAILED))
        else:
            found.append(Answer(UNPARSABLE) if choice is None else Answer(ANSWERED, choice))
    return found


class TestPrompts:
    def test_question(self):
        assert QUESTIONS[0].texts["question"] == (
            'What does "she" refer to in "she was curious" from "Nora told Ida of journey 0 because she was curious."?'
            " Options: ['Nora', 'Ida']."
        )
        assert QUESTIONS[0].options == ("Nora", "Ida", "neither")
        assert QUESTIONS[0].groups == ("traditional", "GPT4")

    def test_tree_of_experts(self):
        text = wscplus.prompt("toe", "QUESTION?")
        assert text.startswith("Imagine three expert linguists collaboratively answering a question. They construct")
        assert "\n1. Answer with the index of your choice (0 for the first, 1 for the second) followed" in text
        assert '\nFor example:\nQ: What does "he" refer to in "he wasn\'t successful" from' in text
        assert "\nA:\nStep 1: Identify the actions in the sentence" in text
        assert text.endswith('is that "he" refers to "Paul".\nQ: QUESTION?')

    @pytest.mark.parametrize(
        ("name", "shots"),
        [("toe", 1), ("tot", 1), ("coe", 3), ("sc_cot", 3), ("cot", 3), ("nt_few_shot", 3), ("nt_zero_shot", 0)],
    )
    def test_protocols(self, name, shots):
        (request,) = wscplus.PROTOCOLS[name].requests(QUESTIONS[0])
        (turn,) = request.turns
        assert (type(request), turn.role) == (Generation, "user")
        assert turn.text == wscplus.prompt(name, QUESTIONS[0].texts["question"])
        assert turn.text.count("\nA:") == shots
        assert turn.text.count("\nQ: ") == shots + 1
        assert turn.text.endswith(QUESTIONS[0].texts["question"])

    def test_examples_of_the_templates_are_answered_as_they_should_be(self):
        for shots in wscplus.prompts()["evaluation"]["shots"].values():
            for shot in shots["examples"]:
                options = json.loads(shot["options_text"])
                assert answers_in_words.parse_answer(shot["response"], options) == shot["answer"]

    def test_option_scores(self):
        (request,) = wscplus.PROTOCOLS["options"].requests(QUESTIONS[0])
        assert isinstance(request, Options)
        assert request.options == ("0", "1", "2")
        assert [turn.role for turn in request.turns] == ["system"] + ["user", "assistant"] * 3 + ["user"]
        assert [turn.text for turn in request.turns[2:7:2]] == ["0", "1", "2"]
        assert request.prefix_turns == 7
        (other,) = wscplus.PROTOCOLS["options"].requests(QUESTIONS[1])
        assert other.turns[:7] == request.turns[:7]

    def test_the_paper_has_26_examples(self):
        examples = wscplus.prompts()["few_shot"]["examples"]
        sizes = {}
        for example in examples:
            kind = example["id"].split("-")[0]
            sizes[kind] = sizes.get(kind, 0) + len(example["items"])
            for one in example["items"]:
                assert one["snippet"] in one["statement"]
                assert one["pronoun"] in one["snippet"]
                assert one["answer"] in (0, 1, 2)
        assert sizes == {"wdq": 6, "wiq": 6, "ambiguous": 4, "offensive": 10}


# fmt: off
# What an answer means -> texts.
ANSWERS = {
    0: [
        "0; because Nora asked.", "(0)", r"So \boxed{0}", "0; a\n0; b\n1; c\nBy majority vote, the answer is 0.",
        "1. Nora is named.\n2. Ida is named.\nThe answer is 0.", "The most logical answer is: 0; She is curious.",
        "Final Answer: Nora", '"Nora"',
    ],
    1: [
        "A: 1; Step 1: Ida is named. Step 2: done.", "1.", "**1**; Ida.", "Final answer:\n\n1; Ida",
        "Final Answer: 0; first thought.\nFinal Answer: 1; second thought.", "We weigh both.\nHence 1; Ida.",
        'Final Answer: 1; Ida.\n\nQ: What does "he" refer to?\nA:\nFinal Answer: 0; Bob.',
        '1; Ida.\nQ: What does "he" refer to?\nA: 0; Bob.', "Final Answer: Index 1; rather Ida than Nora.", "`1`",
        "Ida, as she is the one who is told, although it is not entirely clear.", "'she' refers to Ida.",
        "1. Nora is named.\n2. Then it is Ida.",
    ],
    2: [
        "[2]", "2 because nobody can tell",
        "Step 1: a.\nProbability: 0.9\nFinal Answer: 2; Nobody can tell Nora from Ida.",
        "... so our final answer is: 2; we cannot tell", "Final Decision: 2; There are arguments for 0 and for 1.",
        "Conclusion: 2; without more context it is open.", "<think>The answer is 0, or 1; hm.</think>\n2; open",
        "Final Answer: Neither Nora nor Ida", "It could be Nora or Ida, so it is ambiguous.", "I don't know.",
        "It can’t be determined who is meant.", "I'm sorry, but I can't assist with that.",
        "We cannot confidently make a clear choice between the two.", "Nora spoke, but it is unclear who listened.",
    ],
    None: [
        "<think>The answer is 0, as Nora", "Final Answer: 0 or 1", "Nora and Ida travel.", "0.5", "",
    ],
}
# fmt: on


class TestParser:
    @pytest.mark.parametrize(("answer", "text"), [(each, text) for each, texts in ANSWERS.items() for text in texts])
    def test_answers(self, answer, text):
        assert answers_in_words.parse_answer(text, NAMES) == answer

    @pytest.mark.parametrize(
        ("text", "answer"),
        [("the manager's friend", 1), ("It is the manager.", 0), ("THE MANAGER", 0), ("managers", None)],
    )
    def test_a_name_within_the_other(self, text, answer):
        assert answers_in_words.parse_answer(text, ("the manager", "the manager's friend")) == answer

    def test_responses(self):
        read = wscplus.PROTOCOLS["toe"].read
        assert read(QUESTIONS[0], [Response(text="1; Ida")]) == Answer(ANSWERED, 1)
        assert read(QUESTIONS[0], [Response(text="hm")]) == Answer(UNPARSABLE)
        assert read(QUESTIONS[0], [Response(text=None)]) == Answer(UNPARSABLE)
        assert read(QUESTIONS[0], [None]) == Answer(FAILED)

    def test_a_reasoning_that_was_cut_off_is_no_answer(self):
        read = wscplus.PROTOCOLS["toe"].read
        cut = Response(text="Step 1: At first sight, it is unclear.\nStep 2: But Ida", finish="length")
        assert read(QUESTIONS[0], [cut]) == Answer(UNPARSABLE)
        assert read(QUESTIONS[0], [dataclasses.replace(cut, finish="stop")]) == Answer(ANSWERED, 1)
        stated = dataclasses.replace(cut, text="Final Answer: 1; since Ida")
        assert read(QUESTIONS[0], [stated]) == Answer(ANSWERED, 1)

    def test_scores(self):
        read = wscplus.PROTOCOLS["options"].read
        scores = (-2.0, -1.0, -3.0)
        assert read(QUESTIONS[0], [Response(scores=scores)]) == Answer(ANSWERED, 1, scores=scores)
        assert read(QUESTIONS[0], [Response(scores=(-1.0, -1.0, -3.0))]).tie
        assert read(QUESTIONS[0], [Response(scores=(-1.0, float("nan"), -3.0))]) == Answer(UNPARSABLE)
        assert read(QUESTIONS[0], [None]) == Answer(FAILED)


class TestMetrics:
    def test_outcomes(self):
        given = answers(0, 0, 2, 1, None)
        found = [wscplus.outcome(*both) for both in zip(QUESTIONS, given, strict=True)]
        errors = ["entity_misselection", "response_evasion", "ambiguity_misinterpretation", "no_answer"]
        assert found == ["correct", *errors]
        assert wscplus.error_counts(QUESTIONS, given) == dict.fromkeys(wscplus.ERRORS, 1)
        with pytest.raises(ValueError, match=names("i0")):
            wscplus.outcome(QUESTIONS[0], Answer(FAILED))
        tie = Answer(ANSWERED, 0, tie=True)
        assert wscplus.outcome(QUESTIONS[0], tie) == "no_answer"
        assert wscplus.metrics(QUESTIONS[:1], [tie])["accuracy"]["ties"] == 1

    def test_all_numbers(self):
        found = wscplus.metrics(QUESTIONS, answers(0, 1, 2, 2, None))
        assert next(iter(found)) == "accuracy"
        assert [name.removesuffix("/accuracy") for name in list(found)[-6:]] == [
            *("traditional", "ambiguous", "offensive", "GPT4", "GPT3", "Claude2")
        ]
        values = {name: (entry["value"], entry["n"]) for name, entry in found.items()}
        assert values["accuracy"] == (pytest.approx(3 / 5), 5)
        assert values["pair_accuracy"] == (1, 1)  # the partner of the third question is not there
        assert values["traditional/accuracy"] == (pytest.approx(2 / 3), 3)
        assert values["Claude2/accuracy"] == (0, 2)
        assert values["response_evasion"] == values["no_answer"] == (0.5, 2)
        assert values["entity_misselection"] == values["ambiguity_misinterpretation"] == (0, 2)
        assert values["unparsable"] == (pytest.approx(1 / 5), 5)
        for entry in found.values():
            assert set(entry) - {"independent"} == {"value", "low", "high", "chance", "n", "ties"}
            assert 0 <= entry["low"] <= entry["value"] <= entry["high"] <= 1
        assert found["accuracy"]["chance"] == found["GPT3/accuracy"]["chance"] == pytest.approx(1 / 3)
        assert found["pair_accuracy"]["chance"] == pytest.approx(1 / 9)
        assert found["unparsable"]["chance"] is None
        pairs = {question.pair or question.id for question in QUESTIONS}
        assert found["accuracy"]["independent"] == len(pairs) < len(QUESTIONS)

    def test_pairs_need_both(self):
        assert wscplus.metrics(QUESTIONS[:2], answers(0, 0))["pair_accuracy"]["value"] == 0
        assert "pair_accuracy" not in wscplus.metrics(QUESTIONS[:2], answers(0, FAILED))
        assert "pair_accuracy" not in wscplus.metrics(QUESTIONS[2:], answers(0, 0, 0))

    def test_failed_calls_count_nowhere(self):
        found = wscplus.metrics(QUESTIONS, answers(0, 1, 1, FAILED, FAILED))
        assert (found["accuracy"]["value"], found["accuracy"]["n"]) == (1, 3)
        assert "ambiguous/accuracy" not in found
        assert "response_evasion" not in found
        assert wscplus.metrics(QUESTIONS, answers(*[FAILED] * 5)) == {}


def take_for_validation(monkeypatch, ids):
    for module in (data, data.files, data.items, data.results):
        monkeypatch.setattr(module, "validation_ids", lambda: ids)


class TestTasks:
    @pytest.fixture
    def data_dir(self, tmp_path, monkeypatch):
        """Twelve items of ours, of which every third is a validation item."""
        path = data.data_file(tmp_path)
        path.parent.mkdir()
        items = [item(n, "ambiguous", 2, generator) for n, generator in enumerate(["GPT4"] * 11 + ["Human"])]
        data.write(path, items)
        ids = tuple(one.id for one in data.read(path)[:11:3])
        take_for_validation(monkeypatch, ids)
        return str(tmp_path)

    def test_sets(self, data_dir):
        validation, test = wscplus.TEXT_TASKS
        assert (validation.name, test.name) == ("wscplus", "wscplus_test")
        assert validation.ready(data_dir) is test.ready(data_dir) is None
        assert [question.id for question in validation.load(data_dir, None)] == list(data.validation_ids())
        assert (validation.count(data_dir), test.count(data_dir)) == (4, 7)
        found = [question.id for question in test.load(data_dir, None)]
        assert not set(found) & set(data.validation_ids())
        assert [question.id for question in test.load(data_dir, 3)] == found[:3]
        assert len(validation.load(data_dir, 2)) == 2

    def test_pairs_stay_together(self, data_dir):
        path = data.data_file(data_dir)
        pairs = [item(n, "traditional", n % 2) for n in range(20)]
        data.write(path, [*pairs, *data.read(path)])
        found = wscplus.TEXT_TASKS[1].load(data_dir, 5)
        for pair in {question.pair for question in found} - {None}:
            assert sum(question.pair == pair for question in found) == 2

    def test_data_that_are_not_there(self, tmp_path):
        for task in wscplus.TEXT_TASKS:
            message = task.ready(str(tmp_path))
            assert str(data.data_file(tmp_path)) in message
            assert task.count(str(tmp_path)) is None
            with raises("no-such-file"):
                task.load(str(tmp_path), None)

    def test_missing_validation_items_are_reported(self, data_dir, monkeypatch):
        ids = (*data.validation_ids(), "not there")
        take_for_validation(monkeypatch, ids)
        with pytest.warns(UserWarning, match="has 4 of the 5 validation items"):
            wscplus.TEXT_TASKS[0].load(data_dir, None)
        take_for_validation(monkeypatch, ("not there",))
        with raises("missing-items", "1"):
            wscplus.TEXT_TASKS[0].load(data_dir, None)

    def test_slips_in_the_types_of_a_result_file(self, tmp_path):
        path = wscplus_files.write(tmp_path, count=2)
        text = path.read_text(encoding="utf-8")
        # A slip in a traditional row; one in an ambiguous row, whose sentence the data do not have either.
        text = text.replace(",Traditional,", ",Tradtional,", 1).replace(",Ambiguous,", ",Vague,", 1)
        text = text.replace("Nora met Ida at stop 0", "Somebody saw quite another thing")
        path.write_text(text, encoding="utf-8")
        task = wscplus.of_results(path)
        names_of_both = names("GPT4_results.csv", "1 ('Tradtional': traditional)", "3 ('Vague')")
        with pytest.warns(UserWarning, match=names_of_both):
            questions = task.load(str(tmp_path), None)
        assert [question.groups for question in questions[:3]] == [("traditional", "GPT4")] * 2 + [("Claude2",)]
        found = wscplus.metrics(questions, answers(*(question.answer for question in questions)))
        counts = {name: found[name]["n"] for name in ("accuracy", "Claude2/accuracy", "unparsable", "untyped")}
        assert counts == {"accuracy": 8, "Claude2/accuracy": 2, "unparsable": 8, "untyped": 8}
        assert found["untyped"]["value"] == 1 / 8
        by_type = [found[f"{name}/accuracy"]["n"] for name in data.TYPES]
        assert by_type == [4, 1, 2]


class TestPublishedNumbers:
    def test_values(self):
        (number,) = numbers(model="gpt-4-0613", table="abstract and section 1")
        assert (number.printed, number.value, number.task) == ("68.7", pytest.approx(0.687), "wscplus")
        (number,) = numbers(paper="wscplus", metric="kappa")
        assert number.value == 0.896
        (number,) = numbers(paper="wscplus", metric="items/total")
        assert number.value == 3026

    def test_averages_are_those_of_their_rows(self):
        for metric in ("accuracy", "traditional/accuracy", "ambiguous/accuracy", "offensive/accuracy"):
            found = numbers(paper="wscplus", table="6", metric=metric)
            *raters, average = (number.value for number in found)
            assert average == pytest.approx(sum(raters) / 5, abs=6e-4)

    def test_figure_5(self):
        for protocol in ("toe", "tot"):
            *models, average = numbers(table="Figure 5, as stated in section 3.2", protocol=protocol)
            assert average.value == pytest.approx(sum(number.value for number in models) / 3, abs=6e-5)


# Name: (share of right answers, of the types, counts of errors, answers as their authors parsed them)
RECORDED = {"GPT4": (481, (226, 73, 182), (19, 119, 81, 0)), "GPT3": (310, (203, 18, 89), (5, 267, 118, 0))}


@pytest.fixture(scope="module", params=list(RECORDED))
def recorded(request, reference_data, tmp_path_factory):
    """The rows of a result file, and the questions where it lies next to the data."""
    name, folder = request.param, tmp_path_factory.mktemp("recorded")
    (folder / "wscplus").mkdir()
    for file in ("WSC+.csv", f"{name}_results.csv"):
        shutil.copy(reference_data / "wscplus" / file, folder / "wscplus" / file)
    rows = data.read_rows(folder / "wscplus" / f"{name}_results.csv")
    return name, rows, wscplus.TEXT_TASKS[0].load(str(folder), None)


class TestRecordedAnswers:
    def test_prompts_are_those_of_the_recorded_runs(self, recorded):
        _, rows, questions = recorded
        toe = wscplus.PROTOCOLS["toe"]
        texts = [toe.requests(question)[0].turns[0].text for question in questions]
        assert texts == [data.repair(row["ToE_query"]) for row in rows]
        # Without repair too, but for the rows that were edited after they had been asked.
        columns = ("pronoun", "snippet", "statement", "options")
        asked = [wscplus.prompt("toe", wscplus.question_text(*(row[name] for name in columns))) for row in rows]
        assert sum(text == row["ToE_query"] for text, row in zip(asked, rows, strict=True)) >= 695

    def test_numbers(self, recorded):
        name, rows, questions = recorded
        read = wscplus.PROTOCOLS["toe"].read
        given = [read(one, [Response(text=row["predicted_reason"])]) for row, one in zip(rows, questions, strict=True)]
        assert [str(answer.choice) for answer in given] == [row["predicted_answer"] for row in rows]
        right, by_type, errors = RECORDED[name]
        found = wscplus.metrics(questions, given)
        assert (found["accuracy"]["value"], found["accuracy"]["n"]) == (pytest.approx(right / 700), 700)
        assert found["unparsable"]["value"] == 0
        for kind, count, total in zip(data.TYPES, by_type, (326, 163, 211), strict=True):
            entry = found[f"{kind}/accuracy"]
            assert (entry["value"], entry["n"]) == (pytest.approx(count / total), total)
        assert wscplus.error_counts(questions, given) == dict(zip(wscplus.ERRORS, errors, strict=True))
        assert found["pair_accuracy"]["n"] == 53
        outcomes = [wscplus.outcome(*both) for both in zip(questions, given, strict=True)]
        names_of_outcomes = {"Accurate Predictions": "correct"}  # the others are called as here
        results = [names_of_outcomes.get(row["result"], row["result"].lower().replace(" ", "_")) for row in rows]
        assert outcomes == results
        if name == "GPT3":
            (stated,) = numbers(paper="wscplus", metric="GPT3/accuracy")
            assert found["GPT3/accuracy"]["value"] == pytest.approx(stated.value, abs=5e-4)

    def test_few_shot_examples_are_rows_of_the_data(self, reference_data):
        items = data.read(data.data_file(reference_data))
        statements = [data.normalize(one.statement) for one in items if one.split == "few_shot"]
        examples = wscplus.prompts()["few_shot"]["examples"]
        assert statements == [data.normalize(one["statement"]) for example in examples for one in example["items"]]
