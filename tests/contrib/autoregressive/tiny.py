"""Tiny random generators that predict tokens, written by transformers in the published layout of their files."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tokenizers
import torch
import transformers
from PIL import Image
from tokenizers import decoders, models, pre_tokenizers, processors

CODES = 64
DECODER = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
}
TEXTS = ("a dog", "a cat on the left of a small red dog, in the rain", "", "two birds", "a red cube, behind a ball")
IMAGE_SIZES = {"janus": None, "emu3": 64, "glm_image": 128}
"""The option ``image_size`` of each family."""

_BYTES = tuple(sorted(pre_tokenizers.ByteLevel.alphabet()))
_JANUS_TEMPLATE = (
    "{% for message in messages %}{{ '<|User|>: ' if message.role == 'user' else '<|Assistant|>: ' }}"
    "{% for part in message.content %}{{ part.text if part.type == 'text' else '<image_placeholder>\n' }}{% endfor %}"
    "{{ '\n\n' }}{% endfor %}{{ '<|Assistant|>:' if add_generation_prompt }}"
)
_GLM_TEMPLATE = (
    "{% for message in messages %}{% for part in message.content %}"
    "{{ part.text if part.type == 'text' else '<|image|>' }}{% endfor %}{% endfor %}"
)


def pictures(number: int = 3, side: int = 64) -> list[Image.Image]:
    """Images with large coloured areas, the same at every call."""
    random = np.random.default_rng(0)
    small = (Image.fromarray(random.integers(0, 256, (5, 5, 3), np.uint8)) for _ in range(number))
    return [image.resize((side, side), Image.Resampling.BICUBIC) for image in small]


def write_janus(folder: pathlib.Path, *, codes: int = CODES, side: int = 64, **decoder: Any) -> pathlib.Path:
    """Writes a Janus, whose images have (side / 16)^2 tokens."""
    special = ["<bos>", "<eos>", "<pad>", "<begin_of_image>", "<end_of_image>", "<image_placeholder>"]
    tokenizer, ids = _tokenizer(
        [*_BYTES, *special],
        special,
        starts_with="<bos>",
        names={"bos": "<bos>", "eos": "<eos>", "pad": "<pad>"},
        more={"boi": "<begin_of_image>", "eoi": "<end_of_image>", "image": "<image_placeholder>"},
    )
    text = {**DECODER, **decoder, "model_type": "llama", "vocab_size": len(ids), **_ends(tokenizer)}
    width, patches = text["hidden_size"], (side // 16) ** 2
    vision = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "mlp_ratio": 2, "patch_size": 16}
    vision |= {"image_size": side, "projection_dim": width, "num_image_tokens": patches}
    vq = {"embed_dim": 8, "num_embeddings": codes, "latent_channels": 16, "base_channels": 32, "num_res_blocks": 1}
    vq |= {"channel_multiplier": [1] * 5, "projection_dim": width, "image_token_embed_dim": width}
    config = transformers.JanusConfig(
        text_config=text, vision_config=vision, vq_config=vq, image_token_id=ids["<image_placeholder>"]
    )
    images = transformers.JanusImageProcessor(
        size={"height": side, "width": side}, image_mean=[0.5] * 3, image_std=[0.5] * 3
    )
    processor = transformers.JanusProcessor(images, tokenizer, chat_template=_JANUS_TEMPLATE, num_image_tokens=patches)
    model = transformers.JanusForConditionalGeneration(config)
    model.generation_config = transformers.GenerationConfig(
        guidance_scale=5.0, generation_kwargs={"boi_token_id": ids["<begin_of_image>"]}, **_ends(tokenizer)
    )
    return _write(folder, model, processor)


def write_emu3(folder: pathlib.Path, *, codes: int = CODES, **decoder: Any) -> pathlib.Path:
    """Writes an Emu3, for which 8 pixels of a side are a token."""
    special = ["<|extra_203|>", "<|extra_204|>", "<|endoftext|>", "<image>", "<|image start|>", "<|image end|>"]
    special += ["<|image token|>", "<|extra_200|>", "<|extra_201|>"]
    special += [f"<|visual token {code:06d}|>" for code in range(codes)]
    tokenizer, ids = _tokenizer(
        [*_BYTES, *special],
        special,
        names={"bos": "<|extra_203|>", "eos": "<|extra_204|>", "pad": "<|endoftext|>"},
        more={
            **{"image": "<image>", "boi": "<|image start|>", "eoi": "<|image end|>"},
            **{"image_wrapper": "<|image token|>", "eof": "<|extra_201|>"},
        },
    )
    vq = {"codebook_size": codes, "embed_dim": 4, "latent_channels": 4, "base_channels": 32, "hidden_size": 32}
    vq |= {"channel_multiplier": [1, 1, 1, 1], "num_res_blocks": 1, "attn_resolutions": [3]}
    config = transformers.Emu3Config(
        text_config={**DECODER, **decoder, "vocab_size": len(ids), **_ends(tokenizer)},
        vq_config=vq,
        vocabulary_map=ids,
    )
    images = transformers.Emu3ImageProcessor(min_pixels=64 * 64, max_pixels=64 * 64)
    model = transformers.Emu3ForConditionalGeneration(config)
    return _write(folder, model, transformers.Emu3Processor(images, tokenizer))


def write_glm_image(folder: pathlib.Path, *, codes: int = CODES, **decoder: Any) -> pathlib.Path:
    """Writes the token part of a GLM-Image, in a folder of diffusers. Its vocabulary begins with the image's tokens."""
    special = ["<|endoftext|>", "<sop>", "<eop>", "<|image|>"]
    vocabulary = [*(f"<|dit_{code}|>" for code in range(codes)), "<|image_start|>", "<|image_end|>", *_BYTES, *special]
    tokenizer, ids = _tokenizer(
        vocabulary,
        [*special, "<|image_start|>", "<|image_end|>"],
        names={"bos": "<|image_start|>", "eos": "<|endoftext|>", "pad": "<|endoftext|>"},
        more={"grid_bos": "<sop>", "grid_eos": "<eop>", "image": "<|image|>"},
    )
    rotation = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2], "partial_rotary_factor": 1.0}
    text = {**DECODER, **decoder, "vocab_size": len(ids), "vision_vocab_size": codes + 8, "rope_parameters": rotation}
    text |= {"pad_token_id": ids["<|endoftext|>"], "eos_token_id": codes + 1}
    vision = {"depth": 1, "hidden_size": 32, "num_heads": 4, "image_size": 64, "patch_size": 16}
    config = transformers.GlmImageConfig(
        text_config=text,
        vision_config={**vision, "intermediate_size": 64},
        vq_config={"embed_dim": 8, "num_embeddings": codes, "latent_channels": 32},
        image_token_id=ids["<|image|>"],
        image_start_token_id=codes,
        image_end_token_id=codes + 1,
    )
    images = transformers.GlmImageImageProcessor(
        patch_size=16, merge_size=1, temporal_patch_size=1, size={"shortest_edge": 64**2, "longest_edge": 2048**2}
    )
    model = transformers.GlmImageForConditionalGeneration(config)
    model.generation_config = transformers.GenerationConfig(eos_token_id=codes + 1, pad_token_id=ids["<|endoftext|>"])
    processor = transformers.GlmImageProcessor(images, tokenizer, chat_template=_GLM_TEMPLATE)
    _write(folder, model, processor, ("vision_language_encoder", "processor"))
    parts = {"vision_language_encoder": ["transformers", type(model).__name__]}
    parts["processor"] = ["transformers", type(processor).__name__]
    index = {"_class_name": "GlmImagePipeline", "_diffusers_version": "0.37.0", **parts}
    (folder / "model_index.json").write_text(json.dumps(index))
    return folder


