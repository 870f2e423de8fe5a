"""A pipeline's folder in the diffusers layout: read, written, and described without its weights."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
from collections.abc import Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from winobench.base import files, memory, options
from winobench.base.errors import InputError
from winobench.checkpoints import fast_tokenizers, models, sources, tokenizer_files, weights
from winobench.checkpoints.sources import Source
from winobench.diffusion import family_names
from winobench.diffusion.schedules import Schedule
from winobench.models.any_pipeline import AnyPipeline

_log = logging.getLogger(__name__)
_Family = TypeVar("_Family", bound=AnyPipeline)

# A key of scheduler_config.json for what winobench alone reads. diffusers leaves keys with an underscore alone.
_OWN_KEY = "_winobench"
# The version that model_index.json names. Diffusers only compares it with versions of long ago.
_DIFFUSERS_VERSION = "0.42.0"


@dataclasses.dataclass(frozen=True)
class Description:
    """A pipeline's small files."""

    family: type[AnyPipeline]
    schedule: Schedule
    timestep_range: tuple[int, int] | None  # that it is judged on; None for all
    configs: dict[str, Any]  # network -> config, without the networks that are left out
    # The family's own options and fields in its folder.
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def denoiser_config(self) -> Any:
        return self.configs[self.family.DENOISER]

    @property
    def autoencoder_config(self) -> Any:
        return self.configs[self.family.AUTOENCODER]


def load(
    family: type[_Family],
    source: Source,
    dtype: Any,
    *,
    encoder_dtype: Any,
    variant: str | None,
    allow_pickle: bool,
    on_host: bool,
    settings: Mapping[str, Any],
) -> _Family:
    dtype = models.as_dtype(dtype)
    encoder_dtype = dtype if encoder_dtype is None else models.as_dtype(encoder_dtype)
    # The small files first, so that faults appear before gigabytes are read or downloaded.
    settings = family.check_settings(settings)
    description = family.read_description(source, settings=settings)
    settings = {**description.settings, **settings}
    absent = _absent(family, source, settings)
    configs = description.configs
    tokenizers = {name: _read_tokenizer(family, source, name) for name in family.TOKENIZERS if name not in absent}
    family.check_fit(configs, {name: tokenizer_files.num_ids(tokenizer) for name, tokenizer in tokenizers.items()})
    stems = {name: family.NETWORKS[name].weights_name for name in configs}
    variants = weights.variants(source, stems, variant, allow_pickle=allow_pickle)
    if usual := [name for name in configs if variants[name] != variant]:
        _log.warning("%s has no %s files of %s: the usual ones are read", source, variant, ", ".join(usual))
    networks = {}
    for name in configs:
        network = family.NETWORKS[name]
        its_dtype = dtype if name in (family.DENOISER, *family.LARGE_ENCODERS) else encoder_dtype
        if name == family.AUTOENCODER and configs[name].force_upcast and its_dtype == jnp.float16:
            its_dtype = jnp.float32
        networks[name] = models.load_model(
            network,
            source,
            subfolder=name,
            dtype=its_dtype,
            variant=variants[name],
            allow_pickle=allow_pickle,
            on_host=on_host and name != family.AUTOENCODER,
        )
    return family(
        **dict.fromkeys(absent),
        **networks,
        **tokenizers,
        schedule=description.schedule,
        timestep_range=description.timestep_range,
        **settings,
    )


def save(pipeline: AnyPipeline, folder: str | os.PathLike, dtype: Any) -> None:
    with files.writing(folder):
        index_path = os.path.join(folder, "model_index.json")
        with contextlib.suppress(FileNotFoundError):
            os.remove(index_path)
        for name, network in pipeline.networks.items():
            models.save_model(network, os.path.join(folder, name), dtype=dtype)
        for name, tokenizer in pipeline.tokenizers.items():
            save = (
                tokenizer_files.save_clip_tokenizer if _is_clip(pipeline, name) else fast_tokenizers.save_fast_tokenizer
            )
            save(tokenizer, os.path.join(folder, name))
        os.makedirs(os.path.join(folder, "scheduler"), exist_ok=True)
        schedule = {**pipeline.schedule.to_config(), "_diffusers_version": _DIFFUSERS_VERSION}
        own = {} if pipeline.timestep_range is None else {"timestep_range": list(pipeline.timestep_range)}
        defaults = {field.name: field.default for field in dataclasses.fields(pipeline)}
        values = {name: getattr(pipeline, name) for name in pipeline.SETTINGS}
        if settings := {name: value for name, value in values.items() if value != defaults[name]}:
            own["settings"] = settings
        if own:
            schedule[_OWN_KEY] = own
        files.write_json(os.path.join(folder, "scheduler", "scheduler_config.json"), schedule)
        present = {**pipeline.networks, **pipeline.tokenizers}
        parts = {name: list(named) if name in present else [None, None] for name, named in pipeline.PARTS.items()}
        parts["scheduler"] = ["diffusers", pipeline.schedule.scheduler_class]
        index = {"_class_name": pipeline.CLASS_NAME, "_diffusers_version": _DIFFUSERS_VERSION}
        fields = {name: getattr(pipeline, name) for name in pipeline.INDEX_FIELDS}
        files.write_json(index_path, index | dict(sorted((parts | dict(pipeline.INDEX) | fields).items())))


