"""winobench: how well does a text-to-image model understand what it generates, and a language model what it reads?

The public names are in ``__init__.pyi``. Each is imported when it is first used, so ``import winobench`` costs nothing.
"""

from __future__ import annotations

import functools
import importlib
import logging
import pathlib

# winobench uses its tokenizers and image processors, which need no torch.
logging.getLogger("transformers").addFilter(lambda record: "PyTorch was not found" not in str(record.msg))


@functools.cache
def _read_names() -> dict[str, str]:
    """Public name -> its module: each line of the stub is ``from MODULE import NAME as NAME``."""
    stub = pathlib.Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    lines = (line.split() for line in stub.splitlines() if line.startswith("from winobench."))
    return {name: module for _, module, _, name, *_ in lines}


_OLD_NAMES = {
    "Pictures": "Images",
    "draw_pictures": "generate_images",
    "judge_pictures": "judge_images",
    "read_pictures": "read_images",
}


def __getattr__(name: str) -> object:
    if (new := _OLD_NAMES.get(name)) is not None:
        import warnings

        warnings.warn(f"winobench.{name} is now winobench.{new}", DeprecationWarning, stacklevel=2)
        return __getattr__(new)
    if name == "__all__":
        value: object = __dir__()
    elif (module := _read_names().get(name)) is not None:
        value = getattr(importlib.import_module(module), name)
    else:
        from winobench.base import extensions

        if name not in extensions.added(extensions.NAMES):
            raise AttributeError(f"module 'winobench' has no attribute {name!r}")
        value = extensions.find(extensions.NAMES, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    from winobench.base import extensions

    return sorted({*_read_names(), *extensions.added(extensions.NAMES)})
