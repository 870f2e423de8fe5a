"""A tiny Krea 2: some layers of a vision-language model, and a text whose padding lies in its midst."""

import diffusers

from tests.torch_pipelines.tiny import parts

IMAGE_SIZE = 32
CALL = {"guidance_scale": 0.0}


def make() -> diffusers.Krea2Pipeline:
    words = parts.chat_tokenizer()
    return parts.filled(
        diffusers.Krea2Pipeline,
        {
            "transformer": diffusers.Krea2Transformer2DModel(
                in_channels=16,
                num_layers=2,
                attention_head_dim=16,
                num_attention_heads=4,
                num_key_value_heads=2,
                intermediate_size=32,
                timestep_embed_dim=16,
                text_hidden_dim=16,
                num_text_layers=2,
                text_num_attention_heads=2,
                text_num_key_value_heads=2,
                text_intermediate_size=32,
                num_layerwise_text_blocks=1,
                num_refiner_text_blocks=1,
                axes_dims_rope=(4, 6, 6),
            ),
            "vae": parts.qwen_image_vae(),
            "text_encoder": parts.qwen3_vl(words, "Qwen3VLModel", 2),
            "tokenizer": words,
            "scheduler": diffusers.FlowMatchEulerDiscreteScheduler(
                use_dynamic_shifting=True, base_image_seq_len=4, max_image_seq_len=64
            ),
        },
        text_encoder_select_layers=(1, 2),
    )
