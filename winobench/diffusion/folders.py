"""A pipeline's folder in the diffusers layout: read, written, and described without its weights."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import jax
import jax.numpy as jnp

from winobench import files, options
from winobench.checkpoints import fast_tokenizers, models, sources, tokenizer_files
from winobench.checkpoints.sources import Source
from winobench.diffusion.schedules import Schedule
from winobench.errors import InputError

if TYPE_CHECKING:
    from winobench.diffusion.pipeline import Pipeline

_Family = TypeVar("_Family", bound="Pipeline")

# A key of scheduler_config.json for what winobench alone reads. diffusers leaves keys with an underscore alone.
_OWN_KEY = "_winobench"
# The version that model_index.json names; diffusers only compares it with versions of long ago.
_DIFFUSERS_VERSION = "0.42.0"


@dataclasses.dataclass(frozen=True)
class Description:
    """What a pipeline's small files say.

    Attributes:
      family: the class that loads it.
      schedule: its noise schedule.
      timestep_range: the timesteps that it is judged on; None for all.
      configs: network -> config.
    """

    family: type[Pipeline]
    schedule: Schedule
    timestep_range: tuple[int, int] | None
    configs: dict[str, Any]

    @property
    def autoencoder_config(self) -> Any:
        """The config of the network between images and latents."""
        return self.configs[self.family.AUTOENCODER]


def load(
    family: type[_Family],
    source: str | os.PathLike,
    dtype: Any,
    *,
    encoder_dtype: Any,
    variant: str | None,
    revision: str | None,
    allow_pickle: bool,
    text_encoders_on_host: bool,
    settings: Mapping[str, Any],
) -> _Family:
    """Loads a pipeline of a family; arguments and errors as of `Pipeline.from_pretrained`."""
    dtype = models.as_dtype(dtype)
    encoder_dtype = dtype if encoder_dtype is None else models.as_dtype(encoder_dtype)
    source = sources.resolve(source, revision=revision)
    # The small files first, so that what is wrong shows before gigabytes are read or downloaded.
    settings = family.check_settings(settings)
    description = family.read_description(source)
    tokenizers = {name: _read_tokenizer(family, source, name) for name in family.TOKENIZERS}
    family.check_fit(
        description.configs, {name: tokenizer_files.num_ids(tokenizer) for name, tokenizer in tokenizers.items()}
    )
    networks = {}
    for name, network in family.NETWORKS.items():
        its_dtype = dtype if name in (family.DENOISER, *family.LARGE_ENCODERS) else encoder_dtype
        if name == family.AUTOENCODER and description.configs[name].force_upcast and its_dtype == jnp.float16:
            its_dtype = jnp.float32
        on_host = text_encoders_on_host and name not in (family.DENOISER, family.AUTOENCODER)
        with _on_host() if on_host else contextlib.nullcontext():
            networks[name] = models.load_model(
                network, source, subfolder=name, dtype=its_dtype, variant=variant, allow_pickle=allow_pickle
            )
    return family(
        **networks,
        **tokenizers,
        schedule=description.schedule,
        timestep_range=description.timestep_range,
        **settings,
    )


def save(pipeline: Pipeline, folder: str | os.PathLike, dtype: Any) -> None:
    """Writes a pipeline's folder; arguments and errors as of `Pipeline.save_pretrained`."""
    with files.writing(folder):
        index_path = os.path.join(folder, "model_index.json")
        with contextlib.suppress(FileNotFoundError):
            os.remove(index_path)
        for name, network in pipeline.networks.items():
            models.save_model(network, os.path.join(folder, name), dtype=dtype)
        for name in pipeline.TOKENIZERS:
            tokenizer, place = getattr(pipeline, name), os.path.join(folder, name)
            if _is_clip(pipeline, name):
                tokenizer_files.save_clip_tokenizer(tokenizer, place)
            else:
                fast_tokenizers.save_fast_tokenizer(tokenizer, place)
        os.makedirs(os.path.join(folder, "scheduler"), exist_ok=True)
        schedule = {**pipeline.schedule.to_config(), "_diffusers_version": _DIFFUSERS_VERSION}
        if pipeline.timestep_range is not None:
            schedule[_OWN_KEY] = {"timestep_range": list(pipeline.timestep_range)}
        files.write_json(os.path.join(folder, "scheduler", "scheduler_config.json"), schedule)
        parts = {name: list(named) for name, named in pipeline.PARTS.items()}
        parts["scheduler"] = ["diffusers", pipeline.schedule.scheduler_class]
        index = {"_class_name": pipeline.CLASS_NAME, "_diffusers_version": _DIFFUSERS_VERSION}
        files.write_json(index_path, index | dict(sorted((parts | dict(pipeline.INDEX)).items())))


def read_description(
    family: type[Pipeline], source: str | os.PathLike | Source, *, revision: str | None = None
) -> Description:
    """Reads what a pipeline is; arguments and errors as of `Pipeline.read_description`."""
    source = sources.resolve(source, revision=revision)
    path = source.require("model_index.json", "so it is no pipeline in the diffusers layout")
    index = sources.read_json(path)
    kind = index.get("_class_name", "pipeline")
    if problem := family.mismatch(index):
        raise InputError(f"{path} describes a {kind} {problem}: it is not a {family.CLASS_NAME}")
    schedule_path = source.require("scheduler/scheduler_config.json", "so the noise schedule is unknown")
    content = sources.read_json(schedule_path)
    try:
        schedule = family.read_schedule(content)
        timestep_range = _own_timesteps(content, schedule)
    except InputError as error:
        raise InputError(f"{schedule_path}: {error}") from error
    configs = {name: models.read_config(network, source, name) for name, network in family.NETWORKS.items()}
    return Description(family, schedule, timestep_range, configs)


def _read_tokenizer(family: type[Pipeline], source: Source, name: str) -> Any:
    if _is_clip(family, name):
        return tokenizer_files.read_clip_tokenizer(source, subfolder=name)
    return fast_tokenizers.read_fast_tokenizer(source, subfolder=name)


def _is_clip(family: type[Pipeline] | Pipeline, name: str) -> bool:
    return family.PARTS[name][1] == "CLIPTokenizer"


def _own_timesteps(content: Mapping[str, Any], schedule: Schedule) -> tuple[int, int] | None:
    """The range of timesteps that a ``scheduler_config.json`` brings along, if it does."""
    own = content.get(_OWN_KEY, {})
    if not isinstance(own, dict) or own.keys() - {"timestep_range"}:
        raise InputError(
            f'{_OWN_KEY} is {options.shown(own)}, but it must be an object such as {{"timestep_range": [300, 800]}}'
        )
    allowed = options.span(schedule.num_train_timesteps).or_none()
    return allowed.check(f"timestep_range in {_OWN_KEY}", own.get("timestep_range"))


def _on_host() -> contextlib.AbstractContextManager[Any]:
    """Where arrays are made on the CPU, if JAX has one beside the accelerators."""
    try:
        return jax.default_device(jax.local_devices(backend="cpu")[0])
    except RuntimeError:
        return contextlib.nullcontext()
