"""The token part of GLM-Image: it predicts the tokens from which a diffusion decoder makes the pixels."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from winobench.contrib.autoregressive import family
from winobench.torch_modules.bridge import torch

_PUBLISHED_SIZE = 1024
_PIXELS = 32
"""Pixels of a generated image for each token, along each side."""


@dataclasses.dataclass(frozen=True)
class GlmImage(family.Family):
    """The tokens of a small image come first, then the tokens of the image."""

    grids: tuple[int, int]  # tokens along a side of both
    patch: int

    MODEL = "GlmImageForConditionalGeneration"
    PROCESSOR = "GlmImageProcessor"
    SUBFOLDERS = ("vision_language_encoder", "processor")
    FLOAT32 = ("vqmodel", "visual")
    IMAGES = False

    @classmethod
    def read(cls, model: Any, processor: Any, image_size: int | None) -> Self:
        side, images = family.checked_size(image_size, _PUBLISHED_SIZE, _PIXELS), processor.image_processor
        grids = processor._get_target_shape(height=side, width=side)[2], side // _PIXELS
        patch, tokens = model.config.vision_config.patch_size, sum(grid * grid for grid in grids)
        # The head has some rows more than the codebook, from which the sampler may choose as well.
        sizes = model.config.text_config.vision_vocab_size, tokens, tokens
        sides = tuple(grid * patch for grid in grids)
        return cls(sides, tuple(images.image_mean), tuple(images.image_std), *sizes, grids, patch)

    def prompts(self, processor: Any, texts: Sequence[str]) -> list[list[int]]:
        turns = [[{"role": "user", "content": [{"type": "text", "text": text}]}] for text in texts]
        side = _PIXELS * self.grids[1]
        keywords = {"target_h": side, "target_w": side, "padding": True}
        encoded = processor.apply_chat_template(turns, tokenize=True, return_dict=True, processor_kwargs=keywords)
        rows = zip(encoded["input_ids"], encoded["attention_mask"], strict=True)
        return [[token for token, is_real in zip(ids, mask, strict=True) if is_real] for ids, mask in rows]

    def language_model(self, m: Any) -> Any:
        return m.model.language_model

    def image_codes(self, m: Any, *pixels: torch.Tensor) -> torch.Tensor:
        codes = []
        for images, grid in zip(pixels, self.grids, strict=True):
            states = self._seen(m.model.visual, images, grid).transpose(1, 2)[..., None]
            states = m.model.vqmodel.quant_conv(states)[..., 0].transpose(1, 2)
            codes.append(family.nearest_by_angle(states, m.model.vqmodel.quantize.embedding.weight))
        return torch.cat(codes, 1)

    def _seen(self, visual: Any, images: torch.Tensor, grid: int) -> torch.Tensor:
        """States [n, tokens, width] of the vision tower. Its own code depends on the values of its inputs."""
        functional = torch.nn.functional
        patches = functional.unfold(images, self.patch, stride=self.patch).transpose(1, 2)
        x = visual.patch_embed(patches.flatten(0, 1)).unflatten(0, patches.shape[:2])
        table = visual.embeddings.position_embedding.weight
        whole = int(len(table) ** 0.5)
        table = table.T.reshape(1, -1, whole, whole).float()
        x = x + functional.interpolate(table, (grid, grid), mode="bilinear").flatten(2).transpose(1, 2)
        for block in visual.blocks:
            own = block.attn
            heads = own.qkv(block.norm1(x)).unflatten(-1, (3, own.num_heads, -1)).permute(2, 0, 3, 1, 4)
            joined = functional.scaled_dot_product_attention(*heads, scale=own.scaling).transpose(1, 2).flatten(2)
            x = x + own.proj(joined)
            x = x + block.mlp(block.norm2(x))
        return x

    def embedded(self, m: Any, codes: torch.Tensor) -> torch.Tensor:
        return m.model.language_model.embed_tokens(codes)

    def positions(self, lengths: torch.Tensor, width: int) -> torch.Tensor:
        """Three numbers a token, [3, n, width]: time, height and width. All tokens of an image have one time."""
        parts, start = [], 0
        for grid in self.grids:
            rows, columns = np.divmod(np.arange(grid * grid), grid)
            parts.append(np.stack([np.full_like(rows, start), start + rows, start + columns]))
            start += grid
        after = torch.as_tensor(np.concatenate(parts, 1).astype(np.int32)).to(lengths.device)
        place = torch.arange(width, device=lengths.device)[None]
        index = (place - lengths[:, None]).clamp(0, after.shape[1] - 1)
        return torch.where(place < lengths[:, None], place, lengths[:, None] + after[:, index])

    def last_layer(self, m: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
        return m.lm_head.weight, None
