"""Qwen3-VL (Bai et al., 2025, arXiv:2511.21631), the dense sizes, in the layout of transformers.

A vision transformer encodes an image at its own size. A Qwen3 reads squares of 2 x 2 patches at ``<|image_pad|>``
in a text. States of some of the tower's layers are added to the states of the decoder's first layers at the same
positions. The decoder's rotations follow three coordinates, which of a text are its positions, and of an image
its time, rows and columns (interleaved M-RoPE).

As with LLaVA, the decoder reads a text's beginning and the image once, and what questions share of an image are its
keys and values: as many as the largest image has, of which a smaller one leaves the last ones empty.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from winobench.models import qwen3_vl_vision, vision_language
from winobench.models.base import KeyTable
from winobench.models.decoder import Decoder
from winobench.models.decoder_cache import Cache
from winobench.models.qwen3_vl_config import Qwen3VLConfig
from winobench.models.qwen3_vl_vision import Qwen3VLVisionModel
from winobench.models.vision_language import PromptForm, TurnsForm, VisionLanguageNetwork

if TYPE_CHECKING:
    from winobench.data.patches import Patches

# A conversation as the checkpoints' chat template writes it.
_BEFORE, _BEHIND = (
    "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>",
    "<|im_end|>\n<|im_start|>assistant\n",
)


class Qwen3VLForConditionalGeneration(VisionLanguageNetwork):
    """Vision tower and language model. Attribute names equal the names in the published weights."""

    config_class: ClassVar = Qwen3VLConfig
    image_processor: ClassVar[str] = "qwen2_vl"
    # Question and answer are from t2v_metrics, the published VQAScore, for Qwen3-VL. It scores the first token that
    # the model writes, which "Yes" is to these tokenizers. An answer of several tokens is scored by their mean here.
    form: ClassVar[PromptForm] = PromptForm(
        question=f'{_BEFORE}Does this figure show "{{}}"? Please answer Yes or No.{_BEHIND}',
        answer="Yes",
        opposite="No",
        text_tokens=512,
        template=f"{_BEFORE}{{}}{_BEHIND}",
        caption="Describe this image.",
        turns=TurnsForm("<|im_end|>\n<|im_start|>user\n", "<|im_start|>system\n{}<|im_end|>\n"),
        names_image=True,
        image_token="<|image_pad|>",
        tokens=("<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>"),
        between="<|vision_end|><|vision_start|>",
        scores_end=False,
    )
    # The head is part of the language model here.
    file_keys: ClassVar = KeyTable(
        renames=((r"model\.(visual|language_model)\.", r"\1."), (r"lm_head\.", r"language_model.lm_head."))
    )

    def build(self, config: Qwen3VLConfig, *, int8: bool = False, **kwargs: Any) -> None:
        self.visual = Qwen3VLVisionModel(config.vision_config, **kwargs)
        self.language_model = Decoder(config.text_config, int8=int8, **kwargs)

    def encode_image(self, pixels: Patches, before: tuple[int, ...] = ()) -> Cache:
        """See `VisionLanguageNetwork`."""
        return self.encode_images(jax.tree.map(lambda array: array[:, None], pixels), before, ())

    def encode_images(self, pixels: Patches, before: tuple[int, ...], between: tuple[int, ...]) -> Cache:
        """See `VisionLanguageNetwork`."""
        rows, count = pixels.grid.shape[:2]
        texts = [before, *[between] * (count - 1)]

        def images(states: jax.Array) -> list[jax.Array]:
            return list(jnp.moveaxis(states.reshape(rows, count, *states.shape[1:]), 1, 0))

        states, deep = self.visual(jax.tree.map(lambda array: array.reshape(-1, *array.shape[2:]), pixels))
        squares = pixels.grid // self.config.vision_config.spatial_merge_size
        places, own, ahead = coordinates(squares, states.shape[1], list(map(len, texts)))
        additions = []
        for layer in map(images, deep):
            padded = [jnp.pad(x, ((0, 0), (len(text), 0), (0, 0))) for text, x in zip(texts, layer, strict=True)]
            additions.append(jnp.concatenate(padded, axis=1))
        axes = np.asarray(self.config.text_config.axes)
        how = {"rotations": places[..., axes], "additions": additions}
        cache = vision_language.read_images(self.language_model, images(states), texts, own, **how)
        return dataclasses.replace(cache, ahead=ahead)

    def continue_from(
        self, prefix: Cache, input_ids: jax.Array, lengths: jax.Array, more: int
    ) -> tuple[jax.Array, Cache, jax.Array]:
        """See `VisionLanguageNetwork`. A question has a token at least."""
        return vision_language.continue_reading(self.language_model, prefix, input_ids, lengths, more)


def coordinates(squares: jax.Array, slots: int, texts: Sequence[int]) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Places of texts of some lengths, and of the image behind each text. An image has as many ``slots``.

    ``squares``, int32 [B, images, 2], are rows and columns of images as the language model reads them.

    Returns:
      Time, row and column, int32 [B, tokens, 3], anything for padding. Which are tokens, bool [B, tokens]. How
      far the next token is ahead of its position, int32 [B].
    """
    start = jnp.zeros((len(squares), 1), jnp.int32)
    places, own = [], []
    for number, length in enumerate(texts):
        of_text = start + jnp.arange(length)
        start = start + length
        rows, columns = qwen3_vl_vision.places(squares[:, number], slots, 1)
        of_image = jnp.stack([jnp.zeros_like(rows), rows, columns], axis=-1) + start[..., None]
        places += [jnp.broadcast_to(of_text[..., None], (*of_text.shape, 3)), of_image]
        is_own = jnp.arange(slots) < jnp.prod(squares[:, number], axis=1)[:, None]
        own += [jnp.ones(of_text.shape, bool), is_own]
        # What follows an image is as far from its beginning as its longer side is long.
        start = start + jnp.max(squares[:, number], axis=1, keepdims=True)
    is_token = jnp.concatenate(own, axis=1)
    return jnp.concatenate(places, axis=1), is_token, start[:, 0] - jnp.sum(is_token, axis=1, dtype=jnp.int32)
