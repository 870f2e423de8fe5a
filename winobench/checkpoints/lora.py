"""LoRA files: every way in which diffusers has named their tensors, read into one form. The current way, written.

A file holds two factors a layer, in torch's layout, and at most a number ``alpha``: their product is multiplied by
alpha / rank, of each layer. Other forms are in `lora_changes`. Peft's own folders are read as well, one for all or one
for each network of a pipeline.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import math
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from flax import nnx

from winobench.base.errors import InputError
from winobench.base.files import user_path
from winobench.checkpoints import lora_changes, lora_configs, lora_keys, lora_layers, pickles, sources, weights
from winobench.checkpoints.lora_changes import Change
from winobench.checkpoints.lora_configs import PeftConfig
from winobench.checkpoints.lora_layers import Adapter
from winobench.models import lora
from winobench.models.any_pipeline import AnyPipeline

_log = logging.getLogger(__name__)

WEIGHTS_NAME = "pytorch_lora_weights"  # stem of the file's name
_PEFT_NAME = "adapter_model"
# Folders of a pipeline's networks, in which peft's adapters of each may lie.
_PARTS = ("unet", "transformer", "text_encoder", "text_encoder_2")
_NEGATIVES_KEY = "winobench.negatives"


@dataclasses.dataclass(frozen=True)
class LoRAWeights:
    """The adapters in a LoRA file."""

    # Network in the pipeline -> torch's name of the layer -> its adapter. Layers of text encoders begin with
    # ``text_model.``. As read, a transformer may be called ``unet``, and its layers have the names of the file;
    # `load_lora` returns the network's names.
    parts: Mapping[str, Mapping[str, Adapter | Change]]
    file: str  # a folder if that has one file for each network
    negatives: str | None = None  # of our training, as the file states; None where it does not

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that occur, ascending. Most files have one."""
        ranks = {adapter.rank for part in self.parts.values() for adapter in part.values()}
        return tuple(sorted(rank for rank in ranks if rank is not None))

    @property
    def sha256(self) -> str:
        """Identifies layers, values and alphas. Names of tensors and the file's format do not matter."""
        digest = hashlib.sha256()
        denoisers_first = sorted(self.parts.items(), key=lambda part: (part[0].startswith("text_encoder"), part[0]))
        for name, part in denoisers_first:
            for layer, adapter in sorted(part.items()):
                for about, values in adapter.identity():
                    digest.update(f"{name}.{layer} {about}\n".encode() if about else b"")
                    digest.update(np.ascontiguousarray(values).data)
        return digest.hexdigest()


def read_lora(source: str | os.PathLike, *, revision: str | None = None, allow_pickle: bool = False) -> LoRAWeights:
    """Reads a LoRA file, or the files of a folder or hub id, in any of the forms that this module lists."""
    paths = locate(source, revision, allow_pickle)
    parts: dict[str, dict[str, Adapter | Change]] = {}
    for path in paths:
        for part, adapters in _read(path).items():
            if part in parts:
                raise InputError(f"{path}: another file has adapters of the {part}, too: remove one", code="two-files")
            parts[part] = adapters
    origin = paths[0] if len(paths) == 1 else os.path.dirname(os.path.dirname(paths[0]))
    return LoRAWeights(parts, origin, weights.metadata(paths[0]).get(_NEGATIVES_KEY))


