"""The parts of a pipeline's folder: their classes, files and networks. No code of a folder runs."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import logging
import math
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax.numpy as jnp

from winobench.base import hub, memory, options
from winobench.base.errors import InputError
from winobench.checkpoints import sources, weights
from winobench.checkpoints.sources import LocalFolder, Source
from winobench.checkpoints.tensors import FileTensor
from winobench.contrib.torch_pipelines.families import Family
from winobench.diffusion.family_names import refuse_code

INDEX = "model_index.json"
# Files of tokenizers and configs: no code, and no weights.
_SMALL_FILES = ("*.json", "*.txt", "*.model", "*.jinja")
# Parts that take images, or that check generated images.
_UNUSED = ("feature_extractor", "image_encoder", "safety_checker")
_LIBRARIES = ("diffusers", "transformers")
# Parts whose classes diffusers itself names loosely.
_LOOSE = re.compile("tokenizer|processor|scheduler")
# Classes that read a part's class from its config, which may name code.
_READS_AUTO_MAP = re.compile(r"Auto[A-Z]\w*|\w+Processor")
_AUTO_MAP = "auto_map"
# Method of quantisation -> the package by which diffusers dequantises it, and its module.
_QUANTISERS = {"torchao": ("torchao", "torchao")}
# Names of the scales of quantised weights.
_SCALES = re.compile(r"(.+[._])?(\w*scale(_inv|_\d)?|scale_\w+|scaled_fp8|absmax|quant_map|SCB|qzeros|scales)")


def read_index(source: Source) -> dict[str, Any]:
    """The content of a ``model_index.json`` that names a pipeline of diffusers."""
    path = source.require(INDEX, "so it is not a pipeline in the diffusers layout")
    index = sources.read_json(path)
    name = index.get("_class_name")
    if isinstance(name, list):
        refuse_code(path, "pipeline", name)
    return index


def _named(index: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Part -> (library, class), which are None for a missing part. Other lists are options."""
    pairs = {name: value for name, value in index.items() if isinstance(value, list) and len(value) == 2}
    return {name: (library, kind) for name, (library, kind) in pairs.items() if not isinstance(kind, int | float)}


def _is_known(library: Any) -> bool:
    """True for diffusers, transformers, and modules of diffusers' pipelines."""
    if library in _LIBRARIES:
        return True
    from winobench.torch_modules import bridge

    return isinstance(library, str) and library in bridge.diffusers.pipelines._import_structure


def classes(source: Source, index: Mapping[str, Any], family: Family) -> dict[str, type]:
    """The class of each part. Raises InputError where diffusers' pipeline takes other ones."""
    from winobench.torch_modules import bridge

    path = source.require(INDEX, "")
    pipeline = getattr(bridge.diffusers, index["_class_name"])
    wanted = inspect.signature(pipeline.__init__).parameters
    hints = pipeline._get_signature_types()
    kinds = {}
    for part, (library, name) in _named(index).items():
        if library is None or part.startswith("_") or part not in wanted or part in (*_UNUSED, *family.without):
            continue
        if not _is_known(library):
            refuse_code(path, part, [library, name])
        kind = _class_of(pipeline, library, name) if isinstance(name, str) else None
        if not isinstance(kind, type) or not hasattr(kind, "from_pretrained"):
            raise InputError(
                f"{path} takes its {part} from {library}.{options.quote(name)}, which the installed {library} lacks:"
                " install a newer release of it, or get the file again",
                code="unknown-class",
            )
        is_network = issubclass(kind, bridge.torch.nn.Module)
        expected = tuple(hint for hint in hints.get(part, ()) if isinstance(hint, type) and hint is not type(None))
        if is_network if _LOOSE.search(part) else (expected and not issubclass(kind, expected)):
            names = " or ".join(hint.__name__ for hint in expected)
            raise InputError(
                f"{path} takes its {part} from {name}, but a {pipeline.__name__} has {names or 'no network'} there: get"
                " the file again",
                code="wrong-kind-of-model",
            )
        if _READS_AUTO_MAP.fullmatch(name):
            _refuse_auto_map(source, part, name)
        kinds[part] = kind
    optional = {name for name, parameter in wanted.items() if parameter.default is not inspect.Parameter.empty}
    optional |= {"self", *pipeline._optional_components, *_UNUSED, *family.without}
    if missing := sorted(wanted.keys() - kinds.keys() - optional):
        raise InputError(
            f"{path} names no {missing[0]}, which a {pipeline.__name__} needs: get the file again",
            code="missing-part",
        )
    return kinds


