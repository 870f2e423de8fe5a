"""The config of FLUX.2's transformer, and the released sizes of klein."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Self

from winobench.models.transformer_flux_config import PackedTransformerConfig


@dataclasses.dataclass(frozen=True)
class Flux2TransformerConfig(PackedTransformerConfig):
    """Shape of the transformer, with the names and defaults of the published ``config.json``."""

    patch_size: int = 1  # latents are patches of 2 x 2 already when they enter
    in_channels: int = 128  # four times the latents'
    out_channels: int | None = None  # None for in_channels
    num_layers: int = 8  # with one stream for the image and one for the text
    num_single_layers: int = 48  # with one stream for both
    attention_head_dim: int = 128
    num_attention_heads: int = 48
    joint_attention_dim: int = 15360
    timestep_guidance_channels: int = 256  # features of the sinusoidal embeddings
    mlp_ratio: float = 3.0
    axes_dims_rope: tuple[int, ...] = (
        32,
        32,
        32,
        32,
    )  # features that the image's number, the row, the column and the place in the text turn
    rope_theta: float = 2000
    eps: float = 1e-6
    guidance_embeds: bool = True

    _class_value: ClassVar = "Flux2Transformer2DModel"
    _axes: ClassVar = 4

    def __post_init__(self):
        self._require_counts()
        self._require_number("mlp_ratio", low=0.01, high=100)
        self._require_number("rope_theta", low=1, high=1e9)
        self._require_epsilon("eps")
        self._check_common()
        self._require(self.inner_width > 0, "mlp_ratio", f"a number that leaves some of {self.width} features")

    @classmethod
    def klein_4b(cls) -> Self:
        """FLUX.2-klein-4B and its base.

        The numbers are the ones in ``klein-4b`` in diffusers' ``scripts/convert_flux2_to_diffusers.py``. The text
        states are three layers of Qwen3-4B, 2560 wide each.
        """
        return cls(
            num_layers=5, num_single_layers=20, num_attention_heads=24, joint_attention_dim=7680, guidance_embeds=False
        )

    @classmethod
    def klein_9b(cls) -> Self:
        """FLUX.2-klein-9B and its base: ``klein-9b`` of the same script. Three layers of Qwen3-8B, 4096 wide each."""
        return cls(
            num_layers=8, num_single_layers=24, num_attention_heads=32, joint_attention_dim=12288, guidance_embeds=False
        )

    @property
    def inner_width(self) -> int:
        """Width within the feed-forward layers."""
        return int(self.width * self.mlp_ratio)
