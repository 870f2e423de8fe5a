"""WinoViz: prompts, the reader of answers, protocols, metrics by hand, the paper's numbers."""

import dataclasses
import json
import logging

import pytest

from tests.expectations import raises
from winobench.data import published_numbers
from winobench.data import winoviz as data
from winobench.metrics.intervals import clustered, wilson
from winobench.report import published
from winobench.runs import requests
from winobench.tasks import get_text_task, winoviz
from winobench.tasks.option_answers import read_choice, states_choice
from winobench.tasks.questions import Answer, TextQuestion

OPTIONS = ("The tomato was green.", "The tomato was red.")
QUESTION = TextQuestion("t#2", {"premise": "The tomato burst."}, OPTIONS, 1, ("color",), "t")

# The paper, section 3, "Inference".
INSTRUCTION = (
    "You will be given a sentence, and two options. Output either Option 1 or Option 2, depending on which option is"
    " more likely to be true given the sentence."
)

# fmt: off
FIRST = [
    "Option 1", "  option1 ", "Options 1", "**Option 1**", "Option １", "(1)", "The first option",
    "The answer: Option one.", "The best choice is 1.", "the tomato was green", "I prefer Option 1 to Option 2.",
    "Option 1, because the tomato was red... no, green",
    "Option 1\n\nSentence: The dog barked.\nOption 1: a\nOption 2: b\nAnswer: Option 2",
]
SECOND = [
    "OPTION TWO", "Option #2", "Option\n2", "Choice 2", "Output: Option 2\n\nReason: Option 1 fits an unripe tomato.",
    r"The answer is $\boxed{\text{Option 2}}$.", "“Option 2”", "2.", "[2]", "Answer: **2**", "It's Option 2.",
    "The answer is the second option.", "The answer is 2, not 1.", "The second option is more plausible.",
    '"The tomato was red."', "Option 2 is more likely than Option 1.", "Option 1 is less likely than Option 2.",
    "Option 2, not Option 1.", "Not Option 1 but Option 2.",
    "Option 1 is not correct. Option 2 is correct.", "Option 1 is likely false, so Option 2.",
    "Given the sentence, option 1 would not be true, so option 2 is true.",
    "Option 2\n\nExplanation: Option 1 says that the tomato was green, which fits an unripe one.",
    "Option 1: The tomato was green.\nOption 2: The tomato was red.\nAnswer: Option 2",
    "<think>Option 1 maybe. The answer is Option 1.</think>Option 2", "thinking Option 1 </think> Option 2",
]
NEITHER = [
    None, "", "   \n", "Yes", "12", "Option 3", "2 days later", "The answer is option A", "I cannot determine that.",
    "I'm sorry, but there is not enough information.", "The tomato was unripe.", "Option 1: The tomato was red.",
    "The tomato was green. The tomato was red.", "1. green\n2. red", "1 or 2", "It is either 1 or 2.",
    "Option 1 or Option 2", "Both Option 1 and Option 2 are possible.",
    "Neither Option 1 nor Option 2.", "It is not Option 1.", "Option 1 is unlikely.",
    "The answer is Option 1. The answer is Option 2.", "Option 1: The tomato was green.\nOption 2: The tomato was red.",
    "<think>Option 1 is",
]
# fmt: on
REASONED = {
    "Option 1 would need an unripe tomato. The tomato burst. So the answer is Option 2.": 1,
    "At first, the answer is Option 1. But wait, it burst. The answer is Option 2.": 1,
    "A tomato that bursts is ripe. Therefore the tomato was red.": 1,
    "A ripe tomato is red, so it is 2.\n2": 1,
    "Option 2 is more likely than Option 1 because it is ripe.": 1,
    "Option 1 says green. Option 2 says red.\n\nAnswer: 1": 0,
    "So the answer is Option 1.\n\nSentence: It rained.\nOption 1: a.\nAnswer: So the answer is Option 2.": 0,
    "Option 1 says green and Option 2 says red.": None,
    "": None,
}


