"""Blocks of Stable Diffusion by hand; tests/parity has them against diffusers."""

import jax.numpy as jnp
import numpy as np
from flax import nnx

from winobench.models.stable_diffusion_blocks import Upsample2D


def test_upsampling_repeats():
    upsample = Upsample2D(1, rngs=nnx.Rngs(0), dtype=jnp.float32, param_dtype=jnp.float32)
    upsample.conv.kernel[...] = jnp.zeros((3, 3, 1, 1)).at[1, 1].set(1.0)
    x = jnp.arange(6.0).reshape(1, 2, 3, 1)
    expected = np.repeat(np.repeat(x, 2, 1), 2, 2)
    np.testing.assert_array_equal(upsample(x), expected)
    np.testing.assert_array_equal(upsample(x, (4, 6)), expected)
    np.testing.assert_array_equal(upsample(x, (3, 5)), expected[:, :3, :5])
    # One more than twice: the first row and column come three times.
    np.testing.assert_array_equal(upsample(x, (5, 6))[0, :, 0, 0], [0, 0, 0, 3, 3])
