"""Four transformers of flow models next to torch diffusers: one description each, for `test_transformers`.

Errors are the largest difference over the largest expected value, in float32. Rounding reaches 4e-6, and more with
guidance above the published 3.5: it is multiplied by 1000 times frequencies that are themselves rounded.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import diffusers
import numpy as np
import torch
from diffusers import Flux2KleinPipeline, FluxPipeline

from tests.parity.harness import from_nchw, pair, to_torch
from winobench.models.transformer_flux import FluxConditions, FluxTransformer2DModel
from winobench.models.transformer_flux2 import Flux2Transformer2DModel
from winobench.models.transformer_flux2_config import Flux2TransformerConfig
from winobench.models.transformer_flux_config import FluxTransformerConfig
from winobench.models.transformer_sd3 import SD3Transformer2DModel, SD3TransformerConfig, TextConditions
from winobench.models.transformer_z_image import ZImageConditions, ZImageTransformer2DModel
from winobench.models.transformer_z_image_config import ZImageTransformerConfig

TOLERANCE = 1e-5


@dataclasses.dataclass(frozen=True, eq=False)
class Family:
    """A transformer."""

    theirs: type
    ours: type
    config: type
    small: Mapping[str, Any]  # options of a small network
    conditions: Callable[..., Any]  # (rng, config, batch, tokens) -> random conditions
    predict: Callable[..., np.ndarray]  # (network, sample, times, conditions) -> torch's NHWC, by its own packing
    published_heads: Mapping[str, Any]  # options with the published width and axes of a head
    sizes: Sequence[tuple[int, int]]  # of samples that take different ways
    half: float  # the tolerance of bfloat16
    adapted: Mapping[str, int]  # LoRA's targets -> number of adapted layers
    released: Mapping[str, float]  # config of a published size -> billions of parameters
    unsupported: Mapping[str, Any]  # options that are refused

    @functools.cache  # noqa: B019 - the families live as long as the tests
    def small_pair(self) -> tuple[Any, Any]:
        return self.pair()

    def pair(self, **options):
        return pair(self.theirs(**{**self.small, **options}), self.ours)

    def inputs(self, config, *, batch=2, height=12, width=8, tokens=5):
        """Sample, times and conditions."""
        rng = np.random.default_rng(0)
        channels = getattr(config, "latent_channels", config.in_channels)
        sample = rng.normal(size=(batch, height, width, channels)).astype(np.float32)
        times = np.linspace(0.25, 0.93, batch, dtype=np.float32)
        return sample, times, self.conditions(rng, config, batch, tokens)


def _normal(rng, *shape):
    return rng.normal(size=shape).astype(np.float32)


@torch.no_grad()
def _predict_sd3(network, sample, times, conditions):
    return from_nchw(network(to_torch(sample), *map(torch.tensor, conditions), torch.tensor(times)).sample)


@torch.no_grad()
def _predict_flux(network, sample, times, conditions, guidance=None):
    batch, height, width, channels = sample.shape
    states, pooled = map(torch.from_numpy, conditions)
    result = network(
        hidden_states=FluxPipeline._pack_latents(to_torch(sample), batch, channels, height, width),
        encoder_hidden_states=states,
        pooled_projections=pooled,
        timestep=torch.from_numpy(times),
        img_ids=FluxPipeline._prepare_latent_image_ids(batch, height // 2, width // 2, "cpu", torch.float32),
        txt_ids=torch.zeros(states.shape[1], 3),
        guidance=None if guidance is None else torch.from_numpy(guidance),
    ).sample
    return from_nchw(FluxPipeline._unpack_latents(result, height * 8, width * 8, 8))


@torch.no_grad()
def _predict_flux2(network, sample, times, states, guidance=None):
    states = torch.from_numpy(states)
    patches = Flux2KleinPipeline._patchify_latents(to_torch(sample))
    ids = Flux2KleinPipeline._prepare_latent_ids(patches)
    result = network(
        hidden_states=Flux2KleinPipeline._pack_latents(patches),
        encoder_hidden_states=states,
        timestep=torch.from_numpy(times),
        img_ids=ids,
        txt_ids=Flux2KleinPipeline._prepare_text_ids(states),
        guidance=None if guidance is None else torch.from_numpy(guidance),
    ).sample
    patches = Flux2KleinPipeline._unpack_latents_with_ids(result, ids, *patches.shape[2:])
    return from_nchw(Flux2KleinPipeline._unpatchify_latents(patches))


@torch.no_grad()
def _predict_z_image(network, sample, times, conditions):
    images = [torch.from_numpy(each.transpose(2, 0, 1)[:, None].copy()) for each in sample]
    texts = [torch.from_numpy(each[:length]) for each, length in zip(*conditions, strict=True)]
    result = network(images, torch.from_numpy(times), texts).sample
    return np.stack([each[:, 0].numpy().transpose(1, 2, 0) for each in result])


def _z_image_conditions(rng, config, batch, tokens):
    """Texts of several lengths; 45 rows, of which those behind a text do not matter."""
    lengths = np.resize(np.array([tokens, 40, 32], np.int32), batch)
    return ZImageConditions(_normal(rng, batch, 45, config.cap_feat_dim), lengths)


_SD3 = {"sample_size": 8, "num_layers": 3, "in_channels": 4, "out_channels": 4, "num_attention_heads": 3}
_SD3 |= {"attention_head_dim": 8, "caption_projection_dim": 24, "joint_attention_dim": 20, "pooled_projection_dim": 12}
_SD3 |= {"pos_embed_max_size": 9}
_FLUX = {"in_channels": 16, "num_layers": 2, "num_single_layers": 2, "attention_head_dim": 16}
_FLUX |= {"num_attention_heads": 2, "joint_attention_dim": 24}
_Z_IMAGE = {"in_channels": 4, "dim": 32, "n_layers": 2, "n_refiner_layers": 1, "n_heads": 2, "n_kv_heads": 2}
_Z_IMAGE |= {"cap_feat_dim": 24}
_Z_HEADS = {"dim": 384, "n_heads": 3, "n_kv_heads": 3}
_SD3_REFUSES = {"caption_projection_dim": 16, "dual_attention_layers": (24,), "sample_size": 999, "num_layers": 0}
_SD3_REFUSES |= {"guidance_embeds": True}
_FLUX2_REFUSES = {"patch_size": 2, "in_channels": 126, "out_channels": 32, "axes_dims_rope": (64, 64), "mlp_ratio": 0}
_FLUX2_REFUSES |= {"eps": 0, "guidance_embeds": None}
_Z_IMAGE_REFUSES = {"all_patch_size": (2, 4), "in_channels": 0, "n_heads": 7, "qk_norm": None}
_Z_IMAGE_REFUSES |= {"axes_lens": (1024, 512), "siglip_feat_dim": 1152, "n_layers": 0}
FAMILIES = {
    "sd3": Family(
        diffusers.SD3Transformer2DModel,
        SD3Transformer2DModel,
        SD3TransformerConfig,
        {**_SD3, "dual_attention_layers": (0, 1), "qk_norm": "rms_norm"},
        lambda rng, config, batch, tokens: TextConditions(
            _normal(rng, batch, tokens, config.joint_attention_dim), _normal(rng, batch, config.pooled_projection_dim)
        ),
        _predict_sd3,
        {"attention_head_dim": 64, "caption_projection_dim": 192, "num_layers": 2, "pos_embed_max_size": 40},
        [(8, 12)],
        0.05,
        {"cross": 23, "all": 31},
        {"sd3_medium": 2.085, "sd35_medium": 2.470, "sd35_large": 8.146},
        _SD3_REFUSES,
    ),
    "flux": Family(
        diffusers.FluxTransformer2DModel,
        FluxTransformer2DModel,
        FluxTransformerConfig,
        {**_FLUX, "pooled_projection_dim": 20, "axes_dims_rope": (4, 6, 6)},
        lambda rng, config, batch, tokens: FluxConditions(
            _normal(rng, batch, tokens, config.joint_attention_dim), _normal(rng, batch, config.pooled_projection_dim)
        ),
        _predict_flux,
        {"attention_head_dim": 128, "axes_dims_rope": (16, 56, 56), "num_layers": 1, "num_single_layers": 1},
        [(12, 8)],
        0.03,
        {"cross": 16, "all": 22},
        {"dev": 11.901, "schnell": 11.891},
        {"patch_size": 2, "out_channels": 32, "axes_dims_rope": (16, 56), "guidance_embeds": 1, "num_layers": 0},
    ),
    "flux2": Family(
        diffusers.Flux2Transformer2DModel,
        Flux2Transformer2DModel,
        Flux2TransformerConfig,
        {**_FLUX, "timestep_guidance_channels": 32, "axes_dims_rope": (2, 6, 4, 4), "guidance_embeds": False},
        lambda rng, config, batch, tokens: _normal(rng, batch, tokens, config.joint_attention_dim),
        _predict_flux2,
        {"attention_head_dim": 128, "axes_dims_rope": (32,) * 4, "num_layers": 1, "num_single_layers": 1},
        [(12, 8)],
        0.05,
        {"cross": 16, "all": 20},
        {"klein_4b": 3.876, "klein_9b": 9.079},
        _FLUX2_REFUSES,
    ),
    "z_image": Family(
        diffusers.ZImageTransformer2DModel,
        ZImageTransformer2DModel,
        ZImageTransformerConfig,
        # With the published t_scale of 1000, rounded frequencies alone reach 1.2e-5, by the processor's exp.
        {**_Z_IMAGE, "axes_dims": (4, 6, 6), "axes_lens": (128, 64, 64), "t_scale": 10.0},
        _z_image_conditions,
        _predict_z_image,
        {**_Z_HEADS, "axes_dims": (32, 48, 48), "axes_lens": (1024, 512, 512), "n_layers": 1},
        [(12, 8), (16, 8), (2, 10)],  # 24 patches and 5, which are filled up, and 32, which are not
        0.05,
        {"cross": 8, "all": 16},
        {"z_image": 6.155},
        _Z_IMAGE_REFUSES,
    ),
}
