"""Samplers against diffusers' schedulers: whole runs from the same noise, with options as files have them."""

import functools

import diffusers
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from winobench.base.errors import InputError
from winobench.diffusion import samplers
from winobench.diffusion.flow_schedule import FlowSchedule
from winobench.diffusion.samplers.ddim import ddim_timesteps
from winobench.diffusion.schedules import NoiseSchedule

LATENT = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}
VELOCITY = {"prediction_type": "v_prediction"}
ZERO_SNR = {**VELOCITY, "rescale_betas_zero_snr": True}
SPACED = [{"timestep_spacing": "leading", "steps_offset": 1}, {"timestep_spacing": "trailing"}]
SPACED += [{"timestep_spacing": "linspace"}]

NAMED = {
    "ddim": diffusers.DDIMScheduler,
    "euler": diffusers.EulerDiscreteScheduler,
    "euler_ancestral": diffusers.EulerAncestralDiscreteScheduler,
    "dpm_solver": diffusers.DPMSolverMultistepScheduler,
}
# What only some of them have.
OWN = {
    "ddim": [
        {"clip_sample": True},
        {"clip_sample": True, "clip_sample_range": 0.3, **VELOCITY},
        {"set_alpha_to_one": False},
        ZERO_SNR | SPACED[1],
    ],
    "euler": [
        {"use_karras_sigmas": True},
        {"use_karras_sigmas": True, "sigma_min": 0.1, "sigma_max": 10.0, **VELOCITY},
        {"final_sigmas_type": "sigma_min"},
        ZERO_SNR | SPACED[1],
    ],
    "euler_ancestral": [ZERO_SNR | SPACED[1]],
    "dpm_solver": [
        {"use_karras_sigmas": True},
        {"final_sigmas_type": "sigma_min"},
        {"final_sigmas_type": "sigma_min", "lower_order_final": False},
        {"final_sigmas_type": "sigma_min", "lower_order_final": False, "euler_at_final": True},
        {"beta_schedule": "squaredcos_cap_v2", "lambda_min_clipped": -5.1},
        {"beta_schedule": "squaredcos_cap_v2", "lambda_min_clipped": -5.1, "use_karras_sigmas": True},
        ZERO_SNR | SPACED[1],
    ],
}
EVERY = [{}, *SPACED, *(spaced | VELOCITY for spaced in SPACED)]
CASES = [(name, options) for name in NAMED for options in EVERY + OWN[name]]


def both(name, options):
    clipped = {"clip_sample": False} if name == "ddim" else {}
    theirs = NAMED[name](**{**LATENT, **clipped, **options})
    return NoiseSchedule.from_config(dict(theirs.config)), theirs


def denoise(latents, times, states):
    """The same expression works for both libraries."""
    return 0.3 * latents + 0.1 * states * (times[:, None, None, None] / 1000)


def arrays(count):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, 3, 4, 5, generator=generator) for _ in range(count)]


def run_of_theirs(theirs, latents, text, empty, first, num_steps, clean=None, **timesteps):
    """As diffusers' pipelines do it; the noise of random steps is that of a seed of its own."""
    theirs.set_timesteps(**timesteps or {"num_inference_steps": num_steps})
    theirs.is_scale_input_called = True
    if hasattr(theirs, "set_begin_index"):
        theirs.set_begin_index(first)
    steps = theirs.timesteps[first:]
    if clean is not None:
        add = theirs.scale_noise if hasattr(theirs, "scale_noise") else None
        start = steps[:1].repeat(2)
        latents = add(clean, start, latents) if add else theirs.add_noise(clean, latents, start)
    elif hasattr(theirs, "init_noise_sigma"):
        latents = latents * theirs.init_noise_sigma
    more = {}
    if isinstance(theirs, diffusers.EulerAncestralDiscreteScheduler):
        more["generator"] = torch.Generator().manual_seed(1)
    for timestep in steps:
        given = theirs.scale_model_input(latents, timestep) if hasattr(theirs, "scale_model_input") else latents
        predictions = [denoise(given, timestep.expand(2), states) for states in (empty, text)]
        guided = predictions[0] + 4.0 * (predictions[1] - predictions[0])
        latents = theirs.step(guided, timestep, latents, **more).prev_sample
    return latents.numpy()


@functools.partial(jax.jit, static_argnums=0)
def run_of_ours(sampler, plan, noise, text, empty, clean, step_noise):
    def of_step(number):
        return step_noise[number - plan.numbers[0]]

    return samplers.sample(sampler, denoise, plan, noise, text, guidance=(empty, 4.0), clean=clean, step_noise=of_step)


def compare(name, schedule, theirs, num_steps, *, strength=None, evenly=False, **timesteps):
    sampler = samplers.SAMPLERS[name]
    noise, text, empty, clean = arrays(4)
    first = 0 if strength is None else sampler.first_step(num_steps, strength)
    clean = None if strength is None else clean
    expected = run_of_theirs(theirs, noise, text, empty, first, num_steps, clean, **timesteps)
    step_noise = None
    if sampler.is_random:
        generator = torch.Generator().manual_seed(1)
        step_noise = np.stack([torch.randn(2, 3, 4, 5, generator=generator) for _ in range(num_steps - first)])
    plan = sampler.plan(schedule, num_steps, first=first, evenly=evenly)
    inputs = (None if array is None else jnp.asarray(np.asarray(array)) for array in (noise, text, empty, clean))
    result = run_of_ours(sampler, plan, *inputs, step_noise)
    # Float32 on both sides. Steps divide by the signal's rate, which magnifies rounding near pure noise; and where
    # latents grow with the noise, to 4,096 where no signal is left, so does their rounding.
    tolerance = 2e-5 * np.abs(expected).max() + 2**-21 * float(plan.noise_scale)
    np.testing.assert_allclose(result, expected, rtol=2e-5, atol=tolerance)
    return plan


