import itertools

import numpy as np
import pytest
import scipy.stats

from tests.expectations import raises
from winobench.contrib.datasets import rating_measures as ratings
from winobench.metrics import RATING_METRICS, rating_results
from winobench.metrics.ratings import Rated


def values(measures, rated):
    return {name: measure.value(rated.num_prompts) for name, measure in measures.items()}


def random_rated(seed, size=40, prompts=8, *, levels=5, score_levels=None):
    """Pictures with ratings on a scale of few levels, and scores that follow them a little; with ties."""
    generator = np.random.default_rng(seed)
    of_people = generator.integers(1, levels + 1, size).astype(float)
    scores = of_people + generator.normal(0, 2, size)
    if score_levels:
        scores = np.round(scores * score_levels / 8)
    labels = np.append(np.arange(prompts), generator.integers(0, prompts, size - prompts))
    return Rated.of(scores, of_people, labels.tolist())


def test_five_pictures_by_hand():
    """Ratings 1, 2, 2, 3, 3 and scores 1, 2, 4, 4, 3, two prompts.

    Of ten pairs six are in the same order (12 13 14 15 24 25), one is not (35), two are ties of ratings (23 45), and
    one is a tie of scores (34).
    """
    rated = Rated.of([1, 2, 4, 4, 3], [1, 2, 2, 3, 3], "aabbb")
    result = values(ratings.rank_measures(rated), rated)
    concordant, discordant = 6, 1
    # Ten pairs, less two ties of ratings, and less one of scores.
    assert result["kendall_tau_b"] == pytest.approx((concordant - discordant) / np.sqrt(8 * 9))
    # Three classes of ratings, four of scores: 2 (C - D) / (n^2 (3 - 1) / 3).
    assert result["kendall_tau_c"] == pytest.approx(2 * 5 / (25 * 2 / 3))
    # Without new ties 6 of 10. A threshold of 1 makes ties of 12 (wrong), 25, 34, 35, 45: 13 14 15 24 and 45 are right.
    assert result["pairwise_accuracy"] == pytest.approx(0.6)
    assert ratings.rank_measures(rated)["pairwise_accuracy"].about == {"threshold": 0.0}
    # Prompt a has one pair, which is right; of b, 34 is a tie of scores only, 35 is wrong, 45 a tie of ratings only.
    assert result["within_prompt_kendall_tau_b"] == pytest.approx((1 + -1 / np.sqrt(2 * 2)) / 2)
    # All ties: 0 of 1 and 1 of 3. None: 1 of 1 and 0 of 3.
    assert result["within_prompt_pairwise_accuracy"] == pytest.approx(1 / 2)


def test_preferences_by_hand():
    """Ranks 1, 2, 2 and 1, 2: of three pairs that are ranked one is right, a tie of scores is wrong, as published."""
    rated = Rated.of([3, 1, 3, 0, 5], [-1, -2, -2, -1, -2], "aaabb")
    measures = ratings.preference_measures(rated)
    assert values(measures, rated)["preference_accuracy"] == pytest.approx(1 / 3)
    assert values(measures, rated)["mean_preference_accuracy"] == pytest.approx((1 / 2 + 0) / 2)
    assert measures["preference_accuracy"].about == {"pairs": 3}


def test_an_interval_of_tau_c_ends_at_one():
    """Resamples of these prompts have fewer ties than the 13 images together, whose scale they take."""
    rated = Rated.of([3, 0, 1, 1, 0, 3, 0, 1, 1, 0, 3, 0, 1], [1, 0, 0, 1, 1, 1, 1, 1, 0, 1, 0, 0, 1], "abcdabcdbcdcd")
    other = Rated.of([1, 1, 0, 0, 1, 1, 0, 0], [1, 1, 0, 0, 0, 0, 1, 1], "aabbccdd")
    for one in (rated, other):
        row = results(one)["kendall_tau_c"]
        assert -1 <= row["low"] <= row["value"] <= row["high"] <= 1
    # Prompts a and b alone agree fully: (C - D) / pairs is 4 / 6, and the scale of all eight images is 7 / 4.
    tau = ratings.rank_measures(other)["kendall_tau_c"]
    assert tau.of(np.array([[1.0, 1, 0, 0]])) == 1


