"""LoRA files: every way in which diffusers has named their tensors, read into one form; the current way, written.

A file holds two factors a layer, in torch's layout, and at most a number ``alpha``, by which, over the rank, their
product is multiplied. The factors' names, for the layer ``...attn1.to_q`` of a UNet:

- ``unet...attn1.to_q.lora_A.weight``, ``.lora_B.weight``: current diffusers, peft's names;
- ``unet...attn1.to_q.lora.down.weight``, ``.lora.up.weight``, or with ``.processor`` before ``.to_q``: before that;
- ``unet...attn1.processor.to_q_lora.down.weight``, ``.up.weight``: the first ones; the output layer is
  ``to_out_lora`` there.

Each of them also without the prefix ``unet.``, as the first ones were published: there torch diffusers finds nothing to
load and goes on with the model as it was. A text encoder's have the prefix ``text_encoder.`` (``text_encoder_2.``),
with or without ``text_model.`` behind it, and ``.lora_linear_layer.down.weight`` or ``.to_q_lora.down.weight`` in old
files. The prefix is always the network's name in the pipeline (`Pipeline.NETWORKS`).

kohya's scripts name a layer in one word, ``lora_unet_down_blocks_0_..._attn1_to_q.lora_down.weight`` and
``lora_te1_text_model_..._q_proj.lora_up.weight``, with ``.alpha`` beside; SDXL's blocks in those of the original code
(``input_blocks_4_1`` is ``down_blocks.1.attentions.0``).
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
import re
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
import safetensors
from flax import nnx

from winobench import json_files, options
from winobench.checkpoints import sources, weights
from winobench.errors import InputError
from winobench.files import user_path
from winobench.models import lora

if TYPE_CHECKING:
    from winobench.diffusion.pipeline import Pipeline

WEIGHTS_NAME = "pytorch_lora_weights"
"""Stem of the file's name."""

_PREFIX = re.compile(r"(unet|transformer|text_encoder(?:_\d)?)\.(.+)")
_FIRST_PART = "unet"  # of names without a prefix
_KEY = re.compile(
    r"(?P<layer>.+?)(?:"
    r"\.lora_(?P<letter>[AB])\.weight"
    r"|\.lora_(?P<kohya>down|up)\.weight"
    r"|(?:\.lora|\.lora_linear_layer|(?P<old>_lora))\.(?P<side>down|up)\.weight"
    r"|(?:\.lora|\.lora_linear_layer|(?P<old_alpha>_lora))?\.(?P<alpha>alpha)"
    r")"
)
# The first names of attention layers -> the layers' own, in denoisers and in text encoders.
_FIRST_NAMES = {"to_q": "to_q", "to_k": "to_k", "to_v": "to_v", "to_out": "to_out.0"}
_FIRST_NAMES_OF_TEXTS = {"to_q": "q_proj", "to_k": "k_proj", "to_v": "v_proj", "to_out": "out_proj"}
_LAYER_PATTERN = re.compile(r"\^?(\w|\.|\\\.|-){1,300}")
_KOHYA_PARTS = {"unet": "unet", "te": "text_encoder", "te1": "text_encoder", "te2": "text_encoder_2"}
_KOHYA = re.compile(rf"lora_({'|'.join(_KOHYA_PARTS)})_(\w+)(\..+)")
# Names of modules that hold an underscore: all others in kohya's names stand for a dot.
_WORDS = re.compile(
    r"down_blocks|up_blocks|mid_block|transformer_blocks|input_blocks|middle_block|output_blocks|proj_(?:in|out)"
    r"|to_(?:q|k|v|out)|text_model|self_attn|(?:q|k|v|out)_proj|(?:time|add)_embedding|linear_[12]|time_emb_proj"
    r"|conv_(?:in|out|shortcut)|text_projection|[a-z0-9]+"
)
# Where safetensors files of diffusers 0.34 and later may keep peft's config, as JSON.
_METADATA_KEY = "lora_adapter_metadata"


