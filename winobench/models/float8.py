"""Dense layers whose products have factors of 8 bits (float8_e4m3fn; Micikevicius et al., 2022), of trained networks.

Kernels are rounded once, with a scale for each output channel. Inputs are rounded at every call, with a scale for each
position: nothing is calibrated, and no row of a batch changes another's result.
"""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from winobench.base.errors import InputError
from winobench.models import lora

_DTYPE = jnp.float8_e4m3fn
_LARGEST = float(jnp.finfo(_DTYPE).max)
_LEAST_SCALE = 1e-30
# Attention and feed-forward of the blocks. The others have few positions, or lead into and out of the network.
_LAYERS = re.compile(
    r"(.*\.)?((single_)?transformer_blocks|layers)\.\d+\.(attn\d?|attention|ff|ff_context|feed_forward|proj_mlp|proj_out)\b.*"
)


class Float8Linear(nnx.Module):
    """A dense layer. ``kernel`` is [outputs, inputs], the order of NVIDIA's kernels, in units of ``kernel_scale``."""

    def __init__(self, base: nnx.Linear):
        kernel = base.kernel.get_value()
        round_kernel = jax.eval_shape if isinstance(kernel, jax.ShapeDtypeStruct) else lambda function, x: function(x)
        values, scale = round_kernel(lambda x: _rounded(x.T), kernel)
        self.kernel, self.kernel_scale = nnx.Param(values), nnx.Param(scale)
        self.bias, self.dtype = base.bias, base.dtype

    def __call__(self, *parts: jax.Array) -> jax.Array:
        """Parts [..., inputs of each] that follow each other along the features -> [..., outputs] in the dtype."""
        kernels = jnp.split(self.kernel[...], np.cumsum([part.shape[-1] for part in parts])[:-1], axis=1)
        y = sum(self._product(part, kernel) for part, kernel in zip(parts, kernels, strict=True))
        y = y if self.bias is None else y + self.bias[...].astype(jnp.float32)
        return y.astype(self.dtype)

    def _product(self, x: jax.Array, kernel: jax.Array) -> jax.Array:
        values, scale = _rounded(x)
        contracted = (((x.ndim - 1,), (1,)), ((), ()))
        y = jax.lax.dot_general(values, kernel, contracted, preferred_element_type=self.dtype)
        return y.astype(jnp.float32) * (scale * self.kernel_scale[...][:, 0])


def _rounded(x: Any) -> tuple[Any, Any]:
    """x [..., features] in 8 bits, and the float32 scale [..., 1] that they are multiples of."""
    x = x.astype(np.float32)
    scale = abs(x).max(axis=-1, keepdims=True).clip(_LEAST_SCALE) / _LARGEST
    return (x / scale).astype(_DTYPE), scale


def rounded(network: Any) -> nnx.Module:
    """A network with attention and feed-forward in 8 bits, which shares all other parameters with the given one."""
    layers = lora.linear_layers(network) if isinstance(network, nnx.Module) else {}
    names = [name for name in layers if _LAYERS.fullmatch(name)]
    kind = type(network).__name__
    if not names:
        raise InputError(
            f"the {kind} has no dense layers that are computed in 8 bits: leave float8 out", code="no-layers"
        )
    if lora.adapters(network):
        raise InputError(
            f"this {kind} has LoRA adapters next to its weights, which are not rounded to 8 bits: fuse them"
            " (fuse_lora), or leave float8 out",
            code="has-lora",
        )
    network = nnx.merge(*nnx.split(network))
    for name in names:
        lora.replace_layer(network, name, Float8Linear(layers[name]))
    return network