def _read(path: str) -> dict[str, dict[str, Adapter | Change]]:
    """The adapters of one file: network -> layer -> adapter."""
    tensors = weights.read_weights([path])
    neighbour, within = lora_configs.next_to(path), lora_configs.within(path)
    if neighbour is None and (os.path.basename(path).startswith(_PEFT_NAME) or (not within and _is_pefts(tensors))):
        message = f"{path} is peft's, but {sources.ADAPTER_CONFIG}, which holds its strength, is not next to it: get it"
        raise InputError(message, code="missing-files")
    folder = os.path.basename(os.path.dirname(os.path.abspath(path)))
    bare = folder if neighbour is not None and folder in _PARTS else lora_keys.DENOISER
    with sources.blame(path):
        layers = roles_of(tensors, bare)
        own = {part for (part, _), roles in layers.items() if "alpha" in roles}
        stated = {} if neighbour or within or own == {part for part, _ in layers} else lora_configs.stated(path)
        if stated:
            alphas = ", ".join(sorted({f"{config.alpha:g}" for config in stated.values()}))
            _log.warning("%s: its alpha is from its metadata (%s), as tensors lack it.", path, alphas)
        parts: dict[str, dict[str, Adapter | Change]] = {}
        for (part, layer), roles in layers.items():
            other = "transformer" if part == lora_keys.DENOISER else part
            configs = within if part in own else within | stated
            chosen = [neighbour, configs.get(None), configs.get(part, configs.get(other))]
            adapter = adapter_of(layer, roles, [config for config in chosen if config is not None])
            parts.setdefault(part, {})[layer] = adapter
        for part, adapters in parts.items():
            alphas = {layer: adapter.alpha for layer, adapter in adapters.items() if adapter.rank is not None}
            without = sorted(layer for layer, alpha in alphas.items() if alpha is None)
            if 0 < len(without) < len(alphas):
                message = f"some layers of the {part} have an alpha, but {without[0]} has none: get the file again"
                raise InputError(message, code="incomplete-file")
    return parts


def roles_of(
    tensors: Mapping[str, weights.FileTensor], bare: str = lora_keys.DENOISER
) -> dict[tuple[str, str], dict[str, weights.FileTensor]]:
    """(network, layer) -> role -> tensor of the file. ``bare`` is the network of names without one."""
    layers: dict[tuple[str, str], dict[str, weights.FileTensor]] = {}
    unknown = []
    for key, tensor in tensors.items():
        if (known := lora_keys.parse(key, bare)) is None:
            unknown.append(key)
            continue
        *layer, role = known
        roles = layers.setdefault(tuple(layer), {})
        if role in roles:
            message = f"{roles[role].name} and {key} are two names of the same tensor: remove one"
            raise InputError(message, code="repeated-tensor")
        roles[role] = tensor
    if unknown:
        raise InputError(_describe_unknown(unknown), code="not-a-lora")
    if not layers:
        raise InputError("the file holds no tensors, so it is not a LoRA: get it again", code="empty-file")
    return layers


def _is_pefts(names: Iterable[str]) -> bool:
    """Whether only peft's config can say how strong the tensors are, which diffusers knows of FLUX's original names."""
    named = [name.removeprefix(lora_keys.OF_PEFT) for name in names if name.startswith(lora_keys.OF_PEFT)]
    return bool(named) and not any(name.startswith(("double_blocks.", "single_blocks.")) for name in named)


def load_lora(
    pipeline: AnyPipeline,
    source: str | os.PathLike | LoRAWeights,
    *,
    scale: float = 1.0,
    fuse: bool = True,
    revision: str | None = None,
    allow_pickle: bool = False,
) -> LoRAWeights:
    """Gives a pipeline's denoiser, and text encoders where the file adapts them too, the adapters of a file, in place.

    With ``fuse`` the products are added to the weights, which costs nothing at run time. Otherwise the adapters stay
    apart, in float32, which loses less where weights are in bfloat16. Pairs of factors alone can stay apart.
    """
    if isinstance(scale, bool) or not isinstance(scale, int | float) or not math.isfinite(scale):
        message = f"the scale of a LoRA is {scale!r}, but must be a finite number, such as 1"
        raise InputError(message, code="out-of-range")
    read = (
        source if isinstance(source, LoRAWeights) else read_lora(source, revision=revision, allow_pickle=allow_pickle)
    )
    chosen: dict[str, dict[str, Adapter | Change]] = {}
    for part, adapters in read.parts.items():
        name = _network_name(pipeline, part, adapters, read.file)
        if name is None:
            continue
        with sources.blame(read.file):
            fitted = lora_layers.fitted(pipeline.networks[name], adapters)
            if double := sorted(fitted.keys() & chosen.get(name, {}).keys()):
                message = f"the layer {double[0]} of the {name} has two adapters: remove one"
                raise InputError(message, code="repeated-tensor")
            chosen[name] = {**chosen.get(name, {}), **fitted}
            pairs, changes = _by_form(chosen[name])
            if changes and not fuse:
                form = changes[min(changes)].form
                message = f"the {form} of {min(changes)} cannot stay apart from the weights: use fuse_lora=True"
                raise InputError(message, code="unsupported-option")
            lora.check_fit(pipeline.networks[name], pairs)
            lora_changes.check_fit(pipeline.networks[name], changes)
    for name, adapters in chosen.items():
        factors, changes = _by_form(adapters)
        scaled = {layer: values._replace(scale=scale * values.scale) for layer, values in factors.items()}
        lora.attach(pipeline.networks[name], scaled)
        if fuse:
            lora.fuse(pipeline.networks[name])
        lora_changes.apply(pipeline.networks[name], changes, scale)
    return LoRAWeights(chosen, read.file, read.negatives)


