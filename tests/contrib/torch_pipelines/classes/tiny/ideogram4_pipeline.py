"""A small random Ideogram 4: two transformers, and states of 13 layers of the encoder side by side."""

from tests.contrib.torch_pipelines.tiny import parts

IMAGE_SIZE = 32
CALL = {"max_sequence_length": 64}


def make():
    import diffusers

    words = parts.chat_tokenizer()
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
    networks = {
        "transformer": transformer,
        "unconditional_transformer": unconditional,
        "vae": parts.flux2_autoencoder(),
        "text_encoder": parts.qwen3_vl(words, "Qwen3VLModel", 36),
    }
    others = {"tokenizer": words, "scheduler": diffusers.FlowMatchEulerDiscreteScheduler()}
    return parts.filled(diffusers.Ideogram4Pipeline, networks | others)
