"""Kandinsky 3: the mean over the tokens of a text."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from winobench.contrib.torch_pipelines.families import Family


@contextlib.contextmanager
def changes(pipe: Any, latents: Any, results: tuple[Any, ...]) -> Iterator[None]:
    """Averages a text's states over its tokens and one padding token, as the pipeline does."""
    from winobench.torch_modules.bridge import replaced, torch

    mask, pooling = results[2], pipe.unet.add_time_condition
    counted = torch.nn.functional.pad(mask, (1, -1), value=1)[..., None]

    def pooled(embedding: Any, states: Any, bias: Any) -> Any:
        mean = (states * counted).sum(1, keepdim=True) / counted.sum(1, keepdim=True)
        return embedding + pooling.attention(mean, states, bias).squeeze(1)

    with replaced(pooling, "forward", pooled):
        yield


FAMILY = Family(
    denoiser="unet",
    autoencoder="movq",
    tokens=None,
    side=8,
    pixels=lambda pipe: 8,
    together=False,
    size=1024,
    during=changes,
)
