"""A small random pipeline in the layout of SDXL, written by torch diffusers; the same on every run."""

from __future__ import annotations

import pathlib

from tests import tiny_sd3
from tests.conftest import TINY_WORDS


def write(folder: pathlib.Path) -> pathlib.Path:
    """Writes the folder: heads and depth per level, two encoders of other widths and padding, as released."""
    import diffusers
    import transformers

    from tests.parity.harness import randomize
    from winobench.checkpoints.tokenizer_files import write_clip_tokenizer

    vocab_size = write_clip_tokenizer(folder / "tokenizer", TINY_WORDS, 77)
    unet = diffusers.UNet2DConditionModel(
        sample_size=8,
        block_out_channels=(16, 32),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        layers_per_block=1,
        norm_num_groups=8,
        attention_head_dim=(2, 4),
        transformer_layers_per_block=(1, 2),
        use_linear_projection=True,
        cross_attention_dim=24 + 40,
        addition_embed_type="text_time",
        addition_time_embed_dim=8,
        projection_class_embeddings_input_dim=6 * 8 + 32,
    )
    vae = tiny_sd3.autoencoder(4, scaling_factor=0.13025, force_upcast=True)
    first = tiny_sd3.clip_encoder(vocab_size, 24)
    options = {"num_attention_heads": 5, "hidden_act": "gelu", "projection_dim": 32}
    second = tiny_sd3.clip_encoder(vocab_size, 40, "CLIPTextModelWithProjection", **options)
    for number, network in enumerate((unet, vae, first, second)):
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
        unet=unet,
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
