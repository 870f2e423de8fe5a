"""Loads pipelines by diffusers, and compares their results with torch's."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import inspect
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from winobench.base import json_files
from winobench.base.errors import InputError
from winobench.checkpoints import models, sources
from winobench.checkpoints.sources import Source
from winobench.contrib.torch_pipelines import adapters, parts
from winobench.contrib.torch_pipelines.adapters import LoRAFile
from winobench.contrib.torch_pipelines.families import Family, family_of
from winobench.diffusion.flow_schedule import FlowSchedule
from winobench.diffusion.schedules import NoiseSchedule, Schedule
from winobench.models import snapshots
from winobench.torch_modules import comparison
from winobench.torch_modules import loading as networks
from winobench.torch_modules.network import TorchConfig

if TYPE_CHECKING:
    from winobench.contrib.torch_pipelines.torch_parts import TorchParts

# Packages by which diffusers cleans texts -> their modules.
_CLEANERS = {"ftfy": "ftfy", "beautifulsoup4": "bs4"}
# They compute betas from the config, and shift the schedule afterwards.
_SHIFTED_CLASSES = ("CogVideoXDDIMScheduler", "CogVideoXDPMScheduler")
# Pixels of the comparison's images, where a model takes them: a host computes small images quickly.
_SMALL_IMAGE = 128
# Rows of the comparison's predictions. XLA for CPUs (jaxlib 0.10.2) can compute a single row wrongly.
_ROWS = (1, 3)
_TEXTS = ("a dog to the left of a cat", "", "two birds")


def load(
    source: Any,
    dtype: Any,
    *,
    variant: str | None = None,
    revision: str | None = None,
    lora: LoRAFile | None = None,
    lora_scale: float = 1.0,
) -> Any:
    """diffusers' pipeline, on the host, with a LoRA added to its weights."""
    dtype = jnp.dtype(models.as_dtype(dtype)).name
    source = sources.resolve(source, revision=revision)
    index = _read_index(source)
    family = family_of(index["_class_name"])
    kinds = parts.classes(source, index, family)
    weights = networks.weight_files(source, kinds, variant)
    # Images are encoded only once, and half precision would lose most of its accuracy there.
    dtypes = {"default": dtype, family.autoencoder: "float32"}
    networks.check_memory(source, {part: tensors for part, (_, tensors) in weights.items()}, dtypes)
    folder, loaded = networks.folder_of(source, kinds), {}
    for part, kind in kinds.items():
        if part in weights:
            options = dtypes.get(part, dtype), part == family.denoiser
            loaded[part] = networks.load_network(source, folder, part, kind, *weights[part], *options)
        else:
            loaded[part] = networks.load_other(source, folder, part, kind)
    pipe = parts.assemble(source, index, loaded)
    _check_cleaning(pipe, family)
    if lora is not None:
        adapters.fuse(pipe, lora, lora_scale)
    return pipe


def skeleton(source: Any, *, revision: str | None = None) -> Any:
    """diffusers' pipeline without weights: its denoiser and autoencoder are on the meta device."""
    source = sources.resolve(source, revision=revision)
    index = _read_index(source)
    family = family_of(index["_class_name"])
    kinds = parts.classes(source, index, family)
    loaded: dict[str, Any] = dict.fromkeys(kinds)
    for part in (family.denoiser, family.autoencoder, "scheduler"):
        is_sampler = part == "scheduler"
        name = f"{part}/{'scheduler_config' if is_sampler else 'config'}.json"
        path = source.require(name, "so it is not a pipeline in the diffusers layout")
        config = read_scheduler(source) if is_sampler else sources.read_json(path)
        name = kinds[part].__name__
        with networks.quietly(f"{path} does not describe a {name}"), networks.device("cpu" if is_sampler else "meta"):
            loaded[part] = kinds[part].from_config({**config, "_class_name": name})
    return parts.assemble(source, index, loaded)


def read_scheduler(source: Source) -> dict[str, Any]:
    """The content of a ``scheduler_config.json``, which may hold Infinity."""
    path = source.require("scheduler/scheduler_config.json", "so the noise schedule is unknown")
    return json_files.read_object(path, "get it again", constants=True)


def _read_index(source: Source) -> dict[str, Any]:
    index = parts.read_index(source)
    family_of(str(index.get("_class_name")))  # refuses other classes without an import of torch
    return index


