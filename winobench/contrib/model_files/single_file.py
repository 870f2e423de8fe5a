"""Single files in the original layout, such as ``sd_xl_base_1.0.safetensors``, read as a pipeline's folder.

A file holds weights alone. A base gives the configs, the tokenizers, the schedule and missing networks. The user names
the base (``sdxl+FILE.safetensors``), or diffusers recognises the published pipeline by names and shapes of tensors.
diffusers' own functions convert the networks once. The cache keeps them by the file's content, in the file's dtypes.
Every tensor must be used, unless a list here names it as unused.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import importlib.util
import logging
import os
import pathlib
import re
import shutil
import tempfile
import types
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import safetensors

from winobench.base import caches, files, options, registry
from winobench.base.errors import InputError
from winobench.checkpoints import sources, weights
from winobench.checkpoints.tensors import FileTensor

_log = logging.getLogger(__name__)

_DENOISER, _T5 = "denoiser", "T5EncoderModel"
_DENOISER_PREFIX = "model.diffusion_model."
_CLIP_L = "text_encoders.clip_l.transformer."
# A name in files of a UNet alone, which lack the prefix.
_FIRST_OF_UNETS = "input_blocks.0.0.weight"
# Prefix of a network's tensors -> the part, or its class where the part's name depends on the family.
_PREFIXES = {
    _DENOISER_PREFIX: _DENOISER,
    **dict.fromkeys(("first_stage_model.", "vae."), "vae"),
    **dict.fromkeys(("cond_stage_model.transformer.", "cond_stage_model.model."), "text_encoder"),
    **dict.fromkeys(("conditioner.embedders.0.transformer.", _CLIP_L), "text_encoder"),
    **dict.fromkeys(("conditioner.embedders.1.model.", "text_encoders.clip_g.transformer."), "text_encoder_2"),
    "text_encoders.t5xxl.transformer.": _T5,
}
# Prefixes of denoisers that already have diffusers' names.
_CONVERTED = ("conv_in.", "transformer_blocks.", "all_x_embedder.")
# Prefixes of OpenCLIP's layout.
_OPEN_CLIP = ("cond_stage_model.model.", "conditioner.embedders.1.model.")
_EMA = "model_ema.diffusion_model"
# Tensors that no network reads: buffers, parts of a training, and a tokenizer.
_UNUSED = re.compile(
    r"model_ema\..*|first_stage_model\.loss\..*|(.+\.)?(logit_scale|position_ids|attn_mask|spiece_model)|(model\.diffusion_model\.)?norm_final"
    r"\.weight|(alphas_cumprod|betas|log_one_minus|sqrt_|posterior_)\w*|denoiser\.sigmas"
)
# Marks of fine-tuned models -> the option that the schedule of their base must have.
_MARKS = {"v_pred": ("prediction_type", "v_prediction"), "ztsnr": ("rescale_betas_zero_snr", True)}
# diffusers' name of a kind of file -> the base. Others (SD 2.x, FLUX.2-klein, Z-Image) look alike in several versions.
_BASES = {
    "v1": "sd15",
    "xl_base": "sdxl",
    "sd3": "sd3-medium",
    "sd35_medium": "sd35-medium",
    "sd35_large": "sd35-large",
    "flux-dev": "flux1-dev",
    "flux-schnell": "flux1-schnell",
}
# Files of Stable Diffusion 1.x have this tensor. diffusers also answers "v1" for unknown files.
_OF_SD_1 = f"{_DENOISER_PREFIX}output_blocks.11.0.skip_connection.weight"
# dtypes of torch that NumPy lacks.
_NOT_NUMPYS = {name: getattr(ml_dtypes, name) for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")}


class SingleFile(sources.Source):
    """A file and its base."""

    def __init__(self, path: str, base: str | None = None, *, revision: str | None = None):
        if any(importlib.util.find_spec(package) is None for package in ("diffusers", "torch")):
            raise InputError(
                f'{path} has to be converted by diffusers, which is not installed: pip install "winobench[torch]"',
                code="missing-package",
            )
        self.path = path
        self._tensors = weights.read_weights([path])
        if _FIRST_OF_UNETS in self._tensors:
            self._tensors = {f"{_DENOISER_PREFIX}{name}": tensor for name, tensor in self._tensors.items()}
        self.base = sources.resolve(_base(path, self._tensors) if base is None else base, revision=revision)

    def find(self, name: str) -> str | None:
        part, _, file = name.rpartition("/")
        if not part or file == "config.json" or part not in self._parts:
            return self.base.find(name)
        return os.path.join(self._folder, part, file) if file == self._stem(part) else None

    def names(self, subfolder: str) -> list[str]:
        return ["config.json", self._stem(subfolder)] if subfolder in self._parts else self.base.names(subfolder)

    def hint(self) -> str:
        return self.base.hint()

    def way_to(self, file: str) -> str:
        return self.base.way_to(file)

    def paths(self) -> list[pathlib.Path]:
        of_base = self.base.paths()
        return of_base and [pathlib.Path(self.path).absolute(), *of_base]

    def __str__(self) -> str:
        return f"{self.path} with {self.base}"

    @functools.cached_property
    def _index(self) -> dict[str, Any]:
        path = self.base.require("model_index.json", "so it is not a pipeline in the diffusers layout")
        return sources.read_json(path)

    def _stem(self, part: str) -> str:
        library, _ = self._index[part]
        return f"{'model' if library == 'transformers' else 'diffusion_pytorch_model'}.safetensors"

    @functools.cached_property
    def _parts(self) -> dict[str, dict[str, FileTensor]]:
        """The networks that the file has."""
        classes = {value[1]: part for part, value in self._index.items() if isinstance(value, list) and len(value) == 2}
        names = {_DENOISER: "transformer" if "transformer" in self._index else "unet", _T5: classes.get(_T5)}
        parts: dict[str, dict[str, FileTensor]] = {}
        unknown = []
        # Files of the denoiser alone have no prefix.
        is_whole = any(name.startswith(tuple(_PREFIXES)) for name in self._tensors)
        for name, tensor in self._tensors.items():
            if _UNUSED.fullmatch(name) or self._is_mark(name):
                continue
            kind = next((kind for start, kind in _PREFIXES.items() if name.startswith(start)), None)
            part = names.get(kind, kind) if is_whole else names[_DENOISER]
            if part not in self._index:
                unknown.append(name)
            else:
                parts.setdefault(part, {})[name] = tensor
        if unknown:
            raise self._mismatch(f"holds {len(unknown)} tensors of no part of it ({sources.shorten(unknown)})")
        return parts

    def _is_mark(self, name: str) -> bool:
        if name not in _MARKS:
            return False
        option, needed = _MARKS[name]
        path = self.base.require("scheduler/scheduler_config.json", "so the noise schedule is unknown")
        if sources.read_json(path).get(option) != needed:
            raise self._mismatch(f"is marked as {name}, but {path} lacks {option}={options.quote(needed)}")
        return True

    def _mismatch(self, what: str) -> InputError:
        return InputError(
            f"{self.path} is not a file of the pipeline of {self.base}: it {what}. Name another base (BASE+FILE)",
            code="mismatched-parts",
        )

    @functools.cached_property
    def _folder(self) -> str:
        """The folder with the converted networks, made if it is not there."""
        configs = {part: self.base.require(f"{part}/config.json", "so its shape is unknown") for part in self._parts}
        contents = {part: sources.read_json(path) for part, path in configs.items()}
        version = importlib.metadata.version("diffusers")
        key = files.digest([_sha256(self.path, _state(self.path)), self._index, contents, version])[:16]
        root = pathlib.Path(caches.folder(), "single_files")
        # The file may have had another name.
        if extracted := next(root.glob(f"[!.]*-{key}"), None):
            return str(extracted)
        folder = root / f"{registry.model_label(pathlib.Path(self.path).stem)[:80]}-{key}"
        if any(name.startswith(_EMA) for name in self._tensors):
            _log.warning("%s also holds an average of the training (%s*), which is not used", self.path, _EMA)
        _log.warning("converting %s to %s, once", self.path, folder)
        try:
            root.mkdir(parents=True, exist_ok=True)
            partial = pathlib.Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=root))
            try:
                for part, content in contents.items():
                    (partial / part).mkdir()
                    weights.write_weights(partial / part / self._stem(part), self._converted(part, content))
                partial.chmod(0o755)
                partial.replace(folder)
            except BaseException:
                shutil.rmtree(partial)
                raise
        except OSError as error:
            if not folder.is_dir():  # another process was quicker
                reason = error.strerror or error
                raise InputError(
                    f"{self.path} cannot be converted to {folder} ({reason}): delete other files, or name another"
                    " folder for the cache (WINOBENCH_CACHE)",
                    code="cannot-write",
                ) from error
        return str(folder)

    def _converted(self, part: str, config: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """A network's tensors as diffusers names them."""
        is_gguf = self.path.endswith(".gguf")
        with contextlib.nullcontext() if is_gguf else safetensors.safe_open(self.path, framework="pt") as file:
            tensors = {name: _tensor(tensor, file) for name, tensor in self._parts[part].items()}
            try:
                converted, unused = _convert(self._index[part][1], tensors, config)
            # diffusers' functions raise any exception for a wrong file.
            except Exception as error:
                raise self._mismatch(f"does not convert to its {part} ({type(error).__name__}: {error})") from error
            if unused:
                raise self._mismatch(f"holds tensors that its {part} lacks ({sources.shorten(unused)})")
            return {name: _array(tensor) for name, tensor in converted.items()}


