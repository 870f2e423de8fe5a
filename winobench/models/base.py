"""Base class of all networks, and the two layers that nearly all of them consist of.

Compute dtype (``dtype``) and parameter dtype (``param_dtype``) are separate everywhere.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
from flax import nnx

from winobench.models.config import NetworkConfig
from winobench.models.functional import is_rounded_on_tpu

_UNIFORM = nnx.initializers.variance_scaling(1.0 / 3.0, "fan_in", "uniform")
_only_shapes = contextvars.ContextVar("only_shapes", default=False)


def kernel_init(key: jax.Array, shape: Sequence[int], dtype: Any = jnp.float32) -> jax.Array:
    """The values of new kernels. Zeros inside of `only_shapes`."""
    return jnp.zeros(shape, dtype) if _only_shapes.get() else _UNIFORM(key, shape, dtype)


@contextlib.contextmanager
def only_shapes() -> Iterator[None]:
    """Around the tracing of new networks whose values do not matter: random ones take as long as all else."""
    token = _only_shapes.set(True)
    try:
        yield
    finally:
        _only_shapes.reset(token)


"""Torch's default, uniform within 1 / sqrt(fan_in): training starts where the published training code starts."""


@dataclasses.dataclass(frozen=True)
class KeyTable:
    """Differences between the keys of a network's files and its attribute paths."""

    # (pattern, replacement) for key names of other vintages.
    renames: tuple[tuple[str, str], ...] = ()
    # Patterns of known keys that are not parameters: buffers, and the other towers of a file with a whole model.
    ignored: tuple[str, ...] = ()
    # Second name of a tensor -> the first name, for files that lack the first.
    copies: Mapping[str, str] = dataclasses.field(default_factory=dict)


class Network(nnx.Module):
    """Base of the networks that have a published ``config.json`` and weight files.

    A network defines ``build(config, *, dtype, param_dtype, rngs, **options)``, which makes its layers.

    Attributes:
      config_class: the config's class.
      weights_name: stem of the weight file in a published folder.
      shares_rows: whether a denoiser computes what lies ahead of the texts once for several texts about one sample: it
        then takes ``sample_rows``, int32 [N], the row of its other inputs that each of N texts belongs to.
      lora_targets: name of a kind of adapted layers -> pattern of their dotted names. Empty where LoRA is not for it.
      file_keys: how the keys of its files differ from its attribute paths.
      config: what the network was built from.
      dtype: compute dtype.

    Args:
      config: the network's shape.
      dtype: compute dtype, also of the results.
      param_dtype: dtype of the parameters.
      rngs: source of the initial parameters.
      **options: of ``build``, such as ``int8``: the dense kernels of the language model's layers hold 8-bit numbers.
    """

    config_class: ClassVar[type[NetworkConfig]]
    weights_name: ClassVar[str] = "diffusion_pytorch_model"
    shares_rows: bool = False
    lora_targets: ClassVar[Mapping[str, re.Pattern[str]]] = {}
    file_keys: ClassVar[KeyTable] = KeyTable()

    def __init__(
        self, config: Any, *, dtype: Any = jnp.float32, param_dtype: Any = jnp.float32, rngs: nnx.Rngs, **options: Any
    ):
        self.config = config
        self.dtype = jnp.dtype(dtype)
        self.build(config, dtype=self.dtype, param_dtype=jnp.dtype(param_dtype), rngs=rngs, **options)

    @classmethod
    def from_pretrained(
        cls,
        source: Any,
        *,
        subfolder: str | None = None,
        dtype: Any = jnp.float32,
        variant: str | None = None,
        revision: str | None = None,
        allow_pickle: bool = False,
    ) -> Self:
        """Loads a published network.

        Args:
          source: a name in `winobench.base.registry.MODELS`, a local folder, or a hub id.
          subfolder: the network's folder within a pipeline, e.g. ``"unet"``.
          dtype: dtype of the parameters and of the computation.
          variant: suffix of the weight file, e.g. ``"fp16"``.
          revision: branch, tag or commit on the hub.
          allow_pickle: accept ``.bin`` files, read with a restricted unpickler.

        Raises:
          InputError: if the source, its config or its weights cannot be used.
        """
        # By its name: checkpoints is a higher package, which imports the networks.
        return importlib.import_module("winobench.checkpoints.models").load_model(
            cls, source, subfolder=subfolder, dtype=dtype, variant=variant, revision=revision, allow_pickle=allow_pickle
        )


def check_pixels(network: nnx.Module, pixels: jax.Array, size: int) -> None:
    """Raises ValueError unless images are [B, size, size, 3]: a network has positions for these alone."""
    if pixels.shape[1:] != (size, size, 3):
        raise ValueError(
            f"{type(network).__name__}: images of the shape {list(pixels.shape[1:])}, expected [{size}, {size}, 3]."
            " Resize the images."
        )


def check_length(network: nnx.Module, input_ids: jax.Array, positions: int) -> None:
    """Raises ValueError if texts, [B, L], are longer than a network has positions."""
    length = input_ids.shape[-1]
    if length > positions:
        name = type(network).__name__
        raise ValueError(f"{name}: {length} tokens, but there are only {positions} positions. Truncate the texts.")


def parameter(*shape: int, init: Any = None, dtype: Any = None, param_dtype: Any, rngs: nnx.Rngs) -> nnx.Param:
    """An array of parameters, by default normal with deviation 0.02. ``dtype`` is not used."""
    return nnx.Param((init or nnx.initializers.normal(0.02))(rngs.params(), shape, param_dtype))


def embedding(count: int, width: int, *, deviation: float = 0.02, **kwargs: Any) -> nnx.Embed:
    """A table of ``count`` vectors, which begin with normal numbers of this deviation."""
    return nnx.Embed(count, width, embedding_init=nnx.initializers.normal(deviation), **kwargs)


def linear(inputs: int, outputs: int, *, bias: bool = True, dtype: Any, param_dtype: Any, rngs: nnx.Rngs) -> nnx.Linear:
    """A dense layer on the last axis; ``kernel`` is [inputs, outputs]."""
    return nnx.Linear(
        inputs, outputs, use_bias=bias, kernel_init=kernel_init, dtype=dtype, param_dtype=param_dtype, rngs=rngs
    )


class _LayerNorm(nnx.LayerNorm):
    """Layer norm with the two-pass variance. On TPUs bfloat16 takes one pass, which is more exact than its inputs."""

    def __call__(self, x: jax.Array) -> jax.Array:
        if not is_rounded_on_tpu(x.dtype):
            return super().__call__(x)
        values = x.astype(jnp.float32)
        mean = jnp.mean(values, axis=-1, keepdims=True)
        variance = jnp.maximum(jnp.mean(jnp.square(values), axis=-1, keepdims=True) - jnp.square(mean), 0.0)
        scale = jax.lax.rsqrt(variance + self.epsilon) * self.scale[...].astype(jnp.float32)
        return ((values - mean) * scale + self.bias[...].astype(jnp.float32)).astype(self.dtype)


def layer_norm(features: int, *, epsilon: float = 1e-5, dtype: Any, param_dtype: Any, rngs: nnx.Rngs) -> nnx.LayerNorm:
    """Layer norm over the last axis. Statistics in float32."""
    return _LayerNorm(
        features, epsilon=epsilon, use_fast_variance=False, dtype=dtype, param_dtype=param_dtype, rngs=rngs
    )
