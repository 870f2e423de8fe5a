"""A tiny LongCat-Image: quoted words are spelt letter by letter; a rewriter of prompts, which is left off."""

import diffusers

from tests import tiny_sd3
from tests.torch_pipelines.tiny import parts

IMAGE_SIZE = 32
CALL = {"guidance_scale": 1.0, "enable_prompt_rewrite": False}


def make() -> diffusers.LongCatImagePipeline:
    words = parts.chat_tokenizer()
    return parts.filled(
        diffusers.LongCatImagePipeline,
        {
            "transformer": diffusers.LongCatImageTransformer2DModel(
                in_channels=64,
                num_layers=1,
                num_single_layers=1,
                attention_head_dim=16,
                num_attention_heads=2,
                joint_attention_dim=16,
                pooled_projection_dim=16,
                axes_dims_rope=[4, 4, 8],
            ),
            "vae": tiny_sd3.autoencoder(scaling_factor=0.3611, shift_factor=0.1159),
            "text_encoder": parts.qwen2_5_vl(words),
            "tokenizer": words,
            "text_processor": words,
            "scheduler": diffusers.FlowMatchEulerDiscreteScheduler(
                shift=3.0, use_dynamic_shifting=True, base_image_seq_len=4, max_image_seq_len=64
            ),
        },
    )
