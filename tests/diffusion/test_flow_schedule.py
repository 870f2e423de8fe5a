import math

import jax.numpy as jnp
import numpy as np
import pytest

from tests.expectations import names, raises
from winobench.base.errors import InputError
from winobench.diffusion import samplers
from winobench.diffusion.flow_schedule import FlowSchedule
from winobench.scorers import samples

# As the published files of Stable Diffusion 3 and FLUX.1-dev have them.
SD3 = {"_class_name": "FlowMatchEulerDiscreteScheduler", "num_train_timesteps": 1000, "shift": 3.0}
FLUX = {**SD3, "base_image_seq_len": 256, "base_shift": 0.5, "max_image_seq_len": 4096, "max_shift": 1.15}
FLUX |= {"use_dynamic_shifting": True}


def published(config):
    diffusers = pytest.importorskip("diffusers")
    return diffusers.FlowMatchEulerDiscreteScheduler.from_config(config)


@pytest.mark.parametrize("config", [SD3, {**SD3, "shift": 1.0}, FLUX])
def test_levels_are_those_of_diffusers(config):
    """Ours are float64 rounded once, theirs float32 all along: two units of the last place."""
    schedule = FlowSchedule.from_config(config)
    theirs = published(config)
    np.testing.assert_allclose(schedule.noise_rates[::-1], theirs.sigmas.numpy(), rtol=3e-7)
    np.testing.assert_allclose(schedule.model_times[::-1], theirs.timesteps.numpy(), rtol=3e-7)
    assert schedule.noise_rates[-1] == 1
    assert FlowSchedule.from_config(schedule.to_config()) == schedule


def test_a_shift_by_the_number_of_positions():
    schedule = FlowSchedule.from_config(FLUX)
    # 1,024 pixels are 64 x 64 positions, where m is 1.15; halfway to 256 it is halfway to 0.5.
    assert schedule.for_positions(4096).shifted(np.array([0.5]))[0] == pytest.approx(1 / (1 + math.exp(-1.15)))
    assert schedule.for_positions(2176).shifted(np.array([0.5]))[0] == pytest.approx(1 / (1 + math.exp(-0.825)))
    linear = FlowSchedule.from_config({**FLUX, "time_shift_type": "linear"}).for_positions(4096)
    assert linear.shifted(np.array([0.25]))[0] == pytest.approx(1.15 / (1.15 + 3))
    assert FlowSchedule(shift=3.0).for_positions(4096) == FlowSchedule(shift=3.0)


def check_steps(config, positions, num_steps, *, evenly=False, **tolerance):
    """Compares the levels of drawing with those of diffusers."""
    schedule, theirs = FlowSchedule.from_config(config), published(config)
    assert FlowSchedule.from_config(schedule.to_config()) == schedule
    options = {"sigmas": np.linspace(1.0, 1 / num_steps, num_steps)} if evenly else {"num_inference_steps": num_steps}
    if positions is not None:
        schedule = schedule.for_positions(positions)
        options["mu"] = 0.5 + (1.15 - 0.5) * (positions - 256) / (4096 - 256)
    theirs.set_timesteps(**options)
    levels = schedule.sampling_levels(num_steps, evenly=evenly)
    np.testing.assert_allclose(levels, theirs.sigmas.numpy(), **tolerance)


@pytest.mark.parametrize("num_steps", [1, 4, 28, 50])
@pytest.mark.parametrize(
    ("config", "positions", "evenly"),
    [(SD3, None, False), (FLUX, 1024, True), (FLUX, 4096, True), ({**SD3, "shift": 1.0}, None, True)],
)
def test_steps_of_drawing_are_those_of_diffusers(config, positions, num_steps, evenly):
    check_steps(config, positions, num_steps, evenly=evenly, rtol=3e-7, atol=1e-9)


CONVERSIONS = ("use_karras_sigmas", "use_exponential_sigmas", "use_beta_sigmas")


