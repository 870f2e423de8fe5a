"""A tiny Qwen-Image: a template that is cut off, texts of any length, a mask unless all tokens count."""

import diffusers

from tests.torch_pipelines.tiny import parts

IMAGE_SIZE = 32
CALL = {"true_cfg_scale": 1.0}


def make() -> diffusers.QwenImagePipeline:
    words = parts.chat_tokenizer()
    return parts.filled(
        diffusers.QwenImagePipeline,
        {
            "transformer": diffusers.QwenImageTransformer2DModel(
                in_channels=16,
                out_channels=4,
                num_layers=2,
                attention_head_dim=16,
                num_attention_heads=2,
                joint_attention_dim=16,
                axes_dims_rope=(8, 4, 4),
            ),
            "vae": parts.qwen_image_vae(),
            "text_encoder": parts.qwen2_5_vl(words),
            "tokenizer": words,
            "scheduler": diffusers.FlowMatchEulerDiscreteScheduler(
                use_dynamic_shifting=True,
                base_shift=0.5,
                max_shift=0.9,
                base_image_seq_len=4,
                max_image_seq_len=64,
                shift_terminal=0.02,
            ),
        },
    )
