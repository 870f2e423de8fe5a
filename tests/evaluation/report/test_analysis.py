"""The report's numbers against cases worked by hand, brute force and the results that the evaluation wrote."""

import itertools

import numpy as np
import pytest
import scipy.stats

from tests.evaluation.report.conftest import NUM_SAMPLES
from winobench import metrics
from winobench.evaluation.report import analysis, runs
from winobench.evaluation.report.runs import Batch


def row(correct, name="accuracy", members=None, strata=None):
    correct = np.array(correct, bool)
    return analysis.Row(name, np.arange(len(correct)) if members is None else np.array(members), correct, strata)


def test_recomputed_rows_are_those_of_the_results(run_folders):
    for folder in run_folders:
        for name, task in runs.read_run(folder).tasks.items():
            if task.is_bias:
                continue
            rows = analysis.rows_of(task)
            assert [found.name for found in rows] == list(task.results), name
            for found in rows:
                assert found.value == pytest.approx(task.results[found.name]["value"], abs=1e-15)
                assert len(found.members) == task.results[found.name]["n"]


def test_a_difference_by_hand():
    # Three images with two examples each: the second run is better by 2, 0 and -1 of the six examples.
    first = row([0, 0, 1, 0, 1, 1])
    second = row([1, 1, 0, 1, 1, 0])
    (found,) = analysis.paired_differences([first], [second], np.array([7, 7, 3, 3, 9, 9]), resamples=4_000)
    assert found.value == pytest.approx(1 / 6)
    assert (found.only_first, found.only_second, found.num_examples) == (2, 3, 6)
    assert found.clusters_apart == 3
    assert found.excludes_zero is False
    # All 27 draws of three images, each as likely: the quantiles of their means. Its ends have 1/27 of the draws each,
    # so that 4,000 random draws find the same ones.
    exact = [np.mean(draw) / 2 for draw in itertools.product([2, 0, -1], repeat=3)]
    assert found.low == pytest.approx(np.percentile(exact, 2.5, method="inverted_cdf"), abs=1e-12)
    assert found.high == pytest.approx(np.percentile(exact, 97.5, method="inverted_cdf"), abs=1e-12)


def test_examples_of_an_image_are_drawn_together():
    first, second = row([1, 0] * 40), row([0, 1] * 40)
    together = np.repeat(np.arange(40), 2)
    (found,) = analysis.paired_differences([first], [second], together)
    assert (found.value, found.low, found.high) == (0, 0, 0)
    (found,) = analysis.paired_differences([first], [second], np.arange(80))
    assert found.low < -0.1 < 0.1 < found.high


def test_an_interval_has_the_width_of_independent_examples():
    generator = np.random.default_rng(3)
    first, second = generator.random(400) < 0.5, generator.random(400) < 0.62
    (found,) = analysis.paired_differences([row(first)], [row(second)], np.arange(400), resamples=4_000)
    delta = second.astype(float) - first
    error = delta.std() / np.sqrt(400)
    # 4,000 resamples estimate a 2.5% point to about 4% of the half width; three times that.
    assert found.low == pytest.approx(delta.mean() - 1.96 * error, abs=0.12 * 1.96 * error)
    assert found.high == pytest.approx(delta.mean() + 1.96 * error, abs=0.12 * 1.96 * error)


def test_a_difference_of_macro_means_weighs_groups_alike():
    # Group 0 has four examples, group 1 has two; only in the latter does the second run gain, by one half.
    strata = np.array([0, 0, 0, 0, 1, 1])
    first, second = row([1, 1, 0, 0, 0, 0], strata=strata), row([1, 1, 0, 0, 1, 0], strata=strata)
    (found,) = analysis.paired_differences([first], [second], np.arange(6))
    assert found.value == pytest.approx(0.25)
    assert second.value - first.value == pytest.approx(0.25)
    # A draw that misses group 1 has its difference in group 0 alone, which is 0.
    assert 0 <= found.low <= found.high <= 0.5


def test_differences_are_the_same_on_every_call_and_follow_the_seed():
    generator = np.random.default_rng(0)
    pair = [row(generator.random(50) < 0.5)], [row(generator.random(50) < 0.6)]
    one = analysis.paired_differences(*pair, np.arange(50), seed=1)
    assert one == analysis.paired_differences(*pair, np.arange(50), seed=1)
    assert one != analysis.paired_differences(*pair, np.arange(50), seed=2)
    with pytest.raises(ValueError, match="same examples"):
        analysis.paired_differences(pair[0], [row([1] * 50, name="other")], np.arange(50))


