"""A pipeline class of diffusers, next to its own run with its own scheduler in torch."""

import contextlib
import copy
import functools
import importlib
import inspect
import pkgutil
import time
from unittest import mock

import jax
import numpy as np
import pytest
import torch

from tests.contrib.torch_pipelines import tiny
from winobench.contrib.torch_pipelines import families
from winobench.contrib.torch_pipelines.autoencoders import encoder_of
from winobench.contrib.torch_pipelines.pipeline import TorchPipeline
from winobench.models import snapshots

TEXTS = ["a dog to the left of a cat", "two birds", ""]
STEPS = 3
QUICK = ("SanaPipeline",)


def makers(package=tiny):
    """(class, what makes a tiny one) of each class that this package can make and that can be scored."""
    classes = {name.lower(): name for name in families.names()}
    names = [module.name for module in pkgutil.iter_modules(package.__path__)]
    modules = {name: importlib.import_module(f"{package.__name__}.{name}") for name in names}
    members = vars(modules["pipelines"]) if "pipelines" in modules else modules
    for member, maker in sorted(members.items()):
        if (name := classes.get(member.replace("_", ""))) is not None:
            yield name, maker


def cases(names=None, package=tiny):
    """Parameters of tests: name and module. All but a few are slow."""
    return [
        pytest.param(name, maker, id=name, marks=() if name in QUICK else pytest.mark.slow)
        for name, maker in makers(package)
        if names is None or name in names
    ]


def run_of_diffusers(pipe, maker, texts, noise, **options):
    """Steps (sample, timestep, prediction, next sample) of diffusers' own run, the input of its decoder, and images."""
    family, of_call = families.family_of(type(pipe).__name__), inspect.signature(type(pipe).__call__).parameters
    takes_latents = "latents" in of_call
    if len(texts) > 1 and not (takes_latents and family.together):
        generators = options.pop("generator", [None] * len(texts))
        alone = [
            run_of_diffusers(pipe, maker, [text], row[None], **options, generator=generator and [generator])
            for text, row, generator in zip(texts, noise, generators, strict=True)
        ]
        steps, decoded, images = zip(*alone, strict=True)
        return [tuple(map(_joined, *rows)) for rows in zip(*steps, strict=True)], torch.cat(decoded), _joined(*images)
    steps, inputs = [], []
    vae, size = getattr(pipe, family.autoencoder), maker.IMAGE_SIZE
    step, decode = pipe.scheduler.step, vae.decode

    @functools.wraps(step)  # some pipelines look for its keywords
    def recording_step(prediction, timestep, sample, **keywords):
        # Some samplers' samples are larger than those of the training schedule, and some scale them in place.
        scaled = getattr(pipe.scheduler, "scale_model_input", lambda sample, timestep: sample)(sample.clone(), timestep)
        result = step(prediction, timestep, sample, **keywords)
        after = result[0] if isinstance(result, tuple) else result.prev_sample
        steps.append((scaled, float(timestep), prediction.clone(), after.clone()))
        return result

    def recording_decode(latents, *others, **keywords):
        inputs.append(latents.clone())
        return decode(latents, *others, **keywords)

    latents = noise if family.pack is None else family.pack(pipe, noise)
    keywords = {family.guidance: 1.0, "max_area": size**2, **family.call, **maker.CALL, **options}
    keywords |= {"latents": latents, "height": size, "width": size, "num_inference_steps": STEPS, "output_type": "np"}
    keywords |= {"prompt": texts if takes_latents else texts[0], "return_dict": False}
    pipe.set_progress_bar_config(disable=True)
    with (
        contextlib.nullcontext() if takes_latents else mock.patch.object(pipe, "prepare_latents", return_value=latents),
        mock.patch.object(pipe.scheduler, "step", recording_step),
        mock.patch.object(vae, "decode", recording_decode),
    ):
        images = pipe(**{name: value for name, value in keywords.items() if name in of_call})[0]
    decoded = inputs[0]
    return steps, decoded[:, :, 0] if decoded.ndim == 5 else decoded, np.asarray(images)


