"""Low-rank adapters (LoRA; Hu et al., 2021, Eq. 3) on the dense layers and the convolutions of a network.

An adapted dense layer computes ``base(x) + scale * (x @ down) @ up``. For a convolution, ``x @ down`` is a
convolution, too, of the same kernel size, stride and padding. The adapted layer replaces its base layer and holds that
layer's parameters under their own names. The adapter is in one more branch, ``lora``, so that every path and value of
the base stays as it was. Trained parameters have a separate type, `LoRAParam`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from winobench.base import options
from winobench.base.errors import InputError
from winobench.models.base import linear
from winobench.models.layers import Conv2d

TARGETS = ("cross", "all")
"""Kinds of adapted layers. Which ones they are is for each network to say (`Network.lora_targets`)."""

# peft starts the first factor as torch starts a dense layer, uniform within 1 / sqrt(inputs), and the second at zero.
_DOWN_INIT = nnx.initializers.variance_scaling(1.0 / 3.0, "fan_in", "uniform")


@dataclasses.dataclass(frozen=True)
class LoRAConfig:
    """Choice of the layers that get an adapter, and its kind."""

    targets: str = "cross"  # layers that attend to the text (paper, section 3.2), or "all" (published code)
    rank: int = 4
    alpha: float | None = None  # the product is multiplied by alpha / rank; None for 1 (published code)
    dropout: float = 0.0  # probability that training sets an input of an adapter to zero

    def __post_init__(self):
        if self.targets not in TARGETS:
            raise InputError(
                f"LoRA: targets is {self.targets!r}, but must be {' or '.join(TARGETS)}", code="unknown-name"
            )
        if isinstance(self.rank, bool) or not isinstance(self.rank, int) or self.rank < 1:
            raise InputError(
                f"LoRA: rank is {self.rank!r}, but must be a whole number of at least 1", code="out-of-range"
            )
        if self.alpha is not None and not (options.is_number(self.alpha) and 0 < self.alpha < float("inf")):
            raise InputError(
                f"LoRA: alpha is {self.alpha!r}, but must be a positive number, or none for the rank",
                code="out-of-range",
            )
        if not (options.is_number(self.dropout) and 0 <= self.dropout < 1):
            raise InputError(
                f"LoRA: dropout is {self.dropout!r}, but must be at least 0 and under 1", code="out-of-range"
            )

    @property
    def scale(self) -> float:
        """Factor of the adapters' product."""
        return 1.0 if self.alpha is None else self.alpha / self.rank


class LoRAParam(nnx.Param):
    """A parameter of an adapter: what fine-tuning trains."""


class DropoutKey(nnx.Variable):
    """The random key of one forward pass. See `set_dropout_key`."""


class Factors(NamedTuple):
    """An adapter's values.

    Attributes:
      down: [inputs, rank], of a convolution [height, width, inputs, rank].
      up: [rank, outputs].
      scale: what their product is multiplied by.
    """

    down: Any
    up: Any
    scale: float


class LoRA(nnx.Module):
    """The branch ``scale * (dropout(x) @ down) @ up`` of one layer, in float32."""

    def __init__(self, factors: Factors, *, dropout: float = 0.0, on_host: bool = False):
        asarray = np.asarray if on_host else jnp.asarray
        self.down = LoRAParam(asarray(factors.down, jnp.float32))
        self.up = LoRAParam(asarray(factors.up, jnp.float32))
        self.scale = float(factors.scale)
        self.dropout = float(dropout)
        self.dropout_key: DropoutKey | None = nnx.data(None)

    @property
    def rank(self) -> int:
        """Width between the two factors."""
        return self.down.shape[-1]

    def __call__(self, x: jax.Array, dtype: Any, product: Callable[..., jax.Array] = jnp.matmul) -> jax.Array:
        """x [..., inputs] -> [..., outputs], computed in ``dtype``. ``product`` multiplies x by ``down``."""
        x, down, up = (jnp.asarray(part, dtype) for part in (x, self.down[...], self.up[...]))
        if self.dropout and self.dropout_key is not None:
            keep = 1.0 - self.dropout
            x = jnp.where(jax.random.bernoulli(self.dropout_key[...], keep, x.shape), x / keep, jnp.zeros_like(x))
        return product(x, down) @ up * jnp.asarray(self.scale, dtype)


class LoRALinear(nnx.Linear):
    """A dense layer with an adapter; ``kernel`` and ``bias`` are the very parameters of the layer that it replaces."""

    def __init__(self, base: nnx.Linear, lora: LoRA):
        _take_over(self, base)
        self.lora = lora

    def __call__(self, inputs: jax.Array, out_sharding: Any = None) -> jax.Array:
        """inputs [..., in_features] -> [..., out_features] in the base's compute dtype."""
        y = super().__call__(inputs, out_sharding)
        return y + self.lora(inputs, y.dtype)