def _class_of(pipeline: type, library: str, name: str) -> Any:
    """A class of a library, or None. Packages of diffusers have their own subclasses of a few of transformers."""
    from winobench.torch_modules import bridge

    package = sys.modules[pipeline.__module__.rpartition(".")[0]]
    if library == "transformers" and name in vars(package):
        return vars(package)[name]
    module = getattr(bridge, library, None) or getattr(bridge.diffusers.pipelines, library)
    return getattr(module, name, None)


def _refuse_auto_map(source: Source, part: str, name: str) -> None:
    for stem in ("config", "tokenizer_config", "processor_config", "preprocessor_config"):
        path = source.find(sources.join(part, f"{stem}.json"))
        if path is not None and (code := sources.read_json(path).get(_AUTO_MAP)):
            refuse_code(path, f"{part} ({name})", [code])


def is_network(kind: type) -> bool:
    from winobench.torch_modules import bridge

    return issubclass(kind, bridge.torch.nn.Module)


# Files ------------------------------------------------------------------------------------------------------------


def folder_of(source: Source, names: Iterable[str]) -> str:
    """A local folder with a pipeline's small files."""
    source = getattr(source, "base", source)  # of a single file
    if isinstance(source, LocalFolder):
        return str(source.path)
    import huggingface_hub

    patterns = [INDEX, *(sources.join(part, pattern) for part in names for pattern in _SMALL_FILES)]
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


# Loading ----------------------------------------------------------------------------------------------------------


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
        # From the part's own folder: some classes read their config before they look at subfolder.
        network, report = kind.from_pretrained(
            os.path.join(folder, part),
            variant=variant,
            use_safetensors=True,
            local_files_only=True,
            output_loading_info=True,
            dtype=torch_dtype,
        )
    lacking = sorted(report["missing_keys"])
    left = sorted(key for key in report["unexpected_keys"] if is_denoiser or _SCALES.fullmatch(key))
    if lacking or left or report["mismatched_keys"]:
        raise sources.mismatch(
            f"the weights of {whose} do not fit the {kind.__name__} that its config describes:"
            + (f" {len(lacking)} are missing ({sources.shorten(lacking, 2)})" if lacking else "")
            + (f" {len(left)} are unknown to it ({sources.shorten(left, 2)})" if left else "")
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


def assemble(source: Source, index: Mapping[str, Any], loaded: Mapping[str, Any]) -> Any:
    """diffusers' pipeline of these parts."""
    from winobench.torch_modules import bridge

    kind = getattr(bridge.diffusers, index["_class_name"])
    known = inspect.signature(kind.__init__).parameters
    # Parts that are left out. All other entries are options of the pipeline.
    empty = {name: None for name in known if name in kind._optional_components or name in _named(index)}
    values = {name: value for name, value in index.items() if name in known and name not in empty}
    with quietly(f"{source} is not what diffusers reads"):
        return kind(**(empty | values | dict(loaded)))


def device(name: str) -> Any:
    from winobench.torch_modules import bridge

    return bridge.torch.device(name)


@contextlib.contextmanager
def quietly(what: str, code: str = "cannot-read") -> Iterator[None]:
    """Silences diffusers and transformers, and turns their errors into one sentence."""
    from winobench.torch_modules import bridge

    loggers = [logging.getLogger(name) for name in _LIBRARIES]
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
