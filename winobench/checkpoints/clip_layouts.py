"""Whole CLIP models from the files they are published in: network, image processor and tokenizer.

Two layouts are read, each from a folder or a hub repository:

- transformers (``openai/clip-vit-base-patch32``), vision transformers only;
- OpenCLIP (``timm/resnet50x64_clip.openai``, the repositories of LAION): ``open_clip_config.json`` and
  ``open_clip_model.safetensors``, its older names, or the one file of a training (``epoch_5.pt``). Vision transformers
  and modified ResNets. An attention holds its three projections in one ``in_proj_weight``; ``visual.proj`` and
  ``text_projection`` are [width, embed_dim], the transposes of dense layers'.

OpenAI's weights have another activation (QuickGELU) than OpenCLIP's (GELU). Files decide which one a network has, never
a folder's name: ``quick_gelu`` in ``model_cfg``, ``hidden_act`` in transformers' ``config.json``, or the weights' name
in timm's ``config.json`` (``pretrained_cfg.tag``). Where no file states it, the model is refused. Of a repository with
both layouts, the one with safetensors files is read, transformers' first.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from winobench.base.errors import InputError
from winobench.checkpoints import models, pickles, processor_files, sources, tokenizer_files, weights
from winobench.checkpoints.tensors import FileTensor
from winobench.data.processors import ImageProcessor
from winobench.models.clip import CLIPTextConfig
from winobench.models.clip_model import CLIPConfig, CLIPModel
from winobench.models.clip_resnet import CLIPResNetConfig
from winobench.models.clip_vision import CLIPVisionConfig
from winobench.models.config import is_count

_CONFIG = "config.json"
_OPEN_CLIP_CONFIG = "open_clip_config.json"
# transformers 5 writes how images are processed into the first, earlier versions into the second.
_PROCESSOR = "processor_config.json"
_PREPROCESSOR = "preprocessor_config.json"
# Newer repositories first.
_OPEN_CLIP_STEMS = ("open_clip_model", "open_clip_pytorch_model")
# Of any name, the preferred ones first.
_OF_TRAININGS = (".safetensors", (".pt", ".pth"))
# All models with this number of tokens share the tokenizer, for folders without one.
_TOKENIZER_REPOSITORY = "openai/clip-vit-base-patch32"
_TOKENIZER_SIZE = 49408
# OpenCLIP's options that are implemented at one value only. Values that mean the same are listed together.
# Options of both towers.
_TOWER_ONLY: dict[str, tuple[Any, ...]] = {
    "act_kwargs": (None, {}),
    "block_type": (None, "default"),
    "ls_init_value": (None,),
    "norm_kwargs": (None, {}),
    **dict.fromkeys(("final_ln_after_pool", "qk_norm", "scale_attn", "scale_attn_inner", "scale_fc"), (False,)),
    **dict.fromkeys(("scale_heads", "scaled_cosine_attn"), (False,)),
}
_OPEN_CLIP_ONLY: dict[str, dict[str, tuple[Any, ...]]] = {
    "model_cfg": {"custom_text": (False,), "init_logit_bias": (None,), "nonscalar_logit_scale": (False,)},
    "vision_cfg": _TOWER_ONLY
    | dict.fromkeys(("attentional_pool", "global_average_pool", "no_ln_pre"), (False,))
    | {"pool_type": ("tok",), "pos_embed_type": ("learnable",), "timm_model_name": (None,)},
    "text_cfg": _TOWER_ONLY
    | dict.fromkeys(("embed_cls", "no_causal_mask", "proj_bias", "variable_text"), (False,))
    | {"hf_model_name": (None,), "pool_type": ("argmax",), "proj_type": ("linear",), "text_arch": ("clip",)},
}
_OPEN_CLIP_USED = {
    "model_cfg": {"embed_dim", "vision_cfg", "text_cfg", "quick_gelu"},
    "vision_cfg": {"image_size", "layers", "width", "patch_size", "head_width", "mlp_ratio"},
    "text_cfg": {"context_length", "vocab_size", "width", "heads", "layers", "mlp_ratio"},
}
# Options of training, of other tokenizers than the one that is read, or of parts that the options above rule out.
_OPEN_CLIP_IDLE = {
    "model_cfg": {"cast_dtype", "init_logit_scale", "output_dict"},
    "vision_cfg": {"patch_dropout", "input_patchnorm", "output_tokens", "attn_pooler_queries", "attn_pooler_heads"}
    | {f"timm_{name}" for name in ("model_pretrained", "pool", "proj", "proj_bias", "drop", "drop_path")},
    "text_cfg": {"hf_tokenizer_name", "tokenizer_kwargs", "pad_id", "output_tokens", "hf_model_pretrained"},
}

# OpenCLIP's key -> transformers', below the prefix of each tower's blocks.
_BLOCK_NAMES = {
    "ln_1": "layer_norm1",
    "ln_2": "layer_norm2",
    "attn.out_proj": "self_attn.out_proj",
    "mlp.c_fc": "mlp.fc1",
    "mlp.c_proj": "mlp.fc2",
}
_TEXT_NAMES = {
    "token_embedding.weight": "text_model.embeddings.token_embedding.weight",
    "positional_embedding": "text_model.embeddings.position_embedding.weight",
    "ln_final.weight": "text_model.final_layer_norm.weight",
    "ln_final.bias": "text_model.final_layer_norm.bias",
}
_VISION_NAMES = {
    "visual.class_embedding": "vision_model.embeddings.class_embedding",
    "visual.conv1.weight": "vision_model.embeddings.patch_embedding.weight",
    "visual.positional_embedding": "vision_model.embeddings.position_embedding.weight",
    "visual.ln_pre.weight": "vision_model.pre_layrnorm.weight",
    "visual.ln_pre.bias": "vision_model.pre_layrnorm.bias",
    "visual.ln_post.weight": "vision_model.post_layernorm.weight",
    "visual.ln_post.bias": "vision_model.post_layernorm.bias",
}
_TRANSPOSED = {"text_projection": "text_projection.weight", "visual.proj": "visual_projection.weight"}
# The causal mask, which old versions saved, and other values in the state of OpenAI's archives.
_OPEN_CLIP_BUFFERS = {"attn_mask", "input_resolution", "context_length", "vocab_size"}
_BLOCK = re.compile(r"(visual\.)?transformer\.resblocks\.(\d+)\.(.+)")


class Checkpoint(NamedTuple):
    """A CLIP that is ready for use."""

    model: CLIPModel
    processor: ImageProcessor
    tokenizer: Any  # a `transformers.CLIPTokenizer`


class _Layout(NamedTuple):
    """A layout that a source has the config of. No file of one that ``lacks_activation`` names it."""

    stems: tuple[str, ...]
    config_name: str
    config: CLIPConfig
    processor: ImageProcessor
    convert: Callable[[Mapping[str, FileTensor]], dict[str, FileTensor]]
    lacks_activation: bool = False


def load_clip(
    source: str | os.PathLike | sources.Source,
    *,
    dtype: Any = "float32",
    variant: str | None = None,
    revision: str | None = None,
    allow_pickle: bool = False,
) -> Checkpoint:
    """Loads a CLIP in one of the layouts that this module describes, in float32, bfloat16 or float16."""
    dtype = models.as_dtype(dtype)
    source = sources.resolve(source, revision=revision)
    layouts = _layouts(source)
    layout, paths = _find_weights(source, layouts, variant, allow_pickle)
    config = layout.config
    processor_files.check_size(source, layout.processor, config.vision_config.image_size)
    tokenizer = _read_tokenizer(source, config.text_config.vocab_size)
    if layout.lacks_activation:
        # OpenCLIP takes GELU where no file names one, and OpenAI's first uploads need another: nothing is guessed.
        raise InputError(
            f'{source.require(_OPEN_CLIP_CONFIG, "")} does not name the activation: add "quick_gelu": true to its'
            ' model_cfg if the weights are OpenAI\'s or were trained from them, "quick_gelu": false for GELU',
            code="activation-not-named",
        )
    tensors = layout.convert(weights.read_weights(paths))
    model = models.build_model(CLIPModel, config, tensors, dtype=dtype, config_name=layout.config_name)
    return Checkpoint(model, layout.processor, tokenizer)


def _layouts(source: sources.Source) -> list[_Layout]:
    """The layouts that a source has, the preferred one first. At least one."""
    config_path, open_clip_path = source.find(_CONFIG), source.find(_OPEN_CLIP_CONFIG)
    # timm's networks have a config.json too, which is not transformers'.
    other = {} if config_path is None else sources.read_json(config_path)
    kind = other.get("model_type")
    layouts = []
    if kind == "clip":
        layouts.append(_transformers_layout(source, open_clip_path))
    if open_clip_path is not None:
        named = _activation(layouts[0].config) if layouts else _has_quick_gelu(other)
        layouts.append(_open_clip_layout(source, open_clip_path, named))
    if layouts:
        return layouts
    if kind is not None:
        message = f"{config_path} describes a {kind} (model_type), not a clip: name the folder of a CLIP"
        raise InputError(message, code="wrong-kind-of-model")
    if archives := [name for name in source.names("") if name.endswith(".pt")]:
        raise InputError(
            f"{source} holds {archives[0]}: archives of OpenAI's are programs and are not read. Take the same weights"
            " from the hub, such as timm/resnet50x64_clip.openai or openai/clip-vit-large-patch14",
            code="unsupported-file-format",
        )
    source.require(_CONFIG, f"nor {_OPEN_CLIP_CONFIG}, so it does not hold a CLIP")
    message = f"{config_path} names no model_type and {source} has no {_OPEN_CLIP_CONFIG}, so this is not a CLIP"
    raise InputError(message, code="unknown-kind-of-model")


def _transformers_layout(source: sources.Source, open_clip_path: str | None) -> _Layout:
    config = models.read_config(CLIPModel, source)
    path = source.find(_PROCESSOR)
    options = processor_files.own_options(path)
    if options is None and (path := source.find(_PREPROCESSOR)) is not None:
        options = sources.read_json(path)
    if isinstance(options, Mapping):
        with sources.blame(path):
            processor = ImageProcessor.from_config("clip", options)
    elif open_clip_path is not None:
        processor = _open_clip_processor(open_clip_path, config.vision_config.image_size)
    else:
        source.require(_PREPROCESSOR, "so it is unknown how its images are resized and normalised")
    return _Layout(("model",), _CONFIG, config, processor, dict)


def _open_clip_layout(source: sources.Source, path: str, quick_gelu: bool | None) -> _Layout:
    """OpenCLIP's layout. ``quick_gelu`` is the activation that other files name."""
    options = sources.read_json(path).get("model_cfg")
    with sources.blame(path):
        config = open_clip_config(options, quick_gelu=bool(quick_gelu))
    processor = _open_clip_processor(path, config.vision_config.image_size)
    is_unnamed = quick_gelu is None and "quick_gelu" not in options
    return _Layout(_OPEN_CLIP_STEMS, _OPEN_CLIP_CONFIG, config, processor, from_open_clip, is_unnamed)