def read_description(
    family: type[AnyPipeline],
    source: str | os.PathLike | Source,
    *,
    revision: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Description:
    source = sources.resolve(source, revision=revision)
    path = source.require("model_index.json", "so it is not a pipeline in the diffusers layout")
    index = sources.read_json(path)
    kind = index.get("_class_name")
    problem = family_names.mismatch(family, index)
    if kind is not None and problem is None and family_names.family_name(kind) != family.CLASS_NAME:
        problem = "by its _class_name"
    if problem:
        raise InputError(
            f"{path} describes a {kind or 'pipeline'} {problem}: it is not a {family.CLASS_NAME}",
            code="wrong-kind-of-model",
        )
    schedule_path = source.require("scheduler/scheduler_config.json", "so the noise schedule is unknown")
    content = sources.read_json(schedule_path)
    fields = {
        name: allowed.check(f"{path}: {name}", index[name])
        for name, allowed in family.INDEX_FIELDS.items()
        if name in index
    }
    try:
        schedule = family.read_schedule(content)
        timestep_range, own_settings = own_values(family, content, schedule)
    except InputError as error:
        raise InputError(f"{schedule_path}: {error}", code=error.code) from error
    absent = _absent(family, source, {**own_settings, **family.check_settings(settings or {})})
    configs = {
        name: models.read_config(network, source, name)
        for name, network in family.NETWORKS.items()
        if name not in absent
    }
    return Description(family, schedule, timestep_range, configs, {**fields, **own_settings})


def _absent(family: type[AnyPipeline], source: Source, settings: Mapping[str, Any]) -> list[str]:
    if not family.OPTIONAL:
        return []
    index = sources.read_json(source.require("model_index.json", "so it is not a pipeline in the diffusers layout"))
    unused = family.left_out(settings)
    return [part for part in family.OPTIONAL if part in unused or family_names.is_absent(index.get(part))]


def _read_tokenizer(family: type[AnyPipeline], source: Source, name: str) -> Any:
    if _is_clip(family, name):
        return tokenizer_files.read_clip_tokenizer(source, subfolder=name)
    return fast_tokenizers.read_fast_tokenizer(source, subfolder=name)


def _is_clip(family: type[AnyPipeline] | AnyPipeline, name: str) -> bool:
    return family.PARTS[name][1] == "CLIPTokenizer"


def own_values(
    family: type[AnyPipeline], content: Mapping[str, Any], schedule: Schedule
) -> tuple[tuple[int, int] | None, dict[str, Any]]:
    """The range of timesteps and the settings that a ``scheduler_config.json`` adds."""
    own = content.get(_OWN_KEY, {})
    if not isinstance(own, dict) or own.keys() - {"timestep_range", "settings"}:
        raise InputError(
            f'{_OWN_KEY} is {options.quote(own)}, but it must be an object such as {{"timestep_range": [300, 800]}}',
            code="not-an-object",
        )
    allowed = options.span(schedule.num_train_timesteps).or_none()
    timestep_range = allowed.check(f"timestep_range in {_OWN_KEY}", own.get("timestep_range"))
    settings = own.get("settings", {})
    if not isinstance(settings, dict):
        raise InputError(
            f"settings in {_OWN_KEY} is {options.quote(settings)}, but it must be an object", code="not-an-object"
        )
    return timestep_range, family.check_settings(settings)


def check_encoding(config: Any, image_size: int, batch_size: int, device: jax.Device) -> None:
    # Other networks than ours need not say how wide they are.
    channels = 3 + 2 * getattr(config, "block_out_channels", (0,))[0]
    memory.check(
        f"encoding an image of {image_size:,} x {image_size:,} pixels" if batch_size == 1 else f"{batch_size:,} images",
        2 * batch_size * image_size**2 * channels,  # two bytes a number, in half precision
        "lower image_size",
        device,
    )
