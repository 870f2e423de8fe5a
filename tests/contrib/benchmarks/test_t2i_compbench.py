"""T2I-CompBench++'s questions and scores, against numbers and texts of the published code (1b70949)."""

import hashlib

import pytest

from winobench.base.errors import InputError
from winobench.contrib.benchmarks.rubrics import t2i_compbench
from winobench.prompts.prompt_files import Prompt
from winobench.runs.requests import ImageMatch, ImageOptions, InputImage, Response

BLIP_VQA, CLIP_SCORE, MLLM = t2i_compbench.RUBRICS
IMAGE = InputImage("a.png", "0" * 64)
COLOR = Prompt("color-1", "a green bench and a red car", "color")


def asked(prompt):
    (request,) = MLLM.requests(prompt, IMAGE, "picture_text")
    return request.question


def test_each_noun_phrase_is_a_question():
    assert [*BLIP_VQA.requests(COLOR, IMAGE, "picture_options")] == [
        ImageOptions(IMAGE, "a green bench?", ("yes", "no")),
        ImageOptions(IMAGE, "a red car?", ("yes", "no")),
    ]
    assert BLIP_VQA.fits(COLOR)
    assert not BLIP_VQA.fits(Prompt("spatial-1", "a green bench and a red car", "spatial"))
    long = "A red carpet in a bathroom with white fixtures."
    assert not BLIP_VQA.fits(Prompt("color-2", long, "color"))
    assert BLIP_VQA.fits(Prompt("color-2", long, "color", {"phrases": ["A red carpet"]}))
    for damaged in (5, "A red carpet", [5]):
        assert not BLIP_VQA.fits(Prompt("color-2", long, "color", {"phrases": damaged}))


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        # Log-likelihoods of yes and no, and the published product, which rounds to four digits. Ties are 0.5.
        ([(-0.1, -2.5), (0.4, 0.4)], 0.4584),
        ([(-3.0, -0.05), (-1.0, -1.0), (-0.2, -1.8)], 0.0207),
        ([(0.0, -800.0)], 1.0),
        ([(-800.0, 0.0)], 0.0),
    ],
)
def test_the_score_is_the_product(scores, expected):
    (found,) = BLIP_VQA.scores(COLOR, [Response(scores=pair) for pair in scores], "picture_options")
    assert (found.metric, found.group) == ("blip_vqa", "color")
    assert found.value == pytest.approx(expected, abs=1.5e-4)


def test_clip_score_is_a_cosine():
    prompt = Prompt("non_spatial-1", "a man reads", "non_spatial")
    assert CLIP_SCORE.fits(prompt)
    assert not CLIP_SCORE.fits(COLOR)
    assert [*CLIP_SCORE.requests(prompt, IMAGE, "picture_match")] == [ImageMatch(IMAGE, ("a man reads",))]
    assert [*CLIP_SCORE.scores(prompt, [Response(scores=(0.31,))], "picture_match")] == [
        ("clip_score", "non_spatial", 0.31)
    ]
    with pytest.raises(InputError, match=r"the judge's score is -7\.5, not the cosine of a CLIP"):
        [*CLIP_SCORE.scores(prompt, [Response(scores=(-7.5,))], "picture_match")]
    with pytest.raises(InputError, match="cannot judge by clip_score, which needs the scores of contrastive"):
        CLIP_SCORE.check_judge("sd21-base", {"scorer": "diffusion_itm"}, "picture_match")
    names = ("clip-vit-b32", "openai/clip-vit-base-patch32", "openclip-vit-b32", "clip-vit-l14")
    assert [*map(CLIP_SCORE.is_published, names)] == [True, True, False, False]


@pytest.mark.parametrize(
    ("category", "digest"),
    [
        ("color", "941d4c1aaa744852"),
        ("spatial", "78383d325bf0a73d"),
        ("non_spatial", "b13bf80b37fd20ad"),
        ("numeracy", "79632f4aa70ea487"),
        ("complex", "7e6a5e6752a73641"),
    ],
)
def test_questions_are_the_published_ones(category, digest):
    """SHA-256 of the texts that gpt4v_eval.py makes of the same prompt, with its blanks."""
    text = "a dog left of a cat"
    prompt = Prompt("1", text, category, {"phrases": ["a green bench"]} if category == "color" else None)
    assert MLLM.fits(prompt)
    assert hashlib.sha256(asked(prompt).encode()).hexdigest().startswith(digest)


def test_a_model_is_asked_about_all_phrases_at_once():
    question = asked(COLOR)
    assert question.count("Give a score from 0 to 100") == 2
    assert "4: there is bench, and color is green.\n" in question
    assert "4: there is car, and color is red.\n" in question
    assert asked(Prompt("1", "{x} and {}", "spatial")).count('"{x} and {}"') == 1


@pytest.mark.parametrize(
    ("text", "value", "read"),
    [
        ('{"score": 80, "explanation": "x"} {"score": 40, "explanation": "y"}', 0.6, 1.0),
        ('{"score": 40, "explanation": "x"}', 0.4, 0.0),
        ('{"score": 0, "x": 1} {"score": 0, "x": 1}', 0.0, 1.0),
        # The published code reads neither, and counts 0.
        ('{"score": "80", "explanation": "x"}', 0.0, 0.0),
        ('{"explanation": "x", "score": 80}', 0.0, 0.0),
        ('{"score": 400, "explanation": "x"} {"score": 50, "x": 1}', 0.5, 0.0),
        ("", 0.0, 0.0),
        (None, 0.0, 0.0),
    ],
)
def test_scores_are_read_as_published(text, value, read):
    assert [*MLLM.scores(COLOR, [Response(text=text)], "picture_text")] == [
        ("mllm", "color", pytest.approx(value)),
        ("unread", "all", 1 - read),
        ("answers_read", "all", read),
    ]