@pytest.mark.parametrize("num_steps", [2, 3, 28])
@pytest.mark.parametrize("conversion", [None, *CONVERSIONS])
@pytest.mark.parametrize("terminal", [None, 0.02, 0.3])
@pytest.mark.parametrize(("config", "positions"), [(SD3, None), ({**SD3, "shift": 1.0}, None), (FLUX, 1024)])
def test_options_of_runs_are_applied_as_by_diffusers(config, positions, terminal, conversion, num_steps):
    """Theirs are float32 in part: 1e-6."""
    config = {**config, "shift_terminal": terminal, **({conversion: True} if conversion else {})}
    check_steps(config, positions, num_steps, atol=1e-6, rtol=0)


def test_options_of_runs_by_hand():
    """Levels 1 and 0.5, stretched to 1 and 0.1; then 3 levels with equal ratios between 1 and 1 / 4."""
    stretched = FlowSchedule.from_config({"shift": 1.0, "shift_terminal": 0.1})
    np.testing.assert_allclose(stretched.sampling_levels(2, evenly=True), [1, 0.1, 0], atol=1e-7)
    exponential = FlowSchedule.from_config({"shift": 1.0, "shift_terminal": 0.25, "use_exponential_sigmas": True})
    np.testing.assert_allclose(exponential.sampling_levels(3, evenly=True), [1, 0.5, 0.25, 0], atol=1e-7)
    assert exponential.noise_rates.tolist() == FlowSchedule().noise_rates.tolist()
    sampler = samplers.SAMPLERS["flow_euler"]
    assert sampler.identity(exponential) == {"shift_terminal": 0.25, "use_exponential_sigmas": True}
    unset = {**dict.fromkeys(CONVERSIONS, False), "stochastic_sampling": False, "shift_terminal": None}
    assert sampler.identity(FlowSchedule.from_config({**SD3, **unset})) == {}


@pytest.mark.parametrize(
    ("config", "num_steps", "words"),
    [
        ({"use_karras_sigmas": True, "use_beta_sigmas": True}, 4, ("options-exclude-each-other", *CONVERSIONS[::2])),
        ({"stochastic_sampling": True}, 4, ("unsupported-option", "stochastic_sampling")),
        ({"shift_terminal": 0.02}, 1, ("out-of-range", "shift_terminal")),
        ({"shift_terminal": 1.5}, 4, ("bad-value", "shift_terminal")),
    ],
)
def test_runs_that_cannot_be_are_scored_all_the_same(config, num_steps, words):
    schedule = FlowSchedule.from_config({**SD3, **config})
    np.testing.assert_array_equal(schedule.noise_rates, FlowSchedule.from_config(SD3).noise_rates)
    with raises(*words):
        samplers.SAMPLERS["flow_euler"].plan(schedule, num_steps)


def test_other_schedulers_have_the_same_levels():
    heun = FlowSchedule.from_config({**SD3, "_class_name": "FlowMatchHeunDiscreteScheduler"})
    solver = {"_class_name": "UniPCMultistepScheduler", "use_flow_sigmas": True, "prediction_type": "flow_prediction"}
    unipc = FlowSchedule.from_config({**solver, "flow_shift": 3.0, "solver_order": 2})
    for schedule in (heun, unipc):
        assert schedule.training == FlowSchedule.from_config(SD3).training
        assert FlowSchedule.from_config(schedule.to_config()) == schedule
        assert not samplers.has_own(schedule)
    with raises("unsupported-option", "UniPCMultistepScheduler", "epsilon"):
        FlowSchedule.from_config({**solver, "prediction_type": "epsilon"})


