import numpy as np
import pytest

from tests.expectations import raises
from winobench.diffusion import samplers
from winobench.diffusion.flow_schedule import FlowSchedule
from winobench.diffusion.samplers.ddim import ddim_timesteps
from winobench.diffusion.samplers.dpm_solver import dpm_timesteps
from winobench.diffusion.schedules import NoiseSchedule

SCHEDULE = NoiseSchedule()


def test_guidance_of_one_is_no_guidance():
    noise = np.random.default_rng(0).normal(size=(2, 4, 4, 1)).astype(np.float32)
    text, empty = np.full((2, 1, 1), 2.0, np.float32), np.full((1, 1, 1), -1.0, np.float32)

    def denoise(noisy, timesteps, states):
        return 0.1 * noisy + states[:, :, :, None]

    sampler = samplers.SAMPLERS["ddim"]
    arguments = (sampler, denoise, sampler.plan(SCHEDULE, 3), noise, text)
    plain = samplers.sample(*arguments)
    np.testing.assert_allclose(samplers.sample(*arguments, guidance=(empty, 1.0)), plain, rtol=1e-5)
    assert np.abs(samplers.sample(*arguments, guidance=(empty, 3.0)) - plain).max() > 1


@pytest.mark.parametrize(
    ("num_steps", "words"),
    [
        *((odd, ("wrong-type", "steps")) for odd in (2.0, "5", True, None)),
        (0, ("out-of-range", "1000")),
        (1001, ("out-of-range", "1000")),
    ],
)
def test_the_number_of_steps_is_checked(num_steps, words):
    with raises(*words):
        ddim_timesteps(SCHEDULE, num_steps)


def test_all_timesteps_can_be_used_despite_the_offset():
    steps, _ = ddim_timesteps(SCHEDULE, 1000)
    assert steps.max() == 999
    assert steps.min() >= 0


@pytest.mark.parametrize("spacing", ["leading", "trailing", "linspace"])
@pytest.mark.parametrize("total", [1000, 999, 50])
def test_timesteps_of_every_step_count_are_the_nearest_to_the_exact_ones(spacing, total):
    schedule = NoiseSchedule(num_train_timesteps=total, sampler_options=(("timestep_spacing", spacing),))
    for count in range(1, total + 1):
        steps, following = ddim_timesteps(schedule, count)
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


def test_every_step_of_dpm_solver_needs_a_timestep_of_its_own():
    for options, most in (({}, 999), ({"timestep_spacing": "trailing"}, 1000)):
        schedule = NoiseSchedule(sampler_options=tuple(options.items()))
        assert (np.diff(dpm_timesteps(schedule, most)) < 0).all()
        with raises("out-of-range", "dpm_solver", str(most + 1), str(most)):
            dpm_timesteps(schedule, most + 1)
    clipped = NoiseSchedule(
        beta_schedule="squaredcos_cap_v2",
        sampler_options=(("lambda_min_clipped", -1.0), ("timestep_spacing", "trailing")),
    )
    with raises("too-few-timesteps", "dpm_solver", "900"):
        dpm_timesteps(clipped, 900)


@pytest.mark.parametrize(
    ("name", "option", "code"),
    [
        ("euler", ("use_beta_sigmas", True), "unsupported-option"),
        ("euler", ("interpolation_type", "log_linear"), "unsupported-option"),
        ("dpm_solver", ("final_sigmas_type", "one"), "unknown-name"),
        ("ddim", ("timestep_spacing", "odd"), "unknown-name"),
        ("dpm_solver", ("use_lu_lambdas", True), "unsupported-option"),
    ],
)
def test_options_that_are_not_supported(name, option, code):
    with raises(code, option[0]):
        samplers.SAMPLERS[name].plan(NoiseSchedule(sampler_options=(option,)), 10)


def test_a_sampler_is_found_by_its_name_and_the_schedule():
    assert samplers.find_sampler(None, SCHEDULE) is samplers.SAMPLERS["ddim"]
    assert samplers.find_sampler(None, FlowSchedule()) is samplers.SAMPLERS["flow_euler"]
    assert samplers.find_sampler("euler", SCHEDULE) is samplers.SAMPLERS["euler"]
    with raises("wrong-kind-of-sampler", "ddim", "flow_euler"):
        samplers.find_sampler("ddim", FlowSchedule())
