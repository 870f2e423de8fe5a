"""A tiny SANA: a long instruction before each text, linear attention, a deep autoencoder without a distribution."""

import diffusers

from tests.torch_pipelines.tiny import parts

IMAGE_SIZE = 32
CALL = {"guidance_scale": 1.0, "use_resolution_binning": False}


def make(kind: str = "SanaPipeline") -> diffusers.SanaPipeline:
    words = parts.chat_tokenizer("decoder")
    return parts.filled(
        getattr(diffusers, kind),
        {
            "transformer": diffusers.SanaTransformer2DModel(
                in_channels=4,
                out_channels=4,
                num_layers=2,
                attention_head_dim=16,
                num_attention_heads=2,
                num_cross_attention_heads=2,
                cross_attention_head_dim=16,
                cross_attention_dim=32,
                caption_channels=8,
                sample_size=8,
            ),
            "vae": parts.deep_autoencoder(),
            "text_encoder": parts.gemma(words, "Gemma2"),
            "tokenizer": words,
            "scheduler": diffusers.DPMSolverMultistepScheduler(
                prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0
            ),
        },
    )
