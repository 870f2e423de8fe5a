"""The whole of CLIP (Radford et al., 2021): a text tower and a vision tower with a joint space."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
from flax import nnx

from winobench.models import base, clip
from winobench.models.base import KeyTable, Network, linear
from winobench.models.clip import CLIPTextConfig, CLIPTextTransformer
from winobench.models.clip_resnet import CLIPResNetConfig, ModifiedResNet
from winobench.models.clip_vision import CLIPVisionConfig, CLIPVisionTransformer
from winobench.models.config import NetworkConfig

# ln(1 / 0.07), as rounded in the published configs: where the temperature of training starts.
_LOGIT_SCALE = 2.6592


@dataclasses.dataclass(frozen=True)
class CLIPConfig(NetworkConfig):
    """Shape of both towers, with the names and defaults of the published ``config.json``."""

    text_config: CLIPTextConfig = dataclasses.field(default_factory=CLIPTextConfig)
    vision_config: CLIPVisionConfig | CLIPResNetConfig = dataclasses.field(default_factory=CLIPVisionConfig)
    projection_dim: int = 512
    logit_scale_init_value: float = _LOGIT_SCALE  # logarithm of the inverse temperature

    _class_key: ClassVar = "model_type"
    _class_value: ClassVar = "clip"
    architecture: ClassVar = "CLIPModel"
    _no_effect: ClassVar = clip.IDLE_OPTIONS

    def __post_init__(self):
        self._require_counts()
        self._require_number("logit_scale_init_value")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """See `NetworkConfig`. Where old files hold a part twice, ``text_config_dict`` counts, as in transformers."""
        if isinstance(values, Mapping):
            values = dict(values)
            for key, tower in (("text_config", CLIPTextConfig), ("vision_config", CLIPVisionConfig)):
                duplicate = values.pop(f"{key}_dict", None)
                options = duplicate if duplicate is not None else values.get(key)
                if options is None:
                    options = {}
                if key == "vision_config" and isinstance(options, Mapping):
                    named = options.get(CLIPResNetConfig._class_key)
                    tower = CLIPResNetConfig if named == CLIPResNetConfig._class_value else tower
                values[key] = tower.from_dict(options)
        return super().from_dict(values)


class CLIPModel(Network):
    """Texts and images as vectors of one space. Attribute names equal the names in transformers' published weights.

    A modified ResNet, which transformers does not have, sits under ``vision_model`` with OpenAI's and OpenCLIP's names
    below it (theirs has ``visual``), and projects by itself, without ``visual_projection``.
    """

    config_class: ClassVar = CLIPConfig
    weights_name: ClassVar[str] = "model"
    file_keys: ClassVar = KeyTable(
        ignored=(
            r"(text|vision)_model\.embeddings\.position_ids",  # 0, 1, 2, ...: buffers of transformers before 4.31
            r"vision_model\..*\.num_batches_tracked",  # of batch norms: how long training took
        )
    )

    def build(self, config: CLIPConfig, **kwargs: Any) -> None:
        width = config.projection_dim
        self.text_model = CLIPTextTransformer(config.text_config, **kwargs)
        self.text_projection = linear(config.text_config.hidden_size, width, bias=False, **kwargs)
        if isinstance(config.vision_config, CLIPResNetConfig):
            self.vision_model = ModifiedResNet(config.vision_config, width, **kwargs)
            self.visual_projection = None
        else:
            self.vision_model = CLIPVisionTransformer(config.vision_config, **kwargs)
            self.visual_projection = linear(config.vision_config.hidden_size, width, bias=False, **kwargs)
        self.logit_scale = nnx.Param(jnp.asarray(config.logit_scale_init_value, kwargs["param_dtype"]))

    def encode_images(self, pixels: jax.Array) -> jax.Array:
        """Normalised images [B, image_size, image_size, 3] as vectors, not normalised: [B, projection_dim]."""
        base.check_pixels(self, pixels, self.config.vision_config.image_size)
        pooled = self.vision_model(pixels.astype(self.dtype))
        return pooled if self.visual_projection is None else self.visual_projection(pooled)

    def encode_texts(self, input_ids: jax.Array) -> jax.Array:
        """Texts [B, L] as vectors, not normalised: [B, projection_dim] in the compute dtype. Padding has no effect."""
        return self.text_projection(clip.encode(self.text_model, self.config.text_config, input_ids).pooled)

    def __call__(self, pixels: jax.Array, input_ids: jax.Array) -> jax.Array:
        """The logits of training: cosine similarities over the temperature, float32 [images, texts]."""
        images, texts = unit(self.encode_images(pixels)), unit(self.encode_texts(input_ids))
        return jnp.exp(self.logit_scale[...].astype(jnp.float32)) * images @ texts.T


def unit(vectors: jax.Array) -> jax.Array:
    """Vectors [..., d] divided by their length, float32."""
    vectors = vectors.astype(jnp.float32)
    return vectors / jnp.linalg.norm(vectors, axis=-1, keepdims=True)
