"""Published sizes of the language models that see and have a short name: enough to plan with, without a file."""

from __future__ import annotations

import dataclasses

from winobench.models import released
from winobench.models.blip_2_config import (
    Blip2Config,
    Blip2QFormerConfig,
    InstructBlipConfig,
    InstructBlipQFormerConfig,
)
from winobench.models.config import NetworkConfig
from winobench.models.llava import LlavaConfig
from winobench.models.t5_config import T5Config

# One more than BERT's: [DEC], which the Q-Former's texts were trained with.
_QFORMER_TOKENS = 30523
# Behind FLAN-T5's own tokens, in files of 2025 and after.
_IMAGE_TOKEN_OF_T5 = 32100


def vision_language_config(name: str) -> NetworkConfig | None:
    """The config of a name in `winobench.registry.MODELS` that is scored by VQAScore; None for other names."""
    return _MODELS.get(name)


def _flan_t5_xl() -> T5Config:
    return dataclasses.replace(released.language_model("flan-t5-xl"), dense_act_fn="gelu")


_MODELS: dict[str, NetworkConfig] = {
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
}
