"""A tiny CogView3-Plus: velocities of a schedule that is shifted and ends in pure noise."""

import diffusers
import torch

from tests import tiny_sd3
from tests.torch_pipelines.tiny import parts

IMAGE_SIZE = 32
CALL = {"guidance_scale": 1.0}


def make() -> diffusers.CogView3PlusPipeline:
    pipe = parts.filled(
        diffusers.CogView3PlusPipeline,
        {
            "transformer": diffusers.CogView3PlusTransformer2DModel(
                in_channels=4,
                out_channels=4,
                num_layers=2,
                attention_head_dim=8,
                num_attention_heads=2,
                text_embed_dim=24,
                time_embed_dim=8,
                condition_dim=4,
                pos_embed_max_size=8,
                sample_size=8,
            ),
            "vae": tiny_sd3.autoencoder(4, scaling_factor=0.13025),
            "text_encoder": tiny_sd3.t5_encoder(24, heads=3),
            "tokenizer": parts.t5_tokenizer(),
            "scheduler": diffusers.CogVideoXDDIMScheduler(
                beta_schedule="scaled_linear",
                prediction_type="v_prediction",
                rescale_betas_zero_snr=True,
                snr_shift_scale=4.0,
                timestep_spacing="trailing",
                clip_sample=False,
            ),
        },
    )
    with torch.no_grad():  # 224 tokens, nearly all of them padding, would hide the text
        pipe.transformer.patch_embed.text_proj.weight.mul_(10)
    return pipe
