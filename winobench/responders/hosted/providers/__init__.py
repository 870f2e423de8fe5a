"""The providers: a module each, found by itself. Its class registers itself in `winobench.responders.hosted.APIS`."""

import importlib
import pkgutil

from winobench.responders.hosted.api import APIS as APIS

for _found in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_found.name}")


def model_names(last: str = " or ") -> str:
    """The forms of hosted models' names, such as ``anthropic:MODEL or openai:MODEL``."""
    *others, final = (f"{name}:MODEL" for name in APIS)
    return last.join([*filter(None, [", ".join(others)]), final])
