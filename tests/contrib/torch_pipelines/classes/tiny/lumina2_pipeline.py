"""A tiny Lumina 2: texts of many lengths in one sequence with the image, a time that runs backwards."""

import diffusers

from tests.contrib.torch_pipelines.tiny import parts

IMAGE_SIZE = 32
CALL = {"guidance_scale": 1.0}


def make() -> diffusers.Lumina2Pipeline:
    words = parts.chat_tokenizer("decoder")
    return parts.filled(
        diffusers.Lumina2Pipeline,
        {
            "transformer": diffusers.Lumina2Transformer2DModel(
                sample_size=4,
                patch_size=2,
                in_channels=4,
                hidden_size=24,
                num_layers=2,
                num_refiner_layers=1,
                num_attention_heads=3,
                num_kv_heads=1,
                multiple_of=2,
                axes_dim_rope=(4, 2, 2),
                axes_lens=(300, 64, 64),
                cap_feat_dim=8,
            ),
            "vae": parts.vae_of_8(scaling_factor=0.3611, shift_factor=0.1159),
            "text_encoder": parts.gemma(words, "Gemma2"),
            "tokenizer": words,
            "scheduler": diffusers.FlowMatchEulerDiscreteScheduler(shift=6.0),
        },
    )
