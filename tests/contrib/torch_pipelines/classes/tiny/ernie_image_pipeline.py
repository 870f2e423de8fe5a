"""A tiny ERNIE-Image: texts of any length, the autoencoder of FLUX.2 with an epsilon of its own."""

import diffusers
import torch

from tests import tiny_sd3
from tests.contrib.torch_pipelines.tiny import parts

IMAGE_SIZE = 32
CALL = {"guidance_scale": 1.0, "use_pe": False}


def make() -> diffusers.ErnieImagePipeline:
    words = parts.chat_tokenizer("decoder")
    pipe = parts.filled(
        diffusers.ErnieImagePipeline,
        {
            "transformer": diffusers.ErnieImageTransformer2DModel(
                hidden_size=32,
                num_attention_heads=2,
                num_layers=2,
                ffn_hidden_size=32,
                in_channels=16,
                out_channels=16,
                patch_size=1,
                text_in_dim=16,
                rope_axes_dim=(8, 4, 4),
            ),
            "vae": tiny_sd3.autoencoder(4, "AutoencoderKLFlux2"),
            "text_encoder": parts.mistral3(words, "Mistral3Model", 3),
            "tokenizer": words,
            "scheduler": diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0),
        },
    )
    generator = torch.Generator().manual_seed(7)
    pipe.vae.bn.running_mean.copy_(0.3 * torch.randn(16, generator=generator))
    # As small as the two epsilons, which then show.
    pipe.vae.bn.running_var.copy_(1e-3 * (0.5 + torch.rand(16, generator=generator)))
    return pipe
