"""A tiny Chroma: one text encoder, the mask of the text in attention."""

import diffusers

from tests import tiny_sd3
from tests.torch_pipelines.tiny import parts

IMAGE_SIZE = 32
CALL = {"guidance_scale": 1.0}


def make() -> diffusers.ChromaPipeline:
    return parts.filled(
        diffusers.ChromaPipeline,
        {
            "transformer": diffusers.ChromaTransformer2DModel(
                in_channels=64,
                num_layers=1,
                num_single_layers=1,
                attention_head_dim=16,
                num_attention_heads=2,
                joint_attention_dim=24,
                axes_dims_rope=(4, 4, 8),
                approximator_num_channels=8,
                approximator_hidden_dim=16,
                approximator_layers=1,
            ),
            "vae": tiny_sd3.autoencoder(scaling_factor=0.3611, shift_factor=0.1159),
            "text_encoder": tiny_sd3.t5_encoder(24, heads=3),
            "tokenizer": parts.t5_tokenizer(),
            "scheduler": diffusers.FlowMatchEulerDiscreteScheduler(shift=1.0, use_dynamic_shifting=False),
        },
    )
