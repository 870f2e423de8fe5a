import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.expectations import names, raises
from winobench.base import files
from winobench.diffusion.samplers.ddim import ddim_timesteps
from winobench.diffusion.schedules import NoiseSchedule

# The file of the published SD 1.5.
SD15 = {"_class_name": "PNDMScheduler", "_diffusers_version": "0.6.0", "beta_end": 0.012}
SD15 |= {"beta_schedule": "scaled_linear", "beta_start": 0.00085, "num_train_timesteps": 1000}
SD15 |= {"set_alpha_to_one": False, "skip_prk_steps": True, "steps_offset": 1, "trained_betas": None}
SD15 |= {"clip_sample": False}


def test_is_a_value():
    first, second = NoiseSchedule.from_config(SD15), NoiseSchedule.from_config(SD15)
    assert first == second
    assert hash(first) == hash(second)
    assert NoiseSchedule.from_config(dict(reversed(SD15.items()))) == first
    assert NoiseSchedule.from_config({**SD15, "prediction_type": "v_prediction"}) != first
    with pytest.raises(ValueError, match=names("read-only")):
        first.alphas_cumprod[0] = 0


@pytest.mark.parametrize(
    "change",
    [
        {"steps_offset": 0},
        {"timestep_spacing": "trailing"},
        {"set_alpha_to_one": True},
        {"_class_name": "DDIMScheduler"},
    ],
)
def test_schedules_of_other_samplers_differ_and_train_alike(change):
    """Equal ones share a compilation of what reads these options; fingerprints hold none of them."""
    first, other = NoiseSchedule.from_config(SD15), NoiseSchedule.from_config({**SD15, **change})
    assert other != first
    assert other.training == first.training

    @functools.partial(jax.jit, static_argnums=0)
    def timesteps(schedule):
        return jnp.stack([jnp.asarray(part) for part in ddim_timesteps(schedule, 3)])

    for schedule in (first, other):
        np.testing.assert_array_equal(timesteps(schedule), ddim_timesteps(schedule, 3))


def test_lists_among_the_options_can_be_hashed():
    schedule = NoiseSchedule.from_config({**SD15, "timestep_values": [1, [2, 3]]})
    assert hash(schedule) == hash(NoiseSchedule.from_config({**SD15, "timestep_values": [1, [2, 3]]}))
    with raises("wrong-type", "object"):
        NoiseSchedule.from_config({**SD15, "timestep_values": {}})


@pytest.mark.parametrize(
    ("change", "digest"),
    [
        ({"prediction_type": "epsilon"}, "b9a0e1dc94798f421928ae4add940cc9b20e643c91ef84144300f675b9d2a438"),  # SD 1.5
        (
            {"_class_name": "DDIMScheduler", "prediction_type": "v_prediction"},
            "bf94f70507b71fbb3b51d98230ad263da81a9175302215a1a5f77bcfe5539d89",  # SD 2.1
        ),
    ],
)
def test_a_fingerprints_part_of_published_schedules_is_pinned(change, digest):
    """Another value here would make every recorded run of these models another model's."""
    assert files.digest(NoiseSchedule.from_config({**SD15, **change}).training) == digest


@pytest.mark.parametrize("steps", [10**10, 10**400, 1, 0, -5, 2.0, "1000", True, float("nan")])
def test_the_number_of_timesteps_is_checked_before_a_table_of_them_is_made(steps):
    with raises("out-of-range", "2", "1,000,000") as caught:
        NoiseSchedule.from_config({**SD15, "num_train_timesteps": steps})
    assert len(str(caught.value)) < 300


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
        ({"prediction_type": "sample"}, ("unsupported-option", "prediction_type", "'sample'")),
        ({"beta_schedule": "sigmoid"}, ("out-of-range", "beta_schedule", "'sigmoid'")),
        ({"_class_name": "FlowMatchEulerDiscreteScheduler"}, ("unknown-scheduler", "FlowMatchEulerDiscreteScheduler")),
        ({"use_flow_sigmas": True}, ("unsupported-option", "use_flow_sigmas")),
        ({"snr_shift_scale": 3.0}, ("unknown-field", "snr_shift_scale")),
        ({"beta_end": 3.0}, ("out-of-range", "0", "1")),
        ({"trained_betas": [0.1, 0.2]}, ("wrong-number-of-betas", "2", "trained_betas", "1000")),
        ({"beta_end": float("nan")}, ("out-of-range", "beta_end", "nan")),
        ({"rescale_betas_zero_snr": "x"}, ("out-of-range", "rescale_betas_zero_snr", "'x'")),
        ({"prediction_type": ["epsilon"]}, ("unsupported-option", "prediction_type")),
        ({"trained_betas": [["a"]]}, ("out-of-range", "trained_betas")),
        ({"_class_name": 5}, ("unknown-scheduler", "5")),
    ],
)
def test_what_would_change_the_schedule_unnoticed_is_refused(change, message):
    with raises(*message):
        NoiseSchedule.from_config({**SD15, **change})


@pytest.mark.parametrize("config", [5, [], None, "x", {5: 1}])
def test_a_schedule_is_read_from_an_object(config):
    with raises("not-an-object", "scheduler_config.json"):
        NoiseSchedule.from_config(config)


@pytest.mark.parametrize(("prediction", "name"), [("epsilon", "epsilon"), ("v", "v_prediction")])
def test_a_perfect_prediction_gives_back_the_noise(prediction, name):
    schedule = NoiseSchedule(prediction_type=name)
    assert schedule.prediction == prediction
    latents, noise = np.random.default_rng(0).normal(size=(2, 5, 4, 4, 3)).astype(np.float32)
    timesteps = np.array([0, 10, 250, 700, 998])
    target = schedule.target(latents, noise, timesteps)
    noisy = schedule.add_noise(latents, noise, timesteps)
    # float32 cancellation: at the last step the signal is 0.068 of the noisy latents.
    np.testing.assert_allclose(schedule.as_noise(target, noisy, timesteps), noise, atol=1e-5)


def test_methods_work_in_jit_and_keep_float32():
    schedule = NoiseSchedule()
    table = schedule.alphas_cumprod
    add = jax.jit(lambda schedule, *arrays: schedule.add_noise(*arrays), static_argnums=0)
    noisy = add(schedule, np.ones((2, 3), np.float32), np.ones((2, 3), np.float32), np.array([0, 999]))
    assert noisy.dtype == np.float32
    np.testing.assert_allclose(noisy[:, 0], np.sqrt(table[[0, 999]]) + np.sqrt(1 - table[[0, 999]]), rtol=1e-6)
    # Roots of the table on the host are those that the device would take, bit for bit.
    np.testing.assert_array_equal(jnp.sqrt(table), schedule.signal_rates)
    np.testing.assert_array_equal(jnp.sqrt(1 - jnp.asarray(table)), schedule.noise_rates)
