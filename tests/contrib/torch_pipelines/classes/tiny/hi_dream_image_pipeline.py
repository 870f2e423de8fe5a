"""A tiny HiDream-I1: four text encoders, experts, images of the area of 1024 x 1024 pixels only."""

import diffusers
import transformers

from tests import tiny_sd3
from tests.contrib.torch_pipelines.tiny import parts

IMAGE_SIZE = 512
CALL = {"guidance_scale": 1.0}


def make() -> diffusers.HiDreamImagePipeline:
    words, clip_words = parts.chat_tokenizer("decoder"), parts.clip_tokenizer()
    kind = "CLIPTextModelWithProjection"
    clips = [
        tiny_sd3.clip_encoder(len(clip_words), 24, kind, projection_dim=width, max_position_embeddings=248)
        for width in (8, 16)
    ]
    llama = transformers.LlamaConfig(
        vocab_size=len(words),
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        bos_token_id=words.bos_token_id,
        eos_token_id=words.eos_token_id,
        attn_implementation="eager",
    )
    return parts.filled(
        diffusers.HiDreamImagePipeline,
        {
            "transformer": diffusers.HiDreamImageTransformer2DModel(
                patch_size=8,
                in_channels=4,
                out_channels=4,
                num_layers=1,
                num_single_layers=1,
                attention_head_dim=8,
                num_attention_heads=2,
                caption_channels=[24, 16],
                text_emb_dim=24,
                num_routed_experts=4,
                num_activated_experts=2,
                axes_dims_rope=(4, 2, 2),
                max_resolution=(128, 128),
                llama_layers=(0, 1),
            ),
            "vae": tiny_sd3.autoencoder(4, scaling_factor=0.3611, shift_factor=0.1159, mid_block_add_attention=False),
            "text_encoder": clips[0],
            "tokenizer": clip_words,
            "text_encoder_2": clips[1],
            "tokenizer_2": parts.clip_tokenizer(),
            "text_encoder_3": tiny_sd3.t5_encoder(24, heads=3),
            "tokenizer_3": parts.t5_tokenizer(),
            "text_encoder_4": transformers.LlamaForCausalLM(llama),
            "tokenizer_4": words,
            "scheduler": diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0),
        },
    )
