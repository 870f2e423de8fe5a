"""LoRA of pipelines of diffusers, which diffusers and peft read and add to the weights."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib.util
import logging
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from winobench.base.errors import InputError
from winobench.checkpoints import lora, sources, weights

_NAME = "winobench"
_MISFIT = "lora-misfit"
# diffusers warns so for each network without tensors in the file.
_HARMLESS = "No LoRA keys associated"
# diffusers' loggers that report which tensors of a file it leaves out.
_LOGGERS = ("diffusers.loaders", "diffusers.utils.peft_utils")


@dataclasses.dataclass(frozen=True)
class LoRAFile:
    """A LoRA file in a form that diffusers reads.

    Attributes:
      sha256: of its tensors: names, dtypes, shapes and values.
    """

    path: str
    sha256: str
    negatives: None = None  # no training here writes such files


def read(source: str | os.PathLike[str], *, allow_pickle: bool = False) -> LoRAFile:
    """Reads a LoRA file, also from a folder or hub id. Refuses pickles in any case."""
    del allow_pickle
    path, *others = lora._locate(source, None, False)
    tensors = weights.read_weights([path])
    if others or os.path.exists(os.path.join(os.path.dirname(path), sources.ADAPTER_CONFIG)):
        raise InputError(
            f"{path} has peft's format, with its scale in {sources.ADAPTER_CONFIG}, which diffusers does not read: save"
            " it as pytorch_lora_weights.safetensors (save_lora_weights of diffusers)",
            code="unsupported-file-format",
        )
    if not tensors:
        raise InputError(f"{path}: the file holds no tensors, so it is not a LoRA: get it again", code="empty-file")
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        values = np.ascontiguousarray(tensor.read())
        if values.dtype.kind in "fV" and not weights.are_finite(values):
            message = f"{path}: {name} holds values that are not finite: the training of this LoRA diverged"
            raise InputError(message, code="not-finite")
        digest.update(f"{name} {values.dtype.name} {values.shape}\n".encode())
        digest.update(values.reshape(-1).view(np.uint8).data)
    return LoRAFile(path, digest.hexdigest())


def fuse(pipe: Any, file: LoRAFile, scale: float) -> None:
    """Adds a LoRA to a pipeline's weights, text encoders included. Raises InputError unless all tensors are used."""
    from winobench.torch_pipelines import bridge, parts

    name = type(pipe).__name__
    if not hasattr(pipe, "load_lora_weights"):
        raise InputError(f"diffusers loads no LoRA for a {name}: leave it out (lora)", code="unsupported-option")
    if importlib.util.find_spec("peft") is None:
        raise InputError(
            'a LoRA of this model needs peft, which is not installed: pip install "winobench[torch]"',
            code="missing-package",
        )
    networks = {part: one for part, one in pipe.components.items() if isinstance(one, bridge.torch.nn.Module)}
    before = {part: set(network.state_dict()) for part, network in networks.items()}
    with parts.quietly(f"{file.path} is not a LoRA that diffusers loads for this {name}", _MISFIT), _told() as told:
        pipe.load_lora_weights(file.path, adapter_name=_NAME, local_files_only=True)
        converted = pipe.lora_state_dict(file.path, local_files_only=True)
    converted = converted[0] if isinstance(converted, tuple) else converted
    wanted = [key for key in converted if not key.endswith(".alpha")]
    taken = sum(f".{_NAME}" in key for network in networks.values() for key in network.state_dict())
    if told or taken != len(wanted) or not taken:
        reason = f" ({told[0]})" if told else f": of {len(wanted)} tensors it takes {taken}"
        raise InputError(
            f"{file.path} is a LoRA of another model than this {name}{reason}: name one that was made for it",
            code=_MISFIT,
        )
    with parts.quietly(f"{file.path} cannot be added to the weights of this {name}"):
        pipe.fuse_lora(lora_scale=scale, safe_fusing=True)
        pipe.unload_lora_weights()
    after = {part: set(network.state_dict()) for part, network in networks.items()}
    if after != before:
        raise RuntimeError(f"{name} has other parameters after its LoRA")


@contextlib.contextmanager
def _told() -> Iterator[list[str]]:
    """Collects the start of each warning of diffusers about a LoRA."""
    told: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if _HARMLESS not in (text := " ".join(record.getMessage().split())):
                told.append(text[:200])

    listener = Listener(logging.WARNING)
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(listener)
        logger.setLevel(logging.WARNING)
        logger.propagate = False
    try:
        yield told
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.removeHandler(listener)
            logger.setLevel(level)
            logger.propagate = True