@dataclasses.dataclass(frozen=True)
class Adapter:
    """The adapter of one layer, in torch's layout.

    Attributes:
      down: float32 [rank, inputs].
      up: float32 [outputs, rank].
      alpha: the product of the two is multiplied by alpha / rank; None for the rank itself, so by 1.
    """

    down: np.ndarray
    up: np.ndarray
    alpha: float | None = None

    @property
    def rank(self) -> int:
        """Width between the two factors."""
        return self.down.shape[0]

    @property
    def factors(self) -> lora.Factors:
        """The same for the networks here, whose layout is [inputs, outputs]."""
        return lora.Factors(self.down.T, self.up.T, 1.0 if self.alpha is None else self.alpha / self.rank)


@dataclasses.dataclass(frozen=True)
class LoRAWeights:
    """What a LoRA file holds.

    Attributes:
      parts: name of the network in the pipeline -> torch's name of the layer -> its adapter. Those of text encoders
        begin with ``text_model.``; most files have none.
      file: where it was read.
    """

    parts: Mapping[str, Mapping[str, Adapter]]
    file: str

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that occur, ascending; most files have one."""
        return tuple(sorted({adapter.rank for part in self.parts.values() for adapter in part.values()}))

    @property
    def sha256(self) -> str:
        """Identifies layers, values and alphas, whatever the names of tensors and the format of the file."""
        digest = hashlib.sha256()
        for name, part in sorted(self.parts.items(), key=_denoisers_first):
            for layer, adapter in sorted(part.items()):
                scale = adapter.factors.scale
                digest.update(f"{name}.{layer} {adapter.down.shape} {adapter.up.shape} {scale!r}\n".encode())
                digest.update(np.ascontiguousarray(adapter.down).data)
                digest.update(np.ascontiguousarray(adapter.up).data)
        return digest.hexdigest()


def _denoisers_first(part: tuple[str, Any]) -> tuple[bool, str]:
    return part[0].startswith("text_encoder"), part[0]


def read_lora(source: str | os.PathLike, *, revision: str | None = None, allow_pickle: bool = False) -> LoRAWeights:
    """Reads a LoRA file in any of the forms that this module's docstring lists.

    Args:
      source: a file, or a folder or hub id that holds ``pytorch_lora_weights.safetensors`` (or ``.bin``).
      revision: branch, tag or commit of a hub id.
      allow_pickle: read a ``.bin`` file, with a restricted unpickler that runs no code of the file.

    Returns:
      The adapters, values in float32.

    Raises:
      InputError: there is no such file, it is damaged, or it holds something other than LoRA factors of dense layers.
    """
    path = _locate(source, revision, allow_pickle)
    tensors = weights.read_weights([path])
    found: dict[tuple[str, str], dict[str, weights.FileTensor]] = {}
    unknown = []
    for key, tensor in tensors.items():
        known = _parse(key)
        if known is None:
            unknown.append(key)
            continue
        part, layer, role = known
        roles = found.setdefault((part, layer), {})
        if role in roles:
            raise InputError(f"{path}: {roles[role].name} and {key} are two names of the same tensor: remove one")
        roles[role] = tensor
    if unknown:
        raise InputError(_describe_unknown(path, unknown))
    if not found:
        raise InputError(f"{path} holds no tensors, so it is no LoRA: get it again")
    configs = _peft_configs(path)
    parts: dict[str, dict[str, Adapter]] = {}
    for (part, layer), roles in found.items():
        parts.setdefault(part, {})[layer] = _adapter(path, layer, roles, configs.get(part, {}))
    return LoRAWeights(parts, path)


def load_lora(
    pipeline: Pipeline,
    source: str | os.PathLike | LoRAWeights,
    *,
    scale: float = 1.0,
    fuse: bool = True,
    revision: str | None = None,
    allow_pickle: bool = False,
) -> LoRAWeights:
    """Gives a pipeline's denoiser, and text encoders where the file adapts them too, the adapters of a file, in place.

    Args:
      pipeline: the model that the file was made for. After an error it is as it was.
      source: as in `read_lora`, or what that has read.
      scale: all adapters' products are multiplied by it: 0 for none of their effect, 1 for what the file says.
      fuse: add the products to the weights, which costs nothing at run time; otherwise the adapters stay apart, in
        float32. Weights in bfloat16 round what is added to them: an adapter that is kept apart loses less, as only its
        factors and their input are rounded.
      revision: as in `read_lora`.
      allow_pickle: as in `read_lora`.

    Returns:
      What was read.

    Raises:
      InputError: as `read_lora` does; if the adapters are of another model; or if adapters of another file are there.
    """
    if isinstance(scale, bool) or not isinstance(scale, int | float) or not math.isfinite(scale):
        raise InputError(f"the scale of a LoRA is {scale!r}, but must be a finite number, such as 1")
    read = source
    if not isinstance(read, LoRAWeights):
        read = read_lora(read, revision=revision, allow_pickle=allow_pickle)
    chosen = []
    networks = pipeline.networks
    for part, adapters in read.parts.items():
        if part not in networks:
            has = ", ".join(networks)
            raise InputError(f"{read.file}: it adapts a {part}, but a {type(pipeline).__name__} has {has} only")
        network = networks[part]
        values = {name: adapter.factors for name, adapter in adapters.items()}
        values = {name: factors._replace(scale=scale * factors.scale) for name, factors in values.items()}
        try:
            lora.check_fit(network, values)
        except InputError as error:
            raise InputError(f"{read.file}: {error}") from error
        chosen.append((network, values))
    for network, values in chosen:
        lora.attach(network, values)
        if fuse:
            lora.fuse(network)
    pipeline.refresh()
    return read


def save_lora(folder: str | os.PathLike, **networks: nnx.Module | None) -> str:
    """Writes the adapters of networks as ``pytorch_lora_weights.safetensors``, whole or not at all.

    The file has diffusers' current names, float32 values, and no alpha: ``up`` is multiplied by the adapter's scale, so
    that every program that reads such files, the earlier ones too, computes what the networks compute here.

    Args:
      folder: where to write; made if needed.
      **networks: networks with adapters by their names in the pipeline (``unet=...``); None for those without.

    Returns:
      The path of the file.

    Raises:
      InputError: if there are no adapters, or one holds a value that is not finite.
    """
    arrays: dict[str, np.ndarray] = {}
    for part, network in networks.items():
        for name, adapter in lora.adapters(network).items() if network is not None else ():
            down, up = np.asarray(adapter.down[...]), np.asarray(adapter.up[...]) * np.float32(adapter.scale)
            if not (np.isfinite(down).all() and np.isfinite(up).all()):
                raise InputError(
                    f"the adapter of {part}.{name} holds values that are not finite: look for the step at which"
                    " training diverged"
                )
            arrays[f"{part}.{name}.lora_A.weight"] = down.T
            arrays[f"{part}.{name}.lora_B.weight"] = up.T
    if not arrays:
        raise InputError("there is no LoRA to save: none of the networks has adapters")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"{WEIGHTS_NAME}.safetensors")
    weights.write_weights(path, arrays)
    return path


def _locate(source: str | os.PathLike, revision: str | None, allow_pickle: bool) -> str:
    """The local path of the file to read."""
    path = user_path(source)
    command = f"python -m winobench.checkpoints.convert_pickle {shlex.quote(path)}"
    if not os.path.isfile(path):
        if not os.path.exists(path) and path.endswith((".safetensors", ".bin")):
            raise InputError(f"LoRA: there is no file {path}")
        place = sources.resolve(path, revision=revision)
        path = place.find(f"{WEIGHTS_NAME}.safetensors") or place.find(f"{WEIGHTS_NAME}.bin")
        if path is None:
            there = [name for name in place.names("") if name.endswith((".safetensors", ".bin"))]
            advice = place.hint() or (
                f"it has {sources.shorten(there)}: name the file of the adapter itself"
                if there
                else "name another place"
            )
            raise InputError(f"{place} has no {WEIGHTS_NAME}.safetensors: {advice}")
        command = f"python -m winobench.checkpoints.convert_pickle {shlex.quote(path)}"
    if not path.endswith((".safetensors", ".bin")):
        raise InputError(f"LoRA: {path} is neither a .safetensors nor a .bin file")
    if path.endswith(".bin") and not allow_pickle:
        raise InputError(
            f"{path} is a Python pickle, which can run code when it is opened: convert it with `{command}`, or allow"
            " pickles (allow_pickle=True), which reads it with a restricted unpickler"
        )
    return path


def _parse(key: str) -> tuple[str, str, str] | None:
    """(part, layer, ``down``, ``up`` or ``alpha``) of a tensor's name; None if it is none of the known forms."""
    if match := _KOHYA.fullmatch(key):
        layer = _dotted(match[2])
        if layer is None:
            return None
        key = f"{_KOHYA_PARTS[match[1]]}.{layer}{match[3]}"
    match = _PREFIX.fullmatch(key)
    part, rest = match.groups() if match else (_FIRST_PART, key)
    match = _KEY.fullmatch(rest.replace(".processor.", "."))
    if match is None:
        return None
    layer = match["layer"]
    if match["old"] or match["old_alpha"]:
        owner, _, last = layer.rpartition(".")
        names = _FIRST_NAMES_OF_TEXTS if part.startswith("text_encoder") else _FIRST_NAMES
        if last not in names:
            return None
        layer = f"{owner}.{names[last]}"
    if part.startswith("text_encoder") and not layer.startswith(("text_model.", "text_projection")):
        layer = f"text_model.{layer}"
    role = match["alpha"] or match["side"] or match["kohya"] or {"A": "down", "B": "up"}[match["letter"]]
    return part, layer, role


