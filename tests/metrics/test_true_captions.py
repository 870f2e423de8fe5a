"""All true captions against a false one, by hand."""

import numpy as np
import pytest

from winobench import metrics
from winobench.metrics.true_captions import ALL_TRUE


def test_every_true_caption_must_beat_the_false_one():
    scores = [np.array([row], float) for row in ([3, 2, 1], [3, 1, 2], [1, 3, 1], [1, 1, 2], [2, 2, 1])]
    outcome = ALL_TRUE(scores, [0] * 5)["all_true"]
    assert outcome.correct.tolist() == [True, False, False, False, True]
    assert outcome.tie.tolist() == [False, False, True, False, False]
    assert ALL_TRUE.chance((1, 3)) == {"all_true": 1 / 3}
    assert metrics.METRICS["all_true"] is ALL_TRUE


def test_many_sets_of_scores_at_once():
    scores = np.random.default_rng(0).normal(size=(7, 1, 3, 4))
    at_once = ALL_TRUE.judge(scores, np.zeros(7, int))["all_true"].correct
    for column in range(4):
        one = ALL_TRUE.judge(scores[..., column], np.zeros(7, int))["all_true"].correct
        assert at_once[:, column].tolist() == one.tolist()


@pytest.mark.parametrize("scores", [np.ones((2, 2, 3)), np.ones((2, 1, 1)), np.full((2, 1, 3), np.nan)])
def test_what_it_is_not_for(scores):
    with pytest.raises(ValueError, match="all_true"):
        ALL_TRUE.judge(scores, np.zeros(2, int))
    with pytest.raises(ValueError, match="all_true"):
        ALL_TRUE.judge(np.ones((1, 1, 3)), np.array([2]))
