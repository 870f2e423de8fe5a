"""Ideogram 4: positions that follow the length of a text, and latents as squares whose channels come last."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from winobench.contrib.torch_pipelines.classes.shared import of_tensors
from winobench.contrib.torch_pipelines.families import Family


def fill(results: tuple[Any, ...], tokens: int) -> tuple[Any, ...]:
    """States of the text alone [n, tokens, width], and lengths [n]. The image has one position here."""
    states, _, kinds, _ = results
    return states[:, :tokens], (kinds[:, :tokens] > 0).sum(1)


def limit(pipe: Any, tokens: int) -> contextlib.AbstractContextManager[None]:
    """Cuts longer texts off, which the pipeline refuses."""
    from winobench.torch_modules.bridge import replaced

    kind = type(pipe.tokenizer)
    call = kind.__call__

    def cut(self: Any, text: Any, **keywords: Any) -> Any:
        return call(self, text, **{**keywords, "truncation": True, "max_length": tokens})

    return replaced(kind, "__call__", cut)


def restore(results: tuple[Any, ...]) -> tuple[Any, ...]:
    """Placeholders. `changes` computes the values, which depend on the size of the image."""
    return (results[0],) * 4


def scale(vae: Any, latents: Any) -> Any:
    """Normalizes latents [n, c, h, w] as squares whose channels come last."""
    n, c, h, w = latents.shape
    mean, variance = (
        values.view(1, 2, 2, c).permute(0, 3, 1, 2) for values in (vae.bn.running_mean, vae.bn.running_var)
    )
    mean, variance = mean[:, :, None, :, None], (variance + vae.config.batch_norm_eps)[:, :, None, :, None]
    return ((latents.view(n, c, h // 2, 2, w // 2, 2) - mean) / variance.sqrt()).view(n, c, h, w)


def pack(pipe: Any, latents: Any) -> Any:
    n, c, h, w = latents.shape
    return latents.view(n, c, h // 2, 2, w // 2, 2).permute(0, 2, 4, 3, 5, 1).reshape(n, h * w // 4, 4 * c)


def unpack(pipe: Any, prediction: Any, height: int, width: int) -> Any:
    n, _, c = prediction.shape
    h, w = (side // pipe.vae_scale_factor for side in (height, width))
    return prediction.view(n, h // 2, w // 2, 2, 2, c // 4).permute(0, 5, 1, 3, 2, 4).reshape(n, c // 4, h, w)


@contextlib.contextmanager
def changes(pipe: Any, latents: Any, results: tuple[Any, ...]) -> Iterator[None]:
    """Computes positions from traced lengths of texts. Leaves out the unconditional network."""
    from winobench.torch_modules.bridge import replaced, torch

    states, lengths = results
    n, tokens = states.shape[:2]
    of_image = pipe._prepare_ids([0] * n, *(side // 2 for side in latents.shape[2:]), 0, latents.device)
    positions = torch.arange(tokens, device=latents.device) - (tokens - lengths)[:, None]
    inside = (positions >= 0).long()
    of_text = (positions * inside)[:, :, None].expand(-1, -1, 3), 2 * inside - 1, 3 * inside
    ids = [torch.cat(pair, 1) for pair in zip(of_text, of_image, strict=True)]
    keywords = dict(zip(("position_ids", "segment_ids", "indicator"), ids, strict=True))
    keywords["encoder_hidden_states"] = torch.nn.functional.pad(states, (0, 0, 0, of_image[1].shape[1]))
    forward = pipe.transformer.forward

    class Nothing:
        dtype = latents.dtype

        def __call__(self, hidden_states: Any, **_: Any) -> Any:
            return (0 * hidden_states,)

    with (
        replaced(pipe.transformer, "forward", lambda **others: forward(**{**others, **keywords})),
        replaced(pipe, "unconditional_transformer", Nothing()),
        of_tensors(tolist=lambda tensor: tensor),
    ):
        yield


FAMILY = Family(
    encodes_by_forward=False,
    generates=False,
    call={"guidance_scale": 1.0, "guidance_schedule": None, "max_sequence_length": 256},
    encode={"grid_h": 1, "grid_w": 1, "max_sequence_length": 256},
    fill=fill,
    limit=limit,
    restore=restore,
    pack=pack,
    unpack=unpack,
    side=2,
    size=2048,
    without=("unconditional_transformer", "prompt_enhancer_head"),
    scale=scale,
    rounding=1e-3,  # the network multiplies the last bit of a time by 10,000
    during=changes,
)
