"""Blocks of Stable Diffusion by hand; tests/parity has them against diffusers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from winobench import parallel
from winobench.models.stable_diffusion_blocks import ResnetBlock2D


@pytest.mark.slow
@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_a_skip_is_more_of_the_input(trace_for, platform):
    """On a GPU the shortcut adds up products of both parts, which rounds otherwise (float32, to 1e-5)."""
    random = np.random.default_rng(0)
    x, skip, time = (jnp.float32(random.normal(size=shape)) for shape in ((2, 5, 3, 24), (2, 5, 3, 8), (2, 7)))
    kwargs = {"dtype": jnp.float32, "param_dtype": jnp.float32, "rngs": nnx.Rngs(0)}
    block = ResnetBlock2D(32, 16, time_channels=7, groups=4, epsilon=1e-5, output_scale=1.5, **kwargs)
    block.conv_shortcut.bias[...] = jnp.arange(16.0)
    expected = block(jnp.concatenate([x, skip], axis=-1), time)
    trace_for(parallel.Device(platform))
    text = str(jax.make_jaxpr(lambda *a: block(*a))(x, time, skip))
    # On CPUs each of the two norms has three small ones.
    assert text.count("dot_general") == (3 if platform == "gpu" else 2 + 2 * 3)
    with jax.default_matmul_precision("highest"):
        np.testing.assert_allclose(block(x, time, skip), expected, rtol=1e-5, atol=1e-5 * (platform == "gpu"))
