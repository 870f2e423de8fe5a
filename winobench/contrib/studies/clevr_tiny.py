"""The recipe of clevr-tiny: a UNet and a CLIP text encoder, on scenes of two objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from flax import nnx

from winobench.clevr import captions, renderer
from winobench.clevr import scenes as clevr_scenes
from winobench.contrib.studies import embedded
from winobench.diffusion import schedules
from winobench.diffusion.pipeline import Pipeline
from winobench.diffusion.stable_diffusion import StableDiffusion
from winobench.models import clip, unet_2d_condition
from winobench.models.base import Network
from winobench.models.unet_2d_condition_config import UNet2DConditionConfig

if TYPE_CHECKING:
    from configs.clevr_tiny import Settings

# The exported model is judged on the timesteps where it separates captions best, on scenes of neither split.
JUDGED_TIMESTEPS = (300, 800)

ONE_PROCESS = True


class ClevrTiny(embedded.Recipe):
    VOCABULARY = captions.VOCABULARY
    NAME = "clevr_tiny"
    SHOWN = (
        "On the left is a red cube and on the right is a blue sphere.",
        "On the left is a small green cylinder and on the right is a large purple cube.",
        "A large yellow metal sphere and a small gray rubber cylinder.",
        "On the right is a cyan cylinder.",
        "A brown sphere and a cyan cube.",
        "A small cube and a large cylinder.",
        "A yellow object.",
        "",
    )

    def scenes(self, config: Settings) -> Iterator[tuple[np.ndarray, list[list[str]]]]:
        return free_scenes(config)

    def networks(self, config: Settings, vocab_size: int) -> dict[str, tuple[type[Network], Any]]:
        text = embedded.text_config(config.text_encoder, vocab_size, config.data.max_length)
        return {
            "unet": (unet_2d_condition.UNet2DConditionModel, unet_config(config)),
            "text_encoder": (clip.CLIPTextModel, clip.CLIPTextConfig.from_dict(text)),
        }

    def schedule(self, config: Settings) -> schedules.NoiseSchedule:
        return schedules.NoiseSchedule(prediction_type=config.denoiser.prediction_type)

    def start(self, denoiser: Network) -> None:
        """Zeroes the last layer of every residual branch and of the network.

        The network then starts as the identity around its skips, which speeds up early training (Ho et al. 2020).
        """
        for path, module in nnx.iter_modules(denoiser):
            if path and path[-1] in ("conv2", "proj_out", "conv_out"):
                embedded.zero(module)

    def predict(
        self, networks: Mapping[str, Network], noisy: jax.Array, times: jax.Array, input_ids: jax.Array
    ) -> jax.Array:
        return networks["unet"](noisy, times, networks["text_encoder"](input_ids).last_hidden_state)

    def assemble(self, config: Settings, tokenizer: Any, networks: Mapping[str, Network]) -> Pipeline:
        return StableDiffusion(
            **networks, tokenizer=tokenizer, schedule=self.schedule(config), timestep_range=JUDGED_TIMESTEPS
        )


def free_scenes(config: Settings) -> Iterator[tuple[np.ndarray, list[list[str]]]]:
    """Scenes of one and two objects."""
    settings = config.data
    chunk = 8 * renderer.chunk_size(settings.image_size)
    for start in range(0, settings.num_scenes, chunk):
        count = min(chunk, settings.num_scenes - start)
        scenes = clevr_scenes.sample_free_scenes(
            count, seed=config.seed, split="train", start=start, distinct=settings.task_like_fraction
        )
        images = renderer.render(scenes, settings.image_size)
        generator = np.random.default_rng((config.seed, start))
        yield images, captions.training_captions(scenes, generator, per_scene=settings.captions_per_scene)


def unet_config(config: Settings) -> UNet2DConditionConfig:
    """The way up mirrors the way down."""
    settings = config.denoiser
    down_blocks = tuple(settings.down_block_types)
    factor = 2 ** (len(config.autoencoder.block_out_channels) - 1)
    return UNet2DConditionConfig.from_dict(
        {
            "sample_size": config.data.image_size // factor,
            "in_channels": config.autoencoder.latent_channels,
            "out_channels": config.autoencoder.latent_channels,
            "block_out_channels": tuple(settings.block_out_channels),
            "down_block_types": down_blocks,
            "up_block_types": tuple(name.replace("Down", "Up") for name in reversed(down_blocks)),
            "layers_per_block": settings.layers_per_block,
            "attention_head_dim": settings.num_heads,
            "norm_num_groups": 32,
            "cross_attention_dim": config.text_encoder.hidden_size,
            "use_linear_projection": True,
        }
    )


RECIPE = ClevrTiny()
