"""A tiny Hunyuan-DiT: two encoders, learned embeddings in place of padding, velocities."""

import diffusers
import transformers

from tests import tiny_sd3
from tests.contrib.torch_pipelines.tiny import parts

IMAGE_SIZE = 32
CALL = {"guidance_scale": 1.0, "use_resolution_binning": False}


def make() -> diffusers.HunyuanDiTPipeline:
    words = parts.bert_tokenizer()
    return parts.filled(
        diffusers.HunyuanDiTPipeline,
        {
            "transformer": diffusers.HunyuanDiT2DModel(
                sample_size=4,
                num_layers=2,
                patch_size=2,
                attention_head_dim=8,
                num_attention_heads=3,
                in_channels=4,
                hidden_size=24,
                cross_attention_dim=16,
                cross_attention_dim_t5=24,
                pooled_projection_dim=16,
            ),
            "vae": parts.vae_of_8(scaling_factor=0.13025),
            "text_encoder": transformers.BertModel(
                transformers.BertConfig(
                    vocab_size=len(words),
                    hidden_size=16,
                    num_hidden_layers=2,
                    num_attention_heads=2,
                    intermediate_size=24,
                    max_position_embeddings=80,
                )
            ),
            "tokenizer": words,
            "text_encoder_2": tiny_sd3.t5_encoder(24, heads=3),
            "tokenizer_2": parts.t5_tokenizer(),
            "scheduler": diffusers.DDPMScheduler(
                beta_start=0.00085, beta_end=0.02, beta_schedule="scaled_linear", prediction_type="v_prediction"
            ),
        },
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
