"""Claims about lists of objects: by hand, and against every caption that the scenes' own code says is true or false."""

import numpy as np
import pytest

from tests.clevr import claims
from winobench.base.errors import InputError
from winobench.clevr import (
    captions as clevr_captions,
)
from winobench.clevr import (
    objects as clevr_objects,
)
from winobench.clevr import (
    questions,
)
from winobench.clevr import (
    scenes as clevr_scenes,
)
from winobench.clevr.objects import SceneObject


def thing(text, right, depth=0.0):
    size, color, material, shape = text.split()
    return SceneObject(shape, color, size, material, right, 0.5, 0.1, depth)


RED_CUBE = thing("large red metal cube", 0.2, depth=-1.0)
BLUE_BALL = thing("small blue rubber sphere", 0.7, depth=1.0)
RED_BALL = thing("small red rubber sphere", 0.45, depth=0.0)


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("A red object.", True),
        ("A gray object.", False),
        ("A cylinder.", False),
        ("A red sphere.", True),
        ("A blue cube.", False),
        ("a large red metal cube", True),
        ("A small red metal cube.", False),
        ("A red cube and a blue sphere.", True),
        ("A blue cube and a red sphere.", False),
        # One object is not two.
        ("A red cube and a large cube.", False),
        ("A red cube and a red object.", True),
        ("A red object, a red object and a red object.", False),
        ("There is a red cube, a blue sphere and a red sphere.", True),
        ("There is a red cube, a blue sphere and a blue cube.", False),
        ("On the left is a red cube.", True),
        ("On the right is a red cube.", False),
        ("On the left is a red cube and on the right is a small blue rubber sphere.", True),
        ("On the right is a red cube and on the left is a small blue rubber sphere.", False),
        ("There are two spheres.", True),
        ("There are three spheres.", False),
        ("Two red objects.", True),
        ("Two large red objects.", False),
        ("There is one cube.", True),
        ("One sphere.", False),
        ("There is no cylinder.", True),
        ("There is no red sphere.", False),
        ("The red cube is left of the blue sphere.", True),
        ("The red cube is right of the blue sphere.", False),
        ("The red cube is in front of the blue sphere.", True),
        ("The red cube is behind the blue sphere.", False),
        ("The red cube is larger than the blue sphere.", True),
        ("The red cube is smaller than the blue sphere.", False),
        ("The red sphere is smaller than the blue sphere.", False),  # they are as large
        ("The sphere is right of the red cube.", False),  # there are two
        ("The gray sphere is right of the red cube.", False),  # there is none
        ("The blue sphere is behind both the red sphere and the red cube.", True),
        ("The red sphere is behind both the blue sphere and the red cube.", False),
        ("All cubes are red.", True),
        ("All spheres are red.", False),
        ("All cylinders are red.", False),  # of none nothing is said
        ("Some spheres are red and some are not.", True),
        ("Some cubes are red and some are not.", False),
        ("No cube is blue.", True),
        ("No sphere is blue.", False),
        ("No small sphere is gray.", True),
    ],
)
def test_claims_by_hand(caption, expected):
    objects = [RED_CUBE, BLUE_BALL, RED_BALL]
    assert claims.holds(caption, objects) is expected
    assert claims.holds(caption, objects[::-1]) is expected


def test_places_are_those_of_the_halves_and_of_a_margin():
    objects = [RED_BALL]  # 0.1 halves left of the middle
    assert claims.holds("On the left is a red sphere.", objects)
    assert not claims.holds("On the left is a red sphere.", objects, margin=0.14)
    assert not claims.holds("On the right is a red sphere.", objects)


def test_an_empty_picture_shows_nothing():
    assert not claims.holds("A cube.", [])
    assert claims.holds("There is no red cube.", [])


@pytest.mark.parametrize(
    "caption",
    ["", "A pink cube.", "A cube red.", "The red cube.", "There are two cube.", "A cube and.", None, "a" * 9_000],
)
def test_other_captions_are_refused(caption):
    with pytest.raises(InputError, match="is not one of those about CLEVR scenes"):
        claims.holds(caption, [RED_CUBE])


def test_the_questions_about_two_objects_have_the_answers_that_they_were_made_with():
    scenes = clevr_scenes.sample_task_scenes(40, split="train")
    for things, objects in zip(clevr_captions.describe(scenes), clevr_objects.of_scenes(scenes), strict=True):
        colors = {one.color for one in things}
        distractor = next(color for color in clevr_scenes.COLORS if color not in colors)
        for pairs in clevr_captions.items(things, distractor).values():
            for true, false in pairs:
                assert claims.holds(true, objects)
                assert not claims.holds(false, objects)


def test_training_captions_are_true():
    scenes = clevr_scenes.sample_free_scenes(60, min_objects=1, max_objects=5)
    weights = dict.fromkeys(clevr_captions.FORMS, 1.0)
    captions = clevr_captions.training_captions(scenes, np.random.default_rng(0), per_scene=13, weights=weights)
    for texts, objects in zip(captions, clevr_objects.of_scenes(scenes), strict=True):
        assert all(claims.holds(text, objects) for text in texts)


@pytest.mark.parametrize("group", questions.GROUPS)
def test_of_a_hard_question_one_candidate_is_true(group):
    for number in range(12):
        question = questions.question(group, number, split="train")
        for scene, target in ((question.scene, question.target), (question.other_scene, question.other)):
            (objects,) = clevr_objects.of_scenes(scene)
            assert [claims.holds(text, objects) for text in question.texts] == [
                at == target for at in range(len(question.texts))
            ]
