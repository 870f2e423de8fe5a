"""A small random BRIA 3.2: zeros behind each text, latents packed by 2 x 2."""

from tests import tiny_sd3
from tests.torch_pipelines.tiny import parts

IMAGE_SIZE = 32
CALL = {"guidance_scale": 1.0}


def make():
    import diffusers
    import torch

    transformer = diffusers.BriaTransformer2DModel(
        in_channels=16,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=24,
        axes_dims_rope=[4, 4, 8],
    )
    networks = {
        "transformer": transformer,
        "vae": tiny_sd3.autoencoder(4, scaling_factor=0.13025, shift_factor=0.1),
        "text_encoder": tiny_sd3.t5_encoder(24, heads=3),
    }
    others = {"tokenizer": parts.t5_tokenizer(), "scheduler": parts.moving_schedule()}
    pipe = parts.filled(diffusers.BriaPipeline, networks | others)
    with torch.no_grad():  # 128 tokens, nearly all of them zeros, would hide the text
        transformer.context_embedder.weight.mul_(10)
    return pipe
