"""Published sizes of the vision-language models that have a short name: enough to plan with, without a file."""

from __future__ import annotations

import dataclasses
from typing import Any

from winobench.models import released
from winobench.models.blip_2_config import (
    Blip2Config,
    Blip2QFormerConfig,
    InstructBlipConfig,
    InstructBlipQFormerConfig,
)
from winobench.models.config import NetworkConfig
from winobench.models.llava import LlavaConfig
from winobench.models.opt_config import OPTConfig
from winobench.models.qwen2_5_vl_config import Qwen25VLConfig, Qwen25VLTextConfig, Qwen25VLVisionConfig
from winobench.models.qwen3_vl_config import Qwen3VLConfig, Qwen3VLTextConfig, Qwen3VLVisionConfig
from winobench.models.t5_config import T5Config

# One more than BERT's: [DEC], which the Q-Former's texts were trained with.
_QFORMER_TOKENS = 30523
# Behind FLAN-T5's own tokens, in files of 2025 and after.
_IMAGE_TOKEN_OF_T5 = 32100


def vision_language_config(name: str) -> NetworkConfig | None:
    """The config of a name in `winobench.base.registry.MODELS` that is scored by VQAScore; None for other names."""
    return _MODELS.get(name)


def _flan_t5_xl() -> T5Config:
    return dataclasses.replace(released.language_model("flan-t5-xl"), dense_act_fn="gelu")


def _blip2_opt(width: int) -> Blip2Config:
    # A new line ends an answer. Behind OPT's own tokens is the image's.
    text = OPTConfig(
        vocab_size=50304,
        hidden_size=width,
        ffn_dim=4 * width,
        num_hidden_layers=32,
        num_attention_heads=32,
        eos_token_id=50118,
    )
    return Blip2Config(text_config=text, qformer_config=Blip2QFormerConfig(), image_token_index=50265)


def _qwen3_vl(language: str, vision: Qwen3VLVisionConfig) -> Qwen3VLConfig:
    same = released.language_model(language)
    values = {field.name: getattr(same, field.name) for field in dataclasses.fields(same)}
    text = Qwen3VLTextConfig(**values | {"max_position_embeddings": 262144, "rope_theta": 5e6})
    return Qwen3VLConfig(dataclasses.replace(vision, out_hidden_size=text.hidden_size), text)


def _qwen2_5_vl(width: int, inner: int, layers: int, heads: int, key_heads: int, **options: Any) -> Qwen25VLConfig:
    inner_of_vision = options.pop("inner_of_vision", 3420)
    text = Qwen25VLTextConfig(
        **{
            "vocab_size": 152064,
            "hidden_size": width,
            "intermediate_size": inner,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": key_heads,
            "max_position_embeddings": 128000,
            "rope_theta": 1e6,
        }
        | options
    )
    return Qwen25VLConfig(
        Qwen25VLVisionConfig(hidden_size=1280, intermediate_size=inner_of_vision, out_hidden_size=width), text
    )


_VIT_LARGE = Qwen3VLVisionConfig(
    depth=24, hidden_size=1024, intermediate_size=4096, deepstack_visual_indexes=(5, 11, 17)
)
_VIT_SO400M = Qwen3VLVisionConfig()

_MODELS: dict[str, NetworkConfig] = {
    "blip2-opt-2.7b": _blip2_opt(2560),
    "blip2-opt-6.7b": _blip2_opt(4096),
    "instructblip-flan-t5-xl": InstructBlipConfig(
        text_config=_flan_t5_xl(),
        qformer_config=InstructBlipQFormerConfig(vocab_size=_QFORMER_TOKENS),
        image_token_index=_IMAGE_TOKEN_OF_T5,
    ),
    "blip2-flan-t5-xl": Blip2Config(
        text_config=_flan_t5_xl(), qformer_config=Blip2QFormerConfig(), image_token_index=_IMAGE_TOKEN_OF_T5
    ),
    "llava-1.5-7b": LlavaConfig(text_config=released.language_model("llava-1.5-7b")),
    "llava-1.5-13b": LlavaConfig(text_config=released.language_model("llava-1.5-13b")),
    "qwen2.5-vl-3b": _qwen2_5_vl(2048, 11008, 36, 16, 2, vocab_size=151936, tie_word_embeddings=True),
    "qwen2.5-vl-7b": _qwen2_5_vl(3584, 18944, 28, 28, 4),
    "qwen2.5-vl-32b": _qwen2_5_vl(5120, 27648, 64, 40, 8, inner_of_vision=3456),
    "qwen2.5-vl-72b": _qwen2_5_vl(8192, 29568, 80, 64, 8, inner_of_vision=3456),
    "qwen3-vl-2b": _qwen3_vl("qwen3-1.7b", _VIT_LARGE),
    "qwen3-vl-4b": _qwen3_vl("qwen3-4b", _VIT_LARGE),
    "qwen3-vl-8b": _qwen3_vl("qwen3-8b", _VIT_SO400M),
}
