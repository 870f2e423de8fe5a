"""A tiny FLUX.2-klein: as FLUX.2-dev, with a language model and without embedded guidance."""

import diffusers
import torch
import transformers

from tests import tiny_flux2, tiny_sd3
from tests.torch_pipelines.tiny import parts

IMAGE_SIZE = 32
CALL = {"guidance_scale": 1.0}


def make() -> diffusers.Flux2KleinPipeline:
    words = tiny_flux2.tokenizer()
    words.chat_template = parts.CHAT_TEMPLATE
    config = tiny_flux2.qwen3_config(words, num_hidden_layers=27, tie_word_embeddings=True)
    pipe = parts.filled(
        diffusers.Flux2KleinPipeline,
        {
            "transformer": diffusers.Flux2Transformer2DModel(
                in_channels=16,
                num_layers=1,
                num_single_layers=1,
                attention_head_dim=16,
                num_attention_heads=2,
                joint_attention_dim=3 * 24,
                timestep_guidance_channels=32,
                axes_dims_rope=(2, 6, 4, 4),
                guidance_embeds=False,
            ),
            "vae": tiny_sd3.autoencoder(4, "AutoencoderKLFlux2"),
            "text_encoder": transformers.Qwen3ForCausalLM(config),
            "tokenizer": words,
            "scheduler": diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True),
        },
        is_distilled=True,
    )
    generator = torch.Generator().manual_seed(7)
    pipe.vae.bn.running_mean.copy_(0.3 * torch.randn(16, generator=generator))
    pipe.vae.bn.running_var.copy_(0.5 + torch.rand(16, generator=generator))
    return pipe
