"""Nucleus-Image: all experts in one product."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from winobench.contrib.torch_pipelines.families import Family, padded_with_mask


@contextlib.contextmanager
def changes(pipe: Any, latents: Any, results: tuple[Any, ...]) -> Iterator[None]:
    """Computes all experts in one product, since each takes the same number of positions."""
    from diffusers.models.transformers.transformer_nucleusmoe_image import NucleusMoEEmbedRope, SwiGLUExperts

    from winobench.torch_modules.bridge import replaced, torch

    def run(self: Any, positions: Any, _: Any) -> Any:
        gate, up = (positions.unflatten(0, (self.num_experts, -1)) @ self.gate_up_proj).chunk(2, -1)
        return ((torch.nn.functional.silu(gate) * up) @ self.down_proj).flatten(0, 1)

    uncached = NucleusMoEEmbedRope._compute_video_freqs.__wrapped__  # a cache would keep tracers
    with (
        replaced(SwiGLUExperts, "forward", run),
        replaced(NucleusMoEEmbedRope, "_compute_video_freqs", uncached),
    ):
        yield


FAMILY = Family(
    generates=False,
    encode={"max_sequence_length": 1024},
    fill=padded_with_mask,
    pack=lambda pipe, latents: pipe._pack_latents(latents, *latents.shape, pipe.transformer.config.patch_size),
    unpack=lambda pipe, prediction, height, width: pipe._unpack_latents(
        prediction, height, width, pipe.transformer.config.patch_size, pipe.vae_scale_factor
    )[:, :, 0],
    side=2,
    together=False,
    during=changes,
)
