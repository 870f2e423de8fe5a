import jax.numpy as jnp
import numpy as np
import pytest

from tests.expectations import raises
from winobench.base import options
from winobench.base.errors import InputError
from winobench.scorers import samples


def test_uniform_timesteps_are_prefix_stable_and_seeded():
    long = samples.choose_timesteps("uniform", 2000, seed=3)
    assert long.dtype == np.int32
    np.testing.assert_array_equal(samples.choose_timesteps("uniform", 16, seed=3), long[:16])
    assert (samples.choose_timesteps("uniform", 16, seed=4) != long[:16]).any()
    assert long.min() >= 0
    assert long.max() < 1000
    # 2,000 draws: the standard error of the mean is 6.5.
    assert abs(long.mean() - 499.5) < 30


def test_uniform_timesteps_are_what_they_were():
    # Stored scores are only good as long as the samples are the same: change SCORING_VERSION if these must change.
    np.testing.assert_array_equal(samples.choose_timesteps("uniform", 6, seed=0), [578, 90, 751, 951, 757, 775])
    # Beyond the first block of numbers, too.
    np.testing.assert_array_equal(samples.choose_timesteps("uniform", 1026, seed=0)[1022:], [904, 782, 618, 900])


def test_other_streams_are_what_they_were():
    low = samples.choose_timesteps("low_discrepancy", 6, seed=0)
    np.testing.assert_array_equal(low, [578, 78, 828, 328, 703, 203])
    np.testing.assert_array_equal(samples.choose_timesteps("stratified", 4, seed=0), [144, 272, 687, 987])
    noise = samples.draw_noise(samples.noise_key(0), jnp.arange(1), (1, 1, 3))
    np.testing.assert_allclose(noise.ravel(), [-0.57478017, 0.79983664, -0.25960687], rtol=1e-6)
    np.testing.assert_array_equal(samples.visiting_order(8, 0), [6, 7, 5, 1, 0, 2, 3, 4])
    np.testing.assert_array_equal(samples.visiting_order(1500, 3)[:4], [951, 942, 634, 396])
    np.testing.assert_array_equal(np.sort(samples.visiting_order(1500, 3)), np.arange(1500))


def test_antithetic_samples_share_timesteps_in_pairs():
    low = samples.choose_timesteps("low_discrepancy", 4, seed=2)
    np.testing.assert_array_equal(samples.choose_timesteps("antithetic", 8, seed=2), np.repeat(low, 2))
    np.testing.assert_array_equal(samples.choose_timesteps("antithetic", 5, seed=2), np.repeat(low, 2)[:5])
    key = samples.noise_key(1)
    noise = samples.draw_noise(samples.noise_source(1, "antithetic"), jnp.array([5, 4, 2, 3]), (2, 3, 1))
    np.testing.assert_array_equal(noise[0], -noise[1])
    np.testing.assert_array_equal(noise[2], -noise[3])
    np.testing.assert_array_equal(noise[1:3], samples.draw_noise(key, jnp.array([4, 2]), (2, 3, 1)))
    assert samples.noise_source(1, "uniform") == key
    assert samples.noise_source(1, [3, 3]) == key


def test_defaults():
    assert len(samples.choose_timesteps("uniform", None)) == 32
    np.testing.assert_array_equal(
        samples.choose_timesteps("uniform", 6), samples.choose_timesteps("uniform", 6, seed=0)
    )
    published = samples.choose_timesteps("published", 1000)
    assert (published[0], published[-1], len(published)) == (10, 989, 980)
    with raises("out-of-range", "980", "975"):
        samples.choose_timesteps("published", 100, num_train_timesteps=975)


def test_listed_timesteps_may_be_any_of_the_schedule():
    assert options.read_timesteps([0]) == [0]
    assert options.read_timesteps((999_999,)) == [999_999]
    given = samples.choose_timesteps([0, 999, 0], None)
    np.testing.assert_array_equal(given, [0, 999, 0])
    assert given.dtype == np.int32
    for wrong in ([-1], [1_000_000], []):
        with pytest.raises(InputError):
            options.read_timesteps(wrong)
    assert options.read_timesteps("even") == "even"
    assert samples.draws_from_range("even")
    assert not samples.draws_from_range("published")
    assert not samples.draws_from_range([1, 2])


