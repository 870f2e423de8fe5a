"""HardNeg-DiffusionITM: the loss of fine-tuning with hard negatives (paper, section 3.2, Eq. 6-7).

    L = E_pos - min(E_neg, lambda * stop_gradient(E_pos))

E is the mean squared error of the network's answer over a batch. A negative is another text for the image (a random
one, or a hard one) or another image for the text. It shares noise and timestep with its positive, and both go through
the network in one pass: rows 2 i and 2 i + 1 are the positive and the negative of example i.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from winobench.base.errors import InputError
from winobench.diffusion.pipeline import Pipeline, Tree
from winobench.diffusion.schedules import Schedule
from winobench.models import lora
from winobench.models.base import Network
from winobench.runs.training_settings import Loss
from winobench.training import losses

NEGATIVES = ("random_text", "hard_text", "hard_image")

# Shares of NEGATIVES in ``mixed``, from the published code (hard_neg_finetuning.py): one toss of a coin decides between
# an image and a text, another between a hard text and a random one.
MIXED_SHARES = (0.25, 0.25, 0.5)

_HARD_IMAGE = NEGATIVES.index("hard_image")
_HARD_TEXT = NEGATIVES.index("hard_text")

Batch = Mapping[str, jax.Array]
Metrics = dict[str, jax.Array]


def timesteps_of(config: Loss, schedule: Schedule) -> tuple[int, int]:
    """The schedule's timesteps to sample from, as [first, last)."""
    total = schedule.num_train_timesteps
    first, last = (0, total) if config.timestep_range is None else config.timestep_range
    if not 0 <= first < last <= total:
        raise InputError(
            f"hard negatives: timestep_range is {first} to {last}, but must lie within 0 to {total}, the timesteps of"
            " this checkpoint's schedule, and not be empty",
            code="out-of-range",
        )
    return first, last


class Draws(NamedTuple):
    """Random numbers of one step."""

    noise: jax.Array  # [B, h, w, c] float32. A positive and its negative share it
    timesteps: jax.Array  # [B], int32, or noise levels, float32. Likewise
    kinds: jax.Array | None = None  # index in ``NEGATIVES``, int32, scalar or [B]. Only for ``mixed``
    dropout_key: jax.Array | None = None  # of the adapters. Each row drops its own inputs

    def are(self, kind: int) -> jax.Array:
        """Whether the negatives are of a kind, an index in ``NEGATIVES``: bool, scalar or [B]. Only for ``mixed``."""
        return jnp.asarray(self.kinds) == kind


LossFn = Callable[..., tuple[jax.Array, Metrics]]


def contrast(
    positive_error: jax.Array, negative_error: jax.Array, threshold: float | None
) -> tuple[jax.Array, jax.Array]:
    """L = E_pos - min(E_neg, lambda * stop_gradient(E_pos)) (paper, Eq. 6), or E_pos - E_neg without a threshold.

    The paper clips L_neg = -E_neg to [-lambda L_pos, lambda L_pos]. The upper bound is never reached. Returns the loss,
    and whether E_neg was above the threshold, so that no gradient flows through it, both of the errors' shape.
    """
    if threshold is None:
        return positive_error - negative_error, jnp.zeros(positive_error.shape, bool)
    limit = threshold * jax.lax.stop_gradient(positive_error)
    clipped = negative_error > limit
    # As torch.clamp, and unlike jnp.minimum, the whole gradient passes at the limit itself: a negative that equals its
    # positive starts there.
    return positive_error - jnp.where(clipped, limit, negative_error), clipped


