"""A pipeline small enough to check by hand: no layers, no files, and errors that can be written down."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from winobench.diffusion.pipeline import Pipeline as BasePipeline
from winobench.diffusion.schedules import NoiseSchedule

IMAGE_SIZE = 16
LATENT_SHAPE = (4, 4, 3)
SCALING_FACTOR = 0.5
MAX_LENGTH = 6


@dataclasses.dataclass(frozen=True)
class VAEConfig:
    downsampling: int = 4
    latent_channels: int = 3
    scaling_factor: float = SCALING_FACTOR


class VAE(nnx.Module):
    def __init__(self):
        self.config = VAEConfig()
        self.dtype = jnp.float32
        self.gain = nnx.Param(jnp.ones(()))

    def encode(self, images):
        n, height, width, channels = images.shape
        mean = images.reshape(n, height // 4, 4, width // 4, 4, channels).mean(axis=(2, 4))
        return mean * self.gain[...], jnp.zeros_like(mean)


@dataclasses.dataclass
class TextOutput:
    last_hidden_state: Any


class TextEncoder(nnx.Module):
    def __init__(self):
        self.config = None
        self.dtype = jnp.float32
        self.gain = nnx.Param(jnp.ones(()))

    def __call__(self, ids):
        return TextOutput(ids[..., None].astype(jnp.float32) * self.gain[...])


class UNet(nnx.Module):
    """Predicts ``noisy * gain + offset * (mean token id)``: the second part is what the text does."""

    def __init__(self, gain: float = 0.5, offset: float = 0.1, dtype: Any = jnp.float32):
        self.config = None
        self.dtype = dtype
        self.gain = nnx.Param(jnp.asarray(gain, dtype))
        self.offset = nnx.Param(jnp.asarray(offset, dtype))

    def __call__(self, noisy, timesteps, states):
        return noisy * self.gain[...] + self.offset[...] * states.mean(axis=(1, 2))[:, None, None, None]


class SharingUNet(UNet):
    """The same, and it takes many texts about one sample; it remembers how many samples it was traced for."""

    traced: ClassVar[list[int]] = []
    shares_rows = True

    def __call__(self, noisy, timesteps, states, sample_rows=None):
        self.traced.append(len(noisy))
        ahead = noisy * self.gain[...]
        return (ahead if sample_rows is None else ahead[sample_rows]) + super().__call__(jnp.zeros(()), None, states)


def beyond_memory(number: Any) -> Any:
    """A number close to 1 whose computation takes 256 TiB of memory, more than an address space has."""
    side = jax.lax.broadcasted_iota(jnp.float32, (1 << 23, 1 << 23), 0)
    return 1 + 1e-30 * jax.lax.sort(jnp.sin(side * number))[7, 7]


class GreedyUNet(UNet):
    """Fits into memory with this many rows at once."""

    fits = 2

    def __call__(self, noisy, timesteps, states):
        prediction = super().__call__(noisy, timesteps, states)
        return prediction if len(noisy) <= self.fits else prediction * beyond_memory(noisy.max())


class GreedyVAE(VAE):
    """Fits into memory with this many images at once."""

    fits = 2

    def encode(self, images):
        mean, log_variance = super().encode(images)
        return (mean if len(images) <= self.fits else mean * beyond_memory(images.max())), log_variance


class GreedyTextEncoder(TextEncoder):
    """Fits into memory with this many texts at once."""

    fits = 2

    def __call__(self, ids):
        states = super().__call__(ids).last_hidden_state
        return TextOutput(states if len(ids) <= self.fits else states * beyond_memory(ids.max()))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Pipeline(BasePipeline):
    """Token ids are the lengths of a text's words."""

    unet: Any = dataclasses.field(default_factory=UNet)
    vae: Any = dataclasses.field(default_factory=VAE)
    text_encoder: Any = dataclasses.field(default_factory=TextEncoder)
    schedule: NoiseSchedule = dataclasses.field(default_factory=NoiseSchedule)
    timestep_range: tuple[int, int] | None = None
    image_size: int = IMAGE_SIZE
    fingerprint: str = "fake"

    NETWORKS: ClassVar = {"unet": UNet, "vae": VAE, "text_encoder": TextEncoder}
    TOKENIZERS: ClassVar = ()

    @staticmethod
    def check_fit(configs, num_tokens):
        pass

    @staticmethod
    def encode_conditions(networks, ids):
        return networks["text_encoder"](ids).last_hidden_state

    def tokenize(self, texts: Sequence[str], *, image_size: int | None = None) -> np.ndarray:
        ids = np.zeros((len(texts), MAX_LENGTH), np.int32)
        for row, text in zip(ids, texts, strict=True):
            lengths = [len(word) for word in text.split()][:MAX_LENGTH]
            row[: len(lengths)] = lengths
        return ids


def image(seed: int) -> np.ndarray:
    """A random image, uint8 [16, 16, 3]."""
    return np.random.default_rng(seed).integers(0, 256, (IMAGE_SIZE, IMAGE_SIZE, 3), dtype=np.uint8)


def latents(image: np.ndarray) -> np.ndarray:
    """What the VAE makes of it, float64 [4, 4, 3]."""
    pixels = image.astype(np.float64) / 127.5 - 1
    return SCALING_FACTOR * pixels.reshape(4, 4, 4, 4, 3).mean(axis=(1, 3))


def text_value(text: str) -> float:
    """The mean token id of a text."""
    return Pipeline().tokenize([text])[0].mean()
