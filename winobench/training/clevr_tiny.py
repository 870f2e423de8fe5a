"""The embedded model's recipe: rendered scenes -> autoencoder -> latents -> denoiser and text encoder -> folder.

Each stage keeps its result in ``<workdir>`` and is skipped when that is there already:

    <workdir>/config.json           the recipe's settings
              scenes/               ArrayRecord shards: encoded images and the token ids of several captions each
              autoencoder/          checkpoints, metrics.jsonl, sample pictures
              latents/              ArrayRecord shards: scaled latents and token ids; optionally arrays/*.npy
              denoiser/             checkpoints, metrics.jsonl, sample pictures
              clevr_tiny/           the exported diffusers folder

The two training stages need only JAX, Flax and Optax when they read ``arrays`` (``prepare_arrays`` writes them): that
is how a bare accelerator machine runs them.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

import jax.numpy as jnp
import ml_collections
import numpy as np
from flax import nnx
from PIL import Image

from winobench.models import autoencoder_kl, clip, unet_2d_condition

_ENCODE_BATCH = 64


def autoencoder_config(config: ml_collections.ConfigDict) -> autoencoder_kl.AutoencoderKLConfig:
    """The autoencoder's architecture, with a scaling factor of 1 that ``fit_scaling_factor`` replaces."""
    settings = config.autoencoder
    levels = len(settings.block_out_channels)
    return autoencoder_kl.AutoencoderKLConfig.from_dict(
        {
            "block_out_channels": tuple(settings.block_out_channels),
            "down_block_types": ("DownEncoderBlock2D",) * levels,
            "up_block_types": ("UpDecoderBlock2D",) * levels,
            "layers_per_block": settings.layers_per_block,
            "latent_channels": settings.latent_channels,
            "norm_num_groups": settings.norm_num_groups,
            "sample_size": config.data.image_size,
            "scaling_factor": 1.0,
        }
    )


def unet_config(config: ml_collections.ConfigDict) -> unet_2d_condition.UNet2DConditionConfig:
    """The denoiser's architecture: cross-attention at every level."""
    settings = config.denoiser
    levels = len(settings.block_out_channels)
    factor = 2 ** (len(config.autoencoder.block_out_channels) - 1)
    return unet_2d_condition.UNet2DConditionConfig.from_dict(
        {
            "sample_size": config.data.image_size // factor,
            "in_channels": config.autoencoder.latent_channels,
            "out_channels": config.autoencoder.latent_channels,
            "block_out_channels": tuple(settings.block_out_channels),
            "down_block_types": ("CrossAttnDownBlock2D",) * levels,
            "up_block_types": ("CrossAttnUpBlock2D",) * levels,
            "layers_per_block": settings.layers_per_block,
            "attention_head_dim": settings.num_heads,
            "norm_num_groups": 32,
            "cross_attention_dim": config.text_encoder.hidden_size,
            "use_linear_projection": True,
        }
    )


def text_config(config: ml_collections.ConfigDict, vocab_size: int) -> clip.CLIPTextConfig:
    """The text encoder's architecture; the end token is the last id of the vocabulary and also pads."""
    settings = config.text_encoder
    return clip.CLIPTextConfig.from_dict(
        {
            "vocab_size": vocab_size,
            "hidden_size": settings.hidden_size,
            "intermediate_size": 4 * settings.hidden_size,
            "num_hidden_layers": settings.num_hidden_layers,
            "num_attention_heads": settings.num_attention_heads,
            "max_position_embeddings": config.data.max_length,
            "hidden_act": "quick_gelu",
            "bos_token_id": vocab_size - 2,
            "eos_token_id": vocab_size - 1,
            "pad_token_id": vocab_size - 1,
        }
    )


def scene_records(config: ml_collections.ConfigDict, tokenize) -> Iterator[dict[str, np.ndarray]]:
    """Renders the training scenes and writes several captions for each.

    Args:
      config: the recipe.
      tokenize: list of texts -> [num_texts, max_length] int32 ids.

    Yields:
      ``image`` (encoded PNG, uint8 [num_bytes]) and ``input_ids`` (uint16 [captions_per_scene, max_length]).
    """
    from winobench.data import clevr_captions, clevr_renderer, clevr_scenes

    settings = config.data
    chunk = 4 * clevr_renderer.chunk_size(settings.image_size)
    for start in range(0, settings.num_scenes, chunk):
        count = min(chunk, settings.num_scenes - start)
        scenes = clevr_scenes.sample_free_scenes(
            count, seed=config.seed, split="train", start=start, distinct=settings.task_like_fraction
        )
        images = clevr_renderer.render(scenes, settings.image_size)
        generator = np.random.default_rng((config.seed, start))
        captions = clevr_captions.training_captions(scenes, generator, per_scene=settings.captions_per_scene)
        for image, texts in zip(images, captions, strict=True):
            yield {"image": encode_png(image), "input_ids": tokenize(texts).astype(np.uint16)}


def encode_png(image: np.ndarray) -> np.ndarray:
    """uint8 [height, width, 3] to the bytes of a PNG file, uint8 [num_bytes]."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG", compress_level=1)
    return np.frombuffer(buffer.getvalue(), np.uint8)


def decode_png(data: np.ndarray) -> np.ndarray:
    """The inverse of ``encode_png``."""
    return np.asarray(Image.open(io.BytesIO(data.tobytes())).convert("RGB"))


def picture_grid(images: np.ndarray, columns: int = 8) -> Image.Image:
    """Images [count, height, width, 3] in [-1, 1] as one picture, row by row."""
    images = np.clip(np.asarray(images, np.float32) * 127.5 + 127.5, 0, 255).astype(np.uint8)
    count, height, width, _ = images.shape
    rows = -(-count // columns)
    grid = np.zeros((rows * height, columns * width, 3), np.uint8)
    for index, image in enumerate(images):
        row, column = divmod(index, columns)
        grid[row * height : (row + 1) * height, column * width : (column + 1) * width] = image
    return Image.fromarray(grid)


def fit_scaling_factor(latents: np.ndarray) -> float:
    """1 / standard deviation of the latents, so that scaled latents have the noise's variance (Rombach et al. 2022)."""
    return float(1.0 / np.asarray(latents, np.float64).std())


def zero_output_layers(unet: unet_2d_condition.UNet2DConditionModel) -> None:
    """Zeroes the last layer of every residual branch and of the network, in place.

    The network then starts as the identity around its skips, which speeds up early training (Ho et al. 2020).
    """
    for path, module in nnx.iter_modules(unet):
        if path and path[-1] in ("conv2", "proj_out", "conv_out"):
            module.kernel.value = jnp.zeros_like(module.kernel.value)
            if module.bias is not None:
                module.bias.value = jnp.zeros_like(module.bias.value)
