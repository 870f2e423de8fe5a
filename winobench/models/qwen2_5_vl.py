"""Qwen2.5-VL (Bai et al., 2025, arXiv:2502.13923) in the layout of transformers.

As `winobench.models.qwen3_vl`, with another vision tower and a Qwen2 as the language model. No states of the tower's
layers are added to the decoder's layers. Time, rows and columns turn pairs of heads that follow each other.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from winobench.models.base import KeyTable
from winobench.models.decoder import Decoder
from winobench.models.qwen2_5_vl_config import Qwen25VLConfig
from winobench.models.qwen2_5_vl_vision import Qwen25VLVisionModel
from winobench.models.qwen3_vl import Qwen3VLForConditionalGeneration
from winobench.models.vision_language import PromptForm

# The checkpoints' chat template begins with it.
_SYSTEM = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
_FORM = Qwen3VLForConditionalGeneration.form


class Qwen25VLForConditionalGeneration(Qwen3VLForConditionalGeneration):
    """Vision tower and language model. Attribute names equal the published ones, but for the merger's."""

    config_class: ClassVar = Qwen25VLConfig
    # t2v_metrics asks both families the same.
    form: ClassVar[PromptForm] = dataclasses.replace(
        _FORM, question=_SYSTEM + _FORM.question, template=_SYSTEM + _FORM.template
    )
    file_keys: ClassVar = KeyTable(
        renames=(
            (r"model\.(visual|language_model)\.", r"\1."),
            (r"model\.", r"language_model."),  # before transformers 4.52
            (r"lm_head\.", r"language_model.lm_head."),
            (r"visual\.merger\.ln_q\.", r"visual.merger.norm."),
            (r"visual\.merger\.mlp\.0\.", r"visual.merger.linear_fc1."),
            (r"visual\.merger\.mlp\.2\.", r"visual.merger.linear_fc2."),
        )
    )

    def build(self, config: Qwen25VLConfig, *, int8: bool = False, **kwargs: Any) -> None:
        self.visual = Qwen25VLVisionModel(config.vision_config, **kwargs)
        self.language_model = Decoder(config.text_config, int8=int8, **kwargs)
