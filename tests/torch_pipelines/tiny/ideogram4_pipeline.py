"""A small random Ideogram 4: two transformers, and states of 13 layers of the encoder side by side."""

from tests.torch_pipelines.tiny import parts

IMAGE_SIZE = 32
CALL = {"guidance_scale": 1.0, "guidance_schedule": None, "max_sequence_length": 64}


def make():
    import diffusers
    import torch

    from tests import tiny_flux2, tiny_sd3

    words = tiny_flux2.tokenizer()
    words.chat_template = parts.PARTS_TEMPLATE
    transformer, unconditional = (
        diffusers.Ideogram4Transformer2DModel(
            in_channels=16,
            num_layers=1,
            attention_head_dim=16,
            num_attention_heads=2,
            intermediate_size=32,
            adaln_dim=16,
            llm_features_dim=13 * 16,
            mrope_section=(4, 2, 2),
        )
        for _ in range(2)
    )
    vae = tiny_sd3.autoencoder(4, "AutoencoderKLFlux2")
    small = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1}
    text_encoder = parts.qwen3_vl(words, num_hidden_layers=36, **small).model
    parts.randomized(transformer, unconditional, vae, text_encoder)
    generator = torch.Generator().manual_seed(7)
    vae.bn.running_mean.copy_(0.3 * torch.randn(16, generator=generator))
    vae.bn.running_var.copy_(0.5 + torch.rand(16, generator=generator))
    return diffusers.Ideogram4Pipeline(
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
        vae=vae,
        text_encoder=text_encoder,
        tokenizer=words,
        transformer=transformer,
        unconditional_transformer=unconditional,
    )
