"""DDIM steps against diffusers' DDIMScheduler."""

import diffusers
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from winobench.diffusion import samplers
from winobench.diffusion.schedules import NoiseSchedule

LATENT = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear", "clip_sample": False}

CONFIGS = {
    "sd15": dict(**LATENT, set_alpha_to_one=False, steps_offset=1),
    "to_one": dict(**LATENT, set_alpha_to_one=True),
    "trailing": dict(**LATENT, set_alpha_to_one=False, timestep_spacing="trailing"),
    "linspace": dict(**LATENT, set_alpha_to_one=False, timestep_spacing="linspace"),
    "velocity": dict(**LATENT, set_alpha_to_one=False, steps_offset=1, prediction_type="v_prediction"),
    "zero_snr": dict(
        **LATENT, prediction_type="v_prediction", rescale_betas_zero_snr=True, timestep_spacing="trailing"
    ),
}


def both(name):
    theirs = diffusers.DDIMScheduler(**CONFIGS[name])
    return NoiseSchedule.from_config(dict(theirs.config)), theirs


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("num_steps", [1, 7, 50, 999])
def test_timesteps(name, num_steps):
    ours, theirs = both(name)
    theirs.set_timesteps(num_steps)
    steps, following = samplers.ddim_timesteps(ours, num_steps)
    np.testing.assert_array_equal(steps, theirs.timesteps.numpy())
    np.testing.assert_array_equal(following, steps - 1000 // num_steps)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_whole_run(name):
    """Ten steps with a denoiser of one line, guidance included; float32 on both sides, values of size 1 to 10."""
    ours, theirs = both(name)
    generator = torch.Generator().manual_seed(0)
    noise, text, empty = (torch.randn(2, 3, 4, 5, generator=generator) for _ in range(3))

    def denoise(latents, timesteps, states):
        # The same expression works for both libraries.
        return 0.3 * latents + 0.1 * states * (timesteps[:, None, None, None] / 1000)

    theirs.set_timesteps(10)
    latents = noise
    for timestep in theirs.timesteps:
        predictions = [denoise(latents, timestep.expand(2), states) for states in (empty, text)]
        guided = predictions[0] + 4.0 * (predictions[1] - predictions[0])
        latents = theirs.step(guided, timestep, latents).prev_sample

    got = jax.jit(
        lambda noise, text, empty: samplers.ddim_sample(
            lambda _, *inputs: denoise(*inputs), None, ours, noise, text, empty, num_steps=10, guidance_scale=4.0
        )
    )(*(jnp.asarray(array.numpy()) for array in (noise, text, empty)))
    # Every step divides by the signal's rate, which magnifies rounding near pure noise.
    np.testing.assert_allclose(got, latents.numpy(), rtol=2e-5, atol=2e-5 * float(latents.abs().max()))


@pytest.mark.parametrize("name", ["sd15", "trailing", "linspace"])
def test_timesteps_of_all_step_counts(name):
    """Equal to diffusers' wherever that gives as many as asked for, but for ties, which its rounding errors decide."""
    ours, theirs = both(name)
    wrong_counts = 0
    for num_steps in range(1, 1001):
        theirs.set_timesteps(num_steps)
        expected = theirs.timesteps.numpy()
        steps, _ = samplers.ddim_timesteps(ours, num_steps)
        if len(expected) != num_steps:
            wrong_counts += 1
            continue
        apart = np.flatnonzero(steps != np.minimum(expected, 999))
        assert (np.abs(steps - expected)[apart] == 1).all()
        if name == "trailing":
            assert (2 * (1000 * (num_steps - apart)) % (2 * num_steps) == num_steps).all()  # halves, all of them
        else:
            assert not apart.size
    assert wrong_counts == (62 if name == "trailing" else 0)