def _activation(config: CLIPConfig) -> bool | None:
    """Whether both towers of transformers' config have QuickGELU. None if they differ, or have a third function."""
    named = {getattr(tower, "hidden_act", None) for tower in (config.text_config, config.vision_config)}
    return {"quick_gelu": True, "gelu": False}.get(named.pop()) if len(named) == 1 else None


def _has_quick_gelu(content: Mapping[str, Any]) -> bool | None:
    """Whether timm's ``config.json`` names weights with QuickGELU; None where it names no weights."""
    weights_of = content.get("pretrained_cfg")
    tag = weights_of.get("tag") if isinstance(weights_of, Mapping) else None
    if tag == "openai" or "quickgelu" in str(content.get("architecture")):
        return True
    return False if isinstance(tag, str) else None


def _open_clip_processor(path: str, image_size: int) -> ImageProcessor:
    options = sources.read_json(path).get("preprocess_cfg") or {}
    with sources.blame(path):
        if not isinstance(options, Mapping):
            raise InputError("preprocess_cfg is not an object of options", code="not-an-object")
        return ImageProcessor.from_open_clip(options, image_size)


def _find_weights(
    source: sources.Source, layouts: list[_Layout], variant: str | None, allow_pickle: bool
) -> tuple[_Layout, list[str]]:
    """The first layout with safetensors files, else the first with pickles if these are allowed, and their paths."""
    first_error = None
    for pickled in (False, True) if allow_pickle else (False,):
        for layout in layouts:
            for stem in layout.stems:
                try:
                    return layout, weights.find_weights(source, None, stem, variant=variant, allow_pickle=pickled)
                except InputError as error:
                    first_error = first_error or error
    # OpenCLIP's trainings call theirs epoch_5.pt.
    names = source.names("")
    trained = next(filter(None, ([name for name in names if name.endswith(kind)] for kind in _OF_TRAININGS)), [])
    if first_error.code != "no-weights" or len(trained) != 1 or layouts[-1].config_name != _OPEN_CLIP_CONFIG:
        raise first_error
    path = source.require(trained[0], "")
    if not (allow_pickle or path.endswith(".safetensors")):
        raise pickles.not_allowed(path, f"{pickles.CONVERT} {shlex.quote(path)}")
    return layouts[-1], [path]


