"""A tiny Kandinsky 3: a UNet that predicts noise, an autoencoder without a scale, a text that is cut short."""

import diffusers

from tests import tiny_sd3
from tests.contrib.torch_pipelines.tiny import parts

IMAGE_SIZE = 64
CALL = {"guidance_scale": 1.0}


def make() -> diffusers.Kandinsky3Pipeline:
    return parts.filled(
        diffusers.Kandinsky3Pipeline,
        {
            "tokenizer": parts.t5_tokenizer(),
            "text_encoder": tiny_sd3.t5_encoder(16, heads=2),
            "unet": diffusers.Kandinsky3UNet(
                in_channels=4,
                time_embedding_dim=4,
                groups=2,
                attention_head_dim=4,
                layers_per_block=2,
                block_out_channels=(8, 16),
                cross_attention_dim=4,
                encoder_hid_dim=16,
            ),
            "scheduler": diffusers.DDPMScheduler(beta_start=0.00085, beta_end=0.012, beta_schedule="squaredcos_cap_v2"),
            "movq": diffusers.VQModel(
                block_out_channels=(32, 32, 32, 32),
                down_block_types=("DownEncoderBlock2D",) * 3 + ("AttnDownEncoderBlock2D",),
                up_block_types=("AttnUpDecoderBlock2D",) + ("UpDecoderBlock2D",) * 3,
                layers_per_block=1,
                latent_channels=4,
                norm_num_groups=4,
                norm_type="spatial",
                num_vq_embeddings=12,
                vq_embed_dim=4,
            ),
        },
    )
