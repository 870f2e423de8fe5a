"""HunyuanImage 2.1: two texts and their masks, joined."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from winobench.base.errors import InputError
from winobench.contrib.torch_pipelines.families import Family


def own_schedule(pipe: Any, schedule: Any) -> Any:
    if pipe.transformer.config.use_meanflow:
        raise InputError(
            "the distilled HunyuanImage predicts the mean of a step between two noise levels (use_meanflow), which has"
            " no denoising error at one level: use the model that is not distilled",
            code="unsupported-option",
        )
    return schedule


@contextlib.contextmanager
def changes(pipe: Any, latents: Any, results: tuple[Any, ...]) -> Iterator[None]:
    """Joins the two padded texts and their masks. Padding may lie between them, since attention has no order."""
    from winobench.torch_modules.bridge import replaced, torch

    _, mask, letters, letters_mask = results
    network = pipe.transformer
    of_words, of_letters = network.context_embedder, network.context_embedder_2
    both = torch.cat([letters_mask, mask], 1)

    class Texts(torch.nn.Module):
        def forward(self, states: Any, time: Any, _: Any) -> Any:
            return torch.cat([of_letters(letters.to(states.dtype)), of_words(states, time, mask.bool())], 1)

    forward = network.forward

    def with_both(**keywords: Any) -> Any:
        return forward(**{**keywords, "encoder_attention_mask": both})

    with (
        replaced(network, "_modules", {**network._modules, "context_embedder": Texts(), "context_embedder_2": None}),
        replaced(network, "forward", with_both),
        replaced(torch, "all", lambda _: True),  # the call chooses a guider by it, and both are left out
    ):
        yield


FAMILY = Family(
    generates=False,
    call={"distilled_guidance_scale": 3.25},
    tokens=None,
    guidance="distilled_guidance_scale",
    embedded="distilled_guidance_scale",
    without=("guider", "ocr_guider"),
    schedule=own_schedule,
    during=changes,
)