def test_few_images_are_no_clear_difference():
    first, second = row([0] * 9 + [1] * 91), row([1] * 100)
    (found,) = analysis.paired_differences([first], [second], np.arange(100))
    assert found.excludes_zero
    assert not found.is_clear
    (found,) = analysis.paired_differences([row([0] * 10 + [1] * 90)], [second], np.arange(100))
    assert found.is_clear


def test_only_equal_questions_are_shared(run_folders):
    first, second, direct = (runs.read_run(folder).tasks["clevr"] for folder in run_folders)
    in_first, in_second = analysis.shared_rows(first, second)
    np.testing.assert_array_equal(in_first, np.arange(16))
    np.testing.assert_array_equal(in_first, in_second)
    part = analysis.select(direct, np.array([5, 2, 3]))
    in_first, in_second = analysis.shared_rows(first, part)
    np.testing.assert_array_equal(in_first, [2, 3, 5])
    np.testing.assert_array_equal(in_second, [1, 2, 0])
    other = runs.read_run(run_folders[0]).tasks["square"]
    assert len(analysis.shared_rows(first, other)[0]) == 0


def test_overlap_by_hand():
    # 10 examples: both 4, only the first 2, only the second 1, neither 3.
    found = analysis.overlap([1] * 4 + [1] * 2 + [0] * 1 + [0] * 3, [1] * 4 + [0] * 2 + [1] * 1 + [0] * 3)
    assert (found.both, found.only_first, found.only_second, found.neither) == pytest.approx((0.4, 0.2, 0.1, 0.3))
    assert found.expected_both == pytest.approx(0.6 * 0.5)
    # Agreement 0.7, by chance 0.6 * 0.5 + 0.4 * 0.5 = 0.5.
    assert found.kappa == pytest.approx(0.4)
    assert analysis.overlap([1, 0, 1], [1, 0, 1]).kappa == pytest.approx(1)
    assert analysis.overlap([1, 1], [1, 1]).kappa is None
    assert analysis.overlap([1, 1], [1, 0]).kappa == 0


def test_right_sets_by_hand():
    correct = [[1, 1, 0, 0, 1], [1, 0, 0, 0, 1], [1, 0, 1, 0, 1]]
    assert analysis.right_sets(np.array(correct, bool)) == [
        ((True, True, True), 2),
        ((False, False, False), 1),
        ((False, False, True), 1),
        ((True, False, False), 1),
    ]


@pytest.mark.parametrize(("metric", "images", "texts"), [("accuracy", 1, 3), ("recall", 7, 1), ("winoground", 2, 2)])
def test_accuracy_on_subsets_is_the_metric_on_their_scores(metric, images, texts):
    generator = np.random.default_rng(5)
    errors = generator.random((30, images, texts, 6)).astype(np.float32)
    empty = generator.random((30, images, 6)).astype(np.float32)
    targets = [None] * 30 if metric == "winoground" else generator.integers(images * texts, size=30).tolist()
    batches = [
        Batch(np.arange(20), errors[:20], empty[:20], None, (True, False)),
        Batch(np.arange(20, 30), errors[20:], empty[20:], None, (True, False)),
    ]
    curves = analysis.accuracy_by_samples(batches, targets, metric, subsets=5, seed=9)
    again = np.random.default_rng(9)
    orders = [again.permutation(6) for _ in range(5)]
    for name, curve in curves.items():
        np.testing.assert_array_equal(curve.sizes, [1, 2, 3, 4, 6])
        for place, size in enumerate(curve.sizes):
            values = []
            for order in orders:
                part = order[:size]
                scores = list(runs.mean_scores(errors[..., part], empty[..., part], None))
                values.append(metrics.METRICS[metric](scores, targets)[name].correct.mean())
            assert curve.mean[place] == pytest.approx(np.mean(values), abs=1e-12)
            low, high = np.percentile(values, analysis.BAND)
            assert curve.low[place] == pytest.approx(low, abs=1e-12)
            assert curve.high[place] == pytest.approx(high, abs=1e-12)


def test_curves_end_at_the_results(run_folders):
    run = runs.read_run(run_folders[1])
    for name, task in run.tasks.items():
        if task.is_bias:
            continue
        curves = analysis.accuracy_by_samples(run.batches(name), task.examples.targets, task.metric)
        assert curves
        for metric, curve in curves.items():
            assert curve.sizes[-1] == NUM_SAMPLES
            assert curve.mean[-1] == curve.low[-1] == curve.high[-1] == task.results[metric]["value"]


