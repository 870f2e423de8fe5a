"""Networks and tokenizers of diffusers and transformers, from folders and repositories. No code of a folder runs."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax.numpy as jnp

from winobench.base import hub, memory, options
from winobench.base.errors import InputError
from winobench.checkpoints import sources, weights
from winobench.checkpoints.sources import LocalFolder, Source
from winobench.checkpoints.tensors import FileTensor

# Files of tokenizers and configs: no code, and no weights.
_SMALL_FILES = ("*.json", "*.txt", "*.model", "*.jinja")
LIBRARIES = ("diffusers", "transformers")
# Method of quantisation -> the package by which diffusers dequantises it, and its module.
_QUANTISERS = {"torchao": ("torchao", "torchao")}
# Names of the scales of quantised weights.
_SCALES = re.compile(r"(.+[._])?(\w*scale(_inv|_\d)?|scale_\w+|scaled_fp8|absmax|quant_map|SCB|qzeros|scales)")


def is_network(kind: type) -> bool:
    from winobench.torch_modules import bridge

    return issubclass(kind, bridge.torch.nn.Module)


def folder_of(source: Source, names: Iterable[str]) -> str:
    """A local folder with a pipeline's small files."""
    source = getattr(source, "base", source)  # of a single file
    if isinstance(source, LocalFolder):
        return str(source.path)
    import huggingface_hub

    patterns = ["model_index.json", *(sources.join(part, pattern) for part in names for pattern in _SMALL_FILES)]
    try:
        return huggingface_hub.snapshot_download(
            source.repo_id,
            revision=source.revision,
            allow_patterns=patterns,
            local_files_only=not hub.is_reachable(),
        )
    except Exception as error:
        page = f"https://huggingface.co/{source.repo_id}"
        raise hub.refusal(error, str(source), page) or InputError(
            f"files of {source} could not be fetched: {str(error).splitlines()[0]}", code="cannot-download"
        ) from error


def weight_files(source: Source, kinds: Mapping[str, type], variant: str | None) -> dict[str, tuple[str | None, Any]]:
    """Network -> its variant, and the tensors of its files. They are checked, but not read."""
    from winobench.torch_modules import bridge

    stems = {
        part: "diffusion_pytorch_model" if issubclass(kind, bridge.diffusers.ModelMixin) else "model"
        for part, kind in kinds.items()
        if is_network(kind)
    }
    tensors = {}
    for part, its_variant in weights.variants(source, stems, variant).items():
        try:
            paths = weights.find_weights(source, part, stems[part], variant=its_variant)
        except InputError as error:
            # diffusers has no restricted unpickler.
            raise InputError(str(error).partition(", or allow pickles")[0], code=error.code) from error
        tensors[part] = its_variant, weights.read_weights(paths)
    return tensors


def check_memory(source: Source, networks: Mapping[str, Mapping[str, Any]], dtypes: Mapping[str, Any]) -> None:
    """Raises InputError where the host cannot hold the weights, by the headers of their files."""
    total = sum(
        jnp.dtype(dtypes.get(part, dtypes["default"])).itemsize
        * sum(math.prod(array.shape) for array in tensors.values())
        for part, tensors in networks.items()
    )
    memory.check(f"loading {source}", total, "use bfloat16 (dtype), or a machine with more memory")


def load_network(
    source: Source,
    folder: str,
    part: str,
    kind: Any,
    variant: str | None,
    tensors: Mapping[str, FileTensor],
    dtype: str,
    is_denoiser: bool,
) -> Any:
    """Loads one network. Its files must fill all parameters. A model of transformers alone is the part ``""``."""
    from winobench.torch_modules import bridge

    path = source.require(sources.join(part, "config.json"), f"so its {kind.__name__} cannot be loaded")
    whose = f"{part} of {source}" if part else str(source)
    config = sources.read_json(path)
    # winobench itself dequantises bitsandbytes' forms, for which diffusers needs a GPU, and 8-bit floats with scales.
    is_ours = any(not (array.stored and array.file.startswith(os.path.join(folder, ""))) for array in tensors.values())
    if not is_ours:
        _check_quantiser(source, part, config)
    torch_dtype = getattr(bridge.torch, dtype)
    with quietly(f"{whose} cannot be loaded"):
        if is_ours:
            config.pop("quantization_config", None)
            return _filled(kind, config, tensors, torch_dtype)
        # transformers would only say that shapes differ. diffusers names them.
        lenient = {} if issubclass(kind, bridge.diffusers.ModelMixin) else {"ignore_mismatched_sizes": True}
        # From the part's own folder: some classes read their config before they look at subfolder.
        network, report = kind.from_pretrained(
            os.path.join(folder, part),
            variant=variant,
            use_safetensors=True,
            local_files_only=True,
            output_loading_info=True,
            dtype=torch_dtype,
            **lenient,
        )
    lacking = sorted(report["missing_keys"])
    left = sorted(key for key in report["unexpected_keys"] if is_denoiser or _SCALES.fullmatch(key))
    other = sorted(f"{key}: {[*held]}, not {[*needed]}" for key, held, needed in report["mismatched_keys"])
    if lacking or left or other:
        raise sources.mismatch(
            f"the weights of {whose} do not fit the {kind.__name__} that its config describes:"
            + (f" {len(lacking)} are missing ({sources.shorten(lacking, 2)})" if lacking else "")
            + (f" {len(left)} are unknown to it ({sources.shorten(left, 2)})" if left else "")
            + (f" {len(other)} have other shapes ({sources.shorten(other, 2)})" if other else "")
        )
    if config.get("quantization_config"):
        with quietly(f"{whose} cannot be dequantised"):
            network = network.dequantize().to(dtype=torch_dtype)
    return network


