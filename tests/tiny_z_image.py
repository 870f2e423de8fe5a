"""A small random pipeline in the layout of Z-Image, written by torch diffusers."""

from __future__ import annotations

import pathlib

from tests import tiny_flux2
from tests.conftest import TINY_IMAGE_SIZE

CHANNELS = 4


def write(folder: pathlib.Path, *, shift: float = 3.0, **saving) -> pathlib.Path:
    """Writes the folder: two blocks of either kind, an encoder of three layers without an output matrix.

    Args:
      folder: where to; made if needed.
      shift: of the noise levels.
      **saving: options of diffusers' ``save_pretrained``.
    """
    import diffusers
    import torch
    import transformers

    from tests.parity.torch_copy import randomize

    words = tiny_flux2.tokenizer()
    transformer = diffusers.ZImageTransformer2DModel(
        in_channels=CHANNELS,
        dim=32,
        n_layers=2,
        n_refiner_layers=1,
        n_heads=2,
        n_kv_heads=2,
        cap_feat_dim=24,
        axes_dims=[4, 6, 6],
        axes_lens=[600, 64, 64],
    )
    vae = diffusers.AutoencoderKL(
        sample_size=TINY_IMAGE_SIZE,
        block_out_channels=(8, 16, 16),
        down_block_types=("DownEncoderBlock2D",) * 3,
        up_block_types=("UpDecoderBlock2D",) * 3,
        layers_per_block=1,
        norm_num_groups=4,
        latent_channels=CHANNELS,
        scaling_factor=0.3611,
        shift_factor=0.1159,
        use_quant_conv=False,
        use_post_quant_conv=False,
    )
    encoder = transformers.Qwen3Model(
        transformers.Qwen3Config(
            vocab_size=len(words),
            hidden_size=24,
            intermediate_size=48,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            max_position_embeddings=4096,
            tie_word_embeddings=False,  # which would ask for an output matrix, if there were one
            bos_token_id=None,
            eos_token_id=words.eos_token_id,
        )
    )
    for number, network in enumerate((transformer, vae, encoder)):
        randomize(network, number)
    with torch.no_grad():  # without these, a network of so few layers hardly answers to its text
        transformer.cap_pad_token.mul_(5)
        transformer.x_pad_token.mul_(5)
    diffusers.ZImagePipeline(
        transformer=transformer,
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(shift=shift),
        vae=vae,
        text_encoder=encoder,
        tokenizer=words,
    ).save_pretrained(folder, **saving)
    return folder
