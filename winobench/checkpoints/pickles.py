"""PyTorch's weight files (``.bin``), which are pickles: how they are refused, and the command that converts them."""

from __future__ import annotations

import shlex
from typing import Any

from winobench.base import extensions
from winobench.base.errors import InputError
from winobench.checkpoints import sources

CONVERT = "python -m winobench.checkpoints.convert_pickle"


def read(path: Any) -> dict[str, Any]:
    """Tensors of a pickle by name, whose values are read later. No code in the file runs."""
    return extensions.find(extensions.PARTS, "torch_pickles").read_torch_pickle(path)


def not_allowed(path: str, command: str) -> InputError:
    """The error for a pickle that the caller has not allowed, with the command that converts it."""
    return InputError(
        f"{path} is a Python pickle, which can run code when it is opened: convert it with `{command}`, or allow"
        " pickles (allow_pickle=True), which reads it with a restricted unpickler",
        code="weights-are-a-pickle",
    )


def conversion_command(source: sources.Source) -> str:
    """The command line that turns the pickles of a source into safetensors files."""
    source = getattr(source, "base", source)  # of a single file
    if isinstance(source, sources.HubRepository):
        revision = f" --revision={shlex.quote(source.requested)}" if source.requested else ""
        return f"{CONVERT} {source.repo_id} {source.repo_id.rpartition('/')[2]}{revision}"
    return f"{CONVERT} {shlex.quote(str(source.path))}"
