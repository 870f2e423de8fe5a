"""The parts of a generator that its family decides: prompts, tokens of images, and where logits come from."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np

from winobench.base.errors import InputError
from winobench.torch_modules.bridge import torch


@dataclasses.dataclass(frozen=True)
class Family(abc.ABC):
    """A generator's layout. Hashable: programs of equal layouts are shared.

    Methods with the model ``m`` of transformers work on tensors, also in a trace. The sequence of an image holds all
    tokens that the model generates for it. Its codes are the scored ones.

    Attributes:
      sides: height and width of a prepared image in pixels, for each size that the model reads.
      mean, std: of prepared images, of values in [0, 1].
      codes: entries of the head, one for each code that the sampler may choose.
      scored: codes of an image.
      length: tokens of an image's sequence.
    """

    sides: tuple[int, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    codes: int
    scored: int
    length: int

    MODEL: ClassVar[str]
    """The class of transformers."""
    PROCESSOR: ClassVar[str]
    SUBFOLDERS: ClassVar[tuple[str, str]] = ("", "")
    """Of the model and of the processor."""
    NEEDS: ClassVar[tuple[str, ...]] = ()
    """Entries of config.json without which transformers makes no model."""
    FLOAT32: ClassVar[tuple[str, ...]] = ("vqmodel",)
    """Modules that make tokens of images. A rounded vector may have another code."""
    IMAGES: ClassVar[bool] = True
    """Whether the model has a decoder that makes images of codes."""
    GUIDANCE: ClassVar[float] = 1.0
    TOP_K: ClassVar[int | None] = None
    """The published guidance of generation, and how many of the most likely codes it samples from. All when None."""
    NEGATIVE: ClassVar[str | None] = None
    """The published text from which generation leads away. None for models that have no such text."""

    @classmethod
    @abc.abstractmethod
    def read(cls, model: Any, processor: Any, image_size: int | None) -> Self:
        """The layout of a model, which may be on the meta device. ``image_size``: pixels of generated images."""

    @abc.abstractmethod
    def prompts(self, processor: Any, texts: Sequence[str]) -> list[list[int]]:
        """Token ids up to the token that starts an image."""

    def unconditional(self, processor: Any, prompt: list[int]) -> list[int]:
        """The prompt without a text, which training and guidance use."""
        return self.prompts(processor, [""])[0]

    @abc.abstractmethod
    def language_model(self, m: Any) -> Any:
        """The decoder: embeddings in, states out."""

    @abc.abstractmethod
    def image_codes(self, m: Any, *pixels: torch.Tensor) -> torch.Tensor:
        """Prepared images [n, 3, side, side], one tensor for each of ``sides`` -> codes [n, scored]."""

    @abc.abstractmethod
    def embedded(self, m: Any, codes: torch.Tensor) -> torch.Tensor:
        """Codes [n, scored] -> embeddings of their sequence [n, length, width]."""

    def embedded_next(self, m: Any, codes: torch.Tensor, is_scored: torch.Tensor) -> torch.Tensor:
        """Codes [n] -> embeddings [n, 1, width] of one token. Where not ``is_scored``, of the token that is forced."""
        return self.embedded(m, codes[:, None])

    def scored_places(self) -> np.ndarray:
        """Places of the codes in the sequence, int [scored]."""
        return np.arange(self.scored)

    def positions(self, lengths: torch.Tensor, width: int) -> torch.Tensor:
        """Position ids of rows whose image follows a prompt of these lengths [n]."""
        return torch.arange(width, device=lengths.device)[None]

    def before_head(self, m: Any, states: torch.Tensor) -> torch.Tensor:
        return states

    @abc.abstractmethod
    def last_layer(self, m: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Weight [codes, width] and bias of the layer that gives the logits of codes."""

    def pixels(self, m: Any, codes: torch.Tensor) -> torch.Tensor:
        """Codes [n, scored] -> images [n, 3, side, side], normalised by ``mean`` and ``std``."""
        raise NotImplementedError


def checked_size(image_size: int | None, usual: int, multiple: int) -> int:
    """The pixels of a side, which may be any multiple of a number."""
    if image_size is None:
        return usual
    if image_size <= 0 or image_size % multiple:
        message = f"image_size is {image_size}, but this model needs a multiple of {multiple}"
        raise InputError(message, code="not-a-multiple")
    return image_size


def nearest_by_angle(states: torch.Tensor, codebook: torch.Tensor) -> torch.Tensor:
    """Vectors [n, codes, width] -> the entry of the codebook at the smallest angle to each."""
    normalize = torch.nn.functional.normalize
    return torch.argmax(normalize(states, dim=-1) @ normalize(codebook, dim=-1).T, dim=-1)