def test_noise_depends_on_seed_and_sample_alone():
    key = samples.noise_key(5)
    together = samples.draw_noise(key, jnp.arange(4), (2, 3, 4))
    alone = samples.draw_noise(key, jnp.asarray([2]), (2, 3, 4))
    np.testing.assert_array_equal(together[2], alone[0])
    assert (samples.draw_noise(samples.noise_key(6), jnp.asarray([2]), (2, 3, 4)) != alone).any()
    many = samples.draw_noise(key, jnp.arange(500), (8, 8, 1))
    # 32,000 draws: standard errors of 0.006 and 0.004.
    assert abs(float(many.mean())) < 0.03
    assert abs(float(many.std()) - 1) < 0.02


def test_stratified_draws_one_of_each_part():
    drawn = samples.choose_timesteps("stratified", 20, seed=1)
    np.testing.assert_array_equal(drawn // 50, np.arange(20))
    assert len(set(drawn % 50)) > 5


def test_even_takes_the_middles():
    np.testing.assert_array_equal(samples.choose_timesteps("even", 4), [125, 375, 625, 875])
    np.testing.assert_array_equal(samples.choose_timesteps("even", 2, timestep_range=(200, 900)), [375, 725])


@pytest.mark.parametrize(("requested", "count"), [(50, 49), (100, 98), (250, 245), (64, 66), (128, 140), (300, 327)])
def test_published_has_the_published_lengths(requested, count):
    timesteps = samples.choose_timesteps("published", requested)
    np.testing.assert_array_equal(timesteps, np.array(range(10, 990, int(1000 / requested))))
    assert len(timesteps) == count


@pytest.mark.parametrize("rule", ["uniform", "low_discrepancy", "antithetic", "stratified", "even"])
def test_range_is_kept(rule):
    timesteps = samples.choose_timesteps(rule, 300, timestep_range=(100, 110))
    assert set(timesteps.tolist()) == set(range(100, 110))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"rule": "random"}, ("unknown-name", "low_discrepancy")),
        ({"num_samples": 0}, ("bad-value", "1,000,000")),
        ({"num_samples": True}, ("bad-value", "1,000,000")),
        ({"seed": -1}, ("bad-value", "seed")),
        ({"seed": 1.5}, ("bad-value", "seed")),
        ({"timestep_range": (5, 5)}, ("bad-value", "timestep_range")),
        ({"timestep_range": (0, 1001)}, ("bad-value", "timestep_range")),
        ({"timestep_range": (0, 99.5)}, ("bad-value", "timestep_range")),
        ({"rule": "published", "num_samples": 1001}, ("out-of-range", "published")),
        ({"rule": "published", "num_train_timesteps": 100}, ("out-of-range", "published")),
        ({"rule": [0.5]}, ("wrong-shape", "timesteps", "float64")),
        ({"rule": [[1]]}, ("wrong-shape", "timesteps", "(1, 1)")),
        ({"rule": [1000]}, ("out-of-range", "0", "999")),
        ({"rule": [1, 2], "num_samples": 3}, ("two-numbers-of-samples", "num_samples")),
    ],
)
def test_bad_input(arguments, words):
    arguments = {"rule": "uniform", "num_samples": None} | arguments
    with raises(*words):
        samples.choose_timesteps(arguments.pop("rule"), arguments.pop("num_samples"), **arguments)


def test_low_discrepancy_spreads_every_prefix():
    long = samples.choose_timesteps("low_discrepancy", 64, seed=3)
    np.testing.assert_array_equal(samples.choose_timesteps("low_discrepancy", 16, seed=3), long[:16])
    assert (samples.choose_timesteps("low_discrepancy", 16, seed=4) != long[:16]).any()
    for count in (4, 8, 16, 32, 64):
        # One in each of count equal parts, which begin somewhere.
        gaps = np.diff(np.sort(long[:count]))
        assert gaps.min() >= 1000 // count - 1
        assert gaps.max() <= 1000 // count + 2
