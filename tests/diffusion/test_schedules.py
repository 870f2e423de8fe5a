import jax
import numpy as np
import pytest

from winobench.diffusion import schedules
from winobench.diffusion.schedules import NoiseSchedule
from winobench.errors import InputError

# The file of the published SD 1.5.
SD15 = {
    "_class_name": "PNDMScheduler",
    "_diffusers_version": "0.6.0",
    "beta_end": 0.012,
    "beta_schedule": "scaled_linear",
    "beta_start": 0.00085,
    "num_train_timesteps": 1000,
    "set_alpha_to_one": False,
    "skip_prk_steps": True,
    "steps_offset": 1,
    "trained_betas": None,
    "clip_sample": False,
}


def test_sd15_values_known_from_the_paper():
    """0.99915 = 1 - 0.00085; 0.00466 is the well-known share of signal at the last step (Lin et al. 2023, Table 1)."""
    schedule = NoiseSchedule.from_config(SD15)
    assert schedule.alphas_cumprod[0] == pytest.approx(1 - 0.00085, abs=1e-7)
    assert schedule.alphas_cumprod[-1] == pytest.approx(0.068265**2, rel=1e-4)
    assert (np.diff(schedule.alphas_cumprod) < 0).all()


def test_is_a_value():
    first, second = NoiseSchedule.from_config(SD15), NoiseSchedule.from_config(SD15)
    assert first == second
    assert hash(first) == hash(second)
    assert NoiseSchedule.from_config({**SD15, "_class_name": "DDIMScheduler", "steps_offset": 0}) == first
    assert NoiseSchedule.from_config({**SD15, "prediction_type": "v_prediction"}) != first
    with pytest.raises(ValueError, match="read-only"):
        first.alphas_cumprod[0] = 0


def test_config_round_trip():
    for config in (SD15, {**SD15, "rescale_betas_zero_snr": True, "prediction_type": "v_prediction"}):
        schedule = NoiseSchedule.from_config(config)
        written = schedule.to_config()
        assert NoiseSchedule.from_config(written) == schedule
        kept = {key: value for key, value in config.items() if not key.startswith("_diffusers")}
        assert {key: written[key] for key in kept} == kept


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prediction_type": "sample"}, "prediction_type is 'sample'"),
        ({"prediction_type": "flow_prediction"}, "flow_prediction"),
        ({"beta_schedule": "sigmoid"}, "beta_schedule is 'sigmoid'"),
        ({"_class_name": "FlowMatchEulerDiscreteScheduler"}, "FlowMatchEulerDiscreteScheduler"),
        ({"use_flow_sigmas": True}, "use_flow_sigmas"),
        ({"timestep_type": "continuous"}, "timestep_type"),
        ({"predict_epsilon": False}, "predict_epsilon"),
        ({"snr_shift_scale": 3.0}, "snr_shift_scale"),
        ({"num_train_timesteps": 1}, "1 timesteps"),
        ({"num_train_timesteps": "many"}, "wrong kind"),
        ({"beta_end": 3.0}, "range from 0 to 1"),
        ({"trained_betas": [0.1, 0.2]}, "2 trained_betas for 1000"),
        ({"beta_start": "small"}, "wrong kind"),
    ],
)
def test_what_would_change_the_schedule_unnoticed_is_refused(change, message):
    with pytest.raises(InputError, match=message):
        NoiseSchedule.from_config({**SD15, **change})


@pytest.mark.parametrize("prediction_type", schedules.PREDICTION_TYPES)
def test_a_perfect_prediction_gives_back_noise_and_latents(prediction_type):
    table = NoiseSchedule().alphas_cumprod
    latents, noise = np.random.default_rng(0).normal(size=(2, 5, 4, 4, 3)).astype(np.float32)
    timesteps = np.array([0, 10, 250, 700, 999])
    target = schedules.prediction_target(prediction_type, table, latents, noise, timesteps)
    noisy = schedules.add_noise(table, latents, noise, timesteps)
    # float32 cancellation: at the last step the signal is 0.068 of the noisy latents.
    recovered = schedules.predicted_noise(prediction_type, table, target, noisy, timesteps)
    np.testing.assert_allclose(recovered, noise, atol=1e-5)
    recovered = schedules.predicted_latents(prediction_type, table, target, noisy, timesteps)
    np.testing.assert_allclose(recovered, latents, atol=2e-5)


def test_functions_work_in_jit_and_keep_float32():
    table = NoiseSchedule().alphas_cumprod
    noisy = jax.jit(schedules.add_noise)(table, np.ones((2, 3), np.float32), np.ones((2, 3), np.float32), [0, 999])
    assert noisy.dtype == np.float32
    np.testing.assert_allclose(noisy[:, 0], np.sqrt(table[[0, 999]]) + np.sqrt(1 - table[[0, 999]]), rtol=1e-6)


def test_unknown_prediction_type_is_a_programming_error():
    with pytest.raises(ValueError, match="sample"):
        schedules.prediction_target("sample", NoiseSchedule().alphas_cumprod, 0.0, 0.0, np.array([0]))
