"""The modified ResNet of CLIP (Radford et al., 2021, section 2.4): RN50, RN101, RN50x4, RN50x16 and RN50x64.

Three convolutions and an average pool stand where ResNet has one convolution and a maximum. Where ResNet's
convolutions stride, an average pool comes before one that does not, and attention pools the last feature map.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import nnx

from winobench.models import layers
from winobench.models.attention import dot_product_attention
from winobench.models.base import linear, parameter
from winobench.models.config import NetworkConfig, is_count

# Channels that leave a block, as a multiple of those within it.
_EXPANSION = 4
# The last feature map is this many times smaller than the image, and has this many times the channels of the stem.
_REDUCTION = 32
_BATCH_NORM_EPSILON = 1e-5


@dataclasses.dataclass(frozen=True)
class CLIPResNetConfig(NetworkConfig):
    """Shape of a modified ResNet. transformers has no such network, so this form is our own."""

    depths: tuple[int, int, int, int] = (3, 4, 6, 3)  # blocks of the four stages
    width: int = 64  # channels that leave the stem
    num_attention_heads: int = 32  # of the attention that pools
    image_size: int = 224

    _class_key: ClassVar = "model_type"
    _class_value: ClassVar = "clip_resnet_vision_model"

    def __post_init__(self):
        depths = self.depths
        self._require(
            isinstance(depths, tuple) and len(depths) == 4 and all(map(is_count, depths)),
            "depths",
            "four positive whole numbers",
        )
        self._require_positive("width", "num_attention_heads", "image_size")
        self._require(self.width % 2 == 0, "width", "an even number")
        channels = _REDUCTION * self.width
        self._require(channels % self.num_attention_heads == 0, "num_attention_heads", f"a divisor of {channels}")
        self._require(self.image_size % _REDUCTION == 0, "image_size", f"a multiple of {_REDUCTION}")


class BatchNorm2d(nnx.Module):
    """Batch normalisation as it is after training: with the statistics of the training data (Ioffe and Szegedy, 2015).

    The statistics are read from the file and get no gradient.
    """

    def __init__(self, channels: int, *, dtype: Any, param_dtype: Any, rngs: Any = None):
        self.dtype = dtype
        self.scale = nnx.Param(jnp.ones((channels,), param_dtype))
        self.bias = nnx.Param(jnp.zeros((channels,), param_dtype))
        self.running_mean = nnx.Param(jnp.zeros((channels,), param_dtype))
        self.running_var = nnx.Param(jnp.ones((channels,), param_dtype))

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [..., channels] -> the same shape in the compute dtype. Computed in float32."""
        scale, bias, mean, variance = (
            parameter[...].astype(jnp.float32)
            for parameter in (self.scale, self.bias, self.running_mean, self.running_var)
        )
        mean, variance = jax.lax.stop_gradient((mean, variance))
        factor = scale * jax.lax.rsqrt(variance + _BATCH_NORM_EPSILON)
        return (x.astype(jnp.float32) * factor + (bias - mean * factor)).astype(self.dtype)


