"""Janus (Wu et al., 2410.13848) and Janus-Pro (Chen et al., 2501.17811)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Self

from winobench.base.errors import InputError
from winobench.contrib.autoregressive import family
from winobench.torch_modules.bridge import torch


@dataclasses.dataclass(frozen=True)
class Janus(family.Family):
    """The image follows ``<|User|>: TEXT``. Without a text, all tokens but the first and the last are padding."""

    bos: int
    boi: int
    pad: int

    MODEL = "JanusForConditionalGeneration"
    PROCESSOR = "JanusProcessor"
    GUIDANCE = 5.0

    @classmethod
    def read(cls, model: Any, processor: Any, image_size: int | None) -> Self:
        side, vq = model.config.vision_config.image_size, model.config.vq_config
        if image_size not in (None, side):
            message = f"image_size is {image_size}, but this model generates images of {side} pixels: leave it out"
            raise InputError(message, code="unsupported-option")
        shrinks = 2 ** (len(vq.channel_multiplier) - 1)
        if side % (multiple := math.lcm(shrinks, model.config.vision_config.patch_size)):
            message = f"vision_config.image_size of this Janus is {side}, but must be a multiple of {multiple}: mend it"
            raise InputError(message, code="not-a-multiple")
        width = model.config.text_config.hidden_size
        for name in ("projection_dim", "image_token_embed_dim"):
            if (size := getattr(vq, name)) != width:
                message = (
                    f"vq_config.{name} of this Janus is {size}, but its decoder has states of {width}: mend config.json"
                )
                raise InputError(message, code="mismatched-parts")
        # As generation has it. The processor's own mean and size are for images in questions.
        tokenizer = processor.tokenizer
        ids = tokenizer.bos_token_id, tokenizer.convert_tokens_to_ids(tokenizer.boi_token), tokenizer.pad_token_id
        if None in ids:
            message = "the tokenizer of this Janus must have a bos_token, a boi_token and a pad_token: get it again"
            raise InputError(message, code="unsupported-checkpoint")
        tokens = (side // shrinks) ** 2
        return cls((side,), (0.5,) * 3, (0.5,) * 3, vq.num_embeddings, tokens, tokens, *ids)

    def prompts(self, processor: Any, texts: Sequence[str]) -> list[list[int]]:
        turns = [[{"role": "user", "content": [{"type": "text", "text": text}]}] for text in texts]
        prompts = processor.apply_chat_template(turns, add_generation_prompt=True)
        return processor(text=prompts, generation_mode="image", return_tensors=None, padding=False)["input_ids"]

    def unconditional(self, processor: Any, prompt: list[int]) -> list[int]:
        return [token if token in (self.bos, self.boi) else self.pad for token in prompt]

    def language_model(self, m: Any) -> Any:
        return m.model.language_model

    def image_codes(self, m: Any, *pixels: torch.Tensor) -> torch.Tensor:
        # The published tokenizer compares angles, as transformers' decoder does. transformers' ``encode`` compares
        # distances, and finds other codes.
        vq = m.model.vqmodel
        states = vq.quant_conv(vq.encoder(*pixels)).flatten(2).transpose(1, 2)
        return family.nearest_by_angle(states, vq.quantize.embedding.weight)

    def embedded(self, m: Any, codes: torch.Tensor) -> torch.Tensor:
        return m.model.generation_aligner(m.model.generation_embeddings(codes))

    def before_head(self, m: Any, states: torch.Tensor) -> torch.Tensor:
        head = m.model.generation_head
        return head.activation_fn(head.proj_out(states))

    def last_layer(self, m: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
        head = m.model.generation_head.vision_head
        return head.weight, head.bias

    def pixels(self, m: Any, codes: torch.Tensor) -> torch.Tensor:
        return m.model.vqmodel.decode(codes)
