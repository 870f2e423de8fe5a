"""A small random pipeline in the layout of Stable Diffusion 3.5-medium, written by torch diffusers."""

from __future__ import annotations

import pathlib
from typing import Any

from tests.conftest import TINY_IMAGE_SIZE, TINY_WORDS

T5_VOCABULARY = ["<pad>", "</s>", "<unk>", *(f"▁{word}" for word in TINY_WORDS), "▁", *"abcdefghijklmnopqrstuvwxyz"]


def write_t5_tokenizer(folder: pathlib.Path) -> None:
    """Writes a tokenizer like T5's: pieces of a unigram model, an end, no start."""
    import tokenizers
    import transformers

    pieces = [(piece, -float(rank)) for rank, piece in enumerate(dict.fromkeys(T5_VOCABULARY))]
    backend = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, unk_id=2))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    backend.post_processor = tokenizers.processors.TemplateProcessing("$A </s>", special_tokens=[("</s>", 1)])
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="</s>", unk_token="<unk>", pad_token="<pad>", model_max_length=256
    ).save_pretrained(folder)


def unet(**options: Any) -> Any:
    """A random UNet of torch's, of two levels with a transformer in the finer one, for images of `TINY_IMAGE_SIZE`."""
    import diffusers

    sizes = {"sample_size": 8, "block_out_channels": (16, 32), "layers_per_block": 1, "norm_num_groups": 8}
    types = {"down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D")}
    types |= {"up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D")}
    heads = {"attention_head_dim": 4, "cross_attention_dim": 24}
    return diffusers.UNet2DConditionModel(**{**sizes, **types, **heads, **options})


def pndm() -> Any:
    """The scheduler of Stable Diffusion 1.5."""
    import diffusers

    return diffusers.PNDMScheduler(
        beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", skip_prk_steps=True, steps_offset=1
    )


def autoencoder(channels: int = 16, kind: str = "AutoencoderKL", **options: Any) -> Any:
    """A random one of torch's, of images of `TINY_IMAGE_SIZE`. With a shift there are no quant convolutions."""
    import diffusers

    if "shift_factor" in options:
        options |= {"use_quant_conv": False, "use_post_quant_conv": False}
    sizes = {"sample_size": TINY_IMAGE_SIZE, "block_out_channels": (8, 16, 16)}
    sizes |= {"down_block_types": ("DownEncoderBlock2D",) * 3, "up_block_types": ("UpDecoderBlock2D",) * 3}
    sizes |= {"layers_per_block": 1, "norm_num_groups": 4, "latent_channels": channels}
    return getattr(diffusers, kind)(**sizes, **options)


def clip_encoder(vocab_size: int, width: int, kind: str = "CLIPTextModel", **options: Any) -> Any:
    """A random one of torch's, of three layers, for the tokens of ``write_clip_tokenizer``."""
    import transformers

    config = {"num_attention_heads": 4, "num_hidden_layers": 3, "max_position_embeddings": 77, "vocab_size": vocab_size}
    config |= {"bos_token_id": vocab_size - 2, "eos_token_id": vocab_size - 1}
    config |= {"hidden_size": width, "intermediate_size": 2 * width, **options}
    return getattr(transformers, kind)(transformers.CLIPTextConfig(**config))


def t5_encoder(width: int, heads: int) -> Any:
    """A random one of torch's, for the tokens of `write_t5_tokenizer`."""
    import transformers

    sizes = {"vocab_size": len(set(T5_VOCABULARY)), "d_model": width, "d_kv": 8, "d_ff": 64, "num_layers": 2}
    sizes |= {"num_heads": heads, "feed_forward_proj": "gated-gelu"}
    return transformers.T5EncoderModel(transformers.T5Config(**sizes))


def write(folder: pathlib.Path, *, as_published: bool = False) -> pathlib.Path:
    """Writes the folder: three encoders, dual attention and normed queries, an autoencoder with a shift.

    As published, the first encoder's projection changes nothing.
    """
    import diffusers
    import torch
    import transformers

    from tests.parity.harness import randomize
    from winobench.checkpoints.tokenizer_files import write_clip_tokenizer

    vocab_size = write_clip_tokenizer(folder / "tokenizer", TINY_WORDS, 77)
    write_t5_tokenizer(folder / "tokenizer_3")
    sizes = {"sample_size": 8, "num_layers": 2, "num_attention_heads": 2, "attention_head_dim": 16}
    sizes |= {"caption_projection_dim": 32, "joint_attention_dim": 72, "pooled_projection_dim": 16 + 32}
    sizes |= {"pos_embed_max_size": 12, "dual_attention_layers": (0,), "qk_norm": "rms_norm"}
    transformer = diffusers.SD3Transformer2DModel(**sizes)
    vae = autoencoder(scaling_factor=1.5305, shift_factor=0.0609, force_upcast=True)
    kind = "CLIPTextModelWithProjection"
    clips = [
        clip_encoder(vocab_size, width, kind, projection_dim=out)
        for width, out in ((16 if as_published else 24, 16), (40, 32))
    ]
    t5 = t5_encoder(72, heads=4)
    for number, network in enumerate((transformer, vae, *clips, t5)):
        randomize(network, number)
    if as_published:
        clips[0].text_projection.weight.data.copy_(torch.eye(16))
    tokenizer = transformers.CLIPTokenizer.from_pretrained(folder / "tokenizer")
    diffusers.StableDiffusion3Pipeline(
        transformer=transformer,
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0),
        vae=vae,
        text_encoder=clips[0],
        tokenizer=tokenizer,
        text_encoder_2=clips[1],
        tokenizer_2=transformers.CLIPTokenizer.from_pretrained(folder / "tokenizer", pad_token="!"),
        text_encoder_3=t5,
        tokenizer_3=transformers.AutoTokenizer.from_pretrained(folder / "tokenizer_3"),
    ).save_pretrained(folder)
    return folder
