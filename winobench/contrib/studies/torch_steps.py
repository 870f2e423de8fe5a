"""Training steps whose gradients torch computes, for winobench's training loop and optimizers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from winobench import parallel
from winobench.contrib.studies import embedded
from winobench.runs.training_settings import Stage
from winobench.training import loop

# (module, batch of tensors, number of finished steps) -> scalar loss, metrics
Compute = Callable[[Any, Mapping[str, Any], int], tuple[Any, Mapping[str, Any]]]


def make_step(module: Any, compute: Compute, settings: Stage, seed: int) -> tuple[loop.StepFn, loop.TrainState]:
    """The training step of a module's trainable parameters, and its first state."""
    from winobench.torch_modules.bridge import torch

    trainable = {name: value for name, value in module.named_parameters() if value.requires_grad}
    update, state = embedded.make_step(_linear, parameters(module), settings, seed)

    def step(state: loop.TrainState, batch: loop.Batch) -> tuple[loop.TrainState, dict[str, Any]]:
        load(module, state.params)
        tensors = {name: torch.from_numpy(np.array(value)) for name, value in batch.items()}
        loss, metrics = compute(module, tensors, int(state.step))
        gradients = torch.autograd.grad(loss, list(trainable.values()), materialize_grads=True)
        given = {name: value.numpy() for name, value in zip(trainable, gradients, strict=True)}
        state, of_update = update(state, given)
        values = {name: jnp.asarray(value.detach().numpy()) for name, value in {"loss": loss, **metrics}.items()}
        return state, {**of_update, **values}

    return step, state


def one_device() -> Mesh:
    """The device of the optimizer. Torch computes gradients on the host, so that others have nothing to do."""
    return parallel.make_mesh(jax.local_devices()[:1])


def _linear(params: loop.Params, gradients: loop.Batch, key: jax.Array) -> tuple[jax.Array, loop.Metrics]:
    """A loss whose gradients are the given ones."""
    return sum(jnp.vdot(params[name], gradients[name]) for name in params), {}


def parameters(module: Any) -> dict[str, jax.Array]:
    """The trainable parameters under torch's names."""
    return {name: jnp.array(value.detach().numpy()) for name, value in module.named_parameters() if value.requires_grad}


def load(module: Any, params: Mapping[str, Any]) -> None:
    """Writes parameters into a module."""
    from winobench.torch_modules.bridge import torch

    own = dict(module.named_parameters())
    with torch.no_grad():
        for name, value in params.items():
            own[name].copy_(torch.from_numpy(np.array(value)))