def _joined(*rows):
    if isinstance(rows[0], float):
        return rows[0]
    return torch.cat(rows) if isinstance(rows[0], torch.Tensor) else np.concatenate(rows)


def unpacked(pipe, family, tensor, size):
    tensor = tensor if family.unpack is None else family.unpack(pipe, tensor, size, size)
    return np.asarray(tensor, np.float32)


def difference(got, wanted):
    """The largest difference, as a share of the root mean square of what diffusers computes."""
    got, wanted = np.asarray(got, np.float64), np.asarray(wanted, np.float64)
    assert got.shape == wanted.shape
    size = np.sqrt(np.mean(np.square(wanted)))
    assert size > 0
    return float(np.abs(got - wanted).max() / size)


def assert_close(got, wanted, tolerance=1e-4):
    assert difference(got, wanted) <= tolerance


def compare(maker):
    """What is compared -> the largest difference; ``compiling``: seconds of the prediction for three rows."""
    pipe = maker.make()
    family, size = families.family_of(type(pipe).__name__), maker.IMAGE_SIZE
    with torch.no_grad():
        pixels = torch.rand((1, 3, size, size), generator=torch.Generator().manual_seed(0)) * 2 - 1
        vae = copy.deepcopy(getattr(pipe, family.autoencoder))
        encoder = encoder_of(type(vae).__name__, family)
        clean = encoder.scale(vae, encoder.encode(vae, pixels))
        noises = [torch.randn((n, *clean.shape[1:]), generator=torch.Generator().manual_seed(n)) for n in (1, 3)]
        runs = [run_of_diffusers(pipe, maker, TEXTS[: len(noise)], noise) for noise in noises]

    pipeline = TorchPipeline.from_diffusers(pipe)
    schedule = pipeline.schedule_at(size)
    latents = np.asarray(pipeline.encode_images(np.asarray(pixels.permute(0, 2, 3, 1)).astype(np.float32)))
    found = {"latents": difference(latents, clean.permute(0, 2, 3, 1)), "prediction": 0.0, "decoder": 0.0, "step": 0.0}
    if schedule.prediction != "flow":
        np.testing.assert_allclose(schedule.alphas_cumprod, pipe.scheduler.alphas_cumprod, rtol=1e-5, atol=1e-12)

    structure, params = snapshots.split(pipeline.network)
    for noise, (steps, decoded, _) in zip(noises, runs, strict=True):
        conditions = pipeline.texts.encode_all(TEXTS[: len(noise)])
        samples, times, wanted, after = zip(*steps, strict=True)
        samples, wanted, after = (
            [unpacked(pipe, family, tensor, size) for tensor in each] for each in (samples, wanted, after)
        )
        # Each row is at another step. A single row is at the second one.
        of_rows = range(len(noise)) if len(noise) > 1 else [1]
        noisy, expected = (np.stack([one[step][row] for row, step in enumerate(of_rows)]) for one in (samples, wanted))
        inputs = np.moveaxis(noisy, 1, -1), np.asarray([times[step] for step in of_rows], np.float32), conditions
        began = time.perf_counter()
        function = jax.jit(lambda params, *inputs: structure.module(params)(*inputs)).lower(params, *inputs).compile()
        found["compiling"] = time.perf_counter() - began
        got = np.moveaxis(np.asarray(function(params, *inputs)), -1, 1)
        found["prediction"] = max(found["prediction"], difference(got, expected))
        # Euler's method goes straight on.
        if schedule.prediction == "flow" and type(pipe.scheduler).__name__.startswith("FlowMatchEuler"):
            levels = [*np.interp(times, schedule.model_times, schedule.noise_rates), 0.0]
            for step in range(STEPS):
                straight = samples[step] + (levels[step + 1] - levels[step]) * wanted[step]
                found["step"] = max(found["step"], difference(after[step], straight))
        # The decoder takes latents as the encoder makes them, before they are scaled.
        found["decoder"] = max(found["decoder"], difference(encoder.scale(vae, decoded), after[-1]))
    return found