def _read_tokenizer(source: sources.Source, vocab_size: int) -> Any:
    """The tokenizer of a source, or OpenAI's where it brings none and has its vocabulary."""
    own = source.find("tokenizer.json") or all(source.find(name) for name in ("vocab.json", "merges.txt"))
    if own or vocab_size != _TOKENIZER_SIZE:
        tokenizer = tokenizer_files.read_clip_tokenizer(source)
    else:
        try:
            tokenizer = tokenizer_files.read_clip_tokenizer(_TOKENIZER_REPOSITORY)
        except InputError as error:
            reason = f"{_TOKENIZER_REPOSITORY}, which has the same one, cannot be read ({error})"
            message = f"{source} has no tokenizer, and {reason}: copy its vocab.json and merges.txt"
            raise InputError(message, code="no-tokenizer") from error
    tokenizer_files.check_size(tokenizer, vocab_size, f"of {source}")
    return tokenizer


def open_clip_config(options: Any, *, quick_gelu: bool = False) -> CLIPConfig:
    """Reads the ``model_cfg`` of an ``open_clip_config.json``."""
    options = _checked("model_cfg", options)
    vision, text = _checked("vision_cfg", options.get("vision_cfg")), _checked("text_cfg", options.get("text_cfg"))
    chosen = _unless(options, "quick_gelu", quick_gelu, lambda value: isinstance(value, bool), "true or false")
    activation = "quick_gelu" if chosen else "gelu"
    vision_width, text_width = _count(vision, "width", 768), _count(text, "width", 512)
    head_width, image_size = _count(vision, "head_width", 64), _count(vision, "image_size", 224)
    depth = vision.get("layers", 12)
    if isinstance(depth, list):
        vision_config = CLIPResNetConfig(
            depths=tuple(depth),
            width=vision_width,
            num_attention_heads=max(1, 32 * vision_width // head_width),
            image_size=image_size,
        )
    else:
        vision_config = CLIPVisionConfig(
            hidden_size=vision_width,
            intermediate_size=_feed_forward_width(vision, vision_width),
            num_hidden_layers=_count(vision, "layers", 12),
            num_attention_heads=max(1, vision_width // head_width),
            image_size=image_size,
            patch_size=_count(vision, "patch_size", 16),
            hidden_act=activation,
        )
    text_config = CLIPTextConfig(
        vocab_size=_count(text, "vocab_size", _TOKENIZER_SIZE),
        hidden_size=text_width,
        intermediate_size=_feed_forward_width(text, text_width),
        num_hidden_layers=_count(text, "layers", 12),
        num_attention_heads=_count(text, "heads", 8),
        max_position_embeddings=_count(text, "context_length", 77),
        hidden_act=activation,
        # The state at the largest id of a text is pooled.
        eos_token_id=2,
        pad_token_id=0,
    )
    return CLIPConfig(text_config, vision_config, projection_dim=_count(options, "embed_dim", None))


def _checked(part: str, options: Any) -> Mapping[str, Any]:
    """One part of OpenCLIP's config, whose options are all supported."""
    if not isinstance(options, Mapping):
        raise InputError(f"it has no object of options named {part}", code="not-an-object")
    only = _OPEN_CLIP_ONLY[part]
    for key, value in options.items():
        if key in only and value not in only[key]:
            message = f"unsupported option {key}={value!r} of {part}. winobench implements {only[key][0]!r} only"
            raise InputError(message, code="unsupported-option")
        if not (key in only or key in _OPEN_CLIP_USED[part] or key in _OPEN_CLIP_IDLE[part]):
            message = f"unknown option {key}={value!r} of {part}. Remove it if it is idle"
            raise InputError(message, code="unknown-option")
    return options


def _unless(options: Mapping[str, Any], key: str, default: Any, is_valid: Callable[[Any], bool], expected: str) -> Any:
    """An option, or its default."""
    if not is_valid(value := options.get(key, default)):
        raise InputError(f"unsupported option {key}={value!r}. Expected {expected}", code="unsupported-option")
    return value


def _count(options: Mapping[str, Any], key: str, default: int | None) -> int:
    return _unless(options, key, default, is_count, "a positive whole number")


def _feed_forward_width(options: Mapping[str, Any], width: int) -> int:
    def is_valid(ratio: Any) -> bool:
        return isinstance(ratio, int | float) and not isinstance(ratio, bool) and ratio * width >= 1

    return int(width * _unless(options, "mlp_ratio", 4.0, is_valid, "a positive number"))


def from_open_clip(tensors: Mapping[str, FileTensor]) -> dict[str, FileTensor]:
    """Renames, splits and transposes the tensors of OpenCLIP's layout into those that ``CLIPModel`` names."""
    resnet = "visual.attnpool.positional_embedding" in tensors
    converted = {}
    for key, tensor in tensors.items():
        block = _BLOCK.fullmatch(key)
        if key in _OPEN_CLIP_BUFFERS:
            continue
        if block:
            tower = "vision_model" if block[1] else "text_model"
            converted |= _convert_block(f"{tower}.encoder.layers.{block[2]}", block[3], tensor)
        elif key in _TRANSPOSED:
            converted[_TRANSPOSED[key]] = _changed(tensor, " (transposed)", tensor.shape[::-1], np.transpose)
        elif key == "logit_scale":
            # Some versions saved it with an axis.
            shape = () if tensor.shape == (1,) else tensor.shape
            converted[key] = _changed(tensor, "", shape, lambda values, shape=shape: values.reshape(shape))
        elif resnet and key.startswith("visual."):
            converted["vision_model." + key.removeprefix("visual.")] = tensor
        else:
            converted[_TEXT_NAMES.get(key) or _VISION_NAMES.get(key, key)] = tensor
    return converted


def _convert_block(prefix: str, key: str, tensor: FileTensor) -> dict[str, FileTensor]:
    """The tensors that one of OpenCLIP's becomes within a transformer's block."""
    kind = key.removeprefix("attn.in_proj_")
    if kind in ("weight", "bias") and kind != key:
        # The projections of queries, keys and values, one below the other.
        rows = tensor.shape[0] // 3
        return {
            f"{prefix}.self_attn.{name}_proj.{kind}": _changed(
                tensor,
                f" ({name})",
                (rows, *tensor.shape[1:]),
                lambda values, start=number * rows, stop=(number + 1) * rows: values[start:stop],
            )
            for number, name in enumerate("qkv")
        }
    name, _, leaf = key.rpartition(".")
    return {f"{prefix}.{_BLOCK_NAMES.get(name, name)}.{leaf}": tensor}


def _changed(
    tensor: FileTensor, note: str, shape: tuple[int, ...], change: Callable[[np.ndarray], np.ndarray]
) -> FileTensor:
    """A tensor whose values are changed when they are read. The note is for messages."""
    return FileTensor(tensor.name + note, shape, tensor.file, lambda: change(tensor.read()))
