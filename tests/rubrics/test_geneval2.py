"""GenEval 2's questions and Soft-TIFA, against numbers of the published code (facebookresearch/GenEval2 a6e82d2)."""

import json
import math

import pytest

from tests.expectations import raises
from winobench.generation.judged import summarise
from winobench.prompts.named_sets import read_prompts
from winobench.rubrics import geneval2
from winobench.rubrics.named_rubrics import RUBRICS, choose
from winobench.runs.requests import ImageOptions, ImageStarts, InputImage, Response

ROWS = [
    {
        "prompt": "four white bicycles",
        "atom_count": 3,
        "vqa_list": [["How many bicycles are in the image?", "four"], ["Are the bicycles white?", "Yes"]],
        "skills": ["count", "attribute"],
    },
    {
        "prompt": "a pig in front of a cow",
        "atom_count": 4,
        "vqa_list": [
            ["Is the pig in front of the cow?", "Yes"],
            ["Are there any pigs in the image?", "Yes"],
            ["How many cows are in the image?", "one"],
        ],
        "skills": ["position", "object", "count"],
    },
]
RUBRIC = RUBRICS["geneval2"]
IMAGE = InputImage("a.png", "0" * 64)


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"geneval2:{path}"


@pytest.fixture
def prompts(tmp_path):
    return read_prompts(write(tmp_path / "data.jsonl", ROWS))


def test_prompts(prompts):
    assert [(one.id, one.text, one.category) for one in prompts] == [
        ("00000", "four white bicycles", "3 atoms"),
        ("00001", "a pig in front of a cow", "4 atoms"),
    ]
    assert prompts[0].content == {name: value for name, value in ROWS[0].items() if name != "prompt"}
    assert choose(None, prompts) is RUBRIC


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"prompt": None}, "no prompt"),
        ({"atom_count": "3"}, "lacks atom_count"),
        ({"vqa_list": []}, "lacks atom_count or vqa_list"),
        ({"skills": ["count"]}, "another number of skills"),
        ({"skills": ["count", "smell"]}, "the skill 'smell'"),
        ({"vqa_list": [["How many?", "eleven"], ["Is it?", "Yes"]]}, "'eleven', not with a number from one to ten"),
        ({"vqa_list": [["How many?", "four"], ["Is it?", "No"]]}, "'No', not with Yes"),
        ({"vqa_list": [["How many?", "four"], "Is it?"]}, "not a question with its answer"),
    ],
)
def test_damaged_rows_are_named(tmp_path, change, said):
    with raises(None, said, "line 2"):
        read_prompts(write(tmp_path / "data.jsonl", [ROWS[1], ROWS[0] | change]))


def test_the_judge_reads_the_published_text_and_spellings(prompts):
    first, second = RUBRIC.requests(prompts[0], IMAGE, ImageStarts.kind)
    assert first.question == "How many bicycles are in the image? Answer in one word."
    assert first.starts == ("four", "Four", " four", " Four", "4", " 4")
    assert second.starts == ("Yes", "yes", " yes", " Yes")
    number, yes = RUBRIC.requests(prompts[0], IMAGE, ImageOptions.kind)
    assert (len(number.options), yes.options, number.question) == (10, ("Yes", "No"), first.question)


def test_scores_are_those_of_the_published_code(prompts):
    """evaluation.py and soft_tifa_analysis.py give AM 70.4167 and GM 67.6118 for these lists, and the groups below."""
    likely = [[0.5, 0.75], [0.9, 1.0, 0.45]]
    images = []
    for prompt, some in zip(prompts, likely, strict=True):
        answers = [Response(scores=(math.log(one),)) for one in some]
        images.append((prompt.text, [*RUBRIC.scores(prompt, answers, ImageStarts.kind)]))
    found = summarise(images, RUBRIC)
    am, gm = found[geneval2.AM], found[geneval2.GM]
    assert am["all"]["value"] == pytest.approx((0.625 + 0.78333333) / 2)
    assert gm["all"]["value"] == pytest.approx((0.375**0.5 + 0.405 ** (1 / 3)) / 2)
    assert {group: entry["value"] for group, entry in am.items()} == pytest.approx(
        {"all": am["all"]["value"], "count": 0.475, "attribute": 0.75, "position": 0.9, "object": 1.0}
    )
    assert {group: entry["value"] for group, entry in gm.items() if group != "all"} == pytest.approx(
        {"3 atoms": 0.375**0.5, "4 atoms": 0.405 ** (1 / 3)}
    )
    assert (am["count"]["n"], am["position"]["low"]) == (2, None)  # one prompt has no interval
    assert 0 <= am["all"]["low"] < am["all"]["value"] < am["all"]["high"] <= 1


def test_an_answer_that_cannot_be_makes_the_geometric_mean_zero(prompts):
    answers = [Response(scores=(-1e4,)), Response(scores=(0.0,))]
    scores = {(one.metric, one.group): one.value for one in RUBRIC.scores(prompts[0], answers, ImageStarts.kind)}
    assert (scores[geneval2.AM, "all"], scores[geneval2.GM, "all"]) == (0.5, 0.0)


def test_options_of_other_judges_are_shares_of_all_answers(prompts):
    """A judge that refuses has neither. Its answers count as unread where their shares are known to be of all."""
    number = Response(scores=tuple(math.log(0.4 if place == 3 else 0.02) for place in range(10)), unlisted=0.1)
    yes = Response(scores=(math.log(0.3), math.log(0.1)), unlisted=0.0)
    *found, unread = RUBRIC.scores(prompts[0], [number, yes], ImageOptions.kind)
    assert [score.value for score in found[2:4]] == pytest.approx([0.4, 0.3])
    assert unread == ("unread", "all", 0.5)


def test_unknown_rubrics_and_prompts_without_questions(prompts, tmp_path):
    with raises("unknown-name", "'geneval3'", "geneval2"):
        choose("geneval3", prompts)
    (path := tmp_path / "own.txt").write_text("a cat\n")
    with raises("no-content", "geneval2"):
        choose("geneval2", read_prompts(str(path)))
