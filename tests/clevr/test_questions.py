"""Harder questions: one candidate is true and the others are false, no text gives itself away, nothing is hidden."""

import collections
import itertools
import math
import re

import numpy as np
import pytest

from tests.clevr import clevr_grammar
from tests.clevr.clevr_grammar import true_of
from tests.expectations import names
from winobench.clevr import captions as clevr_captions
from winobench.clevr import questions as clevr_questions
from winobench.clevr import scenes as clevr_scenes

# A normal quantile of 99.9%, two-sided: some thirty intervals are looked at.
_Z = 3.3


def questions(group, count, **kwargs):
    return [clevr_questions.question(group, index, **kwargs) for index in range(count)]


def words_of(captions):
    return {word for caption in captions for word in re.findall(r"\w+|[.,]", caption.lower())}


@pytest.mark.parametrize("group", clevr_questions.GROUPS)
def test_one_candidate_is_true_of_each_picture(group):
    for question in questions(group, 60):
        assert len(set(question.texts)) == clevr_questions.GROUPS[group]
        assert question.target != question.other
        for scene, true in ((question.scene, question.target), (question.other_scene, question.other)):
            assert len(scene) == 1
            assert 3 <= scene.num_objects[0] <= 5
            things = clevr_grammar.facts(scene)
            found = [clevr_grammar.is_true(text, things) for text in question.texts]
            assert found == [index == true for index in range(len(found))], (question.texts, things)
        assert words_of(question.texts) <= set(clevr_questions.VOCABULARY)


def form_of(text):
    """A text without the names of things."""
    names = "|".join((*clevr_scenes.COLORS, *(f"{shape}s?" for shape in clevr_scenes.SHAPES)))
    return re.sub(rf"\b({names})\b", "_", text)


def accuracy_of_texts_alone(asked):
    """Of a linear model of words, pairs of words and what candidates share, on the half that it is not fitted to."""
    index = collections.defaultdict(lambda: len(index))
    features = [[_features(text, q.texts, place, index) for place, text in enumerate(q.texts)] for q in asked]
    table = np.zeros((len(asked), len(asked[0].texts), len(index)), np.float32)
    for row, candidates in enumerate(features):
        for place, columns in enumerate(candidates):
            table[row, place, columns] = 1.0
    targets = np.asarray([question.target for question in asked])
    half = len(asked) // 2
    weights = np.zeros(len(index), np.float32)
    truth = np.eye(table.shape[1], dtype=np.float32)[targets[:half]]
    for _ in range(60):
        scores = table[:half] @ weights
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        weights += 2.0 * (np.einsum("qc,qcf->f", truth - shares, table[:half]) / half - 1e-3 * weights)
    return np.mean((table[half:] @ weights).argmax(axis=1) == targets[half:])


def _features(text, texts, place, index):
    words = text.lower().rstrip(".").split()
    shared = sum(word in other.lower() for other in texts for word in words)
    names = [*words, *itertools.pairwise(words), ("shared", shared), ("place", place)]
    return [index[name] for name in names]


@pytest.mark.quick(2)
@pytest.mark.parametrize("group", clevr_questions.GROUPS)
def test_a_model_of_texts_alone_stays_at_chance(group):
    chance = 1 / clevr_questions.GROUPS[group]
    accuracy = accuracy_of_texts_alone(questions(group, 800))
    assert abs(accuracy - chance) < _Z * math.sqrt(chance * (1 - chance) / 400)


def test_a_text_that_gives_itself_away_is_found_by_that_model():
    asked = [q for index, q in enumerate(questions("left_right", 900)) if q.target == 0 or index % 2]
    chance = 1 / clevr_questions.GROUPS["left_right"]
    assert accuracy_of_texts_alone(asked) - chance > _Z * math.sqrt(chance * (1 - chance) / (len(asked) / 2))


def test_targets_are_spread_over_the_candidates_and_questions_over_everything():
    for group, number in clevr_questions.GROUPS.items():
        asked = questions(group, 200)
        counts = np.bincount([question.target for question in asked], minlength=number)
        assert np.all(np.abs(counts / 200 - 1 / number) < 4 * math.sqrt((1 - 1 / number) / number / 200))
        assert set(clevr_scenes.COLORS) <= words_of(text for question in asked for text in question.texts)


