"""FIBO 2: summary tokens, whose number depends on the length of a text."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from winobench.contrib.torch_pipelines.classes.shared import of_tensors
from winobench.contrib.torch_pipelines.families import Family, limit_of, padded


def prompts(texts: list[str]) -> dict[str, Any]:
    """Formats descriptions in JSON as the call does before it encodes them."""
    from diffusers import BriaFibo2Pipeline

    parsed = [BriaFibo2Pipeline._parse_prompt(text)[0] for text in texts]
    dumped = [json.dumps(value or {}, separators=(",", ":"), ensure_ascii=False) for value in parsed]
    return {"prompt": [value if isinstance(value, str) else text for value, text in zip(parsed, dumped, strict=True)]}


def fill(results: tuple[Any, ...], tokens: int) -> tuple[Any, ...]:
    from winobench.torch_modules.bridge import torch

    states, mask = results
    mask = torch.ones((len(states), states.shape[2]), dtype=torch.bool) if mask is None else mask
    return padded(states.transpose(1, 2), tokens).transpose(1, 2), padded(mask, tokens)


@contextlib.contextmanager
def changes(pipe: Any, latents: Any, results: tuple[Any, ...]) -> Iterator[None]:
    """Gives every text the most summary tokens, and masks those beyond the number for its length."""
    from diffusers.models.transformers import transformer_bria_fibo2

    from winobench.torch_modules.bridge import replaced

    config, lengths = pipe.transformer.config, results[1].sum(1)
    most, least = config.max_num_gist_tokens, config.min_num_gist_tokens

    def count(*_: Any, **__: Any) -> Any:
        share = (lengths - config.gist_min_text_len) / (config.gist_max_text_len - config.gist_min_text_len)
        wanted = least + share.clamp(0, 1) * (most - least)
        return ((wanted / config.gist_step).ceil().int() * config.gist_step).clamp(least, most)

    with (
        replaced(transformer_bria_fibo2, "compute_gist_count", count),
        replaced(transformer_bria_fibo2, "max", lambda _: most),
        replaced(transformer_bria_fibo2, "min", lambda _: 0),
        replaced(pipe.transformer.rope_embedder, "freqs_cis", None),  # it would keep tracers
        of_tensors(tolist=lambda tensor: tensor),
    ):
        yield


FAMILY = Family(
    generates=False,
    encode={"max_sequence_length": 256},
    prompts=prompts,
    fill=fill,
    limit=limit_of("tokenizer_max_length"),
    side=2,
    during=changes,
)
