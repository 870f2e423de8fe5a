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
    """Shape of the transformer, with the names and defaults of the published ``config.json``."""

    all_patch_size: tuple[int, ...] = (PATCH,)  # height and width of the kinds of patches
    all_f_patch_size: tuple[int, ...] = (1,)  # their number of images
    in_channels: int = 16
    dim: int = 3840
    n_layers: int = 30  # blocks for image and text together
    n_refiner_layers: int = 2  # blocks before these, for each alone
    n_heads: int = 30
    n_kv_heads: int = 30
    norm_eps: float = 1e-5  # not of queries and keys
    qk_norm: bool = True
    cap_feat_dim: int = 2560
    rope_theta: float = 256.0
    t_scale: float = 1000.0  # factor of the time, from 0 to 1
    axes_dims: tuple[int, ...] = (32, 48, 48)  # features that the place in the text, the row and the column turn
    axes_lens: tuple[int, ...] = (
        1024,
        512,
        512,
    )  # most positions, rows and columns. The image is at the position behind its text

    _class_value: ClassVar = "ZImageTransformer2DModel"
    # States of images next to texts', which the models for editing take.
    _only: ClassVar = {"siglip_feat_dim": (None,)}
    sample_size: ClassVar = None  # in the autoencoder's config alone

    def __post_init__(self):
        self._require_counts()
        self._require(self.all_patch_size == (PATCH,), "all_patch_size", f"[{PATCH}]")
        self._require(self.all_f_patch_size == (1,), "all_f_patch_size", "[1]")
        self._require_divisor("n_heads", "dim")
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
        """Number of blocks that image and text go through together. The few before these are part of any network."""
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
