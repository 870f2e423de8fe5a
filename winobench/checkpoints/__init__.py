"""Files to parameters and back: diffusers and transformers folders, hub ids, tokenizers."""

from winobench.checkpoints.models import (
    abstract_model,
    build_model,
    load_model,
    read_config,
    save_model,
    torch_names,
    weights_sha256,
)
from winobench.checkpoints.sources import resolve
from winobench.checkpoints.tokenizer_files import write_clip_tokenizer

__all__ = [
    "abstract_model",
    "build_model",
    "load_model",
    "read_config",
    "resolve",
    "save_model",
    "torch_names",
    "weights_sha256",
    "write_clip_tokenizer",
]
