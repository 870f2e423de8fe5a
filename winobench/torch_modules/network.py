"""A torch module as a network of winobench. Its arrays are parameters, and the module itself holds no arrays."""

from __future__ import annotations

import contextlib
import copy
import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from winobench.base import json_files
from winobench.models import functional, states

# Options with numbers of blocks, in the configs of diffusers' transformers.
_DEPTHS = ("num_layers", "num_single_layers")


class TorchConfig:
    """The config of a torch module. Options are attributes, as in winobench's configs."""

    def __init__(self, values: Mapping[str, Any]):
        # Schedulers have infinite numbers, which JSON lacks.
        values = {name: str(value) if value in (math.inf, -math.inf) else value for name, value in values.items()}
        self._text = json.dumps(values, sort_keys=True, default=str)
        self._values = json_files.parse(self._text)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_values"][name]
        except KeyError:
            raise AttributeError(name) from None

    def to_dict(self) -> dict[str, Any]:
        return self._values

    @property
    def block_counts(self) -> tuple[int, ...]:
        """Blocks of each kind, where the names of the options are known."""
        return tuple(self._values[name] for name in _DEPTHS if self._values.get(name))

    def with_block_counts(self, *counts: int) -> TorchConfig:
        names = [name for name in _DEPTHS if self._values.get(name)]
        return TorchConfig({**self._values, **dict(zip(names, counts, strict=True))})

    def __hash__(self) -> int:
        return hash(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TorchConfig) and self._text == other._text


class TorchProgram:
    """A torch module on torch's meta device. Equal if ``key`` is.

    Attributes:
      key: the class and the options that determine a trace, without the shapes of the arrays.
    """

    def __init__(self, module: Any, key: Any):
        self.module, self._options = module, states.options_digest(module)
        self.key = type(module).__qualname__, self._options, key

    def check_unchanged(self) -> None:
        """Raises InputError where the module has other options than the key."""
        states.check_same(self._options, states.options_digest(self.module), type(self.module).__name__)

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TorchProgram) and self.key == other.key

    @contextlib.contextmanager
    def with_tensors(self, tensors: Mapping[str, Any]) -> Iterator[Any]:
        """The module with these tensors."""
        from torch.nn.utils import stateless

        tensors = dict(tensors)
        loose = [(*_owner(self.module, name), tensors.pop(name)) for name in loose_tensors(self.module)]
        before = [getattr(owner, name) for owner, name, _ in loose]
        try:
            for owner, name, tensor in loose:
                setattr(owner, name, tensor)
            with stateless._reparametrize_module(self.module, tensors, tie_weights=True):
                yield self.module
        finally:
            for (owner, name, _), tensor in zip(loose, before, strict=True):
                setattr(owner, name, tensor)


