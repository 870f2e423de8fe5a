"""FIBO: states of all layers of the text encoder, and their mask."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from winobench.contrib.torch_pipelines.classes.shared import of_tensors
from winobench.contrib.torch_pipelines.families import Family, padded


def as_rows(pipe: Any, latents: Any) -> Any:
    """[n, c, h, w] as [n, h w, c]."""
    return latents.flatten(2).transpose(1, 2)


def from_rows(pipe: Any, prediction: Any, height: int, width: int) -> Any:
    side = pipe.vae_scale_factor
    return prediction.transpose(1, 2).unflatten(2, (height // side, width // side))


def fill(results: tuple[Any, ...], tokens: int) -> tuple[Any, ...]:
    """One text's states of all layers [1, layers, tokens, width], and a mask [1, tokens]."""
    from winobench.torch_modules.bridge import torch

    *_, mask, _, layers, _ = results
    return padded(torch.cat(layers)[None].transpose(1, 2), tokens).transpose(1, 2), padded(mask, tokens)


def restore(results: tuple[Any, ...]) -> tuple[Any, ...]:
    from winobench.torch_modules.bridge import torch

    layers, mask = results
    last = torch.cat([layers[:, -1], layers[:, -2]], -1)
    return last, None, mask.new_zeros((*mask.shape, 3)), mask, None, list(layers.unbind(1)), None


@contextlib.contextmanager
def changes(pipe: Any, latents: Any, results: tuple[Any, ...]) -> Iterator[None]:
    """Keeps the mask. The call drops it where it hides nothing, which a trace cannot decide."""
    with of_tensors(all=lambda _: False):
        yield


FAMILY = Family(
    encode={"max_sequence_length": 256},
    fill=fill,
    restore=restore,
    pack=as_rows,
    unpack=from_rows,
    together=False,
    during=changes,
)