WRITERS: dict[str, Callable[..., pathlib.Path]] = {
    "janus": write_janus,
    "emu3": write_emu3,
    "glm_image": write_glm_image,
}


def _tokenizer(
    vocabulary: Sequence[str],
    special: Sequence[str],
    *,
    names: dict[str, str],
    more: dict[str, str],
    starts_with: str | None = None,
) -> tuple[Any, dict[str, int]]:
    """A tokenizer with a token a byte, and its ids. ``names`` and ``more``: name -> token, without ``_token``."""
    ids = {token: number for number, token in enumerate(vocabulary)}
    tokenizer = tokenizers.Tokenizer(models.BPE(ids, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(special))
    if starts_with is not None:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{starts_with} $A", special_tokens=[(starts_with, ids[starts_with])]
        )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        extra_special_tokens={f"{name}_token": token for name, token in more.items()},
        **{f"{name}_token": token for name, token in names.items()},
    ), ids


def _ends(tokenizer: Any) -> dict[str, int]:
    return {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")}


def _write(folder: pathlib.Path, model: Any, processor: Any, parts: tuple[str, str] = ("", "")) -> pathlib.Path:
    """Random weights so large that texts and images matter, and biases that nothing may forget."""
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=random)
            if parameter.ndim > 1:
                # Vectors of the codebook are as small as those that Emu3's encoder makes.
                std = 0.15 if "quantize" in name else 1.2 * (1 if "embed" in name else parameter[0].numel() ** -0.5)
                parameter.copy_(std * noise)
            else:
                parameter += 0.1 * noise
    model.save_pretrained(folder / parts[0])
    processor.save_pretrained(folder / parts[1])
    return folder