def test_a_question_depends_on_its_arguments_alone_and_splits_never_meet():
    first, again = (clevr_questions.question("size", 7, seed=3) for _ in range(2))
    assert first.texts == again.texts
    for name, array in first.scene.arrays().items():
        np.testing.assert_array_equal(array, again.scene.arrays()[name])
    places = set()
    for change in ({}, {"seed": 4}, {"split": "validation"}, {"split": "train"}):
        other = clevr_questions.question("size", 7, **{"seed": 3, **change})
        places.add(other.scene.position.tobytes())
    assert len(places) == 4


def test_training_captions_are_true():
    kinds = collections.Counter()
    for index in range(400):
        scene, (caption, *more) = clevr_questions._training_pair(index, 5, clevr_questions.WEIGHTS, 2)
        assert words_of([caption, *more]) <= set(clevr_questions.VOCABULARY)
        (things,) = clevr_captions.describe(scene)
        assert len(more) == 2
        assert all(true_of(simple, things) for simple in more)
        if re.match(r"(A|On the (left|right) is a) ", caption):
            kinds["simple"] += 1
            assert true_of(caption, things)
        else:
            kinds[form_of(caption)] += 1
            assert clevr_grammar.is_true(caption, clevr_grammar.facts(scene))
    assert 80 < kinds["simple"] < 190
    assert len(kinds) > 15


@pytest.mark.slow
def test_training_scenes_are_drawn_by_number():
    images, captions = clevr_questions.training_scenes(4, seed=1, size=32)
    assert images.shape == (4, 32, 32, 3)
    assert images.dtype == np.uint8
    some, said = clevr_questions.training_scenes(2, seed=1, start=2, size=32)
    np.testing.assert_array_equal(some, images[2:])
    assert said == captions[2:]
    assert len({image.tobytes() for image in images}) == 4
    others, _ = clevr_questions.training_scenes(2, seed=2, start=2, size=32)
    assert not np.any(np.all(others == some, axis=(1, 2, 3)))
    _, counted = clevr_questions.training_scenes(2, size=32, weights={"counting": 1.0})
    assert all(caption.startswith("There are ") for (caption,) in counted)
    _, several = clevr_questions.training_scenes(2, size=32, weights={"counting": 1.0}, num_simple=3)
    assert [captions[:1] for captions in several] == counted
    assert {len(captions) for captions in several} == {4}


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: clevr_questions.question("poems", 0), ("group", "poems")),
        (lambda: clevr_questions.question("size", 0, split="test"), ("split", "'test'")),
        *(
            (lambda weights=weights: clevr_questions.training_scenes(1, weights=weights), ("weights",))
            for weights in ({}, {"poems": 1.0}, {"size": -1.0, "simple": 2.0})
        ),
    ],
)
def test_wrong_arguments_are_refused(call, named):
    with pytest.raises(ValueError, match=names(*named)):
        call()


def test_scenes_are_in_frame_and_spread():
    scenes = clevr_scenes.concatenate([q.scene for group in clevr_questions.GROUPS for q in questions(group, 40)])
    there = np.arange(5) < scenes.num_objects[:, None]
    boxes = clevr_scenes.project_boxes(scenes)[there]
    assert boxes.min() > 0
    assert boxes.max() < 1
    # The narrowest object has six of 64 pixels.
    assert 64 * (boxes[:, 2] - boxes[:, 0]).min() > 6
    y = scenes.position[there][:, 1]
    assert y.min() < -2.5
    assert y.max() > 3
    centers = clevr_scenes.project_centers(scenes)[there]
    assert centers[:, 0].min() < 0.2
    assert centers[:, 0].max() > 0.8


@pytest.mark.slow
def test_nobody_is_hidden():
    scenes = clevr_scenes.concatenate([q.scene for group in clevr_questions.GROUPS for q in questions(group, 24)])
    assert min(clevr_grammar.seen_shares(scenes, 96)) > 0.85