def _by_form(adapters: Mapping[str, Adapter | Change]) -> tuple[dict[str, lora.Factors], dict[str, Change]]:
    """The plain pairs of factors, and all other adapters, by layer."""
    pairs = {layer: adapter.factors for layer, adapter in adapters.items() if isinstance(adapter, Adapter)}
    return pairs, {layer: adapter for layer, adapter in adapters.items() if isinstance(adapter, Change)}


def _network_name(pipeline: AnyPipeline, part: str, adapters: Mapping[str, Adapter | Change], path: str) -> str | None:
    """The name in the pipeline of the network that a file's part adapts; None for zeros that no network takes."""
    if part == lora_keys.DENOISER:
        part = pipeline.DENOISER
    elif part == lora_keys.T5 and part not in pipeline.NETWORKS and pipeline.LARGE_ENCODERS:
        part = pipeline.LARGE_ENCODERS[0]
    networks, kind = pipeline.networks, type(pipeline).__name__
    if part in networks and getattr(networks[part], "lora_targets", None):
        return part
    if all(adapter.is_zero for adapter in adapters.values()):
        return None
    if part not in networks:
        which = f"this {kind}, whose {part} is left out," if part in pipeline.NETWORKS else f"a {kind}"
        raise InputError(f"{path}: it adapts a {part}, but {which} has {', '.join(networks)} only", code="lora-misfit")
    kind = type(networks[part]).__name__
    message = f"{path}: it adapts the {part}, a {kind}, for which no LoRA can be used: remove its tensors"
    raise InputError(message, code="lora-misfit")


def save_lora(folder: str | os.PathLike, *, negatives: str | None = None, **networks: nnx.Module | None) -> str:
    """Writes the adapters of networks as ``pytorch_lora_weights.safetensors``, whole or not at all.

    The file has diffusers' current names, float32 values, and no alpha: ``up`` is multiplied by the adapter's scale, so
    that every program that reads such files computes what the networks compute here.
    """
    arrays: dict[str, np.ndarray] = {}
    for part, network in networks.items():
        for name, adapter in lora.adapters(network).items() if network is not None else ():
            down, up = np.asarray(adapter.down[...]), np.asarray(adapter.up[...]) * np.float32(adapter.scale)
            if not (np.isfinite(down).all() and np.isfinite(up).all()):
                message = f"the adapter of {part}.{name} is not finite: look for the step at which training diverged"
                raise InputError(message, code="not-finite")
            is_dense = down.ndim == 2
            arrays[f"{part}.{name}.lora_A.weight"] = down.T if is_dense else down.transpose(3, 2, 0, 1)
            arrays[f"{part}.{name}.lora_B.weight"] = up.T if is_dense else up.T[:, :, None, None]
    if not arrays:
        raise InputError("no LoRA to save: none of the networks has adapters", code="no-lora")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"{WEIGHTS_NAME}.safetensors")
    weights.write_weights(path, arrays, {} if negatives is None else {_NEGATIVES_KEY: negatives})
    return path


