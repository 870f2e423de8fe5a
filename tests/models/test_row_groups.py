"""Groups of rows on a TPU: how many, and that a transformer gives the same with them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.parity.harness import QUICK_COMPILATION
from winobench import parallel
from winobench.models import row_groups
from winobench.models.stable_diffusion_blocks import Transformer2DModel

V5E = parallel.Device("tpu", "TPU v5 lite")


@pytest.mark.parametrize(
    ("device", "alone", "rows", "mib", "expected"),
    [
        (V5E, True, 32, 20, 4),  # Stable Diffusion 2.1 at 64 x 64 positions
        (V5E, True, 32, 10, 8),
        (V5E, True, 12, 10, 6),  # of equal size
        (V5E, True, 7, 20, 1),
        (V5E, True, 2, 10, 2),  # all fit
        (V5E, True, 4, 100, 4),  # not even one fits
        (V5E, False, 32, 20, 32),
        (parallel.Device("tpu", "TPU v5"), True, 32, 20, 32),  # slower there
        (parallel.Device("gpu", "NVIDIA H100 80GB HBM3"), True, 32, 20, 32),
        (parallel.Device("cpu", "cpu"), True, 32, 20, 32),
        (None, True, 32, 20, 32),
    ],
)
def test_group_size(monkeypatch, trace_for, device, alone, rows, mib, expected):
    trace_for(device)
    monkeypatch.setattr(parallel, "runs_on_one_device", lambda: alone)
    assert row_groups.group_size(rows, mib << 20) == expected


@pytest.mark.quick(4)
@pytest.mark.parametrize("rows", [None, (0, 0, 1, 2, 3, 3)])
def test_a_transformer_gives_the_same(monkeypatch, rows):
    """With a text for each row, and with several, forward and backward, in groups of two rows."""
    kwargs = {"dtype": jnp.float32, "param_dtype": jnp.float32, "rngs": nnx.Rngs(0)}
    layer = Transformer2DModel(8, 2, 2, 5, groups=4, linear_projection=True, **kwargs)
    random = np.random.default_rng(0)
    x, context = (jnp.float32(random.normal(size=shape)) for shape in ((4, 3, 2, 8), (len(rows or "1234"), 3, 5)))
    rows = None if rows is None else jnp.int32(rows)
    graph, state = nnx.split(layer)

    def results():
        def total(state, x, context):
            y = nnx.merge(graph, state)(x, context, rows)
            return jnp.sum(jnp.sin(y)), y

        gradient = jax.value_and_grad(total, (0, 1, 2), has_aux=True)
        return jax.jit(gradient, compiler_options=QUICK_COMPILATION)(state, x, context)

    expected = results()
    called = []
    monkeypatch.setattr(row_groups, "group_size", lambda rows, _: called.append(rows) or 2)
    monkeypatch.setattr("winobench.models.stable_diffusion_blocks.group_size", lambda rows, _: 2)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), results(), expected)
    assert called == ([4] if rows is None else [4, 6])