def _check_cleaning(pipe: Any, family: Family) -> None:
    """Raises InputError where a package for cleaning texts is missing. diffusers only logs a warning."""
    default = inspect.signature(type(pipe).__call__).parameters.get("clean_caption")
    missing = [name for name, module in _CLEANERS.items() if importlib.util.find_spec(module) is None]
    if missing and family.encode.get("clean_caption", default is not None and default.default):
        raise InputError(
            f"a {type(pipe).__name__} cleans texts by {missing[0]}, which is not installed:"
            ' pip install "winobench[torch]"',
            code="missing-package",
        )


def configs_of(pipe: Any, family: Family) -> dict[str, TorchConfig]:
    """The configs of the denoiser and the autoencoder, with sizes derived from both."""
    denoiser, vae = (
        json_files.parse(getattr(pipe, name).to_json_string()) for name in (family.denoiser, family.autoencoder)
    )
    for config in (denoiser, vae):  # their source, and the storage of their weights
        for name in ("_name_or_path", "_diffusers_version", "quantization_config"):
            config.pop(name, None)
    factor, sample = family.pixels(pipe), getattr(pipe, "default_sample_size", denoiser.get("sample_size"))
    sample = sample[0] if isinstance(sample, list | tuple) and len(set(sample)) == 1 else sample
    size = sample * factor if isinstance(sample, int) else None
    own = {"latents_a_side": family.side, "image_size": family.size or size}
    of_images = {"downsampling": factor, "in_channels": 3, "force_upcast": bool(vae.get("force_upcast"))}
    return {"network": TorchConfig(denoiser | own), "vae": TorchConfig(vae | of_images)}


def schedule_of(pipe: Any, family: Family) -> Schedule:
    """The noise schedule of a pipeline of diffusers."""
    schedule = _read_schedule(pipe.scheduler)
    return schedule if family.schedule is None else family.schedule(pipe, schedule)


def _read_schedule(scheduler: Any) -> Schedule:
    kind = type(scheduler).__name__
    config = {name: value for name, value in scheduler.config.items() if not name.startswith("_")}
    if kind.startswith("FlowMatch") or config.get("use_flow_sigmas"):
        return FlowSchedule.from_config({**config, "_class_name": kind})
    if kind in _SHIFTED_CLASSES:
        left = np.asarray(scheduler.alphas_cumprod, np.float64)
        return NoiseSchedule(
            num_train_timesteps=len(left),
            trained_betas=tuple((1 - left / np.append(1.0, left[:-1])).tolist()),
            prediction_type=config["prediction_type"],
        )
    return NoiseSchedule.from_config({**config, "_class_name": kind})


# Comparison with torch --------------------------------------------------------------------------------------------


def check_against_torch(pipeline: TorchParts) -> None:
    """Raises InputError unless predictions and an image's latents equal torch's."""
    comparison.check_once(pipeline.fingerprint, pipeline.diffusers_class, functools.partial(differences, pipeline))


def differences(pipeline: TorchParts) -> dict[str, tuple[float, float]]:
    """Name of an output -> (its difference from torch's, the largest allowed), both as in `TOLERANCES`."""
    random = np.random.default_rng(0)
    pixels = random.standard_normal((1, 3, *[_usable_size(pipeline)] * 2)).astype(np.float32)
    vae, network, schedule = pipeline.vae, pipeline.network, pipeline.schedule
    latents = vae.run_in_torch(pixels.astype(vae.dtype))
    measured = {
        "latents": (
            comparison.difference(_jitted(vae, pixels.astype(vae.dtype)), latents, vae.dtype),
            comparison.TOLERANCES[vae.dtype.name],
        )
    }
    for rows in _ROWS:
        noisy = random.standard_normal((rows, *latents.shape[1:])).astype(network.dtype)
        numbers = np.linspace(0, schedule.num_train_timesteps - 1, rows + 2)[1:-1].astype(int)
        times = np.asarray(schedule.model_time(schedule.timesteps_at(numbers)))
        conditions = pipeline.texts.encode_all(_TEXTS[:rows], network.dtype)
        inputs = (noisy, times, conditions)
        between = comparison.difference(_jitted(network, *inputs), network.run_in_torch(*inputs), network.dtype)
        measured[f"predictions for {rows}"] = (
            between,
            max(comparison.TOLERANCES[network.dtype.name], pipeline.family.rounding),
        )
    return measured


def _jitted(network: Any, *inputs: Any) -> np.ndarray:
    structure, params = snapshots.split(network)
    return np.asarray(jax.jit(lambda params, *inputs: structure.module(params).run(*inputs))(params, *inputs))


def _usable_size(pipeline: TorchParts) -> int:
    """Height and width, in pixels, of the comparison's image."""
    usual = pipeline.network.config.image_size or _SMALL_IMAGE
    return min(usual, max(_SMALL_IMAGE, pipeline.vae.config.downsampling * pipeline.network.config.latents_a_side))