def _describe_unknown(path: str, keys: list[str]) -> str:
    some = sources.shorten(sorted(keys), 2)
    named = f"{path} holds tensors that are no LoRA factors as diffusers names them ({some})"
    if any("lora_magnitude_vector" in key or "dora_scale" in key for key in keys):
        return f"{named}: this is a DoRA, which is not supported"
    return f"{named}: only plain LoRA in diffusers' or kohya's names can be read"


_ORIGINAL_BLOCK = re.compile(r"(?:(?:in|out)put_blocks_[0-9]{1,3}_[0-9]|middle_block_[0-2])_")
_ORIGINAL_NAMES = {
    "time_embed_0": "time_embedding.linear_1",
    "time_embed_2": "time_embedding.linear_2",
    "label_emb_0_0": "add_embedding.linear_1",
    "label_emb_0_2": "add_embedding.linear_2",
}


def _dotted(name: str) -> str | None:
    """A layer's name of kohya's, in one word, as torch's: ``mid_block_attentions_0`` -> ``mid_block.attentions.0``.

    None for a name that is not made of such words, or of a block without its numbers.
    """
    if name in _ORIGINAL_NAMES:
        return _ORIGINAL_NAMES[name]
    words = _WORDS.findall(name)
    if "_".join(words) != name:
        return None
    if words[0] in ("input_blocks", "middle_block", "output_blocks"):
        if _ORIGINAL_BLOCK.match(name) is None:
            return None
        words = _diffusers_block(words)
    return ".".join(words)