def locate(source: str | os.PathLike, revision: str | None, allow_pickle: bool) -> list[str]:
    """The files of a LoRA: one, or one for each network."""
    path = user_path(source)
    paths = [path]
    if not os.path.isfile(path):
        if not os.path.exists(path) and path.endswith((".safetensors", ".bin")):
            raise InputError(f"LoRA: the file {path} does not exist", code="no-such-file")
        paths = _in_place(sources.resolve(path, revision=revision))
    for path in paths:
        if not path.endswith((".safetensors", ".bin")):
            raise InputError(f"LoRA: {path} is neither a .safetensors nor a .bin file", code="unsupported-file-format")
        if path.endswith(".bin") and not allow_pickle:
            raise pickles.not_allowed(path, f"{pickles.CONVERT} {shlex.quote(path)}")
    return paths


def _in_place(place: sources.Source) -> list[str]:
    """The files of a folder or repository: diffusers', else peft's, else peft's of each network."""
    if (path := _in_folder(place, None)) is not None:
        return [path]
    if found := [path for part in _PARTS if (path := _in_folder(place, part)) is not None]:
        return found
    there = [name for name in place.names("") if name.endswith((".safetensors", ".bin"))]
    advice = f"it has {sources.shorten(there)}: name the file of the adapter itself" if there else "name another place"
    message = f"{place} has no {WEIGHTS_NAME}.safetensors and no {_PEFT_NAME}.safetensors: {place.hint() or advice}"
    raise InputError(message, code="no-such-file")


def _in_folder(source: sources.Source, folder: str | None) -> str | None:
    # Of a repository this brings the config to where `lora_configs.next_to` looks for it.
    config = source.find(sources.join(folder, sources.ADAPTER_CONFIG))
    stems = [WEIGHTS_NAME] * (folder is None) + [_PEFT_NAME]
    for name in (f"{stem}.{end}" for stem in stems for end in ("safetensors", "bin")):
        if (path := source.find(sources.join(folder, name))) is not None:
            return path
    if config is not None:
        message = f"{config} has no {_PEFT_NAME}.safetensors next to it: {source.hint() or 'get that, too'}"
        raise InputError(message, code="missing-files")
    return None


# Part of a tensor's name -> the kind of adapter that has it.
_OTHER_KINDS = {
    "oft_": "this is an OFT adapter",
    "vera_": "this is a VeRA adapter",
    **dict.fromkeys(("ia3_", "on_input"), "this is an IA3 adapter"),
    "lora_embedding_": "it adapts an embedding",
    **dict.fromkeys(("_norm.scale", ".norm_q."), "this is a control LoRA of FLUX.1, which also changes norms"),
    "base_layer": "it holds weights of the base model",
    "modules_to_save": "it holds whole layers",
}


def _describe_unknown(keys: list[str]) -> str:
    kind = next((kind for mark, kind in _OTHER_KINDS.items() if any(mark in key for key in keys)), None)
    reason = f"{kind}, which is not supported" if kind else "only forms of diffusers, kohya, LyCORIS or peft are known"
    return f"tensors have names that no LoRA has ({sources.shorten(sorted(keys), 2)}): {reason}"