def draw_kinds(key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
    """Indices in ``NEGATIVES``, int32 [*shape], with the probabilities ``MIXED_SHARES``."""
    return jax.random.choice(key, len(NEGATIVES), shape, p=jnp.asarray(MIXED_SHARES)).astype(jnp.int32)


def draw(
    key: jax.Array,
    shape: tuple[int, ...],
    schedule: Schedule,
    config: Loss,
    *,
    first_example: int | jax.Array = 0,
) -> Draws:
    """Samples a step's noise, timesteps, kinds of negatives and dropout key for latents [B, h, w, c].

    An example's samples depend on ``key`` and its place in the global batch alone, not on the split over devices.
    """
    first, last = timesteps_of(config, schedule)
    kind_key, dropout_key, examples_key = jax.random.split(key, 3)

    def draw_example(index: jax.Array) -> tuple[jax.Array, ...]:
        noise_key, timestep_key, kind_key = jax.random.split(jax.random.fold_in(examples_key, index), 3)
        noise = jax.random.normal(noise_key, shape[1:], jnp.float32)
        return noise, jax.random.randint(timestep_key, (), first, last), draw_kinds(kind_key)

    noise, numbers, kinds = jax.vmap(draw_example)(first_example + jnp.arange(shape[0]))
    return Draws(
        noise,
        schedule.timesteps_at(numbers),
        kinds if config.mixing == "example" else draw_kinds(kind_key),
        dropout_key,
    )


def make_loss(
    family: type[Pipeline],
    graphdefs: Mapping[str, nnx.GraphDef[Network]],
    schedule: Schedule,
    config: Loss,
    *,
    remat: bool = False,
    axis_name: str | None = None,
) -> LossFn:
    """The loss as a function of the adapters.

    Errors are reduced in float32, also for networks in half precision. Under ``jax.jit`` with a batch that is split
    over a mesh, the means are over the global batch. Inside ``jax.shard_map`` they need ``axis_name``, the axis
    that splits the batch, and a device's gradients must be averaged over it (``jax.lax.pmean``).

    Returns:
      loss_fn(params, frozen, batch, key, draws=None) -> (loss, metrics). ``draws`` replace the key's.

      ``params`` (networks with adapters alone) and ``frozen``: network -> state, as `lora.split` parts them.

      ``batch`` has ``latents`` [B, h, w, c], scaled, of any float dtype, and ``input_ids``, the tokenizer's output for
      B texts: [B, L] int32, or a tree of arrays (or ``text_states``, the encoders' output). Text negatives need
      ``negative_ids`` or ``random_ids`` (``negative_text_states``, ``random_text_states``), image negatives
      ``negative_latents``, ``mixed`` all of them, of the same shapes.

      ``loss`` and metrics are float32 scalars: ``loss``, ``positive_error``. With negatives ``negative_error`` and
      ``share_clipped`` (of the batch, 0 or 1, or of its examples); for ``mixed`` ``share_random_text``,
      ``share_hard_text``, ``share_hard_image``.
    """
    timesteps_of(config, schedule)  # Refused here rather than in the first step.
    encoders = tuple(name for name in graphdefs if name != family.DENOISER)

    def batch_mean(values: jax.Array) -> jax.Array:
        return values.mean() if axis_name is None else jax.lax.pmean(values.mean(), axis_name)

    def sample(batch: Batch, key: jax.Array) -> Draws:
        shape = _entry(batch, "latents", config.kind).shape
        device = 0 if axis_name is None else jax.lax.axis_index(axis_name)
        draws = draw(key, shape, schedule, config, first_example=device * shape[0])
        if axis_name is None or draws.dropout_key is None:
            return draws
        return draws._replace(dropout_key=jax.random.fold_in(draws.dropout_key, device))

    def loss_fn(
        params: Any, frozen: Any, batch: Batch, key: jax.Array, draws: Draws | None = None
    ) -> tuple[jax.Array, Metrics]:
        draws = sample(batch, key) if draws is None else draws
        # Two keys also for one encoder, so that earlier runs continue.
        keys = [None] * 2 if draws.dropout_key is None else jax.random.split(draws.dropout_key)
        denoiser = _merge(graphdefs, params, frozen, family.DENOISER, keys[0])

        def encode(ids: Tree) -> Tree:
            if not encoders:
                return ids
            # Merged here, as a branch of `jax.lax.cond` cannot use a network from outside.
            networks = {}
            for number, name in enumerate(encoders):
                key = keys[1] if number == 0 or keys[1] is None else jax.random.fold_in(keys[1], number)
                networks[name] = _merge(graphdefs, params, frozen, name, key)
            return family.encode_conditions(networks, ids)

        # Axis 1 of all that follows: the positive and, if there is one, the negative.
        latents = _latents(batch, config, draws)
        states = _text_states(batch, config, draws, encode, cached=not encoders)
        noise = draws.noise.astype(jnp.float32)[:, None]
        noisy = schedule.add_noise(latents, noise, draws.timesteps)
        # A velocity belongs to the row's own latents.
        target = schedule.target(latents, noise, draws.timesteps)
        times = jnp.broadcast_to(schedule.model_time(draws.timesteps)[:, None], noisy.shape[:2])
        options = {"remat": True} if remat else {}
        conditions = jax.tree.map(_fold, states)
        prediction = family.denoise(denoiser, _fold(noisy), _fold(times), conditions, **options).reshape(noisy.shape)
        return _contrasted(prediction, target, config, draws, batch_mean)

    return loss_fn


def _contrasted(
    prediction: jax.Array,
    target: jax.Array,
    config: Loss,
    draws: Draws,
    batch_mean: Callable[[jax.Array], jax.Array],
) -> tuple[jax.Array, Metrics]:
    """The loss and the metrics of predictions [B, 1 or 2, h, w, c] and their targets."""
    positive_errors = losses.denoising_loss(prediction[:, 0], target[:, 0])
    positive_error = batch_mean(positive_errors)
    if config.kind == "none":
        return positive_error, {"loss": positive_error, "positive_error": positive_error}
    reference = target[:, -1] if config.objective == "hinged" else prediction[:, 0]
    negative_errors = losses.denoising_loss(prediction[:, 1], reference)
    negative_error = batch_mean(negative_errors)
    if config.threshold_over == "batch":
        loss, clipped = contrast(positive_error, negative_error, config.threshold)
        share_clipped = clipped.astype(jnp.float32)
    else:
        losses_of_examples, clipped = contrast(positive_errors, negative_errors, config.threshold)
        loss, share_clipped = batch_mean(losses_of_examples), batch_mean(clipped.astype(jnp.float32))
    metrics = {"loss": loss, "positive_error": positive_error}
    metrics |= {"negative_error": negative_error, "share_clipped": share_clipped}
    if config.kind == "mixed":
        for index, name in enumerate(NEGATIVES):
            metrics[f"share_{name}"] = batch_mean(draws.are(index).astype(jnp.float32))
    return loss, metrics


def _merge(
    graphdefs: Mapping[str, nnx.GraphDef[Network]], params: Any, frozen: Any, name: str, dropout_key: jax.Array | None
) -> Network:
    network = nnx.merge(graphdefs[name], *(part[name] for part in (params, frozen) if name in part))
    lora.set_dropout_key(network, dropout_key)
    return network


def _latents(batch: Batch, config: Loss, draws: Draws) -> jax.Array:
    """Clean latents, [B, 1 or 2, h, w, c] float32."""
    latents = _entry(batch, "latents", config.kind).astype(jnp.float32)
    if config.kind == "none":
        return latents[:, None]
    if config.kind not in ("hard_image", "mixed"):
        return jnp.stack([latents, latents], axis=1)
    negatives = _entry(batch, "negative_latents", config.kind).astype(jnp.float32)
    if config.kind == "mixed":
        negatives = jnp.where(_column(draws.are(_HARD_IMAGE), latents.ndim), negatives, latents)
    return jnp.stack([latents, negatives], axis=1)


def _text_states(batch: Batch, config: Loss, draws: Draws, encode: Callable[[Tree], Tree], *, cached: bool) -> Tree:
    """Conditions, arrays [B, 1 or 2, ...]; ``encode`` gets each text of an example once, where the kind is fixed."""
    names = ("text_states", "random_text_states", "negative_text_states")
    if not cached:
        names = ("input_ids", "random_ids", "negative_ids")
    own = _entry(batch, names[0], config.kind)

    def encode_once() -> Tree:
        return jax.tree.map(lambda states: jnp.stack([states, states], axis=1), encode(own))

    def encode_both(others: Tree) -> Tree:
        pairs = jax.tree.map(lambda *two: jnp.stack(two, axis=1), own, others)
        states = encode(jax.tree.map(_fold, pairs))
        return jax.tree.map(lambda leaf: leaf.reshape(len(leaf) // 2, 2, *leaf.shape[1:]), states)

    def where(condition: jax.Array, chosen: Tree, other: Tree) -> Tree:
        return jax.tree.map(lambda a, b: jnp.where(_column(condition, a.ndim), a, b), chosen, other)

    if config.kind == "none":
        return jax.tree.map(lambda states: states[:, None], encode(own))
    if config.kind == "hard_image":
        return encode_once()
    if config.kind != "mixed":
        return encode_both(_entry(batch, names[NEGATIVES.index(config.kind) + 1], config.kind))
    random, hard = (_entry(batch, name, config.kind) for name in names[1:])
    others = where(draws.are(_HARD_TEXT), hard, random)
    is_image = draws.are(_HARD_IMAGE)
    if cached or config.mixing == "example":
        return encode_both(where(is_image, own, others))
    # Half of all batches need half of the encoder's work. One compiled step has both ways.
    return jax.lax.cond(is_image, encode_once, lambda: encode_both(others))


def _entry(batch: Batch, name: str, kind: str) -> jax.Array:
    if name not in batch:
        raise InputError(
            f"hard negatives: the loss of kind {kind!r} needs {name!r}, but the batches have"
            f" {', '.join(sorted(batch)) or 'nothing'}: choose another kind, or data with such negatives",
            code="loss-misfit",
        )
    return jax.tree.map(jnp.asarray, batch[name])


def _column(values: jax.Array, ndim: int) -> jax.Array:
    """[B] -> [B, 1, ...] with ``ndim`` axes. A scalar stays one."""
    return values.reshape(values.shape + (1,) * (ndim - 1)) if values.ndim else values


def _fold(values: jax.Array) -> jax.Array:
    """[B, R, ...] -> [B * R, ...]. An example's rows stay together, so rows stay on their device."""
    # The size in words: -1 has no meaning for texts of no tokens, as an encoder that is left out has.
    return values.reshape(values.shape[0] * values.shape[1], *values.shape[2:])