def _filled(kind: Any, config: dict[str, Any], tensors: Mapping[str, FileTensor], dtype: Any) -> Any:
    """A network of this class with exactly these tensors."""
    import accelerate

    from winobench.torch_modules import bridge

    def converted(name: str, tensor: FileTensor) -> Any:
        value = bridge.to_torch(tensor.read())
        kept = any(part in name.split(".") for part in getattr(kind, "_keep_in_fp32_modules", None) or ())
        if not value.is_floating_point():
            return value.clone()
        return value.to(bridge.torch.float32 if kept else dtype, copy=True)

    state = {name: converted(name, tensor) for name, tensor in tensors.items()}
    if not issubclass(kind, bridge.diffusers.ModelMixin):
        made = kind.config_class.from_dict(config)
        network, report = kind.from_pretrained(
            None, config=made, state_dict=state, dtype=dtype, output_loading_info=True
        )
        if wrong := sorted({*report["missing_keys"], *report["unexpected_keys"]}):
            raise ValueError(f"its tensors do not fit its config ({sources.shorten(wrong, 2)})")
        return network
    with accelerate.init_empty_weights(include_buffers=False):
        network = kind.from_config({**config, "_class_name": kind.__name__})
    network.load_state_dict(state, assign=True)
    return network.eval().requires_grad_(False)


def _check_quantiser(source: Source, part: str, config: Mapping[str, Any]) -> None:
    quantised = config.get("quantization_config")
    if not quantised:
        return
    method = quantised.get("quant_method") if isinstance(quantised, dict) else quantised
    if method not in _QUANTISERS:
        raise InputError(
            f"{part} of {source} is quantised by {options.quote(method)}, which winobench does not read: take the"
            " unquantised model",
            code="unsupported-checkpoint",
        )
    package, module = _QUANTISERS[method]
    if importlib.util.find_spec(module) is None:
        raise InputError(
            f'{part} of {source} is quantised by {method}, which needs a package: pip install "{package}"',
            code="missing-package",
        )


def load_other(source: Source, folder: str, part: str, kind: type) -> Any:
    """A tokenizer, a processor or a scheduler."""
    if hasattr(kind, "vocab_files_names"):
        _check_vocabulary(source, part, kind)
    whose = f"{part} of {source}" if part else str(source)
    more = {} if hasattr(kind, "load_config") else {"trust_remote_code": False}
    with quietly(f"{whose} cannot be loaded as a {kind.__name__}"):
        return kind.from_pretrained(os.path.join(folder, part), local_files_only=True, **more)


def _check_vocabulary(source: Source, part: str, kind: Any) -> None:
    """Raises InputError for missing files, without which transformers makes an empty tokenizer."""
    names = dict(kind.vocab_files_names)
    whole = names.pop("tokenizer_file", None)
    if whole is not None and source.find(f"{part}/{whole}") is not None:
        return
    missing = [name for name in names.values() if source.find(f"{part}/{name}") is None]
    if missing or (whole is not None and not names):
        first, *others = [name for name in (whole, *missing) if name is not None]
        without = f"nor {' and '.join(others)}, " if others else ""
        source.require(f"{part}/{first}", f"{without}so its {kind.__name__} cannot be loaded")


def device(name: str) -> Any:
    from winobench.torch_modules import bridge

    return bridge.torch.device(name)


@contextlib.contextmanager
def quietly(what: str, code: str = "cannot-read") -> Iterator[None]:
    """Silences diffusers and transformers, and turns their errors into one sentence."""
    from winobench.torch_modules import bridge

    loggers = [logging.getLogger(name) for name in LIBRARIES]
    levels = [logger.level for logger in loggers]
    bars = bridge.transformers.utils.logging
    had_bars = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise InputError(f"{what}: {reason}", code=code) from error
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        if had_bars:
            bars.enable_progress_bar()
