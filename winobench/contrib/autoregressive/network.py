"""A generator's arrays, and the passes that score images: codes of images, states of a text's image, logits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from winobench.contrib.autoregressive.family import Family
from winobench.models import attention, functional
from winobench.torch_modules import bridge
from winobench.torch_modules.bridge import torch, transformers
from winobench.torch_modules.network import TorchConfig, TorchNetwork

CAUSAL = "causal_without_mask"
"""An attention of transformers, for which it makes no mask: in a trace it would make a dense one of all rows."""

# Logits of a device that exist at once.
_LOGITS = 1 << 27
# Entries of configs that do not change a computation.
_LOOSE = ("vocabulary_map", "_name_or_path", "transformers_version", "dtype", "torch_dtype")

Prompts = tuple[jax.Array, jax.Array]
"""Token ids [n, width] and their numbers [n]. The rest of a row is never read."""


def use_causal_attention(model: Any) -> None:
    """Has a model of transformers attend without masks. Padding has to come last."""
    transformers.AttentionInterface.register(CAUSAL, _attend)
    model.set_attn_implementation(CAUSAL)


def _attend(module: Any, query: Any, key: Any, value: Any, ends: Any, **how: Any) -> tuple[Any, None]:
    """Causal attention. Or, in a trace, attention of one token to the keys before its row's end, int [n, 1, 1, 1]."""
    from transformers.integrations import sdpa_attention

    if ends is None:
        return sdpa_attention.sdpa_attention_forward(module, query, key, value, None, **how)
    query, key, value, ends = map(bridge.as_jax, (query, key, value, ends))
    rows, heads, _, size = key.shape
    # Heads of queries that share keys are like several queries.
    arrays = (x.swapaxes(1, 2) for x in (query.reshape(rows, heads, -1, size), key, value))
    result = attention.dot_product_attention(*arrays, lengths=ends[:, 0, 0, 0], scale=how["scaling"])
    return bridge.as_torch(result.swapaxes(1, 2).reshape(rows, 1, -1, size)), None


class TokenNetwork(TorchNetwork):
    """A generator of transformers.

    Attributes:
      family: its layout.
    """

    def __init__(self, family: Family, model: Any):
        config = {name: value for name, value in model.config.to_dict().items() if name not in _LOOSE}
        dtype = str(next(family.language_model(model).parameters()).dtype).removeprefix("torch.")
        # The config does not name the attention, and programs of equal keys are shared.
        super().__init__(model, TorchConfig(config), key=(family, CAUSAL, dtype))
        self.family = family
        self.dtype = jnp.dtype(dtype)

    def image_codes(self, images: Sequence[jax.Array]) -> jax.Array:
        """Float32 [n, side, side, 3], one array for each of the family's sides -> int32 [n, codes]."""
        with self.traced() as m, functional.precision(jnp.float32):
            pixels = [bridge.as_torch(jnp.moveaxis(image, -1, 1)) for image in images]
            return bridge.as_jax(self.family.image_codes(m, *pixels)).astype(jnp.int32)

    def pixels(self, codes: jax.Array) -> jax.Array:
        """Int32 [n, codes] -> float32 [n, side, side, 3], normalised as the family's images."""
        with self.traced() as m, functional.precision(jnp.float32):
            images = bridge.as_jax(self.family.pixels(m, bridge.as_torch(codes)))
            return jnp.moveaxis(images, 1, -1).astype(jnp.float32)

    @property
    def longest_prompt(self) -> int:
        """Tokens that may precede an image."""
        return self.config.text_config["max_position_embeddings"] - self.family.length

    def log_ratios(
        self, prompts: Prompts, codes: jax.Array, without: Prompts | None = None, guidance: float = 1.0
    ) -> jax.Array:
        """Log-probability of each code relative to a random code: float32 [n, codes], in nats.

        The sums of log-probabilities themselves can be so large that float32 rounds away what texts change.

        Args:
          prompts: of each image.
          codes: int32 [n, codes].
          without: the prompts without their texts, for guidance.
          guidance: g in u + g (c - u), of logits c under the text and u without it.
        """
        family, places = self.family, self.family.scored_places()
        with self.traced() as m:
            rows = [prompts] if without is None else [prompts, without]
            states = [self._states(m, *row, codes, places) for row in rows]
            head, targets = self.head(m), codes

            def of_part(part: tuple[jax.Array, ...]) -> jax.Array:
                *states, targets = part
                logits = [head(state) for state in states]
                guided = logits[0] if without is None else logits[1] + guidance * (logits[0] - logits[1])
                chosen = jnp.take_along_axis(guided, targets[..., None], axis=-1)[..., 0]
                return chosen - jax.nn.logsumexp(guided, axis=-1) + np.float32(np.log(family.codes))

            number = targets.shape[1]
            size = len(targets) * family.codes
            parts = next(
                k for k in range(1, number + 1) if number % k == 0 and (number // k * size <= _LOGITS or k == number)
            )
            split = [x.reshape(len(x), parts, -1, *x.shape[2:]).swapaxes(0, 1) for x in (*states, targets)]
            return jax.lax.map(of_part, tuple(split)).swapaxes(0, 1).reshape(targets.shape)

    def head(self, m: Any) -> Callable[[jax.Array], jax.Array]:
        """A function from states [..., width] to float32 logits of the codes [..., codes], in a trace."""
        weight, bias = (x if x is None else bridge.as_jax(x) for x in self.family.last_layer(m))

        def logits(states: jax.Array) -> jax.Array:
            x = bridge.as_jax(self.family.before_head(m, bridge.as_torch(states)))
            # Float32 in any dtype: bfloat16 would round each logit to 8 bits.
            y = jnp.einsum("...d,vd->...v", x, weight, preferred_element_type=jnp.float32)
            return y if bias is None else y + bias

        return logits

    def _states(self, m: Any, ids: jax.Array, lengths: jax.Array, codes: jax.Array, places: np.ndarray) -> jax.Array:
        ids, lengths, codes = map(bridge.as_torch, (ids, lengths, codes))
        return bridge.as_jax(states_of(self.family, m, ids, lengths, codes, places=places))


def states_of(
    family: Family, m: Any, ids: torch.Tensor, lengths: torch.Tensor, codes: torch.Tensor, *, places: np.ndarray
) -> torch.Tensor:
    """The states [n, places, width] that predict these places of the image's sequence.

    The sequence directly follows its prompt, and padding comes last, where nothing attends to it.
    """
    decoder = family.language_model(m)
    words, images = decoder.embed_tokens(ids), family.embedded(m, codes)[:, : int(places.max())]
    joined = torch.cat([words, images.to(words.dtype)], 1)
    place, width = torch.arange(joined.shape[1], device=ids.device)[None], ids.shape[1]
    index = torch.where(place < lengths[:, None], place, place - lengths[:, None] + width)
    rows = torch.arange(len(ids), device=ids.device)[:, None]
    inputs = joined[rows, index.clamp(max=joined.shape[1] - 1)]
    positions = family.positions(lengths, joined.shape[1])
    states = decoder(inputs_embeds=inputs, position_ids=positions, use_cache=False).last_hidden_state
    return states[rows, lengths[:, None] - 1 + torch.as_tensor(places).to(ids.device)[None]]