def _diffusers_block(words: list[str]) -> list[str]:
    """The original code's names of SDXL's blocks (Rombach et al., 2022) in diffusers': three modules a level.

    ``input_blocks`` begin with the first convolution; each level ends with a downsampler. ``output_blocks`` have three
    residual blocks a level, of which the last is followed by an upsampler.
    """
    side, *rest = words
    if side == "middle_block":
        number, *rest = rest
        place = {"0": ["resnets", "0"], "1": ["attentions", "0"], "2": ["resnets", "1"]}.get(number, [number])
        return ["mid_block", *place, *_resnet(place, rest)]
    number, module, *rest = rest
    number = int(number) - (side == "input_blocks")
    level, layer = divmod(number, 3)
    block = ["down_blocks" if side == "input_blocks" else "up_blocks", str(level)]
    place = [["resnets", "attentions"][int(module) > 0], str(layer)]
    if rest and rest[0] in ("op", "conv"):
        return [*block, "downsamplers" if rest[0] == "op" else "upsamplers", "0", "conv", *rest[1:]]
    return [*block, *place, *_resnet(place, rest)]


def _resnet(place: list[str], rest: list[str]) -> list[str]:
    """Names within a residual block: its only dense layer is the projection of the time embedding."""
    if place[0] == "resnets" and rest[:3] == ["emb", "layers", "1"]:
        return ["time_emb_proj", *rest[3:]]
    return rest


