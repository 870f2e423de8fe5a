"""Pipelines as diffusers loads them, and whether they do the same here."""

from __future__ import annotations

import contextlib
import importlib.metadata
import logging
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from winobench.base import caches, files, hub, json_files, memory, options
from winobench.base.errors import InputError
from winobench.checkpoints import models, sources
from winobench.checkpoints.sources import LocalFolder, Source
from winobench.diffusion.flow_schedule import SCHEDULER_CLASS, FlowSchedule
from winobench.diffusion.schedules import NoiseSchedule, Schedule
from winobench.models import holding
from winobench.torch_pipelines.families import Family, family_of
from winobench.torch_pipelines.network import TorchConfig

if TYPE_CHECKING:
    from winobench.torch_pipelines.pipeline import TorchPipeline

_INDEX = "model_index.json"
# What a pipeline is read from: no code, and no pickles.
_FILES = ["*.json", "*.txt", "*.model", "*.jinja", "*.safetensors"]
# Largest differences from torch, as a share of the root mean square of its numbers.
_TOLERANCES = {"float32": 1e-4, "bfloat16": 0.05, "float16": 0.01}
# Their schedules are shifted after betas are made of the config.
_SHIFTED_CLASSES = ("CogVideoXDDIMScheduler", "CogVideoXDPMScheduler")
# Of the images of the comparison, in pixels: where a model takes them, a host is done with them soon.
_SMALL_IMAGE = 128
# Rows of the comparison's predictions: compilers have treated a single row by itself, and wrongly.
_ROWS = (1, 3)
_TEXTS = ("a dog to the left of a cat", "", "two birds")


def versions() -> dict[str, str]:
    """Of the packages whose code decides a prediction."""
    names = ("diffusers", "transformers", "torch", "torchax")
    return {name: importlib.metadata.version(name).partition("+")[0] for name in names}


def load(source: Any, dtype: Any, *, variant: str | None, revision: str | None) -> Any:
    """diffusers' pipeline, on the host."""
    dtype = jnp.dtype(models.as_dtype(dtype)).name
    source = sources.resolve(source, revision=revision)
    index = _checked_index(source)
    from winobench.torch_pipelines import bridge

    folder = _folder(source, index)
    family = family_of(index["_class_name"])
    _check_memory(source, folder, index, dtype, variant)
    half = getattr(bridge.torch, dtype)
    # Images are encoded once, and the most that a half rounds would come from their latents.
    dtypes = {"default": half, family.autoencoder: bridge.torch.float32}
    with _quietly(f"{source} cannot be loaded by diffusers"):
        pipe = getattr(bridge.diffusers, index["_class_name"]).from_pretrained(
            folder,
            torch_dtype=dtypes,
            variant=variant,
            use_safetensors=True,
            local_files_only=True,
            **dict.fromkeys(family.without),
        )
    for name in (family.denoiser, family.autoencoder, *(name for name in index if name.startswith("text_encoder"))):
        part = getattr(pipe, name, None)
        if getattr(part, "is_quantized", False):
            setattr(pipe, name, part.dequantize())
    return pipe


def skeleton(source: Any, *, revision: str | None = None) -> Any:
    """diffusers' pipeline without weights: its denoiser and autoencoder are on the meta device."""
    source = sources.resolve(source, revision=revision)
    index = _checked_index(source)
    from winobench.torch_pipelines import bridge

    family = family_of(index["_class_name"])
    parts: dict[str, Any] = {name: None for name in _parts(index)}
    with _quietly(f"{source} is not what diffusers reads"):
        for name in (family.denoiser, family.autoencoder, "scheduler"):
            stem = "scheduler_config.json" if name == "scheduler" else "config.json"
            path = source.require(f"{name}/{stem}", "so it is not a pipeline in the diffusers layout")
            kind = getattr(bridge.diffusers, index[name][1])
            # Samplers' files hold Infinity, and their tables are numbers.
            is_sampler = name == "scheduler"
            config = json_files.read_object(path, "get it again", constants=is_sampler)
            with bridge.torch.device("cpu" if is_sampler else "meta"):
                parts[name] = kind.from_config({**config, "_class_name": index[name][1]})
        others = {name: value for name, value in index.items() if name not in parts and not name.startswith("_")}
        return getattr(bridge.diffusers, index["_class_name"])(**parts, **others)


