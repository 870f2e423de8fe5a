"""Adapters that are computed when they are added to the weights: all forms but the plain pair of factors.

- LoHa (Hyeon-Woo et al., 2022; Yeh et al., 2024): the product, value by value, of two low-rank matrices.
- LoKr (Yeh et al., 2024): a Kronecker product, either side of which may be of low rank.
- Differences of whole weights and biases, and biases of the second factor.
- DoRA (Liu et al., 2024, Eq. 5): the changed weight, with the length of each output's (or input's) part replaced.

Factors of convolutions may have a core [rank, rank, height, width] between them (Tucker decomposition).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from winobench.base.errors import InputError
from winobench.models import lora

# Number of axes -> the axes of winobench's layout in torch's order, and back.
_TO_TORCH = {1: (0,), 2: (1, 0), 4: (3, 2, 0, 1)}
_FROM_TORCH = {1: (0,), 2: (1, 0), 4: (2, 3, 1, 0)}
# The factors that have the rank as their first axis.
_RANKED = ("down", "hada_w1_b", "lokr_w2_b", "lokr_w1_b")
_OF_BIAS = ("up_bias", "diff_b")
_KINDS = {"down": "LORA", "hada": "LOHA", "lokr": "LOKR"}


@dataclasses.dataclass(frozen=True)
class Change:
    """The change of one layer, in torch's layout."""

    # Role (`lora_keys.parse`) -> float32 values. ``magnitude`` is [outputs], or [1, inputs, ...].
    tensors: Mapping[str, np.ndarray]
    alpha: float | None = None  # the product is multiplied by alpha / rank; None for the rank itself, so by 1
    rows: np.ndarray | None = None  # outputs of the original code's layer that this layer has; None for all

    @functools.cached_property
    def rank(self) -> int | None:
        """None for factors of full rank, and for differences."""
        return next((self.tensors[role].shape[0] for role in _RANKED if role in self.tensors), None)

    @property
    def scale(self) -> float:
        return 1.0 if self.alpha is None else self.alpha / (self.rank or 1)

    @property
    def kind(self) -> str | None:
        """Peft's name of the kind; None for differences."""
        return next((_KINDS[start] for role in self.tensors if (start := role.partition("_")[0]) in _KINDS), None)

    @property
    def form(self) -> str:
        """The name of the form, for messages."""
        return "DoRA" if "magnitude" in self.tensors else self.kind or "difference"

    @functools.cached_property
    def shape(self) -> tuple[int, ...] | None:
        """Shape of the weight's change, with all rows. None if it changes the bias alone. Raises as `_product` does."""
        shapes = {role: jax.ShapeDtypeStruct(values.shape, values.dtype) for role, values in self.tensors.items()}
        product = jax.eval_shape(_product, shapes)
        return None if product is None else product.shape

    @property
    def _all_outputs(self) -> int:
        return self.shape[0] if self.shape is not None else len(self.tensors["diff_b"])

    @property
    def outputs(self) -> int:
        return self._all_outputs if self.rows is None else len(self.rows)

    @property
    def is_zero(self) -> bool:
        return not any(values.any() for values in self.tensors.values())

    def take(self, rows: np.ndarray) -> Self:
        """The change of these outputs alone."""
        return dataclasses.replace(self, rows=rows if self.rows is None else self.rows[rows])

    def identity(self) -> list[tuple[str, np.ndarray]]:
        """Its arrays, each with a text about it, for a hash."""
        about = f"{self.scale!r} {None if self.rows is None else self.rows.tolist()}"
        return [(f"{role} {about}", values) for role, values in sorted(self.tensors.items())]

    def check(self, weight: tuple[int, ...], bias: tuple[int, ...] | None) -> str | None:
        """Why it cannot change a weight of this shape and a bias of that; None if it can."""
        if self.shape is not None:
            own = (self.outputs, *self.shape[1:])
            same = own == weight if len(own) == len(weight) else own[0] == weight[0] and np.prod(own) == np.prod(weight)
            if not same:
                return f"changes a weight of shape {list(own)}, but the layer's is {list(weight)}"
        for moved in (self.tensors[role].shape for role in _OF_BIAS if role in self.tensors):
            if bias is None:
                return "changes a bias, but the layer has none"
            if moved != (self._all_outputs,) or self.outputs != bias[0]:
                return f"changes a bias of shape {list(moved)}, but the layer's is {list(bias)}"
        if (magnitude := self.tensors.get("magnitude")) is not None:
            if magnitude.ndim > 1 and self.rows is not None:
                return "has lengths of the inputs (dora_scale) of several layers together, which is not supported"
            expected = self._all_outputs if magnitude.ndim == 1 else weight[1]
            if magnitude.size != expected:
                return f"has {magnitude.size} lengths (dora_scale), but the layer needs {expected}"
        return None

    def changed(self, weight: jax.Array, bias: jax.Array | None, strength: float) -> tuple[jax.Array, jax.Array | None]:
        """A layer's changed weight and bias, in torch's layout, in float32."""
        rows = slice(None) if self.rows is None else self.rows
        weight, factor = jnp.asarray(weight, jnp.float32), strength * self.scale
        bias = None if bias is None else jnp.asarray(bias, jnp.float32)
        with jax.default_matmul_precision("highest"):
            product = _product(self.tensors)
        if product is not None:
            weight = weight + factor * product[rows].reshape(weight.shape)
        if (magnitude := self.tensors.get("magnitude")) is not None:
            kept = magnitude.ndim > 1
            axes = tuple(axis for axis in range(weight.ndim) if axis != kept)
            lengths = jnp.sqrt(jnp.sum(jnp.square(weight), axes, keepdims=True))
            new = magnitude if kept else magnitude[rows]
            weight = weight * (new.reshape(lengths.shape) / jnp.maximum(lengths, jnp.finfo(jnp.float32).eps))
        for role, times in zip(_OF_BIAS, (factor, strength), strict=True):
            if role in self.tensors:
                bias = bias + times * self.tensors[role][rows]
        return weight, bias


