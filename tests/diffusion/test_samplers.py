import jax.numpy as jnp
import numpy as np
import pytest

from tests.expectations import raises
from winobench.diffusion import samplers
from winobench.diffusion.schedules import NoiseSchedule

SCHEDULE = NoiseSchedule()


def test_a_perfect_denoiser_recovers_the_latents():
    """A network that knows the answer is followed exactly, however few the steps; to_one ends without noise."""
    schedule = NoiseSchedule(sampler_options=(("set_alpha_to_one", True),))
    latents, noise = np.random.default_rng(0).normal(size=(2, 2, 4, 4, 3)).astype(np.float32)
    start = schedule.add_noise(latents, noise, np.array([960, 960]))

    def perfect(params, noisy, times, states):
        remaining = jnp.asarray(schedule.alphas_cumprod)[times.astype(int)][:, None, None, None]
        return (noisy - jnp.sqrt(remaining) * latents) / jnp.sqrt(1 - remaining)

    drawn = samplers.ddim_sample(perfect, None, schedule, start, jnp.zeros((2, 1, 1)), None, num_steps=25)
    # 960 is the first of 25 timesteps; its signal rate of 0.08 magnifies rounding twelvefold.
    np.testing.assert_allclose(drawn, latents, atol=2e-5)


def test_guidance_of_one_is_no_guidance():
    noise = np.random.default_rng(0).normal(size=(2, 4, 4, 1)).astype(np.float32)
    text, empty = np.full((2, 1, 1), 2.0, np.float32), np.full((1, 1, 1), -1.0, np.float32)

    def denoiser(params, noisy, timesteps, states):
        return 0.1 * noisy + states[:, :, :, None]

    arguments = (denoiser, None, SCHEDULE, noise, text)
    plain = samplers.ddim_sample(*arguments, None, num_steps=3)
    np.testing.assert_allclose(
        samplers.ddim_sample(*arguments, empty, num_steps=3, guidance_scale=1.0), plain, rtol=1e-5
    )
    guided = samplers.ddim_sample(*arguments, empty, num_steps=3, guidance_scale=3.0)
    assert np.abs(guided - plain).max() > 1


@pytest.mark.parametrize("num_steps", [0, 1001])
def test_number_of_steps_is_checked(num_steps):
    with raises("out-of-range", "1000"):
        samplers.ddim_timesteps(SCHEDULE, num_steps)


def test_all_timesteps_can_be_used_despite_the_offset():
    steps, _ = samplers.ddim_timesteps(SCHEDULE, 1000)
    assert steps.max() == 999
    assert steps.min() >= 0


def test_unknown_spacing():
    with raises("unknown-name", "timestep_spacing", "'odd'"):
        samplers.ddim_timesteps(NoiseSchedule(sampler_options=(("timestep_spacing", "odd"),)), 10)


@pytest.mark.parametrize("spacing", ["leading", "trailing", "linspace"])
@pytest.mark.parametrize("total", [1000, 999, 50])
def test_timesteps_of_every_step_count_are_the_nearest_to_the_exact_ones(spacing, total):
    """Against fractions: as many as asked for, all of the schedule's, none further than half a timestep away."""
    schedule = NoiseSchedule(num_train_timesteps=total, sampler_options=(("timestep_spacing", spacing),))
    for count in range(1, total + 1):
        steps, following = samplers.ddim_timesteps(schedule, count)
        number = np.arange(count)
        # Numerators over the common denominator ``count`` or ``count - 1``, whole numbers all.
        exact, denominator = {
            "leading": (number[::-1] * (total // count), 1),
            "trailing": (total * (count - number) - count, count),
            "linspace": ((total - 1) * number[::-1], max(count - 1, 1)),
        }[spacing]
        assert steps.shape == following.shape == (count,)
        assert (2 * np.abs(steps * denominator - exact) <= denominator).all(), count
        assert steps.min() >= 0
        assert steps.max() < total
        assert (np.diff(steps) < 0).all()
        np.testing.assert_array_equal(following, steps - total // count)


def test_sixty_one_trailing_steps_end_at_the_picture():
    """One of the 62 counts for which a step at timestep -1, which wraps to pure noise, once ruined the picture."""
    schedule = NoiseSchedule(sampler_options=(("timestep_spacing", "trailing"), ("set_alpha_to_one", False)))
    latents, noise = np.random.default_rng(0).normal(size=(2, 1, 4, 4, 3)).astype(np.float32)
    start = schedule.add_noise(latents, noise, np.array([999]))

    def knows_the_noise(params, noisy, timesteps, states):
        return jnp.asarray(noise)

    drawn = samplers.ddim_sample(knows_the_noise, None, schedule, start, jnp.zeros((1, 1, 1)), None, num_steps=61)
    # It was 16.6 with the step too many; what is left is that steps go to t - 1000 // 61, and end at timestep 0.
    assert np.sqrt(np.mean((np.asarray(drawn) - latents) ** 2)) < 0.2


@pytest.mark.parametrize("num_steps", [2.0, "5", True, None])
def test_the_number_of_steps_is_a_whole_number(num_steps):
    with raises("wrong-type", "steps"):
        samplers.ddim_timesteps(SCHEDULE, num_steps)
