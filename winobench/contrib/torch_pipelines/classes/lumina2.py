"""Lumina 2: masked padding between text and image."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from winobench.contrib.torch_pipelines.families import Family, fixed_shift


def own_schedule(pipe: Any, schedule: Any) -> Any:
    """Computes the shift as the pipeline does, which passes the channels as the number of positions."""
    slope = (schedule.max_shift - schedule.base_shift) / (schedule.max_image_seq_len - schedule.base_image_seq_len)
    positions = pipe.transformer.config.in_channels
    return fixed_shift(schedule, schedule.base_shift + slope * (positions - schedule.base_image_seq_len))


@contextlib.contextmanager
def changes(pipe: Any, latents: Any, results: tuple[Any, ...]) -> Iterator[None]:
    """Keeps the padding between the text and the image, and masks it."""
    from winobench.torch_modules.bridge import replaced, torch

    network, mask = pipe.transformer, results[1]
    rope, tokens = network.rope_embedder, mask.shape[1]
    n, _, height, width = latents.shape
    rows, columns = height // rope.patch_size, width // rope.patch_size
    joint = torch.cat([mask.bool(), torch.ones((n, rows * columns), dtype=torch.bool, device=mask.device)], 1)

    def embed(hidden: Any, _: Any) -> Any:
        def line(count: int) -> Any:
            return torch.arange(count, device=mask.device)

        text = torch.nn.functional.pad(line(tokens).view(1, -1, 1).expand(n, -1, -1), (0, 2))
        after = mask.sum(1).view(n, 1, 1).expand(-1, rows * columns, -1)
        grid = torch.stack([line(rows).repeat_interleave(columns), line(columns).repeat(rows)], -1)
        ids = torch.cat([text, torch.cat([after, grid.expand(n, -1, -1)], 2)], 1)
        turns = rope._get_freqs_cis(ids)
        patches = hidden.unflatten(3, (columns, -1)).unflatten(2, (rows, -1)).permute(0, 2, 4, 3, 5, 1)
        lengths = [[tokens] * n, [tokens + rows * columns] * n]
        return patches.flatten(3).flatten(1, 2), turns[:, :tokens], turns[:, tokens:], turns, *lengths

    def masked(forward: Any, hidden: Any, _: Any, *others: Any) -> Any:
        return forward(hidden, joint, *others)

    with contextlib.ExitStack() as stack:
        stack.enter_context(replaced(rope, "forward", embed))
        for layer in network.layers:
            stack.enter_context(replaced(layer, "forward", functools.partial(masked, layer.forward)))
        yield


FAMILY = Family(generates=False, side=2, schedule=own_schedule, during=changes)
