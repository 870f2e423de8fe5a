"""Noise schedules against diffusers' DDPM scheduler: 1e-6 absolute (its tables are float32 running products)."""

import dataclasses

import diffusers
import numpy as np
import pytest
import torch

from winobench.diffusion import schedules

TOLERANCE = 1e-6

CONFIGS = {
    "sd15": dict(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear"),
    "linear": dict(beta_start=0.0001, beta_end=0.02, beta_schedule="linear"),
    "cosine": dict(beta_schedule="squaredcos_cap_v2"),
    "zero_snr_cosine": dict(beta_schedule="squaredcos_cap_v2", rescale_betas_zero_snr=True),
    "short": dict(num_train_timesteps=50, beta_schedule="linear"),
    "trained": dict(trained_betas=[0.1, 0.2, 0.3, 0.4], num_train_timesteps=4),
}
CONFIGS["zero_snr"] = CONFIGS["sd15"] | dict(rescale_betas_zero_snr=True, prediction_type="v_prediction")


@pytest.mark.parametrize("name", CONFIGS)
def test_tables_match(name):
    theirs = diffusers.DDPMScheduler(**CONFIGS[name])
    ours = schedules.NoiseSchedule.from_config(dict(theirs.config))
    assert ours.alphas_cumprod.dtype == np.float32
    assert ours.alphas_cumprod.shape == (theirs.config.num_train_timesteps,)
    np.testing.assert_allclose(ours.alphas_cumprod, theirs.alphas_cumprod.numpy(), rtol=0, atol=TOLERANCE)
    if CONFIGS[name].get("rescale_betas_zero_snr"):
        assert ours.alphas_cumprod[-1] == 0.0


@pytest.mark.parametrize("name", ["sd15", "zero_snr"])
def test_noisy_latents_and_velocity_match(name):
    theirs = diffusers.DDPMScheduler(**CONFIGS[name])
    ours = schedules.NoiseSchedule.from_config(dict(theirs.config))
    generator = torch.Generator().manual_seed(0)
    latents, noise = torch.randn(2, 6, 4, 5, 3, generator=generator)
    timesteps = torch.tensor([0, 1, 17, 500, 998, 999])
    arguments = (latents.numpy(), noise.numpy(), timesteps.numpy())
    # The square roots double a table difference near its end; values are about 4 in size.
    tolerance = dict(rtol=0, atol=4e-6)
    noisy = ours.add_noise(*arguments)
    np.testing.assert_allclose(noisy, theirs.add_noise(latents, noise, timesteps), **tolerance)
    velocity = dataclasses.replace(ours, prediction_type="v_prediction").target(*arguments)
    np.testing.assert_allclose(velocity, theirs.get_velocity(latents, noise, timesteps), **tolerance)
    np.testing.assert_array_equal(dataclasses.replace(ours, prediction_type="epsilon").target(*arguments), noise)


# EDM has another training schedule (refused below); DPMSolverSDE cannot be made without a package of its own.
OTHERS = {"EDMEulerScheduler", "DPMSolverSDEScheduler"}
KARRAS = [kind.name for kind in diffusers.schedulers.KarrasDiffusionSchedulers if kind.name not in OTHERS]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", KARRAS)
def test_every_sampler_of_stable_diffusion_is_read(name):
    """Whatever sampler wrote the file, with its own defaults, the table is that sampler's."""
    theirs = getattr(diffusers, name)()
    ours = schedules.NoiseSchedule.from_config(dict(theirs.config, _class_name=name))
    np.testing.assert_allclose(ours.alphas_cumprod, theirs.alphas_cumprod.numpy(), rtol=0, atol=TOLERANCE)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_sampler_without_keys_uses_that_samplers_defaults():
    for name in ("HeunDiscreteScheduler", "LCMScheduler", "TCDScheduler", "DDIMScheduler"):
        ours = schedules.NoiseSchedule.from_config({"_class_name": name})
        theirs = getattr(diffusers, name)()
        np.testing.assert_allclose(ours.alphas_cumprod, theirs.alphas_cumprod.numpy(), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", ["PNDMScheduler", "DDIMScheduler", "EulerDiscreteScheduler"])
def test_written_config_is_read_by_diffusers(name):
    original = getattr(diffusers, name)(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear")
    config = schedules.NoiseSchedule.from_config(dict(original.config, _class_name=name)).to_config()
    assert config["_class_name"] == name
    again = getattr(diffusers, name).from_config(config)
    options = [key for key in original.config if not key.startswith("_")]
    assert {key: again.config[key] for key in options} == {key: original.config[key] for key in options}
