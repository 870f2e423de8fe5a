"""A tiny AuraFlow: padding set to zeros, no mask, times from 0 to 1."""

import diffusers
import torch
import transformers

from tests import tiny_sd3
from tests.contrib.torch_pipelines.tiny import parts

IMAGE_SIZE = 32
CALL = {"guidance_scale": 1.0}


def make() -> diffusers.AuraFlowPipeline:
    config = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2}
    words = parts.t5_tokenizer()
    pipe = parts.filled(
        diffusers.AuraFlowPipeline,
        {
            "transformer": diffusers.AuraFlowTransformer2DModel(
                sample_size=8,
                num_mmdit_layers=1,
                num_single_dit_layers=1,
                attention_head_dim=8,
                num_attention_heads=2,
                joint_attention_dim=16,
                caption_projection_dim=16,
                pos_embed_max_size=64,
            ),
            "vae": tiny_sd3.autoencoder(4, scaling_factor=0.13025),
            "text_encoder": transformers.UMT5EncoderModel(transformers.UMT5Config(vocab_size=len(words), **config)),
            "tokenizer": words,
            "scheduler": diffusers.FlowMatchEulerDiscreteScheduler(shift=1.73),
        },
    )
    with torch.no_grad():  # 256 tokens, nearly all of them zeros, would hide the text
        pipe.transformer.context_embedder.weight.mul_(10)
    return pipe
