"""CogView4: a mask for padded texts, and its own noise levels."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import types
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from winobench.contrib.torch_pipelines.families import Family
from winobench.diffusion.flow_schedule import FlowSchedule

# The pipeline pads texts to a multiple of this many tokens.
_MULTIPLE = 16


def fill(results: tuple[Any, ...], tokens: int) -> tuple[Any, ...]:
    """States [n, length, width] -> states padded to the most tokens, and a mask of the text's tokens."""
    from winobench.torch_modules.bridge import torch

    states, _ = results
    missing = math.ceil(tokens / _MULTIPLE) * _MULTIPLE - states.shape[1]
    mask = torch.ones(states.shape[:2], dtype=torch.long)
    return torch.nn.functional.pad(states, (0, 0, 0, missing)), torch.nn.functional.pad(mask, (0, missing))


@contextlib.contextmanager
def changes(pipe: Any, latents: Any, results: tuple[Any, ...]) -> Iterator[None]:
    """Masks the padding of `fill` in attention. The network itself takes no mask."""
    from diffusers.models.transformers import transformer_cogview4
    from torch.nn import functional

    from winobench.torch_modules.bridge import replaced

    _, mask = results

    def attention(query: Any, key: Any, value: Any, **keywords: Any) -> Any:
        keys = functional.pad(mask, (0, key.shape[2] - mask.shape[1]), value=1)[:, None, None, :].bool()
        return functional.scaled_dot_product_attention(query, key, value, **{**keywords, "attn_mask": keys})

    used = types.SimpleNamespace(scaled_dot_product_attention=attention, silu=functional.silu)
    with replaced(transformer_cogview4, "F", used):
        yield


class CogView4Schedule(FlowSchedule):
    """The shift is linear in the square root of the positions. Networks take the times before the shift."""

    def shifted(self, u: np.ndarray) -> np.ndarray:
        if not self.use_dynamic_shifting or self.positions is None:
            return super().shifted(u)
        shift = self.base_shift + self.max_shift * math.sqrt(self.positions / self.base_image_seq_len)
        return FlowSchedule.shifted(dataclasses.replace(self, base_shift=shift, max_shift=shift), u)

    @property
    def model_times(self) -> np.ndarray:
        return np.arange(1, self.num_train_timesteps + 1, dtype=np.float32)

    def model_time(self, timesteps: ArrayLike) -> jax.Array:
        levels = jnp.asarray(timesteps, jnp.float32)
        half = float(self.shifted(np.float64(0.5)))
        factor = half / (1 - half)
        return self.num_train_timesteps * levels / (factor - (factor - 1) * levels)


def own_schedule(pipe: Any, schedule: FlowSchedule) -> FlowSchedule:
    return CogView4Schedule(**vars(schedule))


FAMILY = Family(fill=fill, side=2, together=False, schedule=own_schedule, during=changes)
