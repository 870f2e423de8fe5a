"""Emu3 (Wang et al., 2409.18869)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from winobench.base.errors import InputError
from winobench.contrib.autoregressive import family
from winobench.torch_modules.bridge import torch

_PUBLISHED_SIZE = 720


@dataclasses.dataclass(frozen=True)
class Emu3(family.Family):
    """The image follows the text and its size in tokens. A token ends each row, which the sampler forces: no score."""

    rows: int
    first: int  # id of the first code among the tokens of the vocabulary. The others follow
    end_of_row: int

    MODEL = "Emu3ForConditionalGeneration"
    PROCESSOR = "Emu3Processor"
    NEEDS = ("vocabulary_map",)
    # Of the published demo, image_generation.py.
    GUIDANCE = 3.0
    TOP_K = 2048
    NEGATIVE = (
        "lowres, bad anatomy, bad hands, text, error, missing fingers, extra digit, fewer digits, cropped, worst"
        " quality, low quality, normal quality, jpeg artifacts, signature, watermark, username, blurry."
    )

    @classmethod
    def read(cls, model: Any, processor: Any, image_size: int | None) -> Self:
        mapping, images = model.model.vocabulary_mapping, processor.image_processor
        ids = [token for _, token in sorted(mapping.img2bpe.items())]
        codes, words = model.config.vq_config.codebook_size, model.config.text_config.vocab_size
        first = min(ids, default=0)
        if ids != list(range(first, first + codes)) or first + codes > words or mapping.eol_token_id is None:
            raise InputError(
                f"the vocabulary_map of this Emu3 must have {codes:,} image tokens, one after another below {words:,},"
                " and the token that ends a row: get its config.json again",
                code="unsupported-checkpoint",
            )
        factor = processor.downsample_ratio
        side = family.checked_size(image_size, _PUBLISHED_SIZE, factor)
        rows = side // factor
        sizes = codes, rows * rows, rows * (rows + 1)
        own = rows, first, mapping.eol_token_id
        return cls((side,), tuple(images.image_mean), tuple(images.image_std), *sizes, *own)

    def prompts(self, processor: Any, texts: Sequence[str]) -> list[list[int]]:
        size = {"ratio": "1:1", "image_area": self.sides[0] ** 2}
        keywords = {"return_for_image_generation": True, "return_tensors": None, "padding": False, **size}
        return processor(text=list(texts), **keywords)["input_ids"]

    def language_model(self, m: Any) -> Any:
        return m.model.text_model

    def image_codes(self, m: Any, *pixels: torch.Tensor) -> torch.Tensor:
        (images,) = pixels
        sizes = [self.sides * 2] * len(images)
        return torch.stack(m.model.vqmodel.encode(images, sizes, return_dict=True).image_tokens).flatten(1)

    def embedded(self, m: Any, codes: torch.Tensor) -> torch.Tensor:
        rows = codes.reshape(len(codes), self.rows, self.rows) + self.first
        ends = torch.full_like(rows[:, :, :1], self.end_of_row)
        return m.model.text_model.embed_tokens(torch.cat([rows, ends], -1).flatten(1))

    def embedded_next(self, m: Any, codes: torch.Tensor, is_scored: torch.Tensor) -> torch.Tensor:
        tokens = torch.where(is_scored, codes + self.first, self.end_of_row)
        return m.model.text_model.embed_tokens(tokens[:, None])

    def scored_places(self) -> np.ndarray:
        return np.arange(self.length).reshape(self.rows, -1)[:, :-1].ravel()

    def last_layer(self, m: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
        return m.lm_head.weight[self.first : self.first + self.codes], None

    def pixels(self, m: Any, codes: torch.Tensor) -> torch.Tensor:
        return m.model.vqmodel.decode(codes.unflatten(1, (self.rows, self.rows)))
