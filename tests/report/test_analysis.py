"""The report's numbers against cases worked by hand, brute force and the results that the evaluation wrote."""

import dataclasses
import itertools

import numpy as np
import pytest

from tests.expectations import names
from winobench import metrics
from winobench.metrics import normalization, sample_mean
from winobench.report import analysis
from winobench.runs import error_store, reading
from winobench.runs.error_store import Batch
from winobench.runs.rows import Row


def row(correct, name="accuracy", members=None, strata=None):
    correct = np.array(correct, bool)
    return Row(name, np.arange(len(correct)) if members is None else np.array(members), correct, strata)


def test_a_difference_by_hand():
    # Three images with two examples each: the second run is better by 2, 0 and -1 of the six examples.
    first = row([0, 0, 1, 0, 1, 1])
    second = row([1, 1, 0, 1, 1, 0])
    tied = metrics.Dependence.from_labels([7, 7, 3, 3, 9, 9])
    (found,) = analysis.paired_differences([first], [second], tied)
    assert found.value == pytest.approx(1 / 6)
    assert (found.only_first, found.only_second, found.num_examples) == (2, 3, 6)
    assert found.clusters_apart == 3
    assert found.excludes_zero is False
    expected = metrics.paired_difference(first.correct, second.correct, [7, 7, 3, 3, 9, 9])
    assert (found.low, found.high, found.p_value) == expected[1:4]
    assert found.p_adjusted == found.p_value
    with pytest.raises(ValueError, match=names("accuracy", "other")):
        analysis.paired_differences([first], [row([1] * 6, name="other")], tied)


def test_rows_of_a_part_depend_as_the_examples_do():
    first, second = row([1, 0, 1, 0], members=[5, 1, 3, 1]), row([0, 1, 1, 1], members=[5, 1, 3, 1])
    tied = metrics.Dependence.from_sets([{0}, {1, 2}, {3}, {2, 4}, {5}, {6}])
    (found,) = analysis.paired_differences([first], [second], tied)
    of_part = metrics.Dependence.from_sets([{6}, {1, 2}, {2, 4}, {1, 2}])
    expected = metrics.paired_difference(first.correct, second.correct, of_part)
    assert (found.value, found.low, found.high, found.p_value) == expected[:4]


def test_a_difference_of_macro_means_weighs_groups_alike():
    # Group 0 has four examples, group 1 has two; only in the latter does the second run gain, by one half.
    strata = np.array([0, 0, 0, 0, 1, 1])
    first, second = row([1, 1, 0, 0, 0, 0], strata=strata), row([1, 1, 0, 0, 1, 0], strata=strata)
    (found,) = analysis.paired_differences([first], [second], metrics.Dependence.from_labels(range(6)))
    assert found.value == pytest.approx(0.25)
    assert second.value - first.value == pytest.approx(0.25)
    assert found.low < 0.25 < found.high


def sampled(margins, timesteps):
    """The row of a run with two texts an image, of which the first fits, from [n, samples] margins."""
    errors = np.zeros((len(margins), 1, 2, margins.shape[1]), np.float32)
    errors[:, 0, 1] = margins
    batches = [Batch(np.arange(len(margins)), {"own": errors})]
    draws = analysis.redrawn(batches, [0] * len(margins), metrics.METRICS["accuracy"], timesteps)["accuracy"]
    correct = error_store.mean_scores(batches[0])[:, 0].argmax(axis=1) == 0
    return dataclasses.replace(row(correct), redrawn=draws, num_samples=margins.shape[1])


