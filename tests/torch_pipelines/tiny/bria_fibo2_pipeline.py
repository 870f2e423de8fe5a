"""A small random FIBO 2: as many summary tokens as the length of the text asks for."""

from tests.torch_pipelines.tiny import parts

IMAGE_SIZE = 32
CALL = {"guidance_scale": 1.0}


def make():
    import diffusers
    import torch

    from tests import tiny_flux2, tiny_sd3

    words = tiny_flux2.tokenizer()
    transformer = diffusers.BriaFibo2Transformer2DModel(
        in_channels=4,
        dim=32,
        n_layers=2,
        n_refiner_layers=1,
        n_heads=2,
        cap_feat_dim=3 * 16,
        injection_layer_ids=(0, 1, 2, 3, 4),
        perceiver_num_layers=1,
        min_num_gist_tokens=8,
        max_num_gist_tokens=32,
        gist_step=4,
        gist_min_text_len=8,
        gist_max_text_len=64,
        axes_dims=(8, 4, 4),
        axes_lens=(64, 32, 32),
    )
    vae = tiny_sd3.autoencoder(4, "AutoencoderKLFlux2")
    small = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1}
    text_encoder = parts.qwen3_vl(words, num_hidden_layers=36, **small)
    parts.randomized(transformer, vae, text_encoder)
    generator = torch.Generator().manual_seed(7)
    vae.bn.running_mean.copy_(0.3 * torch.randn(16, generator=generator))
    vae.bn.running_var.copy_(0.5 + torch.rand(16, generator=generator))
    return diffusers.BriaFibo2Pipeline(
        transformer=transformer,
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(
            use_dynamic_shifting=True, base_image_seq_len=4, max_image_seq_len=64
        ),
        vae=vae,
        text_encoder=text_encoder,
        processor=words,
    )