def adapter_of(
    layer: str, roles: Mapping[str, weights.FileTensor], configs: Sequence[PeftConfig] = ()
) -> Adapter | Change:
    """The adapter of one layer from its tensors."""
    named = {role: tensor for role, tensor in roles.items() if role != "alpha"}
    values = {role: _finite(tensor.name, tensor.floats()) for role, tensor in named.items()}
    first = next(iter(roles.values())).name
    if (lengths := values.get("magnitude")) is not None:
        # For convolutions, peft's lengths of outputs have a first axis of 1, like LyCORIS' lengths of inputs.
        of_inputs = named["magnitude"].name.endswith("dora_scale") and lengths.ndim > 1 and lengths.shape[0] == 1
        values["magnitude"] = lengths if of_inputs else lengths.reshape(-1)
    if values.keys() >= {"down", "up"}:
        _check_pair(named, values)
        if (core := values.pop("mid", None)) is not None:
            values["down"] = np.einsum("rshw,sixy->rihw", core, values["down"])
        values["up"] = values["up"].reshape(values["up"].shape[:2])
    change = Change(values)
    try:
        change.shape  # noqa: B018  # raises
    except KeyError as error:
        message = f"{first} has no counterpart ({error.args[0]} of {layer}): the file is incomplete"
        raise InputError(message, code="incomplete-file") from error
    except (TypeError, ValueError) as error:
        shapes = ", ".join(f"{tensor.name} {list(tensor.shape)}" for tensor in named.values())
        message = f"the tensors of {layer} do not go together ({shapes}): get the file again"
        raise InputError(message, code="damaged-file") from error
    for config in configs:
        config.check_form(layer, change.kind, values.keys())
    alpha = _alpha(layer, change.rank, roles, configs)
    if values.keys() == {"down", "up"}:
        return Adapter(values["down"], values["up"], alpha)
    return dataclasses.replace(change, alpha=alpha)


def _check_pair(named: Mapping[str, weights.FileTensor], values: Mapping[str, np.ndarray]) -> None:
    """Raises InputError unless the two factors, with any core between them, fit one layer."""
    names, (down, up) = [named[role].name for role in ("down", "up")], (values["down"], values["up"])
    if not (down.ndim == up.ndim == 2 or (down.ndim == up.ndim == 4 and up.shape[2:] == (1, 1))):
        shapes = f"{names[0]} has the shape {list(down.shape)} and {names[1]} the shape {list(up.shape)}"
        message = f"{shapes}, but only factors of dense layers and of convolutions of images are supported"
        raise InputError(message, code="wrong-shape")
    rank = down.shape[0]
    if not rank == up.shape[1] > 0:
        message = f"{names[0]} has the rank {rank}, but {names[1]} the rank {up.shape[1]}: get the file again"
        raise InputError(message, code="damaged-file")
    if "mid" in named and not (named["mid"].shape[:2] == (rank, rank) and len(named["mid"].shape) == down.ndim == 4):
        message = f"{named['mid'].name} has the shape {list(named['mid'].shape)}, which does not fit the rank {rank}"
        raise InputError(f"{message}: get the file again", code="damaged-file")


def _alpha(
    layer: str, rank: int | None, roles: Mapping[str, weights.FileTensor], configs: Sequence[PeftConfig]
) -> float | None:
    """A layer's alpha from the file or the configs, or None."""
    alphas: list[tuple[str, float]] = []
    if tensor := roles.get("alpha"):
        values = np.asarray(tensor.read())
        values = _finite(tensor.name, values if np.issubdtype(values.dtype, np.integer) else tensor.floats())
        if values.size != 1:
            message = f"{tensor.name} has the shape {list(values.shape)}, but must be one number"
            raise InputError(message, code="wrong-shape")
        # Without a rank, LyCORIS ignores it.
        alphas += [(tensor.name, float(values.item()))] if rank is not None else []
    # Under the name that it has in the file: releases of transformers differ in CLIP's ``text_model``.
    named = layer if "text_model" in next(iter(roles.values())).name else layer.removeprefix("text_model.")
    alphas += [(config.place, config.alpha_of(named, rank)) for config in configs]
    for origin, alpha in alphas[1:]:
        if not math.isclose(alpha, alphas[0][1], rel_tol=1e-2):  # a tensor may be in bfloat16
            first, value = alphas[0]
            message = f"the alpha of {layer} is {value:g} in {first}, but {alpha:g} in {origin}: remove the wrong one"
            raise InputError(message, code="mismatched-parts")
    return alphas[0][1] if alphas else None


def _finite(name: str, values: np.ndarray) -> np.ndarray:
    """A tensor's values as float32."""
    values = np.asarray(values).astype(np.float32)
    if not np.isfinite(values).all():
        message = f"{name} holds values that are not finite: the training of this LoRA diverged"
        raise InputError(message, code="not-finite")
    return values
