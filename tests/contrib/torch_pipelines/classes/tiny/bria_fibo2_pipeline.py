"""A small random FIBO 2: as many summary tokens as the length of the text asks for."""

from tests.contrib.torch_pipelines.tiny import parts

IMAGE_SIZE = 32
CALL = {"guidance_scale": 1.0}


def make():
    import diffusers

    words = parts.chat_tokenizer()
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
    networks = {
        "transformer": transformer,
        "vae": parts.flux2_autoencoder(),
        "text_encoder": parts.qwen3_vl(words, "Qwen3VLForConditionalGeneration", 36),
    }
    # The whole processor needs torchvision. Texts go through its tokenizer.
    others = {"processor": words, "scheduler": parts.moving_schedule()}
    return parts.filled(diffusers.BriaFibo2Pipeline, networks | others)
