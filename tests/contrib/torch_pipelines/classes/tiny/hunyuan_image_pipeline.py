"""A tiny HunyuanImage: two encoders, the second for quoted words only; guidance embedded."""

import diffusers
import transformers

from tests.contrib.torch_pipelines.tiny import parts

IMAGE_SIZE = 32
CALL = {"distilled_guidance_scale": 3.25}


def make() -> diffusers.HunyuanImagePipeline:
    words = parts.chat_tokenizer()
    letters = transformers.T5Config(
        vocab_size=384, d_model=16, d_kv=8, d_ff=24, num_layers=1, num_heads=2, feed_forward_proj="gated-gelu"
    )
    return parts.filled(
        diffusers.HunyuanImagePipeline,
        {
            "transformer": diffusers.HunyuanImageTransformer2DModel(
                in_channels=4,
                out_channels=4,
                num_attention_heads=2,
                attention_head_dim=8,
                num_layers=1,
                num_single_layers=1,
                num_refiner_layers=1,
                patch_size=(1, 1),
                guidance_embeds=True,
                text_embed_dim=16,
                text_embed_2_dim=16,
                rope_axes_dim=(4, 4),
            ),
            "vae": diffusers.AutoencoderKLHunyuanImage(
                in_channels=3,
                out_channels=3,
                latent_channels=4,
                block_out_channels=(32, 32, 32, 32),
                layers_per_block=1,
                spatial_compression_ratio=8,
                sample_size=32,
                scaling_factor=0.75289,
            ),
            "text_encoder": parts.qwen2_5_vl(words, 3),
            "tokenizer": words,
            "text_encoder_2": transformers.T5EncoderModel(letters),
            "tokenizer_2": transformers.ByT5Tokenizer(),
            "scheduler": diffusers.FlowMatchEulerDiscreteScheduler(shift=5.0),
        },
    )
