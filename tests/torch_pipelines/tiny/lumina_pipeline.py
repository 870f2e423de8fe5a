"""A tiny Lumina-Next: half of the output is a variance, and the scheduler is given the prediction's negative."""

import diffusers

from tests.torch_pipelines.tiny import parts

IMAGE_SIZE = 32
CALL = {"guidance_scale": 1.0, "clean_caption": False}


def make() -> diffusers.LuminaPipeline:
    words = parts.chat_tokenizer("decoder")
    return parts.filled(
        diffusers.LuminaPipeline,
        {
            "transformer": diffusers.LuminaNextDiT2DModel(
                sample_size=4,
                patch_size=2,
                in_channels=4,
                hidden_size=24,
                num_layers=2,
                num_attention_heads=3,
                num_kv_heads=1,
                multiple_of=16,
                norm_eps=1e-5,
                learn_sigma=True,
                qk_norm=True,
                cross_attention_dim=8,
            ),
            "vae": parts.vae_of_8(scaling_factor=0.13025),
            "text_encoder": parts.gemma(words, "Gemma"),
            "tokenizer": words,
            "scheduler": diffusers.FlowMatchEulerDiscreteScheduler(),
        },
    )
