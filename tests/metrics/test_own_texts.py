"""Every image of a group finds its own text."""

import numpy as np
import pytest

from winobench.metrics import METRICS
from winobench.metrics.own_texts import OWN_TEXTS, judge


def test_by_hand():
    scores = np.array(
        [
            [[3, 1, 2, 0], [0, 5, 4, 1]],  # both find theirs
            [[3, 1, 2, 0], [6, 5, 4, 1]],  # the second one prefers the first text
            [[3, 1, 2, 0], [0, 5, 4, 6]],  # a text that belongs to neither
            [[3, 1, 3, 0], [0, 5, 4, 1]],  # a tie is wrong
            [[3, 1, 2, 0], [0, 0, 4, 0]],  # wrong, and tied besides
        ],
        float,
    )
    outcome = judge(scores, None)["own_texts"]
    assert outcome.correct.tolist() == [True, False, False, False, False]
    assert outcome.tie.tolist() == [False, False, False, True, True]


def test_of_square_groups_it_is_the_text_score():
    scores = np.random.default_rng(0).normal(size=(300, 3, 3))
    own, text = judge(scores, None)["own_texts"], METRICS["winoground"].judge(scores, None)["text"]
    np.testing.assert_array_equal(own.correct, text.correct)
    assert 0 < own.correct.sum() < 300


def test_chance_is_that_of_guessing():
    scores = np.random.default_rng(1).normal(size=(20_000, 2, 4))
    assert OWN_TEXTS.chance((2, 4)) == {"own_texts": 1 / 16}
    assert abs(judge(scores, None)["own_texts"].correct.mean() - 1 / 16) < 0.006  # 3.5 standard errors


def test_sets_of_scores_are_judged_at_once():
    scores = np.random.default_rng(2).normal(size=(50, 2, 4, 3))
    together = judge(scores, None)["own_texts"].correct
    for number in range(3):
        np.testing.assert_array_equal(together[:, number], judge(scores[..., number], None)["own_texts"].correct)


@pytest.mark.parametrize(
    ("shape", "targets"), [((1, 3, 2), None), ((1, 1, 1), None), ((1, 2), None), ((2, 2, 4), np.zeros(2, int))]
)
def test_what_it_is_not_for(shape, targets):
    with pytest.raises(ValueError, match="own_texts"):
        judge(np.zeros(shape), targets)
    with pytest.raises(ValueError, match="finite"):
        judge(np.full((1, 2, 4), np.nan), None)
