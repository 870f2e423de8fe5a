"""Changes for a few families: shapes that do not depend on texts, one time for each row, other noise levels."""

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

from winobench.diffusion.flow_schedule import FlowSchedule

# CogView4 pads texts to a multiple of this many tokens.
_COGVIEW4_MULTIPLE = 16


@contextlib.contextmanager
def times_in_lists(pipe: Any, latents: Any, results: tuple[Any, ...]) -> Iterator[None]:
    """Gives each row its time, in loops that make a tensor from a list of one time or of equal times."""
    import torch

    from winobench.torch_pipelines.bridge import replaced

    make = torch.tensor

    def tensor(data: Any, *others: Any, **keywords: Any) -> Any:
        of_rows = isinstance(data, list) and isinstance(data[0], torch.Tensor) and data[0].ndim == 1
        return data[0] if of_rows else make(data, *others, **keywords)

    with replaced(torch, "tensor", tensor):
        yield


@dataclasses.dataclass(frozen=True)
class Rows:
    """Times [n], for a loop that reads its time as a single number."""

    times: Any

    def float(self) -> Rows:
        return self

    def view(self, *shape: int) -> Any:
        return self.times

    def __truediv__(self, divisor: Any) -> Rows:
        return Rows(self.times / divisor)


# CogView4 -----------------------------------------------------------------------------------------------------------


def cogview4_fill(results: tuple[Any, ...], tokens: int) -> tuple[Any, ...]:
    """States [n, length, width] -> states padded to the most tokens, and a mask of the text's tokens."""
    import torch

    states, _ = results
    missing = math.ceil(tokens / _COGVIEW4_MULTIPLE) * _COGVIEW4_MULTIPLE - states.shape[1]
    mask = torch.ones(states.shape[:2], dtype=torch.long)
    return torch.nn.functional.pad(states, (0, 0, 0, missing)), torch.nn.functional.pad(mask, (0, missing))


@contextlib.contextmanager
def cogview4_mask(pipe: Any, latents: Any, results: tuple[Any, ...]) -> Iterator[None]:
    """Masks the padding of `cogview4_fill` in attention. The network itself takes no mask."""
    from diffusers.models.transformers import transformer_cogview4
    from torch.nn import functional

    from winobench.torch_pipelines.bridge import replaced

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


def cogview4_schedule(pipe: Any, schedule: FlowSchedule) -> FlowSchedule:
    return CogView4Schedule(**vars(schedule))