@pytest.mark.parametrize(
    ("text", "choice"),
    [*((text, 0) for text in FIRST), *((text, 1) for text in SECOND), *((text, None) for text in NEITHER)],
)
def test_answers_in_free_text(text, choice):
    assert read_choice(text, OPTIONS) == choice


@pytest.mark.parametrize(("text", "choice"), REASONED.items())
def test_answers_after_reasoning(text, choice):
    assert read_choice(text, OPTIONS, reasoning=True) == choice


def test_choices_and_statements():
    options = ("The lid was open.", "The lid was open and bent.")  # one begins like the other
    assert [read_choice(text, options) for text in options] == [0, 1]
    assert read_choice("The lid was open.") is None
    assert states_choice("Reasons. So the answer is Option 2.")
    assert states_choice("Option 2: because")
    assert not states_choice("It says in Option 2 that")
    assert not states_choice(None)


def request_of(protocol):
    (request,) = winoviz.PROTOCOLS[protocol].requests(QUESTION)
    return request


def test_the_prompt_of_the_paper():
    text = (
        f"{INSTRUCTION}\n\nSentence: The tomato burst.\n"
        "Option 1: The tomato was green.\nOption 2: The tomato was red.\nAnswer:"
    )
    assert request_of("zero_shot") == requests.Generation((requests.Turn("user", text),), max_tokens=128)
    assert request_of("zero_shot_options") == requests.Options((requests.Turn("user", text),), ("Option 1", "Option 2"))
    # Encoders are asked without a prompt.
    assert request_of("entailment") == requests.Entailment("The tomato burst.", OPTIONS)
    assert request_of("similarity") == requests.Similarity("The tomato burst.", OPTIONS)


def test_examples_come_as_turns():
    plain, reasoned = request_of("few_shot"), request_of("chain_of_thought")
    assert request_of("few_shot_options") == requests.Options(plain.turns, ("Option 1", "Option 2"), prefix_turns=8)
    for request in (plain, reasoned):
        assert [turn.role for turn in request.turns] == ["user", "assistant"] * 4 + ["user"]
        assert request.prefix_turns == 8
        assert [INSTRUCTION in turn.text for turn in request.turns] == [True] + [False] * 8
        assert request.turns[-1].text.startswith("Sentence: The tomato burst.\nOption 1: The tomato was green.")
    assert [turn.text for turn in plain.turns[1::2]] == ["Option 1", "Option 2", "Option 1", "Option 2"]
    for short, long in zip(plain.turns[1::2], reasoned.turns[1::2], strict=True):
        assert long.text.endswith(f" So the answer is {short.text}.")
        assert read_choice(long.text, reasoning=True) == read_choice(short.text)
    assert reasoned.max_tokens > plain.max_tokens


def test_our_examples_share_nothing_with_our_items():
    objects = {item.object for item in data.read_items(winoviz.OUR_SET)}
    examples = winoviz.prompts()["examples"]["items"]
    assert len(examples) == 4
    for example in examples:
        words = f"{example['premise']} {' '.join(example['options'])}".lower()
        assert not {name for name in objects if f" {name}" in words}


def test_reading_texts():
    read = winoviz.PROTOCOLS["zero_shot"].read
    assert read(QUESTION, [requests.Response(text="Option 2")]) == Answer(requests.ANSWERED, 1)
    assert read(QUESTION, [requests.Response(text="Maybe")]) == Answer(requests.UNPARSABLE)
    assert read(QUESTION, [requests.Response()]) == Answer(requests.UNPARSABLE)


def test_reasoning_that_was_cut_off_is_no_answer():
    read = winoviz.PROTOCOLS["chain_of_thought"].read
    cut = requests.Response(text="A tomato that bursts fits Option 2", finish="length")
    assert read(QUESTION, [cut]) == Answer(requests.UNPARSABLE)
    assert read(QUESTION, [dataclasses.replace(cut, finish="stop")]) == Answer(requests.ANSWERED, 1)
    stated = dataclasses.replace(cut, text="It is ripe. So the answer is Option 2. Also,")
    assert read(QUESTION, [stated]) == Answer(requests.ANSWERED, 1)