class TorchNetwork(nnx.Module):
    """A torch module's arrays, under torch's names, and the program that computes with them.

    Attributes:
      config: of the module.
      kernels: names of the weights of convolutions, which have the axes of `winobench.models.layers.Conv2d`.
      dtype: of its computation.
    """

    shares_rows = False

    def __init__(self, module: Any, config: TorchConfig, *, key: Any = None, keep: bool = False):
        """Takes the arrays out of a module, which moves to the meta device, unless ``keep``."""
        from winobench.torch_modules import bridge, operations

        module = module.eval().requires_grad_(False)
        tensors = {**dict(module.named_parameters()), **dict(module.named_buffers()), **loose_tensors(module)}
        self.dtype = jnp.dtype(str(module.dtype).removeprefix("torch."))
        self.config = config
        self.kernels = weights_of_convolutions(module)
        arrays = {name: bridge.to_numpy(tensors[name]) for name in sorted(tensors)}
        arrays |= {name: operations.kernel_of(arrays[name]) for name in self.kernels}
        self.arrays = nnx.Dict({name: nnx.Param(array) for name, array in arrays.items()})
        # Compiled functions keep programs for longer than the module's numbers may stay in memory.
        if keep:
            module = copy.deepcopy(module, {id(tensor): _without_numbers(tensor) for tensor in tensors.values()})
        del tensors
        self.program = TorchProgram(_on_meta(module), (config, key))

    def follow(self, config: TorchConfig, key: Any) -> None:
        """Takes over changed options. The arrays stay."""
        self.config, self.program = config, TorchProgram(self.program.module, (config, key))

    def to_devices(self) -> None:
        """Puts the arrays on a device, one after the other, so that the host's memory is freed."""
        for parameter in self.arrays.values():
            parameter.set_value(jax.device_put(parameter.get_value()))

    def compute(self, module: Any, *tensors: Any) -> Any:
        """The computation of the module, on tensors."""
        return module(*tensors)

    @contextlib.contextmanager
    def traced(self) -> Iterator[Any]:
        """The module in a trace, with tensors of its arrays."""
        from winobench.torch_modules import bridge

        self.program.check_unchanged()
        with functional.precision(self.dtype), bridge.tracing(), self.with_arrays(bridge.as_torch) as module:
            yield module

    def run(self, *arrays: Any) -> jax.Array:
        """`compute` of JAX arrays, in a trace."""
        return self.apply(self.compute, *arrays)

    def run_in_torch(self, *arrays: Any) -> np.ndarray:
        """`compute` of arrays, by torch on the host."""
        return self.apply_in_torch(self.compute, *arrays)

    def apply(self, function: Callable[..., Any], *arrays: Any) -> jax.Array:
        """A function of the module and tensors, of JAX arrays, in a trace."""
        from winobench.torch_modules import bridge

        with self.traced() as module:
            return bridge.as_jax(function(module, *jax.tree.map(bridge.as_torch, arrays)))

    def apply_in_torch(self, function: Callable[..., Any], *arrays: Any) -> np.ndarray:
        """A function of the module and tensors, of arrays, by torch on the host."""
        from winobench.torch_modules import bridge

        with bridge.in_torch(), self.with_arrays(bridge.to_torch, np.asarray) as module:
            return bridge.to_numpy(function(module, *jax.tree.map(bridge.to_torch, arrays)))

    def with_arrays(
        self, convert: Callable[[Any], Any], first: Callable[[Any], Any] = lambda array: array
    ) -> contextlib.AbstractContextManager[Any]:
        """The module with converted arrays as its tensors. ``first`` runs before kernels are transposed, as views."""
        from winobench.torch_modules import operations

        arrays = {name: first(parameter.get_value()) for name, parameter in self.arrays.items()}
        arrays |= {name: operations.weight_of(arrays[name]) for name in self.kernels}
        return self.program.with_tensors({name: convert(array) for name, array in arrays.items()})


def _without_numbers(tensor: Any) -> Any:
    """The tensor on the meta device. A parameter stays a parameter."""
    import torch

    moved = tensor.to("meta")
    return torch.nn.Parameter(moved, requires_grad=False) if isinstance(tensor, torch.nn.Parameter) else moved


def _on_meta(module: Any) -> Any:
    """The module on the meta device. Tied parameters stay one."""
    names: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    module = module.to("meta")
    for first, *others in names.values():
        for name in others:
            owner, last = _owner(module, name)
            setattr(owner, last, module.get_parameter(first))
    return module


def weights_of_convolutions(module: Any) -> tuple[str, ...]:
    """Their names among a module's parameters."""
    import torch

    kinds = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)
    parameters = dict(module.named_parameters())
    names = (f"{name}.weight" for name, part in module.named_modules() if isinstance(part, kinds))
    return tuple(name for name in names if name in parameters)


def loose_tensors(module: Any) -> dict[str, Any]:
    """Tensors of a module that are neither parameters nor buffers, such as tables of rotations."""
    import torch

    return {
        f"{prefix}.{name}" if prefix else name: value
        for prefix, part in module.named_modules()
        for name, value in vars(part).items()
        if isinstance(value, torch.Tensor)
    }


def _owner(module: Any, name: str) -> tuple[Any, str]:
    prefix, _, last = name.rpartition(".")
    return module.get_submodule(prefix), last
