"""A torch module as a network of ours: its arrays are parameters, and the module itself holds none."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from winobench.base import json_files
from winobench.models import functional


class TorchConfig:
    """The config of a torch module. Options are attributes, as in configs of ours."""

    def __init__(self, values: Mapping[str, Any]):
        self._text = json.dumps({**values}, sort_keys=True, default=str)
        self._values = json_files.parse(self._text)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_values"][name]
        except KeyError:
            raise AttributeError(name) from None

    def to_dict(self) -> dict[str, Any]:
        return self._values

    def __hash__(self) -> int:
        return hash(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TorchConfig) and self._text == other._text


class TorchProgram:
    """A torch module on torch's meta device. Equal where the same code with the same config and arrays runs.

    Attributes:
      key: identifies what is traced, besides the shapes of the arrays.
    """

    def __init__(self, module: Any, key: Any):
        self.module, self.key = module, (type(module).__qualname__, key)

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TorchProgram) and self.key == other.key

    @contextlib.contextmanager
    def with_tensors(self, tensors: Mapping[str, Any]) -> Iterator[Any]:
        """The module, which computes with these tensors."""
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
    """A torch module's arrays, under torch's names and in torch's layouts, and the program that computes with them.

    Attributes:
      config: of the module.
      dtype: of its computation.
    """

    shares_rows = False

    def __init__(self, module: Any, config: TorchConfig, *, key: Any = None):
        """Takes the numbers out of a module, which is on the meta device afterwards."""
        from winobench.torch_pipelines import bridge

        module = module.eval().requires_grad_(False)
        tensors = {**dict(module.named_parameters()), **dict(module.named_buffers()), **loose_tensors(module)}
        self.dtype = jnp.dtype(str(module.dtype).removeprefix("torch."))
        self.config = config
        self.arrays = nnx.Dict({name: nnx.Param(bridge.to_numpy(tensors[name])) for name in sorted(tensors)})
        del tensors
        self.program = TorchProgram(module.to("meta"), (config, key))

    def to_devices(self) -> None:
        """Puts the arrays on a device, one after the other, so that the host's memory is freed."""
        for parameter in self.arrays.values():
            parameter.set_value(jax.device_put(parameter.get_value()))

    def compute(self, module: Any, *tensors: Any) -> Any:
        """What is computed with the module, of tensors."""
        return module(*tensors)

    def run(self, *arrays: Any) -> jax.Array:
        """`compute` of JAX arrays, in a trace."""
        from winobench.torch_pipelines import bridge

        with functional.precision(self.dtype), bridge.tracing():
            tensors = {name: bridge.as_torch(parameter.get_value()) for name, parameter in self.arrays.items()}
            with self.program.with_tensors(tensors) as module:
                return bridge.as_jax(self.compute(module, *jax.tree.map(bridge.as_torch, arrays)))

    def run_in_torch(self, *arrays: Any) -> np.ndarray:
        """`compute` of arrays, by torch on the host."""
        from winobench.torch_pipelines import bridge

        with bridge.in_torch():
            tensors = {name: bridge.to_torch(parameter.get_value()) for name, parameter in self.arrays.items()}
            with self.program.with_tensors(tensors) as module:
                return bridge.to_numpy(self.compute(module, *jax.tree.map(bridge.to_torch, arrays)))


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