def test_reading_scores():
    for name in ("zero_shot_options", "entailment", "similarity"):
        read = winoviz.PROTOCOLS[name].read
        assert read(QUESTION, [requests.Response(scores=(0.25, 0.75))]) == Answer(
            requests.ANSWERED, 1, scores=(0.25, 0.75)
        )
        assert read(QUESTION, [requests.Response(scores=(0.5, 0.5))]).tie


def test_swapped_options():
    protocol = winoviz.PROTOCOLS["zero_shot_swapped"]
    there, back = protocol.requests(QUESTION)
    assert there == request_of("zero_shot")
    assert back.turns[0].text.endswith("Option 1: The tomato was red.\nOption 2: The tomato was green.\nAnswer:")
    steady = protocol.read(QUESTION, [requests.Response(text="Option 2"), requests.Response(text="Option 1")])
    assert steady == Answer(requests.ANSWERED, 1, choices=(1, 1))
    biased = protocol.read(QUESTION, [requests.Response(text="Option 1"), requests.Response(text="Option 1")])
    assert biased == Answer(requests.ANSWERED, 0, choices=(0, 1))
    # A repeated sentence is read by the order in which it was listed.
    repeated = protocol.read(QUESTION, [requests.Response(text=OPTIONS[1]), requests.Response(text=OPTIONS[1])])
    assert repeated.choices == (1, 1)
    half = protocol.read(QUESTION, [requests.Response(text="?"), requests.Response(text="Option 1")])
    assert half == Answer(requests.UNPARSABLE, choices=(None, 1))
    assert protocol.read(QUESTION, [requests.Response(text="Option 1"), None]).status == requests.FAILED
    scored = winoviz.PROTOCOLS["few_shot_options_swapped"].read(
        QUESTION, [requests.Response(scores=(-2.0, -1.0)), requests.Response(scores=(-3.0, -3.0))]
    )
    assert scored == Answer(requests.ANSWERED, 1, choices=(1, None), scores=(-2.0, -1.0))


def asked(*pairs):
    return [
        TextQuestion(f"{name}#{number + 1}", {}, OPTIONS, number, (group,), name)
        for name, group in pairs
        for number in (0, 1)
    ]


def test_metrics_by_hand():
    questions = asked(("a", "color"), ("b", "color"), ("c", "shape"), ("d", "shape"))
    answers = [
        *(Answer(requests.ANSWERED, 0), Answer(requests.ANSWERED, 1)),  # both right
        *(Answer(requests.ANSWERED, 0), Answer(requests.ANSWERED, 0)),  # one right
        *(Answer(requests.UNPARSABLE), Answer(requests.ANSWERED, 1, tie=True)),  # none
        *(Answer(requests.FAILED), Answer(requests.ANSWERED, 1)),  # one right, the other one unknown
    ]
    rows = winoviz.metrics(questions, answers)
    assert list(rows) == [
        *("individual", "pair"),
        *("color/individual", "color/pair"),
        *("shape/individual", "shape/pair"),
        "unparsable",
    ]
    assert {name: (row["value"], row["n"]) for name, row in rows.items()} == {
        "individual": (4 / 7, 7),
        "pair": (1 / 3, 3),
        "color/individual": (3 / 4, 4),
        "color/pair": (1 / 2, 2),
        "shape/individual": (1 / 3, 3),
        "shape/pair": (0.0, 1),
        "unparsable": (1 / 7, 7),
    }
    assert [rows[name]["chance"] for name in ("individual", "shape/pair", "unparsable")] == [0.5, 0.25, None]
    assert [rows[name]["ties"] for name in ("individual", "pair", "color/pair", "unparsable")] == [1, 1, 0, 0]
    expected = clustered([1, 1, 1, 0, 0, 0, 1], ["a", "a", "b", "b", "c", "c", "d"])
    assert (rows["individual"]["low"], rows["individual"]["high"]) == expected[1:]
    assert (rows["pair"]["low"], rows["pair"]["high"]) == pytest.approx(wilson(1, 3)[1:])
    json.dumps(rows)


