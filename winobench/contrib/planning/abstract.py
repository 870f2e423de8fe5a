"""Models without weights: networks whose parameters are shapes and dtypes, which is all that a compiler needs."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

from winobench.base import extensions, options, registry
from winobench.base.errors import InputError
from winobench.checkpoints import language_models, models, sources
from winobench.contrib.planning import few_blocks
from winobench.diffusion import families
from winobench.diffusion.folders import Description
from winobench.diffusion.pipeline import Pipeline
from winobench.models import released
from winobench.models.decoder import Decoder
from winobench.models.decoder_config import DecoderConfig
from winobench.models.t5 import T5Config, T5ForConditionalGeneration

_TORCH_PLANS = "torch_plans"  # the part for pipelines that torch runs


class _Tokens(dict):
    """A tokenizer's result, with nothing cut off."""

    encodings = ()


class LengthOfTokens:
    """A tokenizer of which only the shape of the result matters: every text is zeros, [number of texts, max_length]."""

    model_max_length = 1 << 30
    chat_template = ""
    added_tokens_encoder: Mapping[str, int] = {}

    def apply_chat_template(self, messages: list[dict[str, str]], **keywords: Any) -> str:
        return ""

    def __len__(self) -> int:
        return 0

    def __call__(self, texts: list[str], *, max_length: int, **keywords: Any) -> _Tokens:
        ids = [[0] * max_length for _ in texts]
        return _Tokens(input_ids=ids, attention_mask=ids)


def read_description(
    source: str | os.PathLike, *, revision: str | None = None, settings: Mapping[str, Any] | None = None
) -> Description:
    """The description of a pipeline, by its configs alone."""
    found = families.released(str(source)) if revision is None else None
    found = found or families.read_description(source, revision=revision, settings=settings, backend=families.NATIVE)
    settings = {**found.settings, **found.family.check_settings(settings or {})}
    left_out = found.family.left_out(settings)
    configs = {name: config for name, config in found.configs.items() if name not in left_out}
    return dataclasses.replace(found, configs=configs, settings=settings)


def make_pipeline(description: Description, dtype: str) -> Pipeline:
    """A pipeline as `DiffusionITM.from_pretrained` loads it, with shapes and dtypes instead of parameters.

    The denoiser and encoders as large have the dtype. The others are float32, as in scoring.
    """
    family = description.family
    networks = {}
    for name, config in description.configs.items():
        its_dtype = dtype if name in (family.DENOISER, *family.LARGE_ENCODERS) else "float32"
        networks[name] = models.abstract_model(family.NETWORKS[name], config, dtype=jnp.dtype(its_dtype))
    parts = {**networks, **{name: LengthOfTokens() for name in family.TOKENIZERS}}
    if any(name not in networks for name in family.NETWORKS):
        parts |= dict.fromkeys(family.OPTIONAL)
    return family(
        **parts, schedule=description.schedule, timestep_range=description.timestep_range, **description.settings
    )


def read_pipeline(config: Any, model: str) -> Pipeline:
    settings = options.settings().or_none().check("--pipeline_options", config.pipeline_options)
    if _runs_by_torch(model, config):
        by_torch = extensions.find(extensions.PARTS, _TORCH_PLANS)
        return by_torch.read_pipeline(model, config.dtype, revision=config.revision, settings=settings)
    return make_pipeline(read_description(model, revision=config.revision, settings=settings), config.dtype)


def _runs_by_torch(model: str, config: Any) -> bool:
    known = registry.MODELS.get(model)
    backend = known.options.get("backend") if known else None
    backend = backend or config.backend or families.AUTO
    if backend != families.AUTO or known or families.released(model) is not None:
        return backend == families.TORCH
    return families.family_of(sources.resolve(model, revision=config.revision)).CLASS_NAME == "TorchPipeline"


def shallow(pipeline: Pipeline) -> list[tuple[tuple[int, ...], Pipeline]]:
    """Numbers of blocks, and pipelines whose denoisers have them (`few_blocks`). Empty if all blocks are as few."""
    whole = pipeline.denoiser

    def with_blocks(counts: tuple[int, ...]) -> Pipeline:
        config = whole.config.with_block_counts(*counts)
        if pipeline.backend is not None:
            return extensions.find(extensions.PARTS, _TORCH_PLANS).with_denoiser(pipeline, config)
        network = models.abstract_model(type(whole), config, dtype=whole.dtype)
        return dataclasses.replace(pipeline, **{pipeline.DENOISER: network})

    numbers = few_blocks.shallow_counts(few_blocks.block_counts(whole.config))
    return [(counts, with_blocks(counts)) for counts in numbers]


def read_language_model(source: str, *, revision: str | None = None) -> DecoderConfig | T5Config:
    """The shape of a language model that generates text, by its config alone."""
    known = released.language_model(source) if revision is None else None
    if known is not None:
        return known
    resolved = sources.resolve(source, revision=revision)
    kind = language_models.language_model_kind(resolved)
    if kind == "decoder":
        return models.read_config(Decoder, resolved)
    if kind == "t5":
        return models.read_config(T5ForConditionalGeneration, resolved)
    raise InputError(
        f"{source} is a {kind} model, which writes no text: plans are for decoders (LLaMA, Qwen3) and T5",
        code="wrong-kind-of-model",
    )


def is_pipeline(source: str) -> bool:
    """Whether a name may be a diffusion model's: the registry has no other model of this name."""
    model = registry.MODELS.get(source)
    return model is None or model.scorer == "diffusion_itm"