def test_a_model_does_not_differ_from_itself_on_other_samples():
    """The noise of a sample serves all images, so that accuracies of two seeds differ by more than images tell."""
    rng, alone = np.random.default_rng(0), metrics.Dependence.from_labels(range(200))
    aware = unaware = 0
    for _ in range(60):
        skill = rng.normal(0.5, 1, size=(200, 1))
        one, other = (
            sampled(skill + rng.normal(size=8) + 2 * rng.normal(size=(200, 8)), np.arange(first, first + 8))
            for first in (0, 100)
        )
        aware += analysis.paired_differences([one], [other], alone)[0].excludes_zero
        plain = [dataclasses.replace(each, redrawn=None) for each in (one, other)]
        unaware += analysis.paired_differences(*[[each] for each in plain], alone)[0].excludes_zero
    assert unaware / 60 > 0.3
    assert aware / 60 <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 60)


def test_a_run_does_not_differ_from_itself():
    margins = np.random.default_rng(1).normal(0.2, 1, size=(50, 6))
    one, other = sampled(margins, np.arange(6)), sampled(margins, np.arange(6))
    alone = metrics.Dependence.from_labels(range(50))
    (found,) = analysis.paired_differences([one], [other], alone)
    (plain,) = analysis.paired_differences([row(one.correct)], [row(one.correct)], alone)
    assert (found.value, found.p_value, found.clusters_apart) == (0, 1, 0)
    assert (found.low, found.high) == pytest.approx((plain.low, plain.high))


def test_draws_vary_means_half_as_much_as_seeds_do():
    rng = np.random.default_rng(2)
    margins = rng.normal(size=12)  # the same for many images, whose skills are a fine grid around the mean
    skill = np.linspace(-3, 3, 2_001)[:, None]
    draws = sampled(skill - margins.mean() + margins, None).redrawn
    # The share right is linear in the mean: of a grid over six units.
    assert draws.mean(axis=0).std() * 6 == pytest.approx(0.5 * margins.std(ddof=1) / np.sqrt(12), rel=0.15)