def test_position_bias_by_hand():
    questions = asked(("a", "color"), ("b", "color"))
    answers = [
        Answer(requests.ANSWERED, 0, choices=(0, 0)),  # right in both orders; listed first, listed second
        Answer(requests.ANSWERED, 0, choices=(0, 1)),  # the first one in both orders
        Answer(requests.ANSWERED, 0, choices=(0, None)),  # the first one, then nothing
        Answer(requests.UNPARSABLE, choices=(None, 0)),  # nothing, then the second one
    ]
    rows = winoviz.metrics(questions, answers)
    assert {name.partition("/")[2]: (row["value"], row["n"]) for name, row in rows.items() if "bias" in name} == {
        "first_option": (4 / 6, 6),
        "flipped": (1 / 2, 2),
        "right_in_both_orders": (1 / 4, 4),
    }
    assert rows["individual"]["value"] == 1 / 2
    assert rows["position_bias/first_option"]["chance"] == 0.5


@pytest.fixture
def user_dir(tmp_path):
    """A user's set of two single-hop items, one of which is there in all versions."""
    items = [item for item in data.read_items(winoviz.OUR_SET) if item.id.partition("/")[2] in ("tomato", "fish")]
    singles = [item for item in items if item.version == "single"]
    others = [item for item in items if item.version != "single" and "tomato" in item.id]
    (tmp_path / "winoviz").mkdir()
    data.write_items(tmp_path / "winoviz" / "items.csv", singles + others)
    return str(tmp_path)


def test_our_tasks_need_no_data():
    counts = {"single": 134, "multi": 102, "decoupled": 222}
    for version, count in counts.items():
        task = get_text_task(f"winoviz_mini_{version}")
        assert (task.ready(None), task.count(None)) == (None, count)
        assert "not the paper's" in task.description
        questions = list(task.load(None, None))
        assert len({question.id for question in questions}) == len(questions) == count
        assert task.data_fingerprint(None, None).startswith("winobench-mini:")


def test_a_users_set(user_dir):
    single, multi, decoupled = (get_text_task(f"winoviz_{name}") for name in ("single", "multi", "decoupled"))
    assert [task.count(user_dir) for task in (single, multi, decoupled)] == [4, 2, 6]
    first, second = list(single.load(user_dir, None))[:2]
    assert (first.id, first.answer, second.id, second.answer) == ("single/tomato#1", 0, "single/tomato#2", 1)
    assert first.options == second.options == ("The tomato was green.", "The tomato was red.")
    assert (first.pair, first.groups) == ("single/tomato", ("color",))
    assert "ripe" in first.texts["premise"]
    assert [question.groups for question in decoupled.load(user_dir, None)] == [
        *(("combined",),) * 2,
        *(("pragmatic",),) * 2,
        *(("visual",),) * 2,
    ]
    assert single.data_fingerprint(user_dir, None).startswith("user:")


def test_limits_choose_pairs_that_stay_the_same():
    for version, of_a_unit in (("single", 2), ("decoupled", 6)):
        task = get_text_task(f"winoviz_mini_{version}")
        some = [question.id for question in task.load(None, 5)]
        more = [question.id for question in task.load(None, 9)]
        assert len(some) == 5 * of_a_unit
        assert set(some) < set(more)
        assert task.data_fingerprint(None, 5) != task.data_fingerprint(None, 9)
        assert task.data_fingerprint(None, 1000) == task.data_fingerprint(None, None)


def test_rule_breaks_of_a_user_are_counted_and_asked_all_the_same(user_dir, tmp_path, caplog):
    path = tmp_path / "winoviz" / "items.csv"
    items = data.read_items(path)
    broken = dataclasses.replace(items[0], premises=("The tomato is far from ripe.", items[0].premises[1]))
    data.write_items(path, [broken, *items[1:]])
    with caplog.at_level(logging.WARNING):
        assert len(list(get_text_task("winoviz_single").load(user_dir, None))) == 4
    (record,) = caplog.records
    assert "2 breaks of the paper's annotation rules in 1 of 2 items" in record.getMessage()


