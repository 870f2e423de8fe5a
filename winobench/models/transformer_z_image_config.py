"""The config of Z-Image's transformer, and its released size."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Self

from winobench.models.config import NetworkConfig, is_count

PATCH = 2
"""Latents along one side of a patch, which is one token."""
MULTIPLE = 32
"""Texts and images are filled up to a multiple of so many tokens, each by a learned one."""
_CONDITION = 256


@dataclasses.dataclass(frozen=True)
class ZImageTransformerConfig(NetworkConfig):
    """Shape of the transformer, with the names and defaults of the published ``config.json``.

    Attributes:
      all_patch_size: (2,), the kinds of patches that there are layers for, by their height and width.
      all_f_patch_size: (1,), by their number of images.
      in_channels: channels of the latents.
      dim: width of the stream.
      n_layers: blocks that image and text go through together.
      n_refiner_layers: blocks before these, for the image alone, and for the text alone.
      n_heads: number of heads.
      n_kv_heads: the same.
      norm_eps: epsilon of the root-mean-square norms, but for those of queries and keys.
      qk_norm: queries and keys are normed.
      cap_feat_dim: width of the text states.
      rope_theta: base of the rotations' wavelengths.
      t_scale: the time, from 0 to 1, is multiplied by it.
      axes_dims: features of a head that the place in the text, the row and the column turn.
      axes_lens: how many places, rows and columns there are at most. The image takes the place behind its text.
    """

    all_patch_size: tuple[int, ...] = (PATCH,)
    all_f_patch_size: tuple[int, ...] = (1,)
    in_channels: int = 16
    dim: int = 3840
    n_layers: int = 30
    n_refiner_layers: int = 2
    n_heads: int = 30
    n_kv_heads: int = 30
    norm_eps: float = 1e-5
    qk_norm: bool = True
    cap_feat_dim: int = 2560
    rope_theta: float = 256.0
    t_scale: float = 1000.0
    axes_dims: tuple[int, ...] = (32, 48, 48)
    axes_lens: tuple[int, ...] = (1024, 512, 512)

    _class_value: ClassVar = "ZImageTransformer2DModel"
    # States of images next to those of texts, which the models for editing take.
    _only: ClassVar = {"siglip_feat_dim": (None,)}
    sample_size: ClassVar = None
    """The config does not tell how large images are. The autoencoder's does."""

    def __post_init__(self):
        self._require_positive("in_channels", "dim", "n_layers", "n_refiner_layers", "n_heads", "cap_feat_dim")
        self._require(self.all_patch_size == (PATCH,), "all_patch_size", f"[{PATCH}]")
        self._require(self.all_f_patch_size == (1,), "all_f_patch_size", "[1]")
        self._require(self.dim % self.n_heads == 0, "n_heads", f"a divisor of dim={self.dim}")
        self._require(self.n_kv_heads == self.n_heads, "n_kv_heads", f"n_heads={self.n_heads}")
        self._require_bool("qk_norm")
        self._require_epsilon("norm_eps")
        self._require_number("rope_theta", low=1, high=1e9)
        self._require_number("t_scale")
        sizes, lengths = self.axes_dims, self.axes_lens
        self._require(
            isinstance(sizes, tuple)
            and len(sizes) == 3
            and all(is_count(size) and size % 2 == 0 for size in sizes)
            and sum(sizes) == self.head_dim,
            "axes_dims",
            f"three even numbers that add up to dim / n_heads={self.head_dim}",
        )
        self._require(
            isinstance(lengths, tuple) and len(lengths) == 3 and all(map(is_count, lengths)),
            "axes_lens",
            "three positive whole numbers",
        )

    @classmethod
    def z_image(cls) -> Self:
        """Z-Image and Z-Image-Turbo: ``transformer/config.json`` of ``Tongyi-MAI/Z-Image-Turbo``."""
        return cls()

    @property
    def block_counts(self) -> tuple[int, ...]:
        """How many blocks image and text go through together. The few before these are part of any network."""
        return (self.n_layers,)

    def with_block_counts(self, joint: int) -> Self:
        """The same network with another number of blocks."""
        return dataclasses.replace(self, n_layers=joint)

    @property
    def head_dim(self) -> int:
        """Width of a head."""
        return self.dim // self.n_heads

    @property
    def inner_width(self) -> int:
        """Width within the feed-forward layers."""
        return int(self.dim / 3 * 8)

    @property
    def condition_width(self) -> int:
        """Width of what the time becomes."""
        return min(self.dim, _CONDITION)

    @property
    def width_per_position(self) -> int:
        """Numbers of the first layer's result for each position of the latents, of which a patch has four."""
        return self.dim // PATCH**2
