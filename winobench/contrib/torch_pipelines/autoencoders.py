"""Autoencoders of diffusers: images [n, 3, h, w] in [-1, 1] as latents [n, c, h, w], scaled as in training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from winobench.base.errors import InputError
from winobench.contrib.torch_pipelines.families import Family, normalized_squares
from winobench.torch_modules.network import TorchConfig, TorchNetwork


class TorchAutoencoder(TorchNetwork):
    """The encoder of an autoencoder. The pipeline's own loop decodes generated images."""

    def __init__(self, module: Any, config: TorchConfig, family: Family):
        super().__init__(module, config, key=family.scale)
        self.encoder = encoder_of(config._class_name, family)

    def compute(self, module: Any, *tensors: Any) -> Any:
        """Pixels [n, 3, h, w] as latents [n, c, h, w]."""
        return self.encoder.scale(module, self.encoder.encode(module, *tensors))

    def encode_latents(self, images: jax.Array, noise: jax.Array | None) -> jax.Array:
        """Images ``[n, h, w, 3]`` in [-1, 1] as latents float32 ``[n, h, w, c]``: the mean of the posterior."""
        if noise is not None:
            raise InputError(
                f"{self.config._class_name} gives the mean of its posterior here, not a sample: leave out noise",
                code="unsupported-option",
            )
        latents = self.run(jnp.transpose(images.astype(self.dtype), (0, 3, 1, 2)))
        return jnp.transpose(latents.astype(jnp.float32), (0, 2, 3, 1))


def _mean(vae: Any, images: Any) -> Any:
    return vae.encode(images).latent_dist.mean


def _mean_of_frame(vae: Any, images: Any) -> Any:
    return vae.encode(images[:, :, None]).latent_dist.mean[:, :, 0]


def _shifted(vae: Any, latents: Any) -> Any:
    return (latents - (getattr(vae.config, "shift_factor", None) or 0.0)) * vae.config.scaling_factor


def _standardised(vae: Any, latents: Any) -> Any:
    import torch

    mean, deviation = (
        torch.tensor(values, device=latents.device, dtype=latents.dtype).view(1, -1, 1, 1)
        for values in (vae.config.latents_mean, vae.config.latents_std)
    )
    return (latents - mean) / deviation


class Encoder(NamedTuple):
    """Calls of an autoencoder, on tensors.

    Attributes:
      encode: (module, images [n, 3, h, w]) -> the input of its decoder, [n, c, h, w].
      scale: (module, that input) -> latents as in training.
    """

    encode: Callable[[Any, Any], Any]
    scale: Callable[[Any, Any], Any]


ENCODERS: dict[str, Encoder] = {
    "AutoencoderDC": Encoder(lambda vae, images: vae.encode(images).latent, _shifted),
    "AutoencoderKL": Encoder(_mean, _shifted),
    "AutoencoderKLFlux2": Encoder(_mean, normalized_squares),
    "AutoencoderKLHunyuanImage": Encoder(_mean, _shifted),
    "AutoencoderKLQwenImage": Encoder(_mean_of_frame, _standardised),
    "AutoencoderKLWan": Encoder(_mean_of_frame, _standardised),
    "AutoencoderTiny": Encoder(lambda vae, images: vae.encode(images).latents, _shifted),
    "VQModel": Encoder(lambda vae, images: vae.encode(images).latents, lambda vae, latents: latents),
}
"""Class of an autoencoder -> its calls."""


def encoder_of(name: str, family: Family) -> Encoder:
    """The calls of the autoencoder of this class in a family."""
    encoder = ENCODERS[name]
    return encoder if family.scale is None else encoder._replace(scale=family.scale)