def _peft_configs(path: str) -> dict[str, dict[str, Any]]:
    """Peft's config of each part, as far as the file brings one."""
    configs: dict[str, dict[str, Any]] = {}
    if not path.endswith(".safetensors"):
        return configs
    with safetensors.safe_open(path, framework="np") as file:
        text = (file.metadata() or {}).get(_METADATA_KEY)
    if not text:
        return configs
    try:
        values = json_files.parse(text)
        named = {key: _PREFIX.fullmatch(key) for key in values.keys()}  # noqa: SIM118  # refuses a list
    except (ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: its metadata {_METADATA_KEY} is no JSON object: get it again") from error
    for key, match in named.items():
        if match:
            configs.setdefault(match[1], {})[match[2]] = values[key]
    for part, config in configs.items():
        for option in ("use_dora", "lora_bias"):
            if config.get(option):
                raise InputError(f"{path}: the LoRA of the {part} was made with {option}, which is not supported")
    return configs


def _adapter(path: str, layer: str, roles: Mapping[str, weights.FileTensor], config: Mapping[str, Any]) -> Adapter:
    if missing := {"down", "up"} - roles.keys():
        there = next(iter(roles.values())).name
        raise InputError(f"{path}: {there} has no counterpart ({missing.pop()} of {layer}): the file is incomplete")
    down, up = (_floats(path, roles[role]) for role in ("down", "up"))
    if down.ndim != 2 or up.ndim != 2:
        raise InputError(
            f"{path}: {roles['down'].name} has the shape {list(down.shape)}, but only the two-dimensional factors of"
            " dense layers can be read"
        )
    rank = down.shape[0]
    if not rank == up.shape[1] > 0:
        raise InputError(
            f"{path}: {roles['down'].name} has the rank {rank}, but {roles['up'].name} the rank {up.shape[1]}: the file"
            " is damaged, get it again"
        )
    if "alpha" in roles:
        values = _floats(path, roles["alpha"], or_whole=True)
        if values.size != 1:
            raise InputError(
                f"{path}: {roles['alpha'].name} has the shape {list(values.shape)}, but must be one number"
            )
        return Adapter(down, up, float(values.item()))
    return Adapter(down, up, _configured_alpha(path, layer, rank, config))


def _floats(path: str, tensor: weights.FileTensor, *, or_whole: bool = False) -> np.ndarray:
    """A tensor's values as float32; raises InputError where they are not real numbers, or not finite."""
    values = np.asarray(tensor.read())
    # jax.numpy knows bfloat16 as a kind of floating point, which NumPy does not.
    if not (jnp.issubdtype(values.dtype, jnp.floating) or (or_whole and np.issubdtype(values.dtype, np.integer))):
        raise InputError(
            f"{path}: the tensor {tensor.name} holds {values.dtype}, not floating point numbers: this is no plain LoRA"
        )
    values = values.astype(np.float32)
    if not np.isfinite(values).all():
        raise InputError(f"{path}: {tensor.name} holds values that are not finite: the training of this LoRA diverged")
    return values


def _configured_alpha(path: str, layer: str, rank: int, config: Mapping[str, Any]) -> float | None:
    """A layer's alpha by peft's config, whose patterns match ends of the layer's name; None without one."""
    alpha = config.get("lora_alpha")
    patterns = config.get("alpha_pattern") or {}
    if not isinstance(patterns, Mapping):
        raise InputError(f"{path}: its metadata's alpha_pattern is {options.shown(patterns)}, but must be an object")
    for pattern, value in patterns.items():
        # peft writes names of layers. A regular expression of another kind could take for ever.
        if not _LAYER_PATTERN.fullmatch(pattern):
            raise InputError(
                f"{path}: its metadata's alpha_pattern has {options.shown(pattern)}, which is not the name of a layer"
            )
        if re.fullmatch(rf"(.*\.)?{pattern.removeprefix('^')}", layer):
            alpha = value
            break
    if alpha is None:
        return None
    alpha = options.SCALE.check(f"{path}: the alpha of {layer} in its metadata", alpha)
    # rsLoRA divides by the root of the rank instead (Kalajdzievski, 2023, Eq. 4).
    return alpha * math.sqrt(rank) if config.get("use_rslora") else float(alpha)