@pytest.mark.parametrize("num_steps", [1, 10])
@pytest.mark.parametrize(("name", "options"), CASES)
def test_a_whole_run(name, options, num_steps):
    """With guidance; timesteps, between whole ones as well, are those that the network is told."""
    schedule, theirs = both(name, options)
    plan = compare(name, schedule, theirs, num_steps)
    np.testing.assert_allclose(plan.times, theirs.timesteps.numpy(), rtol=1e-5, atol=2e-4)


@pytest.mark.parametrize("strength", [0.31, 1.0])
@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("options", [SPACED[0], SPACED[2] | VELOCITY])
def test_a_run_that_begins_with_an_image(name, options, strength):
    schedule, theirs = both(name, options)
    plan = compare(name, schedule, theirs, 10, strength=strength)
    assert plan.numbers.tolist() == list(range(7 if strength < 1 else 0, 10))


SD3 = {"num_train_timesteps": 1000, "shift": 3.0}
FLUX = {"num_train_timesteps": 1000, "shift": 3.0, "use_dynamic_shifting": True}


@pytest.mark.parametrize("strength", [None, 0.31, 1.0])
@pytest.mark.parametrize("num_steps", [1, 10])
@pytest.mark.parametrize("evenly", [False, True])
def test_a_whole_run_of_a_flow(evenly, num_steps, strength):
    config = FLUX if evenly else SD3
    schedule = FlowSchedule.from_config({"_class_name": "FlowMatchEulerDiscreteScheduler", **config})
    theirs = diffusers.FlowMatchEulerDiscreteScheduler(**config)
    options = {}
    if evenly:
        options = {"sigmas": np.linspace(1.0, 1 / num_steps, num_steps), "mu": 1.15}
        schedule = schedule.for_positions(4096)
    compare("flow_euler", schedule, theirs, num_steps, strength=strength, evenly=evenly, **options)


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("options", [{}, {"steps_offset": 1, "timestep_spacing": "leading"}])
def test_files_of_other_schedulers(name, options):
    """What a file does not say is as the sampler's own class has it, as diffusers reads another scheduler's file."""
    file = {"_class_name": "PNDMScheduler", **LATENT, "set_alpha_to_one": False, **options}
    pndm = diffusers.PNDMScheduler.from_config(file)
    given = {"clip_sample": False} if name == "ddim" else {}
    theirs = NAMED[name].from_config(pndm.config, **given)
    compare(name, NoiseSchedule.from_config(file), theirs, 10)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ddim", {"thresholding": True}),
        ("ddim", {"clip_sample": True, "clip_sample_range": "much"}),
        ("dpm_solver", {"algorithm_type": "sde-dpmsolver++"}),
        ("dpm_solver", {"solver_order": 3}),
        ("dpm_solver", {"solver_type": "heun"}),
        ("dpm_solver", {"thresholding": True}),
    ],
)
def test_what_a_sampler_does_not_do_is_refused(name, options):
    schedule = NoiseSchedule.from_config({"_class_name": NAMED[name].__name__, **LATENT, **options})
    with pytest.raises(InputError, match=list(options)[-1]):
        samplers.find_sampler(None, schedule).plan(schedule, 4)


def test_the_folder_names_the_sampler():
    """And where its own one is not here, DDIM stands in."""
    for name, scheduler in NAMED.items():
        schedule = NoiseSchedule.from_config({"_class_name": scheduler.__name__, **LATENT})
        assert samplers.find_sampler(None, schedule) == samplers.SAMPLERS[name]
    schedule = NoiseSchedule.from_config({"_class_name": "PNDMScheduler", **LATENT})
    assert samplers.find_sampler(None, schedule) == samplers.SAMPLERS["ddim"]


@pytest.mark.parametrize("options", [*SPACED, {}])
@pytest.mark.parametrize("num_steps", [2, 7, 998])
def test_timesteps_of_dpm_solver(options, num_steps):
    schedule, theirs = both("dpm_solver", options)
    theirs.set_timesteps(num_steps)
    times = samplers.SAMPLERS["dpm_solver"].plan(schedule, num_steps).times
    if len(theirs.timesteps) == num_steps:  # rounding gives diffusers' trailing ones another one at times
        np.testing.assert_array_equal(times, theirs.timesteps.numpy())
    else:
        assert options["timestep_spacing"] == "trailing"


@pytest.mark.parametrize("spaced", SPACED, ids=lambda spaced: spaced["timestep_spacing"])
def test_timesteps_of_all_step_counts(spaced):
    """Equal to diffusers' wherever that gives as many as asked for, but for ties, which its rounding errors decide."""
    ours, theirs = both("ddim", spaced)
    wrong_counts = 0
    for num_steps in range(1, 1001):
        theirs.set_timesteps(num_steps)
        expected = theirs.timesteps.numpy()
        steps, following = ddim_timesteps(ours, num_steps)
        np.testing.assert_array_equal(following, steps - 1000 // num_steps)
        if len(expected) != num_steps:
            wrong_counts += 1
            continue
        apart = np.flatnonzero(steps != np.minimum(expected, 999))
        assert (np.abs(steps - expected)[apart] == 1).all()
        if spaced["timestep_spacing"] == "trailing":
            assert (2 * (1000 * (num_steps - apart)) % (2 * num_steps) == num_steps).all()  # halves, all of them
        else:
            assert not apart.size
    assert wrong_counts == (62 if spaced["timestep_spacing"] == "trailing" else 0)
