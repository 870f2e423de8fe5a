"""NaturalBench's scores, against what its published code makes of answers, and by hand."""

import numpy as np
import pytest

from tests.metrics.test_own_texts import OWN_TEXTS
from winobench.metrics import METRICS
from winobench.metrics.all_answers import ALL_ANSWERS, judge


def test_by_hand():
    # Two questions' answers beside each other; the first image's are the first ones, the second image's the others.
    right = [[2, 1, 2, 1], [1, 2, 1, 2]]
    one_wrong = [[2, 1, 1, 2], [1, 2, 1, 2]]
    tied = [[2, 1, 2, 1], [1, 2, 2, 2]]
    outcome = judge(np.array([right, one_wrong, tied]), None)["all_answers"]
    assert outcome.correct.tolist() == [True, False, False]
    assert outcome.tie.tolist() == [False, False, True]
    assert ALL_ANSWERS.pairs((2, 4)).tolist() == [[True, False, True, False], [False, True, False, True]]
    # Of one image alone.
    assert judge(np.array([[[2, 1, 2, 1]], [[2, 1, 1, 2]]]), None)["all_answers"].correct.tolist() == [True, False]


def test_the_four_forms_are_the_published_scores():
    """Q_Acc, I_Acc, Acc and G_Acc of the answers "yes", where each answer of an image is right by itself or wrong."""
    scores = np.random.default_rng(0).integers(0, 9, (400, 2, 2, 2)) + 0.25 * np.array(
        [0, 1]
    )  # image, question, answer
    says_first = scores[..., 0] > scores[..., 1]
    right = says_first == (np.arange(2)[:, None] == np.zeros(2))  # the first answer is that of the first image
    together = judge(scores.reshape(400, 2, 4), None)["all_answers"].correct
    np.testing.assert_array_equal(together, right.all(axis=(1, 2)))
    for image in (0, 1):
        own_first = scores[:, image, :, :: 1 if image == 0 else -1].reshape(400, 1, 4)
        np.testing.assert_array_equal(judge(own_first, None)["all_answers"].correct, right[:, image].all(axis=1))
    for question in (0, 1):
        found = OWN_TEXTS.judge(scores[:, :, question], None)["own_texts"].correct
        np.testing.assert_array_equal(found, right[:, :, question].all(axis=1))
    for image in (0, 1):
        found = METRICS["accuracy"].judge(scores[:, image, :1], np.full(400, image))["accuracy"].correct
        np.testing.assert_array_equal(found, right[:, image, 0])


def test_guessing():
    scores = np.random.default_rng(1).standard_normal((20_000, 2, 4))
    assert ALL_ANSWERS.chance((2, 4)) == {"all_answers": 1 / 16}
    assert ALL_ANSWERS.chance((1, 4)) == {"all_answers": 1 / 4}
    assert abs(judge(scores, None)["all_answers"].correct.mean() - 1 / 16) < 0.006  # 3.5 standard errors


@pytest.mark.parametrize(
    ("scores", "targets"),
    [(np.zeros((1, 3, 4)), None), (np.zeros((1, 2, 3)), None), (np.zeros((1, 2, 4)), np.array([0]))],
)
def test_what_is_no_question_is_refused(scores, targets):
    with pytest.raises(ValueError, match="all_answers"):
        judge(scores, targets)
    with pytest.raises(ValueError, match="finite"):
        judge(np.full((1, 2, 4), np.nan), None)
