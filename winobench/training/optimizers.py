"""Optimisers and learning rates built from a config's fields."""

from __future__ import annotations

import jax
import optax
from optax import contrib

from winobench.base import options
from winobench.base.errors import InputError


def warmup_constant_decay(peak: float, *, warmup_steps: int, total_steps: int, decay_steps: int) -> optax.Schedule:
    """Linear warm-up, a plateau, then a linear decay to zero over the last ``decay_steps``.

    With a plateau, unlike a cosine, a run can be prolonged from any checkpoint before the decay.
    """
    return optax.join_schedules(
        [
            optax.linear_schedule(0.0, peak, warmup_steps),
            optax.constant_schedule(peak),
            optax.linear_schedule(peak, 0.0, decay_steps),
        ],
        [warmup_steps, max(total_steps - decay_steps, warmup_steps)],
    )


def make_schedule(kind: str, peak: float, *, warmup_steps: int, total_steps: int) -> optax.Schedule:
    """Linear warm-up to ``peak``, then what ``kind`` says. Returns step -> learning rate."""
    options.SCHEDULE.check("the learning rate's schedule", kind)
    options.LEARNING_RATE.check("the learning rate", peak)
    options.WARMUP_STEPS.check("warmup_steps", warmup_steps)
    decay_steps = total_steps - warmup_steps
    if kind != "constant" and decay_steps < 1:
        raise InputError(
            f"a warm-up of {warmup_steps} steps leaves nothing of {total_steps} for the {kind} schedule: shorten it",
            code="out-of-range",
        )
    after = {
        "constant": lambda: optax.constant_schedule(peak),
        "cosine": lambda: optax.cosine_decay_schedule(peak, decay_steps),
        "linear": lambda: optax.linear_schedule(peak, 0.0, decay_steps),
    }[kind]()
    if not warmup_steps:
        return after
    return optax.join_schedules([optax.linear_schedule(0.0, peak, warmup_steps), after], [warmup_steps])


# Kernels of Flax, and torch's names of projections. Tables of embeddings and heads are left to Adam.
_MATRICES = ("kernel", "_proj.weight")


def _muon_dimensions(params):
    """Dense kernels are [in, out]. Convolution kernels [h, w, in, out] act as one matrix [h * w * in, out].

    Torch's matrices are [out, in], and their updates are the same.
    """

    def dimensions(path, leaf):
        if leaf.ndim < 2 or not jax.tree_util.keystr(path, simple=True).endswith(_MATRICES):
            return None
        axes = tuple(range(leaf.ndim - 1))
        return contrib.MuonDimensionNumbers(reduction_axis=axes, output_axis=(leaf.ndim - 1,))

    return jax.tree_util.tree_map_with_path(dimensions, params)


def make_optimizer(
    name: str,
    learning_rate: optax.ScalarOrSchedule,
    *,
    weight_decay: float = 0.0,
    clip_norm: float | None = 1.0,
    b1: float = 0.9,
    b2: float = 0.99,
    eps: float = 1e-8,
) -> optax.GradientTransformation:
    """``adamw`` or ``muon`` behind a clip of the global gradient norm.

    ``muon`` orthogonalises the updates of matrices and convolution kernels (Newton-Schulz) and leaves the rest to Adam.
    Its updates have Adam's size, so both take the same learning rate.
    """
    numbers = {"name": name, "weight_decay": weight_decay, "clip_norm": clip_norm, "b1": b1, "b2": b2, "eps": eps}
    for option, value in numbers.items():
        options.checked(options.declared(options.Optimizer)[option], f"the optimizer's {option}", value)
    if not callable(learning_rate):
        options.LEARNING_RATE.check("the learning rate", learning_rate)
    if name == "adamw":
        inner = optax.adamw(learning_rate, b1=b1, b2=b2, eps=eps, weight_decay=weight_decay)
    else:
        inner = contrib.muon(
            learning_rate,
            adam_b1=b1,
            adam_b2=b2,
            eps=eps,
            weight_decay=weight_decay,
            consistent_rms=0.2,
            muon_weight_dimension_numbers=_muon_dimensions,
        )
    clip = optax.identity() if clip_norm is None else optax.clip_by_global_norm(clip_norm)
    return optax.chain(clip, inner)


def from_settings(settings: options.Optimizer, num_steps: int, *, warmup_steps: int) -> optax.GradientTransformation:
    rate = make_schedule(settings.schedule, settings.learning_rate, warmup_steps=warmup_steps, total_steps=num_steps)
    numbers = {name: getattr(settings, name) for name in ("weight_decay", "clip_norm", "b1", "b2", "eps")}
    return make_optimizer(settings.name, rate, **numbers)