def configs_of(pipe: Any, family: Family) -> dict[str, TorchConfig]:
    """The configs of the denoiser and the autoencoder, with what is derived from both."""
    denoiser, vae = (
        json_files.parse(getattr(pipe, name).to_json_string()) for name in (family.denoiser, family.autoencoder)
    )
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
    if kind == SCHEDULER_CLASS:
        # Which levels a run of few steps ends with decides nothing here.
        return FlowSchedule.from_config({**config, "shift_terminal": None, "_class_name": kind})
    if config.get("use_flow_sigmas"):
        if config.get("prediction_type") != "flow_prediction" or config.get("use_dynamic_shifting"):
            raise InputError(
                f"{kind} has flow levels, but predicts {options.quote(config.get('prediction_type'))}: this form is not"
                " known",
                code="unsupported-option",
            )
        return FlowSchedule(num_train_timesteps=config["num_train_timesteps"], shift=config.get("flow_shift") or 1.0)
    if kind in _SHIFTED_CLASSES:
        left = np.asarray(scheduler.alphas_cumprod, np.float64)
        return NoiseSchedule(
            num_train_timesteps=len(left),
            trained_betas=tuple((1 - left / np.append(1.0, left[:-1])).tolist()),
            prediction_type=config["prediction_type"],
        )
    return NoiseSchedule.from_config({**config, "_class_name": kind})


# Files ------------------------------------------------------------------------------------------------------------


def _checked_index(source: Source) -> dict[str, Any]:
    """The content of a ``model_index.json`` whose parts are classes of diffusers and transformers."""
    path = source.require(_INDEX, "so it is not a pipeline in the diffusers layout")
    index = sources.read_json(path)
    family_of(str(index.get("_class_name")))
    for name, (library, kind) in _parts(index).items():
        if library not in ("diffusers", "transformers", None) and not _is_of_diffusers(library):
            raise InputError(
                f"{path} takes {name} from {options.quote(library)}.{kind}, which would be code of the repository: only"
                " classes of diffusers and transformers are used",
                code="foreign-code",
            )
    return index


def _is_of_diffusers(library: Any) -> bool:
    from winobench.torch_pipelines import bridge

    return isinstance(library, str) and library.isidentifier() and hasattr(bridge.diffusers.pipelines, library)


