"""Pipelines of diffusers without weights, for plans: a compiler needs only shapes and dtypes."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

from winobench.base.errors import InputError
from winobench.contrib.torch_pipelines import loading
from winobench.contrib.torch_pipelines.families import family_of
from winobench.contrib.torch_pipelines.pipeline import TorchPipeline
from winobench.contrib.torch_pipelines.prediction import TorchDenoiser
from winobench.torch_modules import bridge
from winobench.torch_modules.network import TorchConfig


def read_pipeline(
    source: str, dtype: str, *, revision: str | None = None, settings: Mapping[str, Any] | None = None
) -> TorchPipeline:
    """A pipeline whose arrays are zeros without memory, by the configs of a name in `RELEASED`, or of a folder.

    A folder's texts have the shapes of a released pipeline of its class.
    """
    torch, diffusers = bridge.torch, bridge.diffusers
    if source in RELEASED and revision is None:
        name, texts, configs = RELEASED[source]
        parts = {"tokenizer": None, "text_encoder": None}
        for part, (kind, config) in configs.items():
            with torch.device("cpu" if part == "scheduler" else "meta"):
                parts[part] = getattr(diffusers, kind).from_config(config)
        pipe = getattr(diffusers, name)(**parts)
    else:
        pipe = loading.skeleton(source, revision=revision)
        name = type(pipe).__name__
        texts = next((texts for kind, texts, _ in RELEASED.values() if kind == name), None)
        if texts is None:
            known = ", ".join(sorted(kind for kind, *_ in RELEASED.values()))
            raise InputError(
                f"{source} is a {name}, for which no plan can be made: name a pipeline of one of the classes {known}",
                code="wrong-kind-of-model",
            )
    # The autoencoder is float32, as in scoring.
    torch.nn.Module.to(getattr(pipe, family_of(name).denoiser), getattr(torch, jnp.dtype(dtype).name))
    encode = type(pipe).encode_prompt

    @functools.wraps(encode)
    def encode_prompt(*arguments: Any, **keywords: Any) -> tuple[Any, ...]:
        # A mask has one axis besides the texts'.
        dtypes = (torch.long if shape and len(shape) == 1 else torch.float32 for shape in texts)
        return tuple(shape and torch.zeros((1, *shape), dtype=kind) for shape, kind in zip(texts, dtypes, strict=True))

    pipe.__class__ = type(name, (type(pipe),), {"encode_prompt": encode_prompt})
    return TorchPipeline.from_diffusers(pipe, **dict(settings or {}))


def with_denoiser(pipeline: TorchPipeline, config: TorchConfig) -> TorchPipeline:
    """A pipeline of `read_pipeline`, with another config of its denoiser."""
    caller, torch = pipeline.network.pipeline, bridge.torch
    name = caller.family.denoiser
    module = getattr(caller.pipe, name)
    # diffusers marks defaults by a name with an underscore, and would return to them.
    known = {key: value for key, value in config.to_dict().items() if key in module.config and key[0] != "_"}
    with torch.device("meta"):
        other = type(module).from_config(known)
    pipe = copy.copy(caller.pipe)
    vars(pipe)[name] = torch.nn.Module.to(other, module.dtype)
    network = TorchDenoiser(pipe, caller.family, config, caller.call, caller.constants)
    return dataclasses.replace(pipeline, network=network)


_DEEP_COMPRESSION = {
    "latent_channels": 32,
    "encoder_block_types": ("ResBlock",) * 3 + ("EfficientViTBlock",) * 3,
    "decoder_block_types": ("ResBlock",) * 3 + ("EfficientViTBlock",) * 3,
    "encoder_block_out_channels": (128, 256, 512, 512, 1024, 1024),
    "decoder_block_out_channels": (128, 256, 512, 512, 1024, 1024),
    "encoder_qkv_multiscales": ((),) * 3 + ((5,),) * 3,
    "decoder_qkv_multiscales": ((),) * 3 + ((5,),) * 3,
    "encoder_layers_per_block": (2, 2, 2, 3, 3, 3),
    "decoder_layers_per_block": (3,) * 6,
    "downsample_block_type": "conv",
    "upsample_block_type": "interpolate",
    "scaling_factor": 0.41407,
}
_SDXL_AUTOENCODER = {
    "down_block_types": ("DownEncoderBlock2D",) * 4,
    "up_block_types": ("UpDecoderBlock2D",) * 4,
    "block_out_channels": (128, 256, 512, 512),
    "layers_per_block": 2,
    "sample_size": 1024,
    "scaling_factor": 0.13025,
}
_PIXART_SIGMA = {
    "num_attention_heads": 16,
    "attention_head_dim": 72,
    "num_layers": 28,
    "in_channels": 4,
    "out_channels": 8,
    "sample_size": 128,
    "patch_size": 2,
    "cross_attention_dim": 1152,
    "caption_channels": 4096,
    "interpolation_scale": 2,
    "use_additional_conditions": False,
}
_FLOW_MULTISTEP = {"use_flow_sigmas": True, "flow_shift": 3.0, "prediction_type": "flow_prediction"}
_QWEN_SCHEDULE = {"use_dynamic_shifting": True, "base_shift": 0.5, "max_shift": 0.9, "max_image_seq_len": 8192}

RELEASED: dict[str, tuple[str, tuple[Any, ...], Mapping[str, tuple[str, dict[str, Any]]]]] = {
    "pixart-sigma": (
        "PixArtSigmaPipeline",
        ((300, 4096), (300,), None, None),
        {
            "transformer": ("PixArtTransformer2DModel", _PIXART_SIGMA),
            "vae": ("AutoencoderKL", _SDXL_AUTOENCODER),
            "scheduler": ("DPMSolverMultistepScheduler", {}),
        },
    ),
    "qwen-image": (
        "QwenImagePipeline",
        ((1, 3584), None),
        {
            "transformer": ("QwenImageTransformer2DModel", {}),
            "vae": ("AutoencoderKLQwenImage", {}),
            "scheduler": ("FlowMatchEulerDiscreteScheduler", _QWEN_SCHEDULE),
        },
    ),
    "sana-1.6b": (
        "SanaPipeline",
        ((300, 2304), (300,), None, None),
        {
            "transformer": ("SanaTransformer2DModel", {}),
            "vae": ("AutoencoderDC", _DEEP_COMPRESSION),
            "scheduler": ("DPMSolverMultistepScheduler", _FLOW_MULTISTEP),
        },
    ),
}
"""Name -> class of the pipeline, shapes of `encode_prompt`'s results for a text, (class, config) of each part."""
