"""Kandinsky 5: masked padding, and images of any size."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Iterator
from typing import Any

import jax

from winobench.contrib.torch_pipelines.families import Family, padded, without_shift


def fill(results: tuple[Any, ...], tokens: int) -> tuple[Any, ...]:
    """(states of one text, pooled, ends) -> states with ``tokens`` tokens, pooled, mask [1, tokens]."""
    from winobench.torch_modules.bridge import torch

    states, pooled, _ = results
    return padded(states, tokens), pooled, padded(torch.ones(states.shape[:2], dtype=torch.long), tokens)


def restore(results: tuple[Any, ...]) -> tuple[Any, ...]:
    """Replaces the mask by the ends of the texts, from which the call computes the largest length."""
    states, pooled, _ = results
    length = types.SimpleNamespace(item=lambda: states.shape[1])
    return states, pooled, types.SimpleNamespace(diff=lambda: types.SimpleNamespace(max=lambda: length))


def kept(times: Any) -> Any:
    """Times that stay as they are where the loop repeats a time for each row."""
    return types.SimpleNamespace(unsqueeze=lambda _: types.SimpleNamespace(repeat=lambda _: times))


@contextlib.contextmanager
def changes(pipe: Any, latents: Any, results: tuple[Any, ...]) -> Iterator[None]:
    """Masks the padding, and allows images of any size."""
    from diffusers.models.transformers import transformer_kandinsky

    from winobench.torch_modules.bridge import JAX, as_jax, as_torch, replaced, torch

    mask, attend = results[2].bool()[:, None, None], transformer_kandinsky.dispatch_attention_fn

    def to_text(*arrays: Any, **keywords: Any) -> Any:
        return attend(*arrays, **{**keywords, "attn_mask": mask})

    def masked(processor: Any, *inputs: Any, **keywords: Any) -> Any:
        with replaced(transformer_kandinsky, "dispatch_attention_fn", to_text):
            return processor(*inputs, **keywords)

    network = pipe.transformer
    parts = [block.self_attention for block in network.text_transformer_blocks]
    parts += [block.cross_attention for block in network.visual_transformer_blocks]
    to = torch.Tensor.to

    def rounding(self: Any, *where: Any, **keywords: Any) -> Any:
        """XLA would leave out the rounding of rotated queries and keys, which are float32 again right after."""
        if where == (torch.bfloat16,) and self.device.type == JAX:
            self = as_torch(jax.lax.reduce_precision(as_jax(self), exponent_bits=8, mantissa_bits=7))
        return to(self, *where, **keywords)

    with contextlib.ExitStack() as stack:
        stack.enter_context(replaced(torch.Tensor, "to", rounding))
        for part in parts:
            stack.enter_context(replaced(part, "processor", functools.partial(masked, part.processor)))
        sides = tuple(side * pipe.vae_scale_factor_spatial for side in latents.shape[:1:-1])
        stack.enter_context(replaced(pipe, "resolutions", [sides]))
        yield


FAMILY = Family(
    fill=fill,
    restore=restore,
    pack=lambda pipe, latents: latents.permute(0, 2, 3, 1)[:, None],
    unpack=lambda pipe, prediction, height, width: prediction[:, 0].permute(0, 3, 1, 2),
    side=2,
    pixels=lambda pipe: pipe.vae_scale_factor_spatial,
    together=False,
    size=1024,
    scale=without_shift,
    times=kept,
    rounding=5e-3,  # to 8 bits, of rotated queries and keys
    during=changes,
)