def _parts(index: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    pairs = {name: value for name, value in index.items() if isinstance(value, list) and len(value) == 2}
    return {name: (of, kind) for name, (of, kind) in pairs.items() if not isinstance(kind, int)}


def _folder(source: Source, index: Mapping[str, Any]) -> str:
    """A local folder with a pipeline's files."""
    if isinstance(source, LocalFolder):
        return str(source.path)
    import huggingface_hub

    parts = [name for name, (_, kind) in _parts(index).items() if kind is not None]
    patterns = [_INDEX, *(f"{part}/{pattern}" for part in parts for pattern in _FILES)]
    place = str(source)
    try:
        return huggingface_hub.snapshot_download(
            source.repo_id,
            revision=source.revision,
            allow_patterns=patterns,
            local_files_only=not hub.is_reachable(),
        )
    except Exception as error:
        page = f"https://huggingface.co/{source.repo_id}"
        raise hub.refusal(error, place, page) or InputError(
            f"files of {place} could not be fetched: {str(error).splitlines()[0]}", code="cannot-download"
        ) from error


def _check_memory(source: Source, folder: str, index: Mapping[str, Any], dtype: str, variant: str | None) -> None:
    """Raises InputError where the host cannot hold the weights, by the headers of their files."""
    total, family = 0, family_of(index["_class_name"])
    for name in _parts(index).keys() - {*family.without}:
        ending = f".{variant}.safetensors" if variant else ".safetensors"
        paths = sorted(pathlib.Path(folder, name).glob(f"*{ending}"))
        if variant is None:  # files of other variants lie next to them
            paths = [path for path in paths if len(path.name.removesuffix(ending).split(".")) == 1]
        size = 4 if name == family.autoencoder else jnp.dtype(dtype).itemsize
        total += sum(size * _count(path) for path in paths)
    memory.check(f"loading {source}", total, "use bfloat16 (dtype), or a machine with more memory")


def _count(path: pathlib.Path) -> int:
    """Numbers in a safetensors file, by its header."""
    files.refuse_pointer(path)
    with path.open("rb") as file:
        header = json_files.parse(file.read(int.from_bytes(file.read(8), "little")).decode())
    return sum(int(np.prod(entry["shape"])) for name, entry in header.items() if name != "__metadata__")


@contextlib.contextmanager
def _quietly(what: str) -> Iterator[None]:
    """Around diffusers' own loading: its errors become one sentence."""
    logger = logging.getLogger("diffusers")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise InputError(f"{what}: {reason}", code="cannot-read") from error
    finally:
        logger.setLevel(level)


# Comparison with torch --------------------------------------------------------------------------------------------


def check_against_torch(pipeline: TorchPipeline) -> None:
    """Raises InputError unless a prediction, and an image's latents, equal torch's. Remembered by content."""
    place = os.path.join(caches.folder(), "torch_checks")
    device = jax.devices()[0]
    key = [pipeline.fingerprint, device.platform, device.device_kind, jax.__version__, caches.processor()]
    path = pathlib.Path(place) / f"{files.digest(key)[:32]}.json"
    if path.exists():
        return
    found = differences(pipeline)
    for name, (difference, allowed) in found.items():
        if not difference <= allowed:
            raise InputError(
                f"{name} of this {pipeline.diffusers_class} differ from torch's by {difference:.1e} of their size"
                f" (at most {allowed:.0e} is rounding): it cannot be used here, so report it",
                code="differs-from-torch",
            )
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_json(path, {name: difference for name, (difference, _) in found.items()})


def differences(pipeline: TorchPipeline) -> dict[str, tuple[float, float]]:
    """What is compared -> (largest difference from torch, relative to torch's root mean square; largest allowed)."""
    random = np.random.default_rng(0)
    pixels = random.standard_normal((1, 3, *[_usable_size(pipeline)] * 2)).astype(np.float32)
    vae, network, schedule = pipeline.vae, pipeline.network, pipeline.schedule
    family = family_of(pipeline.diffusers_class)
    latents = vae.run_in_torch(pixels.astype(vae.dtype))
    found = {"latents": (_difference(_jitted(vae, pixels.astype(vae.dtype)), latents), _TOLERANCES[vae.dtype.name])}
    for rows in _ROWS:
        noisy = random.standard_normal((rows, *latents.shape[1:])).astype(network.dtype)
        numbers = np.linspace(0, schedule.num_train_timesteps - 1, rows + 2)[1:-1].astype(int)
        times = np.asarray(schedule.model_time(schedule.timesteps_at(numbers)))
        conditions = pipeline.texts.encode_all(_TEXTS[:rows], network.dtype)
        inputs = (noisy, times, conditions)
        difference = _difference(_jitted(network, *inputs), network.run_in_torch(*inputs))
        found[f"predictions for {rows}"] = difference, max(_TOLERANCES[network.dtype.name], family.rounding)
    return found


def _jitted(network: Any, *inputs: Any) -> np.ndarray:
    structure, params = holding.split(network)
    return np.asarray(jax.jit(lambda params, *inputs: structure.module(params).run(*inputs))(params, *inputs))


def _difference(got: np.ndarray, wanted: np.ndarray) -> float:
    got, wanted = (np.asarray(array, np.float32) for array in (got, wanted))
    size = float(np.sqrt(np.mean(np.square(wanted))))
    return float(np.abs(got - wanted).max()) / max(size, np.finfo(np.float32).tiny)


def _usable_size(pipeline: TorchPipeline) -> int:
    """Height and width, in pixels, of the comparison's image."""
    usual = pipeline.network.config.image_size or _SMALL_IMAGE
    return min(usual, max(_SMALL_IMAGE, pipeline.vae.config.downsampling * pipeline.network.config.latents_a_side))