class LoRAConv2d(Conv2d):
    """A convolution with an adapter, as `LoRALinear` is a dense layer with one."""

    def __init__(self, base: Conv2d, lora: LoRA):
        _take_over(self, base)
        self.lora = lora

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [B, h, w, inputs] -> [B, h', w', outputs] in the base's compute dtype."""
        y = super().__call__(x)
        return y + self.lora(x, y.dtype, self.convolve)

    def added_to(self, y: jax.Array, parts: Sequence[jax.Array]) -> jax.Array:
        """See the base layer."""
        y = super().added_to(y, parts)
        return y + self.lora(jnp.concatenate(parts, axis=-1), y.dtype, self.convolve)


def _take_over(adapted: nnx.Module, base: nnx.Module) -> None:
    """Gives an adapted layer what its base has. The parent's ``__init__`` would make random parameters."""
    for name, value in vars(base).items():
        if not name.startswith("_"):
            setattr(adapted, name, value)


def add_lora(network: nnx.Module, config: LoRAConfig, *, rngs: nnx.Rngs) -> None:
    """Gives a network fresh adapters, in place. They change no output until they are trained."""
    pattern = getattr(network, "lora_targets", {}).get(config.targets)
    if pattern is None:
        raise TypeError(f"{type(network).__name__} names no layers of the kind {config.targets!r} for LoRA.")
    chosen = {name: layer for name, layer in linear_layers(network).items() if pattern.fullmatch(name)}
    if not chosen:
        raise InputError(
            f"this {type(network).__name__} has no attention layers of the kind {config.targets!r} to adapt",
            code="no-layers",
        )
    factors = {
        name: Factors(
            _DOWN_INIT(rngs.params(), (layer.in_features, config.rank), jnp.float32),
            jnp.zeros((config.rank, layer.out_features), jnp.float32),
            config.scale,
        )
        for name, layer in chosen.items()
    }
    attach(network, factors, dropout=config.dropout)


def attach(network: nnx.Module, factors: Mapping[str, Factors], *, dropout: float = 0.0) -> None:
    """Gives a network adapters with given values, in place: dotted torch name of a layer -> its factors."""
    check_fit(network, factors)
    there = adaptable_layers(network)
    for name, values in factors.items():
        adapter = LoRA(values, dropout=dropout, on_host=_is_on_host(there[name]))
        adapted = LoRALinear if isinstance(there[name], nnx.Linear) else LoRAConv2d
        replace_layer(network, name, adapted(there[name], adapter))


def check_fit(network: nnx.Module, factors: Mapping[str, Factors]) -> None:
    """Raises InputError, as `attach` would, unless the network can be given these adapters."""
    kind = type(network).__name__
    if adapters(network):
        raise InputError(f"this {kind} has LoRA adapters already: fuse them into its weights first", code="has-lora")
    layers = adaptable_layers(network)
    for name, (down, up, _) in factors.items():
        if name not in layers:
            raise no_layer(kind, name)
        (*taken, outputs), shapes = layers[name].kernel.shape, (np.shape(down), np.shape(up))
        if not (list(shapes[0][:-1]) == taken and len(shapes[1]) == 2 and shapes[1][1] == outputs):
            window = f"windows of {taken[0]} x {taken[1]} with " if len(taken) > 1 else ""
            raise InputError(
                f"the adapter of {name} has factors of shapes {list(shapes[0])} and {list(shapes[1])}, but the"
                f" layer of the {kind} takes {window}{taken[-1]} features to {outputs}: the adapter is of another"
                " model",
                code="lora-misfit",
            )
        if not shapes[0][-1] == shapes[1][0] > 0:
            raise InputError(
                f"the two factors of the adapter of {name} have the ranks {shapes[0][-1]} and {shapes[1][0]}, but"
                " must have the same: the file is damaged, get it again",
                code="damaged-file",
            )


def no_layer(kind: str, name: str) -> InputError:
    """The error for an adapter of a layer that a network lacks."""
    return InputError(
        f"the {kind} has no dense layer or convolution {name}: the adapter is of another model, or names its"
        " layers in a way that is not known here",
        code="lora-misfit",
    )


def adapters(network: nnx.Module) -> dict[str, LoRA]:
    """The adapters of a network: dotted torch name of the layer -> its adapter, in the order of the names."""
    layers = adaptable_layers(network).items()
    found = {name: layer.lora for name, layer in layers if isinstance(layer, LoRALinear | LoRAConv2d)}
    return dict(sorted(found.items()))


