"""A tiny CogView4: texts padded before their start to a multiple of 16, without a mask."""

import diffusers
import transformers

from tests import tiny_sd3
from tests.contrib.torch_pipelines.tiny import parts

IMAGE_SIZE = 32
CALL = {"guidance_scale": 1.0}


def make() -> diffusers.CogView4Pipeline:
    words = parts.chat_tokenizer("decoder", padding_side="left")
    return parts.filled(
        diffusers.CogView4Pipeline,
        {
            "transformer": diffusers.CogView4Transformer2DModel(
                in_channels=4,
                out_channels=4,
                num_layers=2,
                attention_head_dim=8,
                num_attention_heads=2,
                text_embed_dim=16,
                time_embed_dim=8,
                condition_dim=4,
                sample_size=8,
                rope_axes_dim=(8, 8),
            ),
            "vae": tiny_sd3.autoencoder(4, scaling_factor=0.3611),
            "text_encoder": transformers.GlmModel(
                transformers.GlmConfig(
                    vocab_size=len(words),
                    hidden_size=16,
                    intermediate_size=24,
                    num_hidden_layers=2,
                    num_attention_heads=2,
                    num_key_value_heads=1,
                    head_dim=8,
                    pad_token_id=words.pad_token_id,
                    bos_token_id=words.bos_token_id,
                    eos_token_id=words.eos_token_id,
                )
            ),
            "tokenizer": words,
            "scheduler": diffusers.FlowMatchEulerDiscreteScheduler(
                use_dynamic_shifting=True,
                base_shift=0.25,
                max_shift=0.75,
                base_image_seq_len=4,
                time_shift_type="linear",
            ),
        },
    )
