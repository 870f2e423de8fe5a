"""LoRA of pipelines of diffusers: read as for winobench's own models, and added to the weights of torch's layers.

diffusers itself only renames layers whose names neither it nor `lora_layers` knows.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from typing import Any

import jax
import numpy as np

from winobench.base.errors import InputError
from winobench.checkpoints import lora, lora_keys, lora_layers, sources, weights
from winobench.checkpoints.lora import LoRAWeights
from winobench.checkpoints.lora_changes import Change
from winobench.checkpoints.tensors import FileTensor
from winobench.torch_modules import loading

_MISFIT = "lora-misfit"
_TEXT_MODEL = "text_model."
# The factors that take the strength of an adapter: one of each product, and the bias of a factor.
_SCALED = ("up", "up_bias", "hada_w1_a", "lokr_w1", "lokr_w1_a")

Changes = dict[str, Change]


@dataclasses.dataclass(frozen=True)
class LoRAFile:
    """A LoRA file, or peft's files of several networks.

    Attributes:
      sha256: a hash of its tensors (names, dtypes, shapes and values), and of its strengths where they are not 1.
    """

    path: str
    sha256: str
    adapters: LoRAWeights
    negatives: None = None  # no training here writes such files


def read(source: str | os.PathLike[str], *, allow_pickle: bool = False) -> LoRAFile:
    """Reads a LoRA file, also from a folder or hub id. Refuses pickles in any case."""
    del allow_pickle
    adapters = lora.read_lora(source)
    digest = hashlib.sha256()
    for path in lora.locate(source, None, False):
        for name, tensor in sorted(weights.read_weights([path]).items()):
            values = np.ascontiguousarray(tensor.read())
            digest.update(f"{name} {values.dtype.name} {values.shape}\n".encode())
            digest.update(values.reshape(-1).view(np.uint8).data)
    for part, layers in sorted(adapters.parts.items()):
        for layer, adapter in sorted(layers.items()):
            if (scale := _as_change(adapter).scale) != 1:
                digest.update(f"{part}.{layer} {scale!r}\n".encode())
    return LoRAFile(adapters.file, digest.hexdigest(), adapters)


def _as_change(adapter: lora_layers.Adapter | Change) -> Change:
    if isinstance(adapter, Change):
        return adapter
    return Change({"down": adapter.down, "up": adapter.up}, adapter.alpha)


def fuse(pipe: Any, file: LoRAFile, scale: float) -> None:
    """Adds a LoRA to a pipeline's weights, text encoders included. Raises InputError unless all tensors are used."""
    from winobench.torch_modules import bridge

    kind = type(pipe).__name__
    if not hasattr(pipe, "load_lora_weights"):
        raise InputError(f"diffusers loads no LoRA for a {kind}: leave it out (lora)", code="unsupported-option")
    chosen: dict[str, Changes] = {}
    for part, adapters in file.adapters.parts.items():
        name = _network_name(pipe, part, file)
        if name is not None:
            changes = {layer: _as_change(adapter) for layer, adapter in adapters.items()}
            fitted = _fitted(pipe, name, changes, file)
            if double := sorted(fitted.keys() & chosen.get(name, {}).keys()):
                message = f"{file.path}: the layer {double[0]} of the {name} has two adapters: remove one"
                raise InputError(message, code="repeated-tensor")
            chosen[name] = {**chosen.get(name, {}), **fitted}
    for name, changes in chosen.items():
        layers = _layers(pipe.components[name])
        with jax.default_device(jax.local_devices(backend="cpu")[0]):
            for layer, change in changes.items():
                parameters = [layers[layer].weight, getattr(layers[layer], "bias", None)]
                arrays = [None if tensor is None else bridge.to_numpy(tensor) for tensor in parameters]
                for parameter, new in zip(parameters, change.changed(*arrays, scale), strict=True):
                    if parameter is not None:
                        parameter.data = bridge.torch.tensor(np.asarray(new)).to(parameter.dtype)


