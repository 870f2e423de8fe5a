"""DreamLite and DreamLite-Mobile: the loop without guidance."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from winobench.contrib.torch_pipelines.families import Family, padded_with_mask


def prompts(texts: list[str]) -> dict[str, Any]:
    return {"prompts": [f"[Generate]: {text}" for text in texts]}


@contextlib.contextmanager
def changes(pipe: Any, latents: Any, results: tuple[Any, ...]) -> Iterator[None]:
    """Runs the loop without guidance, on all rows at once."""
    from diffusers import DreamLiteMobilePipeline

    from winobench.torch_modules.bridge import replaced

    whole = DreamLiteMobilePipeline.__call__

    def call(self: Any, *, prompt: Any, latents: Any, guidance_scale: Any, **keywords: Any) -> Any:
        return whole(self, prompt="", **keywords)

    with replaced(type(pipe), "__call__", call), replaced(pipe, "prepare_latents", lambda *_, **__: latents):
        yield


FAMILY = Family(
    denoiser="unet",
    encode={"mode": "generate", "dtype": None},
    prompts=prompts,
    fill=padded_with_mask,
    during=changes,
)
