"""A small random FIBO: every layer of SmolLM3 goes to a block of its own, latents of Wan 2.2 are not packed."""

from tests.contrib.torch_pipelines.tiny import parts

IMAGE_SIZE = 64
CALL = {"guidance_scale": 1.0}


def make():
    import diffusers
    import transformers

    words = parts.chat_tokenizer()
    transformer = diffusers.BriaFiboTransformer2DModel(
        in_channels=8,
        num_layers=1,
        num_single_layers=2,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=48,
        text_encoder_dim=24,
        axes_dims_rope=[4, 4, 8],
    )
    text_encoder = transformers.SmolLM3ForCausalLM(
        transformers.SmolLM3Config(
            vocab_size=128001,  # FIBO gives an empty text the token 128000
            hidden_size=24,
            intermediate_size=48,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=4096,
            pad_token_id=words.pad_token_id,
            bos_token_id=words.bos_token_id,
            eos_token_id=words.eos_token_id,
        )
    )
    networks = {"transformer": transformer, "vae": parts.wan_autoencoder(8), "text_encoder": text_encoder}
    others = {"tokenizer": words, "scheduler": parts.moving_schedule()}
    return parts.filled(diffusers.BriaFiboPipeline, networks | others)
