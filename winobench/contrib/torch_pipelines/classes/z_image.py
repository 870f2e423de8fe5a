"""Z-Image and Z-Image-Omni: texts padded to the most tokens."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

from winobench.contrib.torch_pipelines.classes.shared import of_tensors
from winobench.contrib.torch_pipelines.families import Family, padded


def fill(results: tuple[Any, ...], tokens: int) -> tuple[Any, ...]:
    """([[length, width], ...], []) -> states [n, tokens, width] and lengths [n]."""
    from winobench.torch_modules.bridge import torch

    texts = [text[0] if isinstance(text, list) else text for text in results[0]]
    return torch.cat([padded(text[None], tokens) for text in texts]), torch.tensor([len(text) for text in texts])


@contextlib.contextmanager
def changes(pipe: Any, latents: Any, results: tuple[Any, ...]) -> Iterator[None]:
    """Takes texts of the most tokens, and masks them beyond their next multiple of 32 tokens."""
    from winobench.torch_modules.bridge import replaced, torch

    states, lengths = results
    network, tokens, omni = pipe.transformer, states.shape[1], hasattr(pipe, "siglip")
    numbers = torch.arange(tokens, device=states.device)
    padded_lengths = (lengths + 31) // 32 * 32
    kept = numbers < padded_lengths[:, None]
    prepare, build = network._prepare_sequence, network._build_unified_sequence

    def prepared(rows: Any, positions: Any, padding: Any, token: Any, *others: Any) -> Any:
        if token is network.cap_pad_token:
            paddings = [numbers >= length for length in lengths]
            rows, turns, _, *rest = prepare(rows, positions, paddings, token, *others)
            return rows, turns, kept, *rest
        moves = (lengths if omni else padded_lengths) - tokens  # the image's positions follow the text's
        moves = torch.nn.functional.pad(moves[:, None], (0, 2))
        moved = [old + move * ~pad[:, None] for old, move, pad in zip(positions, moves, padding, strict=True)]
        return prepare(rows, moved, padding, token, *others)

    def built(*arguments: Any) -> Any:
        joint, turns, _, noise = build(*arguments)
        image = torch.ones_like(joint[:, tokens:, 0], dtype=torch.bool)
        return joint, turns, torch.cat([kept, image] if omni else [image, kept], 1), noise

    with (
        replaced(network, "_prepare_sequence", prepared),
        replaced(network, "_build_unified_sequence", built),
        replaced(network.rope_embedder, "freqs_cis", None),  # it would keep tracers
        of_tensors(item=lambda tensor: tensor),
    ):
        yield


FAMILY = Family(
    generates=False,
    call={"guidance_scale": 0.0},
    fill=fill,
    restore=lambda results: (list(results[0]), []),
    side=2,
    size=1024,
    during=changes,
)
OMNI = dataclasses.replace(
    FAMILY, restore=lambda results: ([[text] for text in results[0]], []), without=("siglip", "siglip_processor")
)
