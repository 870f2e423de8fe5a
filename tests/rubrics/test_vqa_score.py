"""VQAScore of prompts: what a judge is asked, and means by skill as GenAI-Bench's code has them."""

import math

import pytest

from winobench.base.errors import InputError
from winobench.prompts.prompt_files import Prompt
from winobench.rubrics.vqa_score import RUBRICS
from winobench.runs.requests import ImageMatch, ImageOptions, InputImage, Response

(RUBRIC,) = RUBRICS
IMAGE = InputImage("a.png", "0" * 64)


def prompt(number, *skills):
    return Prompt(f"{number:05d}", f"prompt {number}", "", {"skills": list(skills)})


def test_the_prompt_is_matched_or_asked_about():
    one = prompt(1, "counting")
    assert [*RUBRIC.requests(one, IMAGE, "picture_match")] == [ImageMatch(IMAGE, ("prompt 1",))]
    asked = 'Does this figure show "prompt 1"? Please answer yes or no.'
    assert [*RUBRIC.requests(one, IMAGE, "picture_options")] == [ImageOptions(IMAGE, asked, ("yes", "no"))]
    (whole, _) = RUBRIC.scores(one, [Response(scores=(math.log(0.3), -1.0))], "picture_options")
    assert whole.value == pytest.approx(0.3)


def test_means_by_skill_are_those_of_genai_bench():
    """The five prompts, with a tie: genai_bench/evaluate.py of t2v_metrics 6ecb74f gave these means for the same."""
    prompts = [
        prompt(0, "attribute", "basic"),
        prompt(1, "attribute", "counting", "advanced"),
        prompt(2, "counting", "advanced"),
        prompt(3, "basic"),
        prompt(4),
    ]
    found = {}
    for one, value in zip(prompts, (0.5, 0.5, 0.25, 1.0, 0.125), strict=True):
        if RUBRIC.fits(one):
            for score in RUBRIC.scores(one, [Response(scores=(value,))], "picture_match"):
                found.setdefault(score.group, []).append(score.value)
    means = {group: sum(values) / len(values) for group, values in found.items()}
    # A prompt without a skill counts nowhere, as in the published code.
    assert means == {"all": 0.5625, "attribute": 0.5, "basic": 0.75, "counting": 0.375, "advanced": 0.375}


def test_any_prompt_fits_with_its_category():
    one = Prompt("1", "a cube", "color", {"include": []})
    assert RUBRIC.fits(one)
    assert RUBRIC.fits(Prompt("1", "a cube"))
    assert [score.group for score in RUBRIC.scores(one, [Response(scores=(0.5,))], "picture_match")] == ["all", "color"]


def test_scores_of_other_scorers_are_refused():
    with pytest.raises(InputError, match=r"the judge's score is -0\.2, but a VQAScore is a probability"):
        [*RUBRIC.scores(Prompt("1", "a cube"), [Response(scores=(-0.2,))], "picture_match")]
    RUBRIC.check_judge("qwen", {"match": {"scorer": "vqa_score"}}, "picture_match")
    RUBRIC.check_judge("api", {"responder": "hosted"}, "picture_options")
    with pytest.raises(InputError, match=r"clip cannot judge by vqa_score, which .* not of contrastive: name a judge"):
        RUBRIC.check_judge("clip", {"scorer": "contrastive"}, "picture_match")
    assert RUBRIC.is_published("zhiqiulin/clip-flant5-xxl")
    assert not RUBRIC.is_published("instructblip-flan-t5-xl")
