"""A tiny Ovis-Image: the states of a language model for a text inside its template."""

import diffusers
import transformers

from tests import tiny_flux2, tiny_sd3
from tests.torch_pipelines.tiny import parts

IMAGE_SIZE = 32
CALL = {"guidance_scale": 1.0}


def make() -> diffusers.OvisImagePipeline:
    words = parts.chat_tokenizer()
    config = tiny_flux2.qwen3_config(words, num_hidden_layers=2, tie_word_embeddings=False)
    return parts.filled(
        diffusers.OvisImagePipeline,
        {
            "transformer": diffusers.OvisImageTransformer2DModel(
                in_channels=64,
                out_channels=64,
                num_layers=1,
                num_single_layers=1,
                attention_head_dim=16,
                num_attention_heads=2,
                joint_attention_dim=24,
                axes_dims_rope=(4, 4, 8),
            ),
            "vae": tiny_sd3.autoencoder(scaling_factor=0.3611, shift_factor=0.1159),
            "text_encoder": transformers.Qwen3Model(config),
            "tokenizer": words,
            "scheduler": diffusers.FlowMatchEulerDiscreteScheduler(
                shift=3.0, use_dynamic_shifting=True, base_image_seq_len=4, max_image_seq_len=64
            ),
        },
    )