def test_average_precision_by_hand():
    """The first yes has rank 2; the second ties with a no, and both have rank 4: (1 / 2 + 2 / 4) / 2."""
    yes = np.array([False, True, True, False, False])
    assert ratings.average_precision(np.array([9.0, 5, 3, 3, 1]), yes) == 1 / 2
    assert ratings.average_precision(np.zeros(5), yes) == 2 / 5
    assert ratings.average_precision(np.array([1.0, 2, 2, 0, 0]), yes) == 1
    assert np.isnan(ratings.average_precision(np.zeros(2), np.array([False, False])))


def test_chance_of_average_precision_is_the_mean_over_orders():
    for size, count in itertools.combinations_with_replacement(range(1, 6), 2):
        orders = itertools.combinations(range(count), size)
        found = [
            ratings.average_precision(-np.arange(count, dtype=float), np.isin(np.arange(count), places))
            for places in orders
        ]
        assert ratings.average_precision_chance(count, size) == pytest.approx(np.mean(found), abs=1e-12)


def test_prompts_without_a_yes_have_no_average_precision():
    rated = Rated.of([1, 2, 3, 1, 2, 4, 5], [1, 0, 1, 0, 0, 1, 0], "aaabbcc")
    result = ratings.precision_measures(rated)["mean_average_precision"]
    assert result.value(3) == pytest.approx(((1 + 2 / 3) / 2 + 1 / 2) / 2)
    assert result.chance == pytest.approx((ratings.average_precision_chance(3, 2) + 3 / 4) / 2)
    assert result.about == {"yes": 3}
    assert not result.is_correlation
    assert ratings.precision_measures(Rated.of([1, 2], [0, 0], "ab")) == {}
    row = results(rated, "average_precision")["mean_average_precision"]
    assert row["low"] <= row["value"] <= row["high"]
    with raises("nothing-to-compare", "mean_average_precision"):
        results(Rated.of([1, 2], [0, 0], "ab"), "average_precision")


def test_yes_and_no_by_hand():
    """Yes to more than half: to three pictures of five. Of six pairs four are right and one is a tie."""
    rated = Rated.of([9, 4, 2, 4, 1], [1.0, 0.8, 0.6, 0.5, 0.0], "aabbb")
    measures = ratings.yes_no_measures(rated)
    result = values(measures, rated)
    assert result["auroc"] == pytest.approx((4 + 0.5) / 6)
    # Yes from 2 on: one mistake. From 9 on two.
    assert result["best_accuracy"] == pytest.approx(4 / 5)
    assert measures["best_accuracy"].about == {"threshold": 2.0}
    assert measures["best_accuracy"].chance == pytest.approx(3 / 5)
    assert measures["auroc"].about == {"yes": 3}


def test_ranks_and_elements_by_hand():
    """Ratings 0, 0.5, 1, 1 have the ranks 1, 2, 3.5, 3.5, and scores 0.2, 0.6, 0.6, 0.9 the ranks 1, 2.5, 2.5, 4.

    Less their mean of 2.5 these are -1.5, -0.5, 1, 1 and -1.5, 0, 0, 1.5. People say yes to three elements from one
    half on, and so does the score. Of three pairs of yes and no all are right.
    """
    rated = Rated.of([0.2, 0.6, 0.6, 0.9], [0, 0.5, 1, 1], "aabb")
    assert values(ratings.correlation_measures(rated), rated)["spearman"] == pytest.approx(3.75 / np.sqrt(4.5 * 4.5))
    measures = ratings.element_measures(rated)
    assert values(measures, rated) == {"auroc": 1.0, "element_accuracy": 1.0}
    assert measures["element_accuracy"].chance == 3 / 4
    # Half of the yes and no are tied, and a score of 0.5 is a yes.
    rated = Rated.of([0.5, 0.5, 0.4, 0.4], [1, 0, 1, 0], "aabb")
    assert values(ratings.element_measures(rated), rated) == {"auroc": 0.5, "element_accuracy": 0.5}
    # Scores beyond [0, 1] are no probabilities.
    assert ratings.element_measures(Rated.of([0.5, 1.5], [1, 0], "ab")).keys() == {"auroc"}