def test_self_bench_judges_on_these():
    """FIELD: s = 3u / (1 + 2u) at u = 1 - (20 + 33k) / 1000 for SD 3; of FLUX.1 u itself, from 12 on, unshifted."""
    chosen = samples.choose_of_schedule(FlowSchedule(shift=3.0), "published", 30, left_out=20)
    u = 1 - (20 + 33 * np.arange(30)[::-1]) / 1000
    np.testing.assert_allclose(chosen, 3 * u / (1 + 2 * u), rtol=1e-6)
    assert chosen[[0, -1]].tolist() == pytest.approx([0.06597, 0.99324], abs=5e-6)
    flux = FlowSchedule.from_config(FLUX).for_positions(4096)
    chosen = samples.choose_of_schedule(flux, "published", 30, left_out=12)
    assert (len(chosen), *chosen[[0, -1]].tolist()) == pytest.approx((30, 0.031, 0.988), abs=1e-6)
    # Its code takes every int(1000 / n)-th level: 48 of 50 that are asked for.
    assert len(samples.choose_of_schedule(FlowSchedule(shift=3.0), "published", 50, left_out=20)) == 48


def test_rules_choose_among_the_shifted_levels():
    schedule = FlowSchedule(shift=3.0)
    numbers = samples.choose_timesteps("uniform", 64, seed=3)
    chosen = samples.choose_of_schedule(schedule, "uniform", 64, seed=3)
    assert chosen.dtype == np.float32
    np.testing.assert_array_equal(chosen, schedule.noise_rates[numbers])
    of_range = samples.choose_of_schedule(schedule, "even", 10, timestep_range=(500, 1000))
    assert of_range.min() > schedule.noise_rates[499]


def test_levels_travel_as_whole_numbers():
    schedule = FlowSchedule(shift=3.0)
    levels = np.array([1e-6, 0.3, 0.99999994, 1.0], np.float32)
    numbers = schedule.as_whole_numbers(levels)
    assert numbers.dtype == np.int32
    np.testing.assert_array_equal(schedule.from_whole_numbers(jnp.asarray(numbers)), levels)


def test_the_path_is_straight():
    schedule = FlowSchedule(shift=3.0)
    latents, noise = np.random.default_rng(0).normal(size=(2, 3, 2, 2, 4)).astype(np.float32)
    levels = np.array([0.25, 0.5, 1.0], np.float32)
    noisy = schedule.add_noise(latents, noise, levels)
    np.testing.assert_allclose(noisy[0], 0.75 * latents[0] + 0.25 * noise[0], rtol=1e-6)
    np.testing.assert_array_equal(noisy[2], noise[2])
    target = schedule.target(latents, noise, levels)
    np.testing.assert_allclose(target, noise - latents, rtol=1e-6)
    np.testing.assert_allclose(schedule.as_noise(target, noisy, levels), noise, atol=1e-6)
    np.testing.assert_allclose(schedule.model_time(levels), [250, 500, 1000])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"_class_name": "DDIMScheduler"}, ("DDIMScheduler", "FlowMatchEulerDiscreteScheduler")),
        ({"shift": 0}, ("shift", "above 0")),
        ({"use_dynamic_shifting": 1}, ("use_dynamic_shifting", "true or false")),
        ({"time_shift_type": "cubic"}, ("time_shift_type", "exponential")),
        ({"invert_sigmas": True}, ("invert_sigmas", "True")),
        ({"prediction_type": "sample"}, ("prediction_type",)),
        ({"base_image_seq_len": 5000}, ("max_image_seq_len", "base_image_seq_len", "5000")),
    ],
)
def test_what_a_file_cannot_say_is_one_sentence(changes, words):
    with pytest.raises(InputError, match=names(*words)):
        FlowSchedule.from_config({**FLUX, **changes})


@pytest.mark.parametrize("given", [[0.0, 0.5], [1.0001], [float("nan")], [500], [[0.5]], []])
def test_lists_that_are_no_noise_levels_are_one_sentence(given):
    with pytest.raises(InputError, match=names("timesteps", "above 0 and up to 1")):
        samples.choose_of_schedule(FlowSchedule(), given, None)