def scales(network: nnx.Module) -> dict[str, float]:
    """Factor of each adapter's product. It is not among the weights. Empty without adapters."""
    return {name: adapter.scale for name, adapter in adapters(network).items()}


def lora_params(network: nnx.Module) -> dict[str, dict[str, jax.Array]]:
    """The adapters' values: dotted torch name of the layer -> ``down`` [inputs, rank], ``up`` [rank, outputs]."""
    return {name: {"down": lora.down[...], "up": lora.up[...]} for name, lora in adapters(network).items()}


def split(network: nnx.Module) -> tuple[nnx.GraphDef, nnx.State, nnx.State]:
    """Parts a network for training: ``nnx.merge(graphdef, lora, frozen)`` is the network again.

    Returns the structure, the state of the adapters (trained), and all other state (frozen).
    """
    if not adapters(network):
        raise InputError(f"this {type(network).__name__} has no LoRA adapters: add some with add_lora", code="no-lora")
    return nnx.split(network, LoRAParam, ...)


def set_dropout_key(network: nnx.Module, key: jax.Array | None) -> None:
    """Turns the adapters' dropout on for the passes that follow, or off, as it is at first.

    A training step calls this on the network that it has just merged, with its own key, so that neither the
    parameters nor the network that is kept hold any random state.
    """
    for index, lora in enumerate(adapters(network).values()):
        lora.dropout_key = None if key is None or not lora.dropout else DropoutKey(jax.random.fold_in(key, index))


def fuse(network: nnx.Module) -> None:
    """Adds the adapters' products to the kernels and removes the adapters, in place.

    The sum is computed in float32 and rounded once to the kernel's dtype. Nothing happens without adapters.
    """
    for name, layer in adaptable_layers(network).items():
        if not isinstance(layer, LoRALinear | LoRAConv2d):
            continue
        lora, kernel = layer.lora, layer.kernel
        product = jnp.matmul(lora.down[...], lora.up[...], precision="highest")
        fused = (kernel[...].astype(jnp.float32) + lora.scale * product).astype(kernel.dtype)
        # Layer by layer, so that a network that does not fit on a device need not.
        fused = np.asarray(fused) if _is_on_host(layer) else fused
        options = {"bias": layer.bias is not None, "dtype": layer.dtype, "param_dtype": kernel.dtype}
        if isinstance(layer, LoRALinear):
            sizes, options["param_dtype"] = (layer.in_features, layer.out_features), layer.param_dtype
            plain = nnx.merge(*_plain_layer(linear, *sizes, **options))
        else:
            size, _, *sizes = kernel.shape
            options |= {"stride": layer.stride, "padding": layer.padding}
            plain = nnx.merge(*_plain_layer(Conv2d, *sizes, size, **options))
        plain.kernel, plain.bias = kernel.replace(fused), layer.bias
        replace_layer(network, name, plain)


def _is_on_host(layer: nnx.Linear | Conv2d) -> bool:
    return isinstance(layer.kernel.get_value(), np.ndarray)


def linear_layers(network: nnx.Module) -> dict[str, nnx.Linear]:
    """The dense layers of a network by their dotted torch names."""
    return _layers(network, nnx.Linear)


def adaptable_layers(network: nnx.Module) -> dict[str, nnx.Linear | Conv2d]:
    """The dense layers and the convolutions of a network by their dotted torch names."""
    return _layers(network, nnx.Linear | Conv2d)


def _layers(network: nnx.Module, kinds: Any = nnx.Module) -> dict[str, Any]:
    return {".".join(map(str, path)): module for path, module in nnx.iter_modules(network) if isinstance(module, kinds)}


def weighted_layers(network: nnx.Module) -> dict[str, tuple[nnx.Module, str]]:
    """The dense layers, convolutions and norms by their dotted torch names, each with its weight's name here."""
    found = ((name, layer, part) for name, layer in _layers(network).items() for part in ("kernel", "scale"))
    return {name: (layer, part) for name, layer, part in found if isinstance(getattr(layer, part, None), nnx.Param)}


@functools.cache
def _plain_layer(cls: Any, *sizes: int, **options: Any) -> tuple[Any, Any]:
    """Structure and state of a layer without values, which are kept since a network has few sizes."""
    return nnx.split(nnx.eval_shape(lambda: cls(*sizes, **options, rngs=nnx.Rngs(0))))


def replace_layer(network: nnx.Module, name: str, layer: nnx.Module) -> None:
    """Puts a layer instead of the one that has this dotted torch name, in place."""
    *parents, last = name.split(".")
    owner: Any = network
    for part in parents:
        owner = owner[int(part)] if part.isdigit() else getattr(owner, part)
    if last.isdigit():
        owner[int(last)] = layer
    else:
        setattr(owner, last, layer)