def _product(tensors: Mapping[str, np.ndarray]) -> jax.Array | None:
    """The change of the weight before it is scaled, [outputs, ...].

    Raises KeyError for a tensor without its counterpart, ValueError or TypeError where they do not go together.
    """
    left = {role: jnp.asarray(values) for role, values in tensors.items() if role not in ("magnitude", *_OF_BIAS)}
    kinds = {role.partition("_")[0] for role in left}
    if kinds & {"down", "up"}:
        down, up = left.pop("down"), left.pop("up")
        product = (up @ down.reshape(len(down), -1)).reshape(-1, *down.shape[1:])
    elif "hada" in kinds:
        first, second = (_factor(left, f"hada_w{number}", f"hada_t{number}") for number in (1, 2))
        if first.shape != second.shape:
            raise ValueError(f"{first.shape} and {second.shape}")
        product = first * second
    elif "lokr" in kinds:
        first, second = _factor(left, "lokr_w1", "lokr_t1"), _factor(left, "lokr_w2", "lokr_t2")
        product = jnp.kron(first.reshape(*first.shape, *(1 for _ in second.shape[2:])), second)
    else:
        product = left.pop("diff", None)
    if left or (product is None and tensors.keys() != {"diff_b"}):
        raise KeyError("the factors")
    return product


def _factor(left: dict[str, jax.Array], name: str, core: str) -> jax.Array:
    """A matrix, the product of two matrices, or a kernel of two with a core [r, s, height, width] between them."""
    if name in left:
        return left.pop(name)
    a, b = left.pop(f"{name}_a"), left.pop(f"{name}_b")
    return a @ b if core not in left else jnp.einsum("rshw,ro,si->oihw", left.pop(core), a, b)


def check_fit(network: nnx.Module, changes: Mapping[str, Change]) -> None:
    """Raises InputError unless all changes can be made."""
    kind, layers = type(network).__name__, lora.weighted_layers(network)
    for name, change in changes.items():
        if name not in layers:
            raise lora.no_layer(kind, name)
        weight, bias = _parameters(*layers[name])
        shape = tuple(weight.shape[axis] for axis in _TO_TORCH[weight.ndim])
        if reason := change.check(shape, None if bias is None else bias.shape):
            message = f"the adapter of {name} {reason}: it is of another model than this {kind}, or damaged"
            raise InputError(message, code="lora-misfit")


def apply(network: nnx.Module, changes: Mapping[str, Change], strength: float) -> None:
    """Adds changes to a network's weights, in place. They are computed in float32 and rounded once."""
    layers = lora.weighted_layers(network)
    for name, change in changes.items():
        layer, part = layers[name]
        weight, bias = _parameters(layer, part)
        old_bias = None if bias is None else bias[...]
        new, new_bias = change.changed(weight[...].transpose(_TO_TORCH[weight.ndim]), old_bias, strength)
        setattr(layer, part, _replaced(weight, new.transpose(_FROM_TORCH[weight.ndim])))
        if bias is not None:
            layer.bias = _replaced(bias, new_bias)


def _parameters(layer: nnx.Module, part: str) -> tuple[nnx.Param, nnx.Param | None]:
    return getattr(layer, part), getattr(layer, "bias", None)


def _replaced(parameter: nnx.Param, values: jax.Array) -> nnx.Param:
    """A parameter with other values, which stay on the host if the old ones are there."""
    values = values.astype(parameter.dtype)
    return parameter.replace(np.asarray(values) if isinstance(parameter.get_value(), np.ndarray) else values)
