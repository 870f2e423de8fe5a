"""Optimisers built from a config's fields."""

from __future__ import annotations

import jax
import optax
from optax import contrib


def warmup_constant_decay(peak: float, *, warmup_steps: int, total_steps: int, decay_steps: int) -> optax.Schedule:
    """Linear warm-up, a plateau, then a linear decay to zero over the last ``decay_steps``.

    A plateau, unlike a cosine, does not need the length of the run to be known when it starts: a run can be
    prolonged from any checkpoint before the decay.
    """
    return optax.join_schedules(
        [
            optax.linear_schedule(0.0, peak, warmup_steps),
            optax.constant_schedule(peak),
            optax.linear_schedule(peak, 0.0, decay_steps),
        ],
        [warmup_steps, max(total_steps - decay_steps, warmup_steps)],
    )


def _is_matrix(path, leaf) -> bool:
    name = jax.tree_util.keystr(path, simple=True, separator="/")
    return name.endswith("kernel") and leaf.ndim >= 2


def _muon_dimensions(params):
    """Dense kernels are [in, out]; convolution kernels [h, w, in, out] act as one matrix [h * w * in, out]."""

    def dimensions(path, leaf):
        if not _is_matrix(path, leaf):
            return None
        axes = tuple(range(leaf.ndim - 1))
        return contrib.MuonDimensionNumbers(reduction_axis=axes, output_axis=(leaf.ndim - 1,))

    return jax.tree_util.tree_map_with_path(dimensions, params)


def make_optimizer(
    name: str, learning_rate: optax.ScalarOrSchedule, *, weight_decay: float = 0.0, clip_norm: float = 1.0
) -> optax.GradientTransformation:
    """``adamw`` or ``muon`` behind a clip of the global gradient norm.

    ``muon`` orthogonalises the updates of matrices and convolution kernels (Newton-Schulz) and leaves embeddings,
    norms and biases to Adam; its updates are scaled to Adam's size, so both take the same learning rate.

    Raises:
      ValueError: for another name.
    """
    if name == "adamw":
        inner = optax.adamw(learning_rate, b2=0.99, weight_decay=weight_decay)
    elif name == "muon":
        inner = contrib.muon(
            learning_rate,
            adam_b2=0.99,
            weight_decay=weight_decay,
            consistent_rms=0.2,
            muon_weight_dimension_numbers=_muon_dimensions,
        )
    else:
        raise ValueError(f"unknown optimizer {name!r}; choose adamw or muon")
    return optax.chain(optax.clip_by_global_norm(clip_norm), inner)
