"""A tiny latent consistency model: Stable Diffusion with guidance embedded."""

import diffusers

from tests import tiny_sd3
from tests.torch_pipelines.tiny import parts

IMAGE_SIZE = 32
CALL = {"guidance_scale": 8.5}


def make() -> diffusers.LatentConsistencyModelPipeline:
    words = parts.clip_tokenizer()
    return parts.filled(
        diffusers.LatentConsistencyModelPipeline,
        {
            "unet": diffusers.UNet2DConditionModel(
                sample_size=8,
                block_out_channels=(16, 32),
                down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
                up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
                layers_per_block=1,
                norm_num_groups=8,
                attention_head_dim=4,
                cross_attention_dim=24,
                time_cond_proj_dim=8,
            ),
            "vae": tiny_sd3.autoencoder(4),
            "text_encoder": tiny_sd3.clip_encoder(len(words), 24),
            "tokenizer": words,
            "scheduler": diffusers.LCMScheduler(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear"),
        },
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
