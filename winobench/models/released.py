"""Published sizes of the language models that have a short name: enough to plan with, without a file of theirs."""

from __future__ import annotations

import dataclasses
from typing import Any

from winobench.models.decoder_config import DecoderConfig, RopeScaling
from winobench.models.t5 import T5Config


def language_model(name: str) -> DecoderConfig | T5Config | None:
    """The config of a name in `winobench.base.registry.LANGUAGE_MODELS`; None for other names."""
    return _MODELS.get(name)


def _flan_t5(width: int, head: int, inner: int, layers: int, heads: int) -> T5Config:
    return T5Config(
        vocab_size=32128,
        d_model=width,
        d_kv=head,
        d_ff=inner,
        num_layers=layers,
        num_heads=heads,
        feed_forward_proj="gated-gelu",
        tie_word_embeddings=False,
    )


def _llama(width: int, inner: int, layers: int, heads: int, **options: Any) -> DecoderConfig:
    return DecoderConfig(
        **{
            "hidden_size": width,
            "intermediate_size": inner,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "max_position_embeddings": 4096,
            "rms_norm_eps": 1e-5,
        }
        | options
    )


def _llama3(width: int, inner: int, layers: int, factor: float, **options: Any) -> DecoderConfig:
    return _llama(
        width,
        inner,
        layers,
        32,
        num_key_value_heads=8,
        vocab_size=128256,
        max_position_embeddings=131072,
        rope_theta=500000.0,
        rope_scaling=RopeScaling("llama3", factor, 1.0, 4.0, 8192),
        bos_token_id=128000,
        eos_token_id=(128001, 128008, 128009),
        **options,
    )


def _qwen3(width: int, inner: int, layers: int, heads: int, *, tied: bool) -> DecoderConfig:
    return DecoderConfig(
        model_type="qwen3",
        vocab_size=151936,
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=40960,
        rope_theta=1e6,
        tie_word_embeddings=tied,
        bos_token_id=151643,
        eos_token_id=151645,
    )


_LLAMA_7B, _LLAMA_13B = _llama(4096, 11008, 32, 32), _llama(5120, 13824, 40, 40)
_MODELS: dict[str, DecoderConfig | T5Config] = {
    "flan-t5-small": _flan_t5(512, 64, 1024, 8, 6),
    "flan-t5-base": _flan_t5(768, 64, 2048, 12, 12),
    "flan-t5-large": _flan_t5(1024, 64, 2816, 24, 16),
    "flan-t5-xl": _flan_t5(2048, 64, 5120, 24, 32),
    "flan-t5-xxl": _flan_t5(4096, 64, 10240, 24, 64),
    "llama2-7b-chat": _LLAMA_7B,
    "llama2-13b": _LLAMA_13B,
    "llama2-13b-chat": _LLAMA_13B,
    "llama3.1-8b": _llama3(4096, 14336, 32, 8.0),
    "llama3.2-1b": _llama3(2048, 8192, 16, 32.0, tie_word_embeddings=True),
    "llava-1.5-7b": dataclasses.replace(_LLAMA_7B, vocab_size=32064),
    "llava-1.5-13b": dataclasses.replace(_LLAMA_13B, vocab_size=32064),
    "qwen3-0.6b": _qwen3(1024, 3072, 28, 16, tied=True),
    "qwen3-1.7b": _qwen3(2048, 6144, 28, 16, tied=True),
    "qwen3-4b": _qwen3(2560, 9728, 36, 32, tied=True),
    "qwen3-8b": _qwen3(4096, 12288, 36, 32, tied=False),
    "qwen3-14b": _qwen3(5120, 17408, 40, 40, tied=False),
}
