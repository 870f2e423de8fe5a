"""The config of FLUX.1's transformer, and its released sizes."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Self

from winobench.models.config import NetworkConfig, is_count


class PackedTransformerConfig(NetworkConfig):
    """Config of FLUX.1 and FLUX.2: latents come as patches of 2 x 2, positions have several axes."""

    _axes: ClassVar[int]

    def _check_common(self) -> None:
        self._require_bool("guidance_embeds")
        self._require(self.patch_size == 1, "patch_size", "1")
        self._require(self.in_channels % 4 == 0, "in_channels", "four times the channels of the latents")
        same = self.out_channels in (None, self.in_channels)
        self._require(same, "out_channels", f"null or in_channels={self.in_channels}")
        sizes = self.axes_dims_rope
        self._require(
            isinstance(sizes, tuple)
            and len(sizes) == self._axes
            and all(is_count(size) and size % 2 == 0 for size in sizes)
            and sum(sizes) == self.attention_head_dim,
            "axes_dims_rope",
            f"{self._axes} even numbers that add up to attention_head_dim={self.attention_head_dim}",
        )

    @property
    def latent_channels(self) -> int:
        """Channels of the latents."""
        return self.in_channels // 4

    @property
    def width(self) -> int:
        """Width of the streams."""
        return self.num_attention_heads * self.attention_head_dim

    @property
    def width_per_position(self) -> int:
        """Numbers of the first layer's result for each position of the latents, of which a patch has four."""
        return self.width // 4

    @property
    def block_counts(self) -> tuple[int, ...]:
        """Blocks with two streams, and with one."""
        return self.num_layers, self.num_single_layers

    def with_block_counts(self, double: int, single: int) -> Self:
        """The same with other numbers of blocks of each kind."""
        return dataclasses.replace(self, num_layers=double, num_single_layers=single)


@dataclasses.dataclass(frozen=True)
class FluxTransformerConfig(PackedTransformerConfig):
    """Shape of the transformer, with the names and defaults of the published ``config.json``."""

    patch_size: int = 1  # latents are patches of 2 x 2 already when they enter
    in_channels: int = 64  # four times the latents'
    out_channels: int | None = None  # None for in_channels
    num_layers: int = 19  # with one stream for the image and one for the text
    num_single_layers: int = 38  # with one stream for both
    attention_head_dim: int = 128
    num_attention_heads: int = 24
    joint_attention_dim: int = 4096
    pooled_projection_dim: int = 768
    guidance_embeds: bool = False
    axes_dims_rope: tuple[int, ...] = (
        16,
        56,
        56,
    )  # features that the (idle) first position, the row and the column turn

    _class_value: ClassVar = "FluxTransformer2DModel"
    _axes: ClassVar = 3

    def __post_init__(self):
        self._require_counts()
        self._check_common()

    @classmethod
    def dev(cls) -> Self:
        """FLUX.1-dev, distilled from guidance: ``transformer/config.json`` of ``black-forest-labs/FLUX.1-dev``."""
        return cls(guidance_embeds=True)

    @classmethod
    def schnell(cls) -> Self:
        """FLUX.1-schnell, distilled to one to four steps: ``black-forest-labs/FLUX.1-schnell``."""
        return cls()
