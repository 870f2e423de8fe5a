"""ERNIE-Image: padded texts, and one time for each row."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Iterator
from typing import Any

from winobench.contrib.torch_pipelines.families import SQUARES_AS_CHANNELS, Family, normalized_squares, padded

# The pipeline does not read the autoencoder's epsilon.
scale = functools.partial(normalized_squares, epsilon=1e-5)


def fill(results: tuple[Any, ...], tokens: int) -> tuple[Any, ...]:
    """([[length, width], ...],) -> states [n, tokens, width] and lengths [n]."""
    from winobench.torch_modules.bridge import torch

    states = torch.cat([padded(text[None], tokens) for text in results[0]])
    return states, torch.tensor([len(text) for text in results[0]])


def limit(pipe: Any, tokens: int) -> contextlib.AbstractContextManager[None]:
    from winobench.torch_modules.bridge import replaced

    return replaced(pipe.tokenizer, "model_max_length", tokens)


@contextlib.contextmanager
def changes(pipe: Any, latents: Any, results: tuple[Any, ...]) -> Iterator[None]:
    """Takes one time for each row, and texts that are already padded."""
    from winobench.torch_modules.bridge import replaced, torch

    full = torch.full

    def of_rows(size: Any, value: Any, **keywords: Any) -> Any:
        return value.to(keywords["dtype"]) if isinstance(value, torch.Tensor) else full(size, value, **keywords)

    with (
        replaced(pipe, "_pad_text", lambda **_: results),
        replaced(torch, "full", of_rows),
    ):
        yield


FAMILY = Family(
    **SQUARES_AS_CHANNELS,
    call={"use_pe": False},
    encode={"max_sequence_length": 512},
    fill=fill,
    limit=limit,
    pixels=lambda pipe: pipe.vae_scale_factor // 2,
    size=1024,
    without=("pe", "pe_tokenizer"),
    scale=scale,
    times=lambda times: types.SimpleNamespace(item=lambda: times),
    during=changes,
)
