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
from winobench.models.vision_language import PromptForm, VisionLanguageNetwork

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
        next_turn="<|im_end|>\n<|im_start|>user\n",
        names_image=True,
        image_token="<|image_pad|>",
        tokens=("<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>"),
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
        states, deep = self.visual(pixels)
        squares = pixels.grid // self.config.vision_config.spatial_merge_size
        own = jnp.prod(squares, axis=1)
        axes = np.asarray(self.config.text_config.axes)
        cache = vision_language.read_images(
            self.language_model,
            states,
            before,
            own,
            rotations=coordinates(squares, states.shape[1], len(before))[..., axes],
            additions=[jnp.pad(layer_states, ((0, 0), (len(before), 0), (0, 0))) for layer_states in deep],
        )
        # What follows an image is as far from its beginning as its longer side is long.
        return dataclasses.replace(cache, ahead=jnp.max(squares, axis=1) - own)

    def continue_from(
        self, prefix: Cache, input_ids: jax.Array, lengths: jax.Array, more: int
    ) -> tuple[jax.Array, Cache, jax.Array]:
        """See `VisionLanguageNetwork`. A question has a token at least."""
        return vision_language.continue_reading(self.language_model, prefix, input_ids, lengths, more)


def coordinates(squares: jax.Array, room: int, before: int) -> jax.Array:
    """Time, row and column of tokens before images and of images: int32 [B, before + slots, 3], anything for padding.

    ``squares``, int32 [B, 2], are rows and columns of images as the language model reads them.
    """
    rows, columns = qwen3_vl_vision.places(squares, room, 1)
    of_images = jnp.stack([jnp.zeros_like(rows), rows, columns], axis=-1) + before
    of_text = jnp.broadcast_to(jnp.arange(before)[:, None], (len(squares), before, 3))
    return jnp.concatenate([of_text, of_images], axis=1)
