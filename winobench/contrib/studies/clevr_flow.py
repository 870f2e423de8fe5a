"""The recipe of clevr-flow: Stable Diffusion 3 in miniature, without its third text encoder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from winobench.clevr import questions, renderer
from winobench.contrib.studies import clevr_tiny, embedded
from winobench.diffusion.flow_schedule import FlowSchedule
from winobench.diffusion.pipeline import Pipeline
from winobench.diffusion.stable_diffusion_3 import StableDiffusion3
from winobench.models import clip, transformer_sd3
from winobench.models.base import Network

if TYPE_CHECKING:
    from configs.clevr_flow import Settings

JUDGED_TIMESTEPS = (250, 700)  # numbers of noise levels, as `clevr_tiny.JUDGED_TIMESTEPS`

ONE_PROCESS = True


class ClevrFlow(embedded.Recipe):
    VOCABULARY = questions.VOCABULARY
    NAME = "clevr_flow"
    SHOWN = (
        "On the left is a red cube and on the right is a blue sphere.",
        "There is a green cylinder, a blue sphere and a red cube.",
        "There are five red objects.",
        "All cubes are yellow.",
        "The purple sphere is behind the gray cube.",
        "The brown sphere is larger than the cyan cube.",
        "A yellow object.",
        "",
    )
    AUTOENCODER: ClassVar = {"use_quant_conv": False, "use_post_quant_conv": False, "shift_factor": 0.0}

    def scenes(self, config: Settings) -> Iterator[tuple[np.ndarray, list[list[str]]]]:
        """clevr-tiny's scenes, then harder ones: half of their captions have clevr-tiny's forms."""
        yield from clevr_tiny.free_scenes(config)
        settings = config.data
        own = settings.captions_per_scene // 2
        chunk = 8 * renderer.chunk_size(settings.image_size)
        for start in range(0, settings.num_hard_scenes, chunk):
            images, captions = questions.training_scenes(
                min(chunk, settings.num_hard_scenes - start),
                seed=config.seed,
                start=start,
                size=settings.image_size,
                weights=dict.fromkeys(questions.GROUPS, 1.0),
                num_simple=settings.captions_per_scene - own,
            )
            yield images, [[first] * own + simple for first, *simple in captions]

    def networks(self, config: Settings, vocab_size: int) -> dict[str, tuple[type[Network], Any]]:
        settings, encoders = config.denoiser, {}
        for name in ("text_encoder", "text_encoder_2"):
            size = getattr(config, name).hidden_size
            text = embedded.text_config(getattr(config, name), vocab_size, config.data.max_length, projection_dim=size)
            encoders[name] = (clip.CLIPTextModelWithProjection, clip.CLIPTextProjectionConfig.from_dict(text))
        text_width = sum(text.hidden_size for _, text in encoders.values())
        side = config.data.image_size // self.autoencoder_config(config).downsampling
        transformer = transformer_sd3.SD3TransformerConfig.from_dict(
            {
                "sample_size": side,
                "patch_size": settings.patch_size,
                "in_channels": config.autoencoder.latent_channels,
                "out_channels": config.autoencoder.latent_channels,
                "num_layers": settings.num_layers,
                "attention_head_dim": settings.head_dim,
                "num_attention_heads": settings.num_heads,
                "joint_attention_dim": text_width,
                "caption_projection_dim": settings.num_heads * settings.head_dim,
                "pooled_projection_dim": text_width,
                "pos_embed_max_size": side // settings.patch_size,
                "qk_norm": "rms_norm",
            }
        )
        return {"transformer": (transformer_sd3.SD3Transformer2DModel, transformer), **encoders}

    def schedule(self, config: Settings) -> FlowSchedule:
        return FlowSchedule(shift=config.denoiser.shift)

    def start(self, denoiser: Network) -> None:
        """Zeroes all modulations and the last layer: every block starts as the identity (Peebles and Xie 2023)."""
        for block in denoiser.transformer_blocks:
            embedded.zero(block.norm1.linear)
            embedded.zero(block.norm1_context.linear)
        embedded.zero(denoiser.norm_out.linear)
        embedded.zero(denoiser.proj_out)

    def predict(
        self, networks: Mapping[str, Network], noisy: jax.Array, times: jax.Array, input_ids: jax.Array
    ) -> jax.Array:
        texts = [networks[name](input_ids) for name in ("text_encoder", "text_encoder_2")]
        conditions = transformer_sd3.TextConditions(
            states=jnp.concatenate([text.penultimate for text in texts], axis=-1),
            pooled=jnp.concatenate([text.text_embeds for text in texts], axis=-1),
        )
        return networks["transformer"](noisy, times, conditions)

    def assemble(self, config: Settings, tokenizer: Any, networks: Mapping[str, Network]) -> Pipeline:
        return StableDiffusion3(
            **networks,
            text_encoder_3=None,
            tokenizer=tokenizer,
            tokenizer_2=tokenizer,
            tokenizer_3=None,
            schedule=self.schedule(config),
            timestep_range=JUDGED_TIMESTEPS,
            text_tokens=0,
        )


RECIPE = ClevrFlow()