def _convert(kind: str, tensors: dict[str, Any], config: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Tensors of a network of this class by diffusers' names, and the names of unused tensors."""
    import torch
    from diffusers.loaders import single_file_model, single_file_utils

    whole = next((start for start in _PREFIXES if all(name.startswith(start) for name in tensors)), "")
    left = {name: tensor for name, tensor in tensors.items() if not _is_dropped(kind, whole, name)}
    size = sum(tensor.numel() for tensor in left.values())
    if kind == _T5:
        converted = single_file_utils.convert_sd3_t5_checkpoint_to_diffusers(left)
    elif whole in _OPEN_CLIP:
        shape = types.SimpleNamespace(config=types.SimpleNamespace(hidden_size=config["hidden_size"]))
        converted = single_file_utils.convert_open_clip_checkpoint(shape, left, whole)
    elif kind.startswith("CLIPText"):
        converted = single_file_utils.convert_ldm_clip_checkpoint(left, whole)
    elif any(name.removeprefix(whole).startswith(_CONVERTED) for name in left):
        converted = {name.removeprefix(whole): tensor for name, tensor in left.items()}
    else:
        if kind == "Flux2Transformer2DModel":
            left = {name.removeprefix(whole): tensor for name, tensor in left.items()}
        function = single_file_model.SINGLE_FILE_LOADABLE_CLASSES[kind]["checkpoint_mapping_fn"]
        converted = function(checkpoint=left, config=config)
    unused = []
    if sum(tensor.numel() for tensor in converted.values()) != size:
        used = {tensor.data_ptr() for tensor in converted.values()}
        unused = [name for name, tensor in left.items() if tensor.data_ptr() not in used] or list(left)
    if whole == _CLIP_L and kind == "CLIPTextModelWithProjection":
        # As in diffusers: Stable Diffusion 3 does not project this encoder's state.
        converted["text_projection.weight"] = torch.eye(config["hidden_size"])
    return converted, unused


def _is_dropped(kind: str, prefix: str, name: str) -> bool:
    from diffusers.loaders import single_file_utils

    if kind.startswith("CLIPText") and name == f"{prefix}text_projection.weight":
        # ComfyUI saves one for each encoder.
        return kind == "CLIPTextModel" or prefix == _CLIP_L
    return name in single_file_utils.SD_2_TEXT_ENCODER_KEYS_TO_IGNORE


def _tensor(tensor: FileTensor, file: Any) -> Any:
    """A torch tensor in the file's dtype, or of floats where it is quantised."""
    import torch

    return file.get_tensor(tensor.name) if tensor.stored else torch.from_numpy(tensor.floats())


def _array(tensor: Any) -> np.ndarray:
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in _NOT_NUMPYS:
        return tensor.contiguous().numpy()
    import torch

    bits = torch.int16 if tensor.itemsize == 2 else torch.int8
    return tensor.contiguous().view(bits).numpy().view(_NOT_NUMPYS[name])


def _base(path: str, tensors: Mapping[str, FileTensor]) -> str:
    """The published pipeline that a file was made from."""
    from diffusers.loaders import single_file_utils

    try:
        kind = single_file_utils.infer_diffusers_model_type(tensors)
    except Exception:  # a known kind with unknown shapes
        kind = None
    if kind == "v1" and _OF_SD_1 not in tensors:
        kind = None
    if kind not in _BASES:
        layout = "in an unknown layout" if kind is None else f"in the layout that diffusers calls {kind}"
        raise InputError(
            f"{path} is {layout}, which does not identify its pipeline: write BASE+FILE, where BASE is a name,"
            f" a folder or a hub id with its configs, such as sd21-base+{os.path.basename(path)}",
            code="unknown-kind-of-model",
        )
    return _BASES[kind]


def _state(path: str) -> tuple[int, ...]:
    state = os.stat(path)
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns


@functools.lru_cache(maxsize=32)
def _sha256(path: str, state: tuple[int, ...]) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
