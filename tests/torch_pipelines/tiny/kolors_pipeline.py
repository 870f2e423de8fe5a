"""A tiny Kolors: the UNet of Stable Diffusion XL with a language model, padded before each text."""

import diffusers
import pytest
from diffusers.pipelines.kolors import text_encoder as chatglm

from tests import tiny_sd3
from tests.torch_pipelines.tiny import parts

IMAGE_SIZE = 32
CALL = {"guidance_scale": 1.0}


def make() -> diffusers.KolorsPipeline:
    pytest.importorskip("sentencepiece")
    words = parts.chatglm_tokenizer()
    return parts.filled(
        diffusers.KolorsPipeline,
        {
            "unet": diffusers.UNet2DConditionModel(
                sample_size=8,
                block_out_channels=(16, 32),
                down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
                up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
                layers_per_block=1,
                norm_num_groups=8,
                attention_head_dim=(2, 4),
                use_linear_projection=True,
                addition_embed_type="text_time",
                addition_time_embed_dim=8,
                projection_class_embeddings_input_dim=16 + 6 * 8,
                encoder_hid_dim=16,
                encoder_hid_dim_type="text_proj",
                cross_attention_dim=24,
            ),
            "vae": tiny_sd3.autoencoder(4, scaling_factor=0.13025),
            "text_encoder": chatglm.ChatGLMModel(
                chatglm.ChatGLMConfig(
                    num_layers=2,
                    padded_vocab_size=words.vocab_size,
                    hidden_size=16,
                    ffn_hidden_size=24,
                    kv_channels=8,
                    num_attention_heads=2,
                    seq_length=256,
                    original_rope=True,
                    add_qkv_bias=True,
                    multi_query_attention=True,
                    multi_query_group_num=1,
                )
            ),
            "tokenizer": words,
            "scheduler": diffusers.EulerDiscreteScheduler(
                beta_start=0.00085, beta_end=0.014, beta_schedule="scaled_linear", num_train_timesteps=1100
            ),
        },
    )
