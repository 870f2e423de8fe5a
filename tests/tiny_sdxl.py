"""A small random pipeline in the layout of SDXL, written by torch diffusers; the same on every run."""

from __future__ import annotations

import pathlib
from typing import Any

from tests import tiny_sd3
from tests.conftest import TINY_WORDS


def unet(**options: Any) -> Any:
    """A random UNet of torch's like SDXL's: heads of each level, sizes beside the time."""
    types = {"down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D")}
    types |= {"up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D")}
    sizes = {"addition_embed_type": "text_time", "addition_time_embed_dim": 8}
    return tiny_sd3.unet(**types, **sizes, attention_head_dim=(2, 4), use_linear_projection=True, **options)


def write(folder: pathlib.Path) -> pathlib.Path:
    """Writes the folder: heads and depth per level, two encoders of other widths and padding, as released."""
    import diffusers
    import transformers

    from tests.parity.harness import randomize
    from winobench.checkpoints.tokenizer_files import write_clip_tokenizer

    vocab_size = write_clip_tokenizer(folder / "tokenizer", TINY_WORDS, 77)
    texts = {"cross_attention_dim": 24 + 40, "projection_class_embeddings_input_dim": 6 * 8 + 32}
    denoiser = unet(transformer_layers_per_block=(1, 2), **texts)
    vae = tiny_sd3.autoencoder(4, scaling_factor=0.13025, force_upcast=True)
    first = tiny_sd3.clip_encoder(vocab_size, 24)
    options = {"num_attention_heads": 5, "hidden_act": "gelu", "projection_dim": 32}
    second = tiny_sd3.clip_encoder(vocab_size, 40, "CLIPTextModelWithProjection", **options)
    for number, network in enumerate((denoiser, vae, first, second)):
        randomize(network, number)
    tokenizer = transformers.CLIPTokenizer.from_pretrained(folder / "tokenizer")
    # The second one pads with its first token, as in the released model.
    tokenizer_2 = transformers.CLIPTokenizer.from_pretrained(folder / "tokenizer", pad_token="!")
    diffusers.StableDiffusionXLPipeline(
        vae=vae,
        text_encoder=first,
        text_encoder_2=second,
        tokenizer=tokenizer,
        tokenizer_2=tokenizer_2,
        unet=denoiser,
        scheduler=diffusers.EulerDiscreteScheduler(
            beta_start=0.00085,
            beta_end=0.012,
            beta_schedule="scaled_linear",
            steps_offset=1,
            timestep_spacing="leading",
        ),
        force_zeros_for_empty_prompt=True,
    ).save_pretrained(folder)
    return folder
