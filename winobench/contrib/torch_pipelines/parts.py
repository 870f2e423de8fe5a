"""The parts of a pipeline's folder: their classes, files and networks. No code of a folder runs."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Mapping
from typing import Any

from winobench.base import options
from winobench.base.errors import InputError
from winobench.checkpoints import sources
from winobench.checkpoints.sources import Source
from winobench.contrib.torch_pipelines.families import Family
from winobench.diffusion.family_names import refuse_code
from winobench.torch_modules import loading

INDEX = "model_index.json"
# Parts that take images, or that check generated images.
_UNUSED = ("feature_extractor", "image_encoder", "safety_checker")
# Parts whose classes diffusers itself names loosely.
_LOOSE = re.compile("tokenizer|processor|scheduler")
# Classes that read a part's class from its config, which may name code.
_READS_AUTO_MAP = re.compile(r"Auto[A-Z]\w*|\w+Processor")
_AUTO_MAP = "auto_map"


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
    if library in loading.LIBRARIES:
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


def assemble(source: Source, index: Mapping[str, Any], loaded: Mapping[str, Any]) -> Any:
    """diffusers' pipeline of these parts."""
    from winobench.torch_modules import bridge

    kind = getattr(bridge.diffusers, index["_class_name"])
    known = inspect.signature(kind.__init__).parameters
    # Parts that are left out. All other entries are options of the pipeline.
    empty = {name: None for name in known if name in kind._optional_components or name in _named(index)}
    values = {name: value for name, value in index.items() if name in known and name not in empty}
    with loading.quietly(f"{source} is not what diffusers reads"):
        return kind(**(empty | values | dict(loaded)))
