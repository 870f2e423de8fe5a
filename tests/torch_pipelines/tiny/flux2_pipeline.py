"""A tiny FLUX.2-dev: guidance embedded, three layers of a vision-language model, statistics of the autoencoder."""

import diffusers
import torch

from tests import tiny_sd3
from tests.torch_pipelines.tiny import parts

IMAGE_SIZE = 32
CALL = {"guidance_scale": 4.0}


def make() -> diffusers.Flux2Pipeline:
    words = parts.chat_tokenizer()
    pipe = parts.filled(
        diffusers.Flux2Pipeline,
        {
            "transformer": diffusers.Flux2Transformer2DModel(
                in_channels=16,
                num_layers=1,
                num_single_layers=1,
                attention_head_dim=16,
                num_attention_heads=2,
                joint_attention_dim=3 * 16,
                timestep_guidance_channels=32,
                axes_dims_rope=(2, 6, 4, 4),
                guidance_embeds=True,
            ),
            "vae": tiny_sd3.autoencoder(4, "AutoencoderKLFlux2"),
            "text_encoder": parts.mistral3(words, "Mistral3ForConditionalGeneration", 30),
            "tokenizer": words,
            "scheduler": diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True),
        },
    )
    generator = torch.Generator().manual_seed(7)
    pipe.vae.bn.running_mean.copy_(0.3 * torch.randn(16, generator=generator))
    pipe.vae.bn.running_var.copy_(0.5 + torch.rand(16, generator=generator))
    return pipe
