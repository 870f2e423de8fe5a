"""Dense layers and convolutions in 8 bits, for networks that are trained already; the arithmetic is Google's Qwix.

A layer ``x @ kernel`` becomes ``(values(x) @ values(kernel)) * scale(x) * scale(kernel)``, with values of 8 bits and
scales in float32. The kernel is rounded once, with a scale for each output channel. The input is rounded at every call,
with scales of its own: one for each position that a dense layer works on, one for each example of a convolution. So no
row of a batch changes what is computed for another.

Qwix can also do this to a whole network, by replacing functions of JAX while it runs (``qwix.quantize_model``). That is
not used here. ``jax.numpy.matmul``, with which `winobench.models.layers` computes 1 x 1 convolutions, keeps what it was
traced to: in 8 bits for networks that are not quantised, too, and the other way round, whichever ran first.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from winobench.errors import InputError
from winobench.models import layers, lora
from winobench.models.base import Network

DTYPES = {"int8": jnp.int8, "fp8": jnp.float8_e4m3fn}
"""Name of an 8-bit arithmetic -> dtype of its values."""

CHOICES = ("none", *DTYPES)

# How scales are chosen: the largest value becomes 448 in fp8, and 127 in int8. By itself Qwix makes it 127.5, and then
# the last bit of a division decides between -127 and -128.
_CALIBRATION = {jnp.dtype("int8"): f"absmax,{127.5 / 127}", jnp.dtype("float8_e4m3fn"): "absmax"}


class _Quantized(nnx.Module):
    """A layer whose kernel is in 8 bits.

    Attributes:
      kernel: the values, in the kernel's shape.
      kernel_scale: float32, of the kernel's rank, 1 along all axes but the last one.
      bias: that of the layer that it stands for, or None.
      dtype: of the result.
    """

    def __init__(self, base: nnx.Linear | layers.Conv2d, kind: str):
        kernel = _rounded(base.kernel[...], DTYPES[kind], (base.kernel.ndim - 1,))
        self.kernel = nnx.Param(kernel.qvalue)
        self.kernel_scale = nnx.Param(kernel.scale)
        self.bias = base.bias
        self.dtype = base.dtype

    def _product(self, x: jax.Array) -> jax.Array:
        """x [..., inputs] -> [..., outputs] float32; the kernel's axes but the last are taken as one."""
        qwix = _qwix()
        outputs = self.kernel.shape[-1]
        kernel = qwix.QArray(self.kernel[...].reshape(-1, outputs), self.kernel_scale[...].reshape(1, outputs))
        x = _rounded(x, kernel.qvalue.dtype, tuple(range(x.ndim - 1)))
        return qwix.dot_general(x, kernel, (((x.ndim - 1,), (0,)), ((), ())))

    def _finished(self, y: jax.Array) -> jax.Array:
        y = y.astype(self.dtype)
        return y if self.bias is None else y + self.bias[...].astype(self.dtype)


class QuantizedLinear(_Quantized):
    """A dense layer on the last axis; ``kernel`` is [inputs, outputs]."""

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [..., inputs] -> [..., outputs] in the compute dtype."""
        return self._finished(self._product(x))


class QuantizedConv2d(_Quantized):
    """2D convolution, NHWC; ``kernel`` is [height, width, inputs, outputs]. Of 1 x 1 it is a dense layer."""

    def __init__(self, base: layers.Conv2d, kind: str):
        super().__init__(base, kind)
        self.stride = base.stride
        self.padding = base.padding

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [B, h, w, inputs] -> [B, h', w', outputs] in the compute dtype."""
        if self.kernel.shape[:2] == (1, 1) and self.stride == 1 and not any(map(any, self.padding)):
            return self._finished(self._product(x))
        x = _rounded(x, self.kernel.dtype, (0,))
        # Not qwix.conv_general_dilated, which adds up products of int8 in int32: XLA (jaxlib 0.10.2) then returns wrong
        # numbers on CPUs wherever it lays a result out otherwise than row by row, as it does for devices that share the
        # parameters. Of float32 it returns the right ones, and cuDNN takes int8 with results in int8 or float32 alone.
        y = jax.lax.conv_general_dilated(
            x.qvalue,
            self.kernel[...],
            (self.stride, self.stride),
            self.padding,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            preferred_element_type=jnp.float32,
        )
        return self._finished(y * x.scale * self.kernel_scale[...])


def _rounded(x: jax.Array, dtype: Any, axes: tuple[int, ...]) -> Any:
    """x as a `qwix.QArray` of 8 bits, with a scale for each index along these axes."""
    # Scales are float32 whatever the compute dtype: those of bfloat16 have 8 bits themselves.
    return _qwix().quantize(
        x.astype(jnp.float32), dtype, channelwise_axes=axes, calibration_method=_CALIBRATION[jnp.dtype(dtype)]
    )


def quantize(denoiser: Network, kind: str) -> Network:
    """A denoiser that computes its dense layers and convolutions in 8 bits, but for the few that it keeps.

    Args:
      denoiser: a network with trained parameters; it stays as it is. Its ``keep_unquantized`` names what is kept.
      kind: ``int8``, or ``fp8`` (float8_e4m3fn).

    Returns:
      A network with the same call, and with the parameters of all that is not in 8 bits in common.

    Raises:
      InputError: as `check`.
    """
    check(kind, adapters=bool(lora.adapters(denoiser)))
    network = nnx.clone(denoiser)
    for path, layer in list(nnx.iter_modules(network)):
        name = ".".join(map(str, path))
        if network.keep_unquantized.fullmatch(name):
            continue
        if isinstance(layer, nnx.Linear):
            lora.replace_layer(network, name, QuantizedLinear(layer, kind))
        elif isinstance(layer, layers.Conv2d):
            lora.replace_layer(network, name, QuantizedConv2d(layer, kind))
    return network


def check(kind: str, *, adapters: bool = False) -> None:
    """Says what stands in the way of quantization; nothing does if ``kind`` is ``none``.

    Args:
      kind: as the user named it.
      adapters: whether the network has LoRA adapters beside its weights.

    Raises:
      InputError: there is no such kind, Qwix is not installed, or there are adapters.
    """
    if kind not in CHOICES:
        raise InputError(f"quantization is {kind!r}, but it must be one of {', '.join(CHOICES)}")
    if kind == "none":
        return
    _qwix()
    if adapters:
        raise InputError(
            f"quantization is {kind!r}, but weights are not rounded to 8 bits with LoRA adapters beside them: fuse the"
            " adapters into the weights (fuse_lora), or leave quantization out"
        )


def _qwix() -> ModuleType:
    try:
        import qwix
    except ImportError as error:
        raise InputError(
            f"quantization needs the package qwix ({error}): pip install 'winobench[quantization]', or leave it out"
        ) from error
    return qwix