def test_ties_are_wrong_in_curves_too():
    errors = np.ones((4, 1, 2, 3), np.float32)
    curves = analysis.accuracy_by_samples(
        [Batch(np.arange(4), errors, None, None, (False, False))], [0] * 4, "accuracy"
    )
    np.testing.assert_array_equal(curves["accuracy"].mean, 0)


def test_sample_sizes_rise_to_all():
    np.testing.assert_array_equal(analysis.sample_sizes(1), [1])
    np.testing.assert_array_equal(analysis.sample_sizes(3), [1, 2, 3])
    for number in (16, 250, 1000):
        sizes = analysis.sample_sizes(number)
        assert (sizes[0], sizes[-1]) == (1, number)
        assert (np.diff(sizes) > 0).all()
        assert len(sizes) <= 12


def test_timesteps_are_binned_evenly():
    timesteps = np.random.default_rng(0).integers(0, 1000, 100)
    bins = analysis.timestep_bins(timesteps)
    np.testing.assert_array_equal(np.sort(np.concatenate(bins)), np.arange(100))
    assert len(bins) == 12
    assert {len(members) for members in bins} <= {7, 8, 9, 10}
    lasts = [timesteps[members].max() for members in bins]
    firsts = [timesteps[members].min() for members in bins]
    assert all(last < first for last, first in zip(lasts, firsts[1:], strict=False))
    assert [members.tolist() for members in analysis.timestep_bins(np.array([5, 900, 5]))] == [[0, 2], [1]]


def test_a_profile_by_hand():
    # Two examples, one image each, right text first; timesteps 100 (samples 0 and 2) and 500 (sample 1).
    errors = np.array([[[[1, 10, 3], [5, 20, 7]]], [[[2, 30, 2], [4, 30, 4]]]], np.float32)
    empty = np.array([[[3, 12, 3]], [[1, 25, 1]]], np.float32)
    batch = Batch(np.arange(2), errors, empty, None, (False, False))
    profile = analysis.timestep_profile([batch], np.array([100, 500, 100]), [0, 0], np.array([0, 1]))
    np.testing.assert_array_equal(profile.timesteps, [100, 500])
    assert profile.edges == [(100, 100), (500, 500)]
    np.testing.assert_allclose(profile.series["right"][0], [2, 20])
    np.testing.assert_allclose(profile.series["wrong"][0], [5, 25])
    np.testing.assert_allclose(profile.series["wrong_minus_right"][0], [3, 5])
    np.testing.assert_allclose(profile.series["right_relative"][0], [2 - 2, 20 - 18.5])
    np.testing.assert_allclose(profile.series["wrong_relative"][0], [5 - 2, 25 - 18.5])
    # The differences are 4 and 2 at the first timestep: mean 3, standard error 1.
    np.testing.assert_allclose(profile.series["wrong_minus_right"][1:, 0], [3 - 1.96, 3 + 1.96], atol=1e-4)


def test_a_profile_of_the_diagonal_and_without_unconditional_errors():
    errors = np.arange(8, dtype=np.float32).reshape(1, 2, 2, 2)
    batch = Batch(np.arange(1), errors, None, None, (False, False))
    profile = analysis.timestep_profile([batch], np.array([1, 2]), [None], np.array([0]))
    assert set(profile.series) == {"right", "wrong", "wrong_minus_right"}
    np.testing.assert_allclose(profile.series["right"][0], [(0 + 6) / 2, (1 + 7) / 2])
    np.testing.assert_allclose(profile.series["wrong"][0], [(2 + 4) / 2, (3 + 5) / 2])
    assert np.isnan(profile.series["right"][1:]).all()


def test_clustered_means_know_copies():
    values = np.random.default_rng(1).normal(size=(40, 2))
    mean, low, high = analysis.clustered_means(values, np.arange(40))
    error = scipy.stats.sem(values, axis=0)
    np.testing.assert_allclose(mean, values.mean(axis=0))
    np.testing.assert_allclose(high - mean, 1.959964 * error, rtol=1e-6)
    np.testing.assert_allclose(mean - low, 1.959964 * error, rtol=1e-6)
    doubled = analysis.clustered_means(np.repeat(values, 2, axis=0), np.repeat(np.arange(40), 2))
    np.testing.assert_allclose(doubled, [mean, low, high], rtol=1e-12)
