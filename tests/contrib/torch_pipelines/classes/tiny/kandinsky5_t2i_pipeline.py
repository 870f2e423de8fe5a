"""A tiny Kandinsky 5: images of 1024 pixels only, texts without padding, a shift that the pipeline leaves out."""

import diffusers

from tests import tiny_sd3
from tests.contrib.torch_pipelines.tiny import parts

IMAGE_SIZE = 1024
CALL = {"guidance_scale": 1.0}


def make() -> diffusers.Kandinsky5T2IPipeline:
    words, clip_words = parts.chat_tokenizer(), parts.clip_tokenizer()
    return parts.filled(
        diffusers.Kandinsky5T2IPipeline,
        {
            "transformer": diffusers.Kandinsky5Transformer3DModel(
                in_visual_dim=4,
                in_text_dim=16,
                in_text_dim2=24,
                time_dim=16,
                out_visual_dim=4,
                patch_size=(1, 2, 2),
                model_dim=16,
                ff_dim=32,
                num_text_blocks=1,
                num_visual_blocks=1,
                axes_dims=(4, 6, 6),
            ),
            "vae": diffusers.AutoencoderKL(
                block_out_channels=(4, 4, 4, 4),
                down_block_types=("DownEncoderBlock2D",) * 4,
                up_block_types=("UpDecoderBlock2D",) * 4,
                norm_num_groups=2,
                latent_channels=4,
                mid_block_add_attention=False,
                scaling_factor=0.3611,
                shift_factor=0.1159,
            ),
            "text_encoder": parts.qwen2_5_vl(words),
            "tokenizer": words,
            "text_encoder_2": tiny_sd3.clip_encoder(len(clip_words), 24),
            "tokenizer_2": clip_words,
            "scheduler": diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0),
        },
    )