def test_a_logistic_function_of_scores_is_fitted():
    scores = np.linspace(-3, 3, 12)
    for sign in (1, -1):  # it may fall as well
        rated = Rated.of(sign * scores, 1 + 4 / (1 + np.exp(-2 * scores)), np.arange(12) // 3)
        measure = ratings.correlation_measures(rated)["logistic_pearson"]
        assert measure.value(4) == pytest.approx(1, abs=1e-6)
        assert measure.chance is None
    for scores in ([1, 2, 3], [1, 1, 1, 1]):  # four parameters need four images, and scores that differ
        rated = Rated.of(scores, [1, 2, 3, 4][: len(scores)], "abab"[: len(scores)])
        assert np.isnan(ratings.correlation_measures(rated)["logistic_pearson"].value(2))


@pytest.mark.parametrize("score_levels", [None, 3, 20])
@pytest.mark.parametrize("seed", range(3))
def test_correlations_are_scipys(seed, score_levels):
    rated = random_rated(seed, score_levels=score_levels)
    result = values(ratings.rank_measures(rated), rated)
    rank = scipy.stats.spearmanr(rated.scores, rated.ratings).statistic
    assert values(ratings.correlation_measures(rated), rated)["spearman"] == pytest.approx(rank, abs=1e-12)
    for variant in "bc":
        expected = scipy.stats.kendalltau(rated.scores, rated.ratings, variant=variant).statistic
        assert result[f"kendall_tau_{variant}"] == pytest.approx(expected, abs=1e-12)
    assert result["pearson"] == pytest.approx(scipy.stats.pearsonr(rated.scores, rated.ratings).statistic, abs=1e-12)
    within = [
        scipy.stats.kendalltau(rated.scores[rows], rated.ratings[rows]).statistic
        for rows in (rated.prompts == prompt for prompt in range(rated.num_prompts))
    ]
    assert result["within_prompt_kendall_tau_b"] == pytest.approx(np.nanmean(within), abs=1e-12)


def agreement(score_gap, rating_gap, threshold):
    """Is one pair right, by the definition (Deutsch et al. 2023, section 5)?"""
    score_sign = 0 if abs(score_gap) <= threshold else np.sign(score_gap)
    return score_sign == np.sign(rating_gap)


@pytest.mark.parametrize("score_levels", [None, 3])
@pytest.mark.parametrize("seed", range(3))
def test_calibrated_accuracy_is_that_of_brute_force(seed, score_levels):
    rated = random_rated(seed, 18, 4, score_levels=score_levels)
    pairs = [
        (rated.scores[i] - rated.scores[j], rated.ratings[i] - rated.ratings[j], rated.prompts[i], rated.prompts[j])
        for i, j in itertools.combinations(range(len(rated.scores)), 2)
    ]
    accuracies, means = {}, {}
    for threshold in {0.0, *(abs(gap) for gap, *_ in pairs)}:
        accuracies[threshold] = np.mean([agreement(*pair[:2], threshold) for pair in pairs])
        of_prompts = [
            [agreement(*pair[:2], threshold) for pair in pairs if pair[2] == pair[3] == prompt] for prompt in range(4)
        ]
        means[threshold] = np.mean([np.mean(right) for right in of_prompts if right])
    for name, of_threshold in (("pairwise_accuracy", accuracies), ("within_prompt_pairwise_accuracy", means)):
        measure = ratings.rank_measures(rated)[name]
        assert measure.value(4) == pytest.approx(max(of_threshold.values()))
        best = min(limit for limit, value in of_threshold.items() if value >= max(of_threshold.values()) - 1e-12)
        assert measure.about["threshold"] == pytest.approx(best)


def test_a_resample_has_the_correlation_of_its_images():
    """Copies of a prompt count like prompts of their own."""
    rated = random_rated(4, 30, 6, score_levels=4)
    counts = np.array([0, 3, 1, 2, 1, 0])
    rows = np.repeat(np.arange(30), counts[rated.prompts])
    expected = scipy.stats.spearmanr(rated.scores[rows], rated.ratings[rows]).statistic
    (value,) = ratings.correlation_measures(rated)["spearman"].of(counts[None].astype(float))
    assert value == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    "measures", [ratings.rank_measures, ratings.yes_no_measures, ratings.preference_measures, ratings.element_measures]
)
def test_a_resample_is_the_same_measure_of_the_prompts_that_were_drawn(measures):
    """Copies of a prompt count as prompts of their own, except that no picture meets its own copy."""
    rated = random_rated(1, 20, 4)
    rated = Rated(rated.scores, rated.ratings / 5, rated.prompts)
    counts = np.array([1, 0, 1, 1])
    kept = np.isin(rated.prompts, np.flatnonzero(counts))
    alone = Rated.of(rated.scores[kept], rated.ratings[kept], rated.prompts[kept].tolist())
    expected = values(measures(alone), alone)
    for name, measure in measures(rated).items():
        (value,) = measure.of(counts[None].astype(float))
        if name == "kendall_tau_c":
            continue  # the share of pairs among n^2 is that of all pictures
        # Thresholds of resamples are of a grid: the best of it may fall short by a little.
        is_calibrated = "pairwise" in name
        assert expected[name] - (0.03 if is_calibrated else 1e-12) <= value <= expected[name] + 1e-12, name


