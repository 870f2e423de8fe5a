"""Optimised latents against Adam written out in NumPy, on a denoiser whose gradient is known."""

import jax.numpy as jnp
import numpy as np
import pytest

from tests.expectations import names
from winobench.base.errors import InputError
from winobench.contrib.editing import optimization
from winobench.diffusion.flow_schedule import FlowSchedule
from winobench.diffusion.schedules import NoiseSchedule
from winobench.scorers import samples

SHAPE = (2, 2, 3)
GAIN, RATE, STEPS = 0.5, 0.05, 7


def denoiser(params, noisy, times, conditions):
    """Predicts gain x noisy + the text's number."""
    del times
    return params * noisy + conditions[:, None, None, None]


def adam(latents, gradient, steps):
    """Kingma and Ba 2015, Algorithm 1, with its usual numbers."""
    moved, first, second = latents.astype(np.float64), 0.0, 0.0
    for step in range(steps):
        slope = gradient(moved, step)
        first = 0.9 * first + 0.1 * slope
        second = 0.999 * second + 0.001 * slope**2
        hat = first / (1 - 0.9 ** (step + 1)), second / (1 - 0.999 ** (step + 1))
        moved = moved - RATE * hat[0] / (np.sqrt(hat[1]) + 1e-8)
    return moved


def noises(key, count):
    return np.asarray(samples.draw_noise(key, jnp.arange(count), SHAPE), np.float64)


@pytest.mark.parametrize("rule", ["several", "random"])
def test_latents_move_as_adam_moves_them(rule):
    schedule, key = NoiseSchedule(), samples.noise_key(3)
    latents = np.random.default_rng(0).normal(size=(2, *SHAPE)).astype(np.float32)
    texts = np.array([0.3, -0.2], np.float32)
    timesteps = optimization.step_timesteps(schedule, rule, STEPS, seed=1)
    found = optimization.optimize_latents(
        denoiser, schedule, jnp.float32(GAIN), jnp.asarray(latents), jnp.asarray(texts), key, timesteps, RATE
    )
    per_step = timesteps.shape[1]
    eps = noises(key, STEPS * per_step)

    def gradient(moved, step):
        slope = 0.0
        for k in range(per_step):
            noise, kept = eps[step * per_step + k], schedule.alphas_cumprod[timesteps[step, k]].astype(np.float64)
            noisy = np.sqrt(kept) * moved + np.sqrt(1 - kept) * noise
            error = noise - (GAIN * noisy + texts[:, None, None, None])
            slope = slope - 2 * GAIN * np.sqrt(kept) * error / per_step
        return slope

    np.testing.assert_allclose(found, adam(latents, gradient, STEPS), rtol=0, atol=2e-5)


def test_a_flow_models_target_moves_with_its_latents():
    """The velocity eps - z is what it predicts: the gradient goes through the target, too."""
    schedule, key = FlowSchedule(), samples.noise_key(0)
    latents = np.random.default_rng(1).normal(size=(1, *SHAPE)).astype(np.float32)
    levels = optimization.step_timesteps(schedule, "fixed", STEPS, seed=0)
    assert levels.dtype == np.float32
    found = optimization.optimize_latents(
        denoiser, schedule, jnp.float32(GAIN), jnp.asarray(latents), jnp.zeros(1), key, levels, RATE
    )
    eps = noises(key, STEPS)

    def gradient(moved, step):
        level = float(levels[step, 0])
        noisy = (1 - level) * moved + level * eps[step]
        error = (eps[step] - moved) - GAIN * noisy
        return 2 * error * (-1 - GAIN * (1 - level))

    np.testing.assert_allclose(found, adam(latents, gradient, STEPS), rtol=0, atol=2e-5)


def test_mean_errors_are_the_definition():
    schedule, key = NoiseSchedule(), samples.noise_key(5)
    latents = np.random.default_rng(0).normal(size=(2, *SHAPE)).astype(np.float32)
    texts, timesteps = np.array([0.3, -0.2], np.float32), np.array([100, 500, 900], np.int32)
    found = optimization.mean_errors(
        denoiser, schedule, jnp.float32(GAIN), jnp.asarray(latents), jnp.asarray(texts), key, timesteps
    )
    expected = np.zeros(2)
    for timestep, noise in zip(timesteps, noises(key, 3), strict=True):
        kept = float(schedule.alphas_cumprod[timestep])
        noisy = np.sqrt(kept) * latents + np.sqrt(1 - kept) * noise
        expected += np.sum((noise - GAIN * noisy - texts[:, None, None, None]) ** 2, axis=(1, 2, 3)) / 3
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_timesteps_by_rule():
    schedule = NoiseSchedule()
    assert optimization.step_timesteps(schedule, "fixed", 3, 0).tolist() == [[500]] * 3
    assert optimization.step_timesteps(schedule, "several", 2, 0).tolist() == [[100, 300, 500, 700, 900]] * 2
    drawn = optimization.step_timesteps(schedule, "random", 1000, 0)
    assert drawn.shape == (1000, 1)
    assert 100 <= drawn.min() < 120
    assert 880 < drawn.max() < 900
    with pytest.raises(InputError, match=names("'all'", "fixed")):
        optimization.step_timesteps(schedule, "all", 3, 0)
