"""A tiny Nucleus-Image: experts choose positions; texts are padded to a multiple of 8."""

import diffusers

from tests.contrib.torch_pipelines.tiny import parts

IMAGE_SIZE = 64
CALL = {"guidance_scale": 1.0}


def make() -> diffusers.NucleusMoEImagePipeline:
    words = parts.chat_tokenizer()
    return parts.filled(
        diffusers.NucleusMoEImagePipeline,
        {
            "transformer": diffusers.NucleusMoEImageTransformer2DModel(
                patch_size=2,
                in_channels=16,
                out_channels=4,
                num_layers=5,
                attention_head_dim=16,
                num_attention_heads=2,
                num_key_value_heads=1,
                joint_attention_dim=16,
                axes_dims_rope=(8, 4, 4),
                mlp_ratio=8.0,
                num_experts=4,
                moe_intermediate_dim=16,
                capacity_factors=2.0,
            ),
            "scheduler": diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0),
            "vae": parts.qwen_image_vae(),
            "text_encoder": parts.qwen3_vl(words, "Qwen3VLForConditionalGeneration", 8),
            "processor": words,
        },
    )