def test_two_samples_of_opposite_noise_count_as_one():
    """Their errors cancel, so that the mean does not vary."""
    first = np.random.default_rng(3).normal(size=6)
    margins = np.repeat([0.1], 12) + np.stack([first, -first], axis=1).reshape(-1)
    skill = np.linspace(-3, 3, 2_001)[:, None]
    timesteps = np.repeat(np.arange(0, 600, 100), 2)
    apart = sampled(skill + margins, np.arange(12)).redrawn
    together = sampled(skill + margins, timesteps).redrawn
    assert together.mean(axis=0).std() < 0.01 * apart.mean(axis=0).std()
    np.testing.assert_array_equal(sample_mean.units(timesteps), np.arange(12) // 2)
    np.testing.assert_array_equal(sample_mean.units(timesteps[:3]), [0, 0, 1])
    np.testing.assert_array_equal(sample_mean.units(np.full(4, 500)), np.arange(4))


def test_few_images_are_no_clear_difference():
    alone = metrics.Dependence.from_labels(range(100))
    first, second = row([0] * 9 + [1] * 91), row([1] * 100)
    (found,) = analysis.paired_differences([first], [second], alone)
    assert found.excludes_zero
    assert not found.is_clear
    (found,) = analysis.paired_differences([row([0] * 10 + [1] * 90)], [second], alone)
    assert found.is_clear


def test_p_values_are_adjusted_for_the_rows_that_are_shown_together():
    one = analysis.Difference("a", 0.5, 0.6, 0.1, 0.02, 0.18, 0.012, 0.012, 100, 2, 12, 14)
    p_values = [0.012, 0.2, 0.03, 0.8]
    found = analysis.adjusted([dataclasses.replace(one, p_value=p, p_adjusted=p) for p in p_values])
    # Sorted 0.012, 0.03, 0.2, 0.8 times 4/1, 4/2, 4/3, 4/4.
    assert [difference.p_adjusted for difference in found] == pytest.approx([0.048, 0.8 / 3, 0.06, 0.8])
    assert [difference.p_value for difference in found] == p_values
    assert [difference.is_clear for difference in found] == [True, False, False, False]
    assert analysis.adjusted([]) == []


def test_a_mark_knows_how_many_rows_there_are():
    """Of 20 rows of two equal models some row excludes 0 on two pages in three; a clear mark is on one in twenty."""
    generator, design, pages, marked, excluded = np.random.default_rng(11), metrics.Design(range(200)), 120, 0, 0
    for _ in range(pages):
        easy = generator.random((200, 20))
        first, second = (easy + generator.normal(scale=0.4, size=(200, 20)) < 0.6 for _ in range(2))
        differences = [
            analysis.Difference("row", 0.6, 0.6, *numbers[:4], numbers[3], 200, 0, 0, int(numbers[4]))
            for numbers in np.stack(design.differences(first, second), axis=1)
        ]
        marked += any(difference.is_clear for difference in analysis.adjusted(differences))
        excluded += any(difference.excludes_zero for difference in differences)
    assert excluded / pages > 0.5
    assert marked / pages < 0.05 + 3 * np.sqrt(0.05 * 0.95 / pages)


def test_only_equal_questions_are_shared(run_folders):
    first, second, direct = (reading.read_run(folder).tasks["clevr"] for folder in run_folders)
    in_first, in_second = analysis.shared_rows(first, second)
    np.testing.assert_array_equal(in_first, np.arange(16))
    np.testing.assert_array_equal(in_first, in_second)
    part = analysis.select(direct, np.array([5, 2, 3]))
    in_first, in_second = analysis.shared_rows(first, part)
    np.testing.assert_array_equal(in_first, [2, 3, 5])
    np.testing.assert_array_equal(in_second, [1, 2, 0])
    other = reading.read_run(run_folders[0]).tasks["square"]
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
    generator, judge = np.random.default_rng(5), metrics.METRICS[metric]
    errors = {"own": generator.random((30, images, texts, 6)), "unconditional": generator.random((30, images, 1, 6))}
    errors = {name: values.astype(np.float32) for name, values in errors.items()}
    terms = (normalization.OWN, normalization.UNCONDITIONAL)
    targets = [None] * 30 if metric == "winoground" else generator.integers(images * texts, size=30).tolist()

    def batch(rows, samples):
        return Batch(rows, {name: values[rows][..., samples] for name, values in errors.items()}, terms)

    batches = [batch(np.arange(20), slice(None)), batch(np.arange(20, 30), slice(None))]
    curves = analysis.accuracy_by_samples(batches, targets, judge, subsets=5, seed=9)
    again = np.random.default_rng(9)
    orders = [again.permutation(6) for _ in range(5)]
    for name, curve in curves.items():
        np.testing.assert_array_equal(curve.sizes, [1, 2, 3, 4, 6])
        for place, size in enumerate(curve.sizes):
            scores = [list(error_store.mean_scores(batch(np.arange(30), order[:size]))) for order in orders]
            values = [judge(some, targets)[name].correct.mean() for some in scores]
            expected = [np.mean(values), *np.percentile(values, analysis.BAND)]
            found = [curve.mean[place], curve.low[place], curve.high[place]]
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_ties_are_wrong_in_curves_too():
    errors = np.ones((4, 1, 2, 3), np.float32)
    curves = analysis.accuracy_by_samples([Batch(np.arange(4), {"own": errors})], [0] * 4, metrics.ACCURACY)
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
    assert all(timesteps[one].max() < timesteps[other].min() for one, other in itertools.pairwise(bins))
    assert [members.tolist() for members in analysis.timestep_bins(np.array([5, 900, 5]))] == [[0, 2], [1]]


def test_a_profile_by_hand():
    # Two examples, one image each, right text first; timesteps 100 (samples 0 and 2) and 500 (sample 1).
    errors = np.array([[[[1, 10, 3], [5, 20, 7]]], [[[2, 30, 2], [4, 30, 4]]]], np.float32)
    empty = np.array([[[[3, 12, 3]]], [[[1, 25, 1]]]], np.float32)
    batch = Batch(np.arange(2), {"own": errors, "unconditional": empty})
    profile = analysis.timestep_profile([batch], np.r_[100, 500, 100], [0, 0], metrics.Dependence.from_labels([0, 1]))
    np.testing.assert_array_equal(profile.timesteps, [100, 500])
    assert profile.edges == [(100, 100), (500, 500)]
    np.testing.assert_allclose(profile.series["right"][0], [2, 20])
    np.testing.assert_allclose(profile.series["wrong"][0], [5, 25])
    np.testing.assert_allclose(profile.series["wrong_minus_right"][0], [3, 5])
    np.testing.assert_allclose(profile.series["right_relative"][0], [2 - 2, 20 - 18.5])
    np.testing.assert_allclose(profile.series["wrong_relative"][0], [5 - 2, 25 - 18.5])
    # The differences are 4 and 2 at the first timestep: mean 3, standard error 1; Student's quantile of 1 is 12.7062.
    np.testing.assert_allclose(profile.series["wrong_minus_right"][1:, 0], [3 - 12.7062, 3 + 12.7062], atol=1e-4)


def test_an_image_pair_by_hand():
    """Right image first. In the first example the error alone is lower for the wrong image, and the difference not."""
    own = np.array([[[[3, 1]], [[1, 1]], [[5, 5]]], [[[1, 1]], [[3, 3]], [[9, 9]]]], np.float32)
    empty = np.array([[[[4, 2]], [[1, 1.5]], [[5, 5]]], [[[3, 3]], [[3, 3]], [[9, 9]]]], np.float32)
    batch = Batch(np.array([4, 7]), {"own": own, "unconditional": empty})
    timesteps, targets = np.array([100, 500]), [None] * 4 + [0, None, None, 0]
    pair = analysis.image_pair([batch], timesteps, targets, ())
    assert (pair.row, pair.images, pair.error_is_right) == (4, (0, 1), False)
    np.testing.assert_array_equal(pair.timesteps, [100, 500])
    np.testing.assert_allclose(pair.errors, [[[3, 1], [4, 2]], [[1, 1], [1, 1.5]]])
    np.testing.assert_allclose(pair.means, [[2, 3], [1, 1.25]])
    # An example that the difference gets wrong, and one that ties, are never shown.
    worse = Batch(batch.rows, {"own": own, "unconditional": empty - np.array([[[[9]]] + [[[0]]] * 2, [[[0]]] * 3])})
    pair = analysis.image_pair([worse], timesteps, targets, ())
    assert (pair.row, pair.images, pair.error_is_right) == (7, (0, 1), True)
    tied = Batch(batch.rows, {"own": own, "unconditional": own})
    assert analysis.image_pair([tied], timesteps, targets, ()) is None
    assert analysis.image_pair([Batch(batch.rows, {"own": own})], timesteps, targets, ()) is None


def test_an_image_pair_whose_images_are_kept_comes_first():
    own = np.array([[[[1, 1]], [[3, 3]]], [[[1, 1]], [[3, 3]]]], np.float32)
    empty = np.array([[[[9, 9]], [[3, 3]]], [[[2, 2]], [[3, 3]]]], np.float32)
    batch = Batch(np.arange(2), {"own": own, "unconditional": empty})
    chosen = [analysis.image_pair([batch], np.array([1, 2]), [0, 0], shown).row for shown in ((), (1,))]
    assert chosen == [0, 1]


def test_a_profile_of_the_diagonal_and_without_unconditional_errors():
    errors = np.arange(8, dtype=np.float32).reshape(1, 2, 2, 2)
    batch = Batch(np.arange(1), {"own": errors})
    profile = analysis.timestep_profile([batch], np.array([1, 2]), [None], metrics.Dependence.from_labels([0]))
    assert set(profile.series) == {"right", "wrong", "wrong_minus_right"}
    np.testing.assert_allclose(profile.series["right"][0], [(0 + 6) / 2, (1 + 7) / 2])
    np.testing.assert_allclose(profile.series["wrong"][0], [(2 + 4) / 2, (3 + 5) / 2])
    assert np.isnan(profile.series["right"][1:]).all()
