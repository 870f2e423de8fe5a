"""A tiny PixArt-Sigma: masked cross attention, learned variances that are cut off."""

import diffusers

from tests import tiny_sd3
from tests.torch_pipelines.tiny import parts

IMAGE_SIZE = 32
CALL = {"guidance_scale": 1.0, "use_resolution_binning": False}


def make(kind: str = "PixArtSigmaPipeline", sample_size: int = 8) -> diffusers.PixArtSigmaPipeline:
    return parts.filled(
        getattr(diffusers, kind),
        {
            "transformer": diffusers.PixArtTransformer2DModel(
                sample_size=sample_size,
                num_layers=2,
                attention_head_dim=8,
                num_attention_heads=3,
                caption_channels=24,
                in_channels=4,
                out_channels=8,
                cross_attention_dim=24,
            ),
            "vae": tiny_sd3.autoencoder(4, scaling_factor=0.13025),
            "text_encoder": tiny_sd3.t5_encoder(24, heads=3),
            "tokenizer": parts.t5_tokenizer(),
            "scheduler": diffusers.DPMSolverMultistepScheduler(beta_end=0.02),
        },
    )
