"""GenEval's prompts as questions, and when an image is correct.

The rule was compared with ``evaluate`` of djghosh13/geneval af4902f on 11,060 synthetic scenes, 20 for each published
prompt, with truthful answers: all verdicts are the same.
"""

import pytest

from winobench.prompts.prompt_files import Prompt
from winobench.rubrics import geneval
from winobench.runs.requests import ImageText, InputImage, Response

(RUBRIC,) = geneval.RUBRICS
COUNTING = {"include": [{"class": "bus", "count": 3}], "exclude": [{"class": "bus", "count": 4}]}
POSITION = {"include": [{"class": "dog", "count": 1}, {"class": "orange", "count": 1, "position": ["left of", 0]}]}
COLOR_ATTR = {
    "include": [{"class": "cow", "count": 1, "color": "orange"}, {"class": "car", "count": 2, "color": "red"}]
}


def texts(content):
    return [question.text for question in geneval.questions(content)]


def correct(content, *answers, category="tag"):
    scores = RUBRIC.scores(
        Prompt("1", "x", category, content), [Response(text=answer) for answer in answers], "picture_text"
    )
    return {(score.metric, score.group): score.value for score in scores}


def test_questions_by_hand():
    assert texts(COUNTING) == ["How many objects of this kind are in this image: bus? Answer with a number."]
    assert texts(POSITION) == [
        "Is there a dog in this image? Answer yes or no.",
        "Is there an orange in this image? Answer yes or no.",
        "Is the orange to the left of the dog in this image? Answer yes or no.",
    ]
    assert texts(COLOR_ATTR) == [
        "Is there an orange cow in this image? Answer yes or no.",
        "How many objects of this kind are in this image: red car? Answer with a number.",
    ]
    assert texts({"include": [{"class": "cat", "count": 1}], "exclude": [{"class": "dog", "count": 1}]}) == [
        "Is there a cat in this image? Answer yes or no.",
        "How many objects of this kind are in this image: dog? Answer with a number.",
    ]
    image = InputImage("a.png", "0" * 64)
    (request,) = RUBRIC.requests(Prompt("1", "x", "counting", COUNTING), image, "picture_text")
    assert request == ImageText(image, texts(COUNTING)[0])


def test_an_image_is_correct_if_all_answers_are_right():
    assert correct(POSITION, "Yes.", "yes", "Yes, it is") == {
        ("accuracy", "all"): 1.0,
        ("accuracy", "tag"): 1.0,
        ("unread", "all"): 0.0,
        ("answers_read", "all"): 1.0,
    }
    assert correct(POSITION, "Yes.", "yes", "no")["accuracy", "all"] == 0.0
    found = correct(POSITION, "Yes.", "perhaps", "yes")
    assert (found["accuracy", "all"], found["unread", "all"]) == (0.0, pytest.approx(1 / 3))
    numbers = [correct(COUNTING, answer)["accuracy", "all"] for answer in ("2", "three", "There are 3.", "4", "many")]
    assert numbers == [0.0, 1.0, 1.0, 0.0, 0.0]
    # Two or more are enough where nothing is excluded.
    assert correct(COLOR_ATTR, "yes", "5")["accuracy", "all"] == 1.0
    assert correct({"include": [], "exclude": [{"class": "dog", "count": 1}]}, "none")["accuracy", "all"] == 1.0


def test_what_fits():
    for content in (COUNTING, POSITION, COLOR_ATTR):
        assert RUBRIC.fits(Prompt("1", "x", "tag", content))
    for content in (
        None,
        {},
        {"include": []},
        {"include": [{"class": "dog"}]},
        {"include": [{"class": "dog", "count": 0}]},
        {"include": [{"class": "dog", "count": 1, "position": ["near", 0]}]},
        {"include": [{"class": "dog", "count": 1, "position": [["above"], 0]}]},
        {"include": [{"class": "dog", "count": 1, "position": ["above", 3]}]},
        {"include": [{"class": "dog", "count": 1}], "exclude": [{}]},
        {"objects": []},
    ):
        assert not RUBRIC.fits(Prompt("1", "x", "tag", content))
    assert not RUBRIC.is_published("anything")
    assert RUBRIC.macros["accuracy", "mean of tags"][0] == "single_object"
