"""FLUX.2's image autoencoder: Stable Diffusion's with 32 channels, whose latents are normalised patch by patch.

The published pipelines turn latents into patches of 2 x 2 and normalise each of their 128 channels by the statistics of
a batch norm, gathered in training. Here latents keep their height and width: the statistics belong to a channel and a
corner of the patch.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
from flax import nnx

from winobench.models import flux_blocks
from winobench.models.autoencoder_kl import AutoencoderKL, AutoencoderKLConfig
from winobench.models.base import KeyTable

_LEVELS = 4


@dataclasses.dataclass(frozen=True)
class AutoencoderKLFlux2Config(AutoencoderKLConfig):
    """Shape of the autoencoder, with the names and defaults of the published ``config.json``."""

    down_block_types: tuple[str, ...] = ("DownEncoderBlock2D",) * _LEVELS
    up_block_types: tuple[str, ...] = ("UpDecoderBlock2D",) * _LEVELS
    block_out_channels: tuple[int, ...] = (128, 256, 512, 512)
    layers_per_block: int = 2
    latent_channels: int = 32
    sample_size: int | tuple[int, int] = 1024
    scaling_factor: float = 1.0  # the batch norm takes its place, and the file has none
    batch_norm_eps: float = 1e-4

    _class_value: ClassVar = "AutoencoderKLFlux2"
    _only: ClassVar = {**AutoencoderKLConfig._only, "decoder_block_out_channels": (None,), "patch_size": (2,)}
    # How fast training forgets old statistics.
    _no_effect: ClassVar = frozenset({"batch_norm_momentum"})

    def __post_init__(self):
        super().__post_init__()
        self._require(self.scaling_factor == 1, "scaling_factor", "none")
        self._require(self.shift_factor is None, "shift_factor", "none")
        self._require_epsilon("batch_norm_eps")

    @classmethod
    def flux2(cls) -> Self:
        """Config of all FLUX.2 models: diffusers' defaults, as in its ``scripts/convert_flux2_to_diffusers.py``."""
        return cls()

    def to_dict(self) -> dict[str, Any]:
        """See `NetworkConfig`, without the options that the published network does not have."""
        return {key: value for key, value in super().to_dict().items() if key != "scaling_factor"}


class _Statistics(nnx.Module):
    """Mean and variance of each channel of a patch, under the names of torch's batch norm. Not trained."""

    def __init__(self, channels: int, param_dtype: Any):
        self.running_mean = nnx.Param(jnp.zeros((channels,), param_dtype))
        self.running_var = nnx.Param(jnp.ones((channels,), param_dtype))


class AutoencoderKLFlux2(AutoencoderKL):
    """Encodes images to latents and decodes them. Diffusion works on `normalize` of the latents."""

    config_class: ClassVar = AutoencoderKLFlux2Config
    # how long training took
    file_keys: ClassVar = KeyTable(ignored=(r"bn\.num_batches_tracked",))

    def build(self, config: AutoencoderKLFlux2Config, **kwargs: Any) -> None:
        super().build(config, **kwargs)
        self.bn = _Statistics(flux_blocks.PATCH**2 * config.latent_channels, kwargs["param_dtype"])

    def normalize(self, latents: jax.Array) -> jax.Array:
        """Latents as `encode` gives them, [n, h, w, latent_channels] -> those that diffusion works on, float32."""
        mean, deviation = self._statistics()
        return flux_blocks.from_patches((flux_blocks.to_patches(latents.astype(jnp.float32)) - mean) / deviation)

    def denormalize(self, latents: jax.Array) -> jax.Array:
        """The inverse of `normalize`, for `decode`."""
        mean, deviation = self._statistics()
        return flux_blocks.from_patches(flux_blocks.to_patches(latents.astype(jnp.float32)) * deviation + mean)

    def _statistics(self) -> tuple[jax.Array, jax.Array]:
        mean, variance = (part[...].astype(jnp.float32) for part in (self.bn.running_mean, self.bn.running_var))
        return mean, jnp.sqrt(variance + self.config.batch_norm_eps)