def _average_pool(x: jax.Array, size: int) -> jax.Array:
    """[B, h, w, channels] -> [B, h // size, w // size, channels], means of squares."""
    if size == 1:
        return x
    batch, height, width, channels = x.shape
    squares = x.reshape(batch, height // size, size, width // size, size, channels)
    return jnp.mean(squares, axis=(2, 4), dtype=jnp.float32).astype(x.dtype)


class Bottleneck(nnx.Module):
    """Three convolutions around a residual. Of stride 2, both branches are averaged before they are widened."""

    def __init__(self, inputs: int, channels: int, *, stride: int, **kwargs: Any):
        outputs = _EXPANSION * channels
        self.stride = stride
        self.conv1 = layers.Conv2d(inputs, channels, 1, bias=False, **kwargs)
        self.bn1 = BatchNorm2d(channels, **kwargs)
        self.conv2 = layers.Conv2d(channels, channels, 3, padding=1, bias=False, **kwargs)
        self.bn2 = BatchNorm2d(channels, **kwargs)
        self.conv3 = layers.Conv2d(channels, outputs, 1, bias=False, **kwargs)
        self.bn3 = BatchNorm2d(outputs, **kwargs)
        if stride > 1 or inputs != outputs:
            self.downsample = nnx.List(
                [layers.Conv2d(inputs, outputs, 1, bias=False, **kwargs), BatchNorm2d(outputs, **kwargs)]
            )
        else:
            self.downsample = None

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [B, h, w, inputs] -> [B, h / stride, w / stride, 4 * channels]."""
        y = jax.nn.relu(self.bn1(self.conv1(x)))
        y = jax.nn.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(_average_pool(y, self.stride)))
        if self.downsample is not None:
            convolution, norm = self.downsample
            x = norm(convolution(_average_pool(x, self.stride)))
        return jax.nn.relu(x + y)


class AttentionPool2d(nnx.Module):
    """One vector of a feature map: attention of the mean of all positions to the mean and every position."""

    def __init__(self, positions: int, channels: int, heads: int, outputs: int, **kwargs: Any):
        self.heads = heads
        self.dtype = kwargs["dtype"]
        init = nnx.initializers.normal(channels**-0.5)
        self.positional_embedding = parameter(1 + positions, channels, init=init, **kwargs)
        self.k_proj, self.q_proj, self.v_proj = (linear(channels, channels, **kwargs) for _ in range(3))
        self.c_proj = linear(channels, outputs, **kwargs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [B, h, w, channels] -> [B, outputs]."""
        batch, channels = len(x), x.shape[-1]
        states = x.reshape(batch, -1, channels)
        mean = jnp.mean(states, axis=1, keepdims=True, dtype=jnp.float32).astype(self.dtype)
        states = jnp.concatenate([mean, states], axis=1) + self.positional_embedding[...].astype(self.dtype)
        # Only the mean's query is used.
        query, key, value = (
            layer(part).reshape(batch, -1, self.heads, channels // self.heads)
            for layer, part in ((self.q_proj, states[:, :1]), (self.k_proj, states), (self.v_proj, states))
        )
        return self.c_proj(dot_product_attention(query, key, value).reshape(batch, channels))


class ModifiedResNet(nnx.Module):
    """Stem, four stages and pooling: everything under ``visual.`` in the published weights."""

    def __init__(self, config: CLIPResNetConfig, outputs: int, **kwargs: Any):
        width = config.width
        self.conv1 = layers.Conv2d(3, width // 2, 3, stride=2, padding=1, bias=False, **kwargs)
        self.bn1 = BatchNorm2d(width // 2, **kwargs)
        self.conv2 = layers.Conv2d(width // 2, width // 2, 3, padding=1, bias=False, **kwargs)
        self.bn2 = BatchNorm2d(width // 2, **kwargs)
        self.conv3 = layers.Conv2d(width // 2, width, 3, padding=1, bias=False, **kwargs)
        self.bn3 = BatchNorm2d(width, **kwargs)

        def stage(number: int) -> nnx.List:
            inputs = width if number == 0 else _EXPANSION * width << (number - 1)
            channels = width << number
            strides = [1 if number == 0 else 2] + [1] * (config.depths[number] - 1)
            return nnx.List(
                [
                    Bottleneck(_EXPANSION * channels if block else inputs, channels, stride=stride, **kwargs)
                    for block, stride in enumerate(strides)
                ]
            )

        self.layer1, self.layer2, self.layer3, self.layer4 = map(stage, range(4))
        self.attnpool = AttentionPool2d(
            (config.image_size // _REDUCTION) ** 2, _REDUCTION * width, config.num_attention_heads, outputs, **kwargs
        )

    def __call__(self, pixels: jax.Array) -> jax.Array:
        """pixels [B, image_size, image_size, 3], normalised -> [B, outputs]."""
        x = pixels
        for convolution, norm in ((self.conv1, self.bn1), (self.conv2, self.bn2), (self.conv3, self.bn3)):
            x = jax.nn.relu(norm(convolution(x)))
        x = _average_pool(x, 2)
        for blocks in (self.layer1, self.layer2, self.layer3, self.layer4):
            for block in blocks:
                x = block(x)
        return self.attnpool(x)
