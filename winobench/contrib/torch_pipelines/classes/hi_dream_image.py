"""HiDream-I1: all experts on all positions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from winobench.contrib.torch_pipelines.families import Family, fixed_shift


def layers(results: tuple[Any, ...], tokens: int | None = None) -> tuple[Any, ...]:
    """The states of Llama's layers [layers, n, ...] as [n, layers, ...], and back."""
    t5, _, llama, _, pooled, _ = results
    return t5, None, llama.transpose(0, 1), None, pooled, None


def own_schedule(pipe: Any, schedule: Any) -> Any:
    """Uses the shift of the largest image, with the pipeline's constants."""
    config = pipe.transformer.config
    positions = config.max_resolution[0] * config.max_resolution[1] // config.patch_size**2
    return fixed_shift(schedule, 0.5 + (1.15 - 0.5) / (4096 - 256) * (positions - 256))


@contextlib.contextmanager
def changes(pipe: Any, latents: Any, results: tuple[Any, ...]) -> Iterator[None]:
    """Runs every expert on every position, and keeps the size of the image."""
    from diffusers.models.transformers.transformer_hidream_image import MOEFeedForwardSwiGLU

    from winobench.torch_modules.bridge import replaced, torch

    def infer(self: Any, rows: Any, chosen: Any, weights: Any) -> Any:
        hot = torch.nn.functional.one_hot(chosen.view(len(rows), -1), len(self.experts))
        shares = (hot * weights.view(len(rows), -1, 1)).sum(1)
        return sum(expert(rows) * shares[:, i : i + 1] for i, expert in enumerate(self.experts))

    network, patch = pipe.transformer, pipe.transformer.config.patch_size
    sides = [[side // patch for side in latents.shape[2:]]] * len(latents)  # a tensor in diffusers
    whole = network.unpatchify
    with (
        replaced(MOEFeedForwardSwiGLU, "moe_infer", infer),
        replaced(network, "unpatchify", lambda rows, _, is_training: whole(rows, sides, is_training)),
        replaced(pipe, "default_sample_size", latents.shape[-1]),
    ):
        yield


FAMILY = Family(generates=False, side=2, fill=layers, restore=layers, schedule=own_schedule, during=changes)