def test_a_prompt_that_is_drawn_twice_weighs_more():
    """Prompts a (pictures 1 and 2) and b (3), b twice: pairs 12, and 13 and 23 twice each; 3 never meets its copy."""
    rated = Rated.of([1, 2, 1.5], [1, 2, 3], "aab")
    (value,) = ratings.rank_measures(rated)["kendall_tau_b"].of(np.array([[1.0, 2.0]]))
    assert value == pytest.approx((1 + 2 - 2) / 5)
    # a twice: 12 within both copies and across them (4), 13 and 23 twice.
    (value,) = ratings.rank_measures(rated)["kendall_tau_b"].of(np.array([[2.0, 1.0]]))
    assert value == pytest.approx((4 + 2 - 2) / 8)


def results(rated, name="rank_agreement", *, groups=None, **options):
    rows = [np.flatnonzero(rated.prompts == prompt) for prompt in range(rated.num_prompts)]
    return rating_results(
        RATING_METRICS[name],
        [rated.scores[row][:, None] for row in rows],
        [rated.ratings[row].tolist() for row in rows],
        range(len(rows)),
        groups or [()] * len(rows),
        num_resamples=200,
        **options,
    )


def test_rows_have_intervals_counts_and_groups():
    rated = random_rated(2, 60, 12)
    result = results(rated, groups=[("few",) if prompt < 3 else ("many",) for prompt in range(11)] + [("one",)])
    assert next(iter(result)) == "pairwise_accuracy"
    for row in result.values():
        assert row["low"] <= row["value"] <= row["high"]
    top = result["kendall_tau_b"]
    assert (top["n"], top["prompts"], top["ties"], top["chance"]) == (60, 12, 0, 0.0)
    assert result["many/kendall_tau_b"]["prompts"] == 8
    assert not [name for name in result if name.startswith("one/")]  # of one prompt there is no interval
    assert results(rated) == results(rated)  # the same seed, the same numbers


def test_pictures_of_a_prompt_are_no_independent_pictures():
    """Every picture three times: as prompts of their own intervals shrink, as pictures of one prompt they do not."""
    rated = random_rated(3, 40, 40)
    tripled = [np.repeat(part, 3) for part in (rated.scores, rated.ratings)]
    together = results(Rated.of(*tripled, np.repeat(rated.prompts, 3).tolist()))["kendall_tau_b"]
    apart = results(Rated.of(*tripled, range(120)))["kendall_tau_b"]
    alone = results(rated)["kendall_tau_b"]
    width = {name: row["high"] - row["low"] for name, row in (("t", together), ("a", apart), ("1", alone))}
    assert width["t"] == pytest.approx(width["1"], rel=0.15)
    assert width["a"] < 0.75 * width["1"]


def test_what_cannot_be_compared_is_told():
    for rated in (Rated.of([1, 2], [1, 2], "aa"), Rated.of([1, 2], [0.9, 0.8], "ab")):
        with raises("nothing-to-compare", "auroc"):
            results(rated, "yes_no_agreement")
    with raises("nothing-to-compare", "preference_accuracy"):
        results(Rated.of([1, 2], [1, 2], "ab"), "preference_agreement")
    # All ratings alike: no correlation, but ties that scores get right.
    found = results(Rated.of([1, 2, 3, 4], [3, 3, 3, 3], "aabb"))
    assert found["pairwise_accuracy"]["value"] == 1.0
    assert found.keys() == {"pairwise_accuracy", "within_prompt_pairwise_accuracy"}


@pytest.mark.parametrize(
    "arguments", [([1], [1, 2], "a"), ([], [], ""), ([np.nan], [1], "a"), ([1], [np.inf], "a"), ([1], [1], "ab")]
)
def test_odd_pictures_are_refused(arguments):
    with pytest.raises(ValueError, match="ratings"):
        Rated.of(*arguments)
