"""A small random pipeline in the layout of Z-Image, written by torch diffusers."""

from __future__ import annotations

import pathlib

from tests import tiny_flux2, tiny_sd3

CHANNELS = 4


def write(folder: pathlib.Path, *, shift: float = 3.0, **saving) -> pathlib.Path:
    """Writes the folder: two blocks of either kind, an encoder of three layers without an output matrix."""
    import diffusers
    import torch
    import transformers

    from tests.parity.harness import randomize

    words = tiny_flux2.tokenizer()
    sizes = {"in_channels": CHANNELS, "dim": 32, "n_layers": 2, "n_refiner_layers": 1, "n_heads": 2, "n_kv_heads": 2}
    sizes |= {"cap_feat_dim": 24, "axes_dims": [4, 6, 6], "axes_lens": [600, 64, 64]}
    transformer = diffusers.ZImageTransformer2DModel(**sizes)
    vae = tiny_sd3.autoencoder(CHANNELS, scaling_factor=0.3611, shift_factor=0.1159)
    # Tied embeddings would ask for an output matrix, if there were one.
    config = tiny_flux2.qwen3_config(words, num_hidden_layers=3, tie_word_embeddings=False)
    encoder = transformers.Qwen3Model(config)
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