def _network_name(pipe: Any, part: str, file: LoRAFile) -> str | None:
    """The pipeline's network that a part of a file adapts; None for zeros that no network takes."""
    from winobench.contrib.torch_pipelines.families import family_of
    from winobench.torch_modules import bridge

    kind = type(pipe).__name__
    networks = {name: part for name, part in pipe.components.items() if isinstance(part, bridge.torch.nn.Module)}
    if part == lora_keys.DENOISER:
        return family_of(kind).denoiser
    if part == lora_keys.T5 and part not in networks:
        t5 = (name for name, net in networks.items() if name.startswith("text_encoder") and "T5" in type(net).__name__)
        part = next(t5, part)
    if part in networks:
        return part
    if all(adapter.is_zero for adapter in file.adapters.parts[part].values()):
        return None
    message = f"{file.path}: it adapts a {part}, but a {kind} has {', '.join(networks)} only"
    raise InputError(message, code=_MISFIT)


def _layers(network: Any) -> dict[str, Any]:
    """The layers of a network that a change can fit."""
    layers = {name: layer for name, layer in network.named_modules() if name}
    weights = {name: getattr(layer, "weight", None) for name, layer in layers.items()}
    return {name: layers[name] for name, weight in weights.items() if getattr(weight, "ndim", 0) in (1, 2, 4)}


def _fitted(pipe: Any, name: str, changes: Changes, file: LoRAFile) -> Changes:
    """Changes under the names of the network's layers."""
    network = pipe.components[name]
    layers = _layers(network)
    shapes = {name: tuple(layer.weight.shape) for name, layer in layers.items()}
    kind = type(network).__name__

    def named(changes: Changes) -> Changes:
        if name.startswith("text_encoder") and not any(layer.startswith(_TEXT_MODEL) for layer in shapes):
            changes = {layer.removeprefix(_TEXT_MODEL): change for layer, change in changes.items()}
        turned = {layer: shape[::-1] for layer, shape in shapes.items()}
        return lora_layers.named(kind, network.config, turned, changes)

    with sources.blame(file.path):
        fitted = named(changes)
        if not fitted.keys() <= shapes.keys() and not name.startswith("text_encoder"):
            fitted = named(_renamed(pipe, changes)) or fitted
        if unknown := sorted(fitted.keys() - shapes.keys()):
            message = (
                f"it adapts {len(unknown)} layers that the {name} of a {type(pipe).__name__} lacks"
                f" ({sources.shorten(unknown, 2)}): name a LoRA that was made for it"
            )
            raise InputError(message, code=_MISFIT)
        for layer, change in fitted.items():
            bias = getattr(layers[layer], "bias", None)
            if reason := change.check(shapes[layer], None if bias is None else tuple(bias.shape)):
                message = f"the adapter of {layer} {reason}: it is of another model than this {kind}, or damaged"
                raise InputError(message, code=_MISFIT)
    return fitted


def _renamed(pipe: Any, changes: Changes) -> Changes:
    """Changes under diffusers' names, by its table for the original code's. Empty where it has none.

    diffusers drops some alphas and tensors without an error. So the factors hold the strength, and none may be lost.
    """
    from winobench.torch_modules import bridge

    ends = {"down": "lora_A.weight", "up": "lora_B.weight", "up_bias": "lora_B.bias", "magnitude": "dora_scale"}
    state = {}
    for layer, change in changes.items():
        for role, values in change.tensors.items():
            scaled = values * np.float32(change.scale) if role in _SCALED else values
            state[f"diffusion_model.{layer}.{ends.get(role, role)}"] = bridge.torch.tensor(scaled)
    total = _size(changes)
    try:
        with loading.quietly(f"a {type(pipe).__name__} has no such names"):
            renamed = pipe.lora_state_dict(state)
    except InputError:
        return {}
    renamed = renamed[0] if isinstance(renamed, tuple) else renamed
    tensors = {
        key: FileTensor(key, tuple(tensor.shape), "", lambda tensor=tensor: tensor.float().numpy())
        for key, tensor in renamed.items()
        if not key.endswith("alpha")
    }
    roles = lora.roles_of(tensors)
    fitted = {layer: _as_change(lora.adapter_of(layer, tensors)) for (_, layer), tensors in roles.items()}
    return fitted if np.isclose(_size(fitted), total, rtol=1e-3) else {}


def _size(changes: Changes) -> float:
    """A sum over all factors but the first ones, which layers may share."""
    return sum(
        float(np.sum(np.square(values * (change.scale if role in _SCALED else 1), dtype=np.float64)))
        for change in changes.values()
        for role, values in change.tensors.items()
        if role != "down"
    )
