"""Files to parameters and back: diffusers and transformers folders, hub ids, tokenizers."""

from winobench.checkpoints.lora import LoRAWeights, load_lora, read_lora, save_lora
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
    "LoRAWeights",
    "abstract_model",
    "build_model",
    "load_lora",
    "load_model",
    "read_config",
    "read_lora",
    "resolve",
    "save_lora",
    "save_model",
    "torch_names",
    "weights_sha256",
    "write_clip_tokenizer",
]