def test_missing_and_bad_data(user_dir, tmp_path):
    task = get_text_task("winoviz_single")
    nowhere = str(tmp_path / "nowhere")
    assert "has neither items.jsonl nor items.csv" in task.ready(nowhere)
    assert task.count(nowhere) is None
    with raises("data-not-ready", "items.jsonl", "items.csv"):
        task.load(nowhere, None)
    path = tmp_path / "winoviz" / "items.csv"
    items = data.read_items(path)
    data.write_items(path, items[:1])
    assert "has no multi items: build some" in get_text_task("winoviz_multi").ready(user_dir)
    data.write_items(path, [item for item in items if item.version != "visual"])
    assert "no visual item of the source 'single/tomato'" in get_text_task("winoviz_decoupled").ready(user_dir)
    data.write_items(tmp_path / "winoviz" / "items.jsonl", items)
    assert "has both items.jsonl and items.csv" in task.ready(user_dir)


def test_published_numbers():
    numbers = published_numbers.numbers(paper="winoviz")
    counts = {table: sum(number.table == table for number in numbers) for table in "12346"}
    assert counts == {"1": 24, "2": 24, "3": 12, "4": 15, "6": 8}
    assert len(numbers) == sum(counts.values())
    gpt4 = {(one.task, one.metric): (one.printed, one.n) for one in numbers if one.model == "gpt-4"}
    assert gpt4 == {
        ("winoviz_single", "individual"): ("90.25", 872),
        ("winoviz_single", "pair"): ("81.19", 436),
        ("winoviz_multi", "individual"): ("72", 200),
        ("winoviz_multi", "pair"): ("45", 100),
        ("winoviz_decoupled", "pragmatic/individual"): ("95.57", 158),
        ("winoviz_decoupled", "visual/individual"): ("88.61", 158),
        ("winoviz_decoupled", "combined/individual"): ("85.44", 158),
    }
    tasks = [get_text_task(task) for task in {number.task for number in numbers}]
    assert {number.protocol for number in numbers} <= set(tasks[0].protocols)


def test_the_numbers_of_questions_are_what_the_digits_imply():
    """A printed number is some whole number of questions over n, rounded or cut to two digits."""
    unexplained = []
    for number in published_numbers.numbers(paper="winoviz"):
        count = number.value * number.n
        near = [100 * whole / number.n for whole in (int(count), int(count) + 1)]
        if all(abs(value - 100 * number.value) >= 0.01 for value in near):
            unexplained.append((number.row, number.column))
    # As the file's notes say.
    assert unexplained == [
        ("GPT-3", "Single-hop / Pair"),
        ("GPT-3.5", "Single-hop / Pair"),
        ("GPT-3.5 (0)", "Single-hop / Pair"),
        ("LLaVA", "Combined"),
    ]


def test_published_numbers_of_a_model():
    def of_model(task, model):
        return [n for n in published.numbers_of_task(task) if published._is_winoviz_model(n.model, model)]

    found = of_model("winoviz_multi", "google/flan-t5-xxl")
    assert [(one.table, one.row, one.metric, one.printed) for one in found[:3]] == [
        ("1", "FLAN-T5-XXL", "individual", "68.09"),
        ("1", "FLAN-T5-XXL", "pair", "40.43"),
        ("2", "FLAN-T5 (0)", "individual", "68.09"),
    ]
    assert found == of_model("winoviz_multi", "FLAN-T5-XXL")
    assert [one.row for one in of_model("winoviz_decoupled", "openai:gpt-4-0314")] == ["GPT-4"] * 3
    assert of_model("winoviz_single", "someone/other-model") == []
    assert [one.printed for one in of_model("winoviz_single", "flan-t5-base")] == ["67.89", "40.37"]
    assert published.numbers_of_task("winoviz_mini_single") == []
    assert len(published.numbers_of_task("winoviz_single")) == 38
