"""A small random BRIA 3.2: a T5 with zeros behind each text, latents packed by 2 x 2."""

from tests.torch_pipelines.tiny import parts

IMAGE_SIZE = 32
CALL = {"guidance_scale": 1.0}


def make():
    import diffusers
    import torch

    from tests import tiny_sd3

    transformer = diffusers.BriaTransformer2DModel(
        in_channels=16,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=24,
        axes_dims_rope=[4, 4, 8],
    )
    vae = tiny_sd3.autoencoder(4, scaling_factor=0.13025, shift_factor=0.1)
    text_encoder = tiny_sd3.t5_encoder(24, heads=3)
    parts.randomized(transformer, vae, text_encoder)
    with torch.no_grad():  # 128 tokens, nearly all of them zeros, would hide the text
        transformer.context_embedder.weight.mul_(10)
    return diffusers.BriaPipeline(
        transformer=transformer,
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(
            use_dynamic_shifting=True, base_image_seq_len=4, max_image_seq_len=64
        ),
        vae=vae,
        text_encoder=text_encoder,
        tokenizer=parts.t5_tokenizer(),
    )
