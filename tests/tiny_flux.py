"""Small random pipelines in the layouts of FLUX.1-dev and FLUX.1-schnell, written by torch diffusers."""

from __future__ import annotations

import pathlib

from tests import tiny_sd3
from tests.conftest import TINY_WORDS


def write(folder: pathlib.Path, *, dev: bool = True) -> pathlib.Path:
    """Writes the folder: two blocks of either kind, positions on three axes, guidance embedded or not."""
    import diffusers
    import transformers

    from tests.parity.harness import randomize
    from winobench.checkpoints.tokenizer_files import write_clip_tokenizer

    vocab_size = write_clip_tokenizer(folder / "tokenizer", TINY_WORDS, 77)
    tiny_sd3.write_t5_tokenizer(folder / "tokenizer_2")
    sizes = {"in_channels": 64, "num_layers": 2, "num_single_layers": 2, "attention_head_dim": 16}
    sizes |= {"num_attention_heads": 2, "joint_attention_dim": 24, "pooled_projection_dim": 32, "guidance_embeds": dev}
    sizes |= {"axes_dims_rope": (4, 4, 8)}
    transformer = diffusers.FluxTransformer2DModel(**sizes)
    vae = tiny_sd3.autoencoder(scaling_factor=0.3611, shift_factor=0.1159, force_upcast=True)
    clip = tiny_sd3.clip_encoder(vocab_size, 32, num_hidden_layers=2)
    t5 = tiny_sd3.t5_encoder(24, heads=3)
    for number, network in enumerate((transformer, vae, clip, t5)):
        randomize(network, number)
    shifts = {"shift": 3.0, "use_dynamic_shifting": True, "base_image_seq_len": 4, "max_image_seq_len": 64}
    diffusers.FluxPipeline(
        transformer=transformer,
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(**(shifts if dev else {})),
        vae=vae,
        text_encoder=clip,
        tokenizer=transformers.CLIPTokenizer.from_pretrained(folder / "tokenizer"),
        text_encoder_2=t5,
        tokenizer_2=transformers.AutoTokenizer.from_pretrained(folder / "tokenizer_2"),
    ).save_pretrained(folder)
    return folder
