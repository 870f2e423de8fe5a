"""Blocks of transformers in which an image and a text attend to each other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import PartitionSpec

from tests.parity.harness import QUICK_COMPILATION
from winobench import parallel
from winobench.models import flux_blocks, joint_blocks
from winobench.models.attention import dot_product_attention
from winobench.models.base import linear
from winobench.models.decoder import rms_norm

_SIZES = {"dtype": jnp.float32, "param_dtype": jnp.float32}


def _random(*shape):
    return jnp.asarray(np.random.default_rng(len(shape)).standard_normal(shape), jnp.float32)


def test_the_dense_layer_of_parts_is_that_of_the_joined_array():
    layer = linear(24, 8, rngs=nnx.Rngs(0), **_SIZES)
    parts = (_random(2, 3, 16), _random(2, 3, 8)[..., ::-1])
    split, whole = PartitionSpec(parallel.DATA_AXIS), PartitionSpec()
    structure, state = nnx.split(layer)
    mesh = parallel.make_mesh(jax.devices()[:1])

    def apply_to_parts(state, *parts):
        return joint_blocks.apply_to_parts(nnx.merge(structure, state), *parts)

    own = jax.jit(parallel.map_over_data(apply_to_parts, mesh, (whole, split, split), split))
    expected = layer(jnp.concatenate(parts, axis=-1))
    np.testing.assert_allclose(own(state, *parts), expected, atol=1e-6)
    assert "concatenate" not in own.lower(state, *parts).as_text()
    np.testing.assert_array_equal(apply_to_parts(state, *parts), expected)


@pytest.mark.parametrize("rotates", [False, True])
def test_queries_apart_give_what_joined_ones_give(rotates):
    heads, width, tokens, patches = 2, 16, 5, 6
    layer = joint_blocks.JointAttention(heads, width, bias=True, epsilon=1e-6, rngs=nnx.Rngs(0), **_SIZES)
    image, text = _random(2, patches, heads * width), _random(2, tokens, heads * width)[..., ::-1]
    positions = np.arange(tokens + patches)[:, None]
    turns = flux_blocks.rotations(positions, [width], 10.0) if rotates else None

    def joined(layer, image, text):
        streams = [(text, "add_{}_proj", "norm_added_{}"), (image, "to_{}", "norm_{}")]
        parts = []
        for kind in "qkv":
            of_kind = []
            for x, name, norm in streams:
                y = joint_blocks.split_heads(getattr(layer, name.format(kind))(x), heads)
                of_kind.append(y if kind == "v" else getattr(layer, norm.format(kind))(y))
            parts.append(jnp.concatenate(of_kind, axis=1))
        if rotates:
            parts[:2] = (joint_blocks.rotated(part, turns) for part in parts[:2])
        y = dot_product_attention(*parts).reshape(2, tokens + patches, -1)
        return layer.to_out[0](y[:, tokens:]), layer.to_add_out(y[:, :tokens])

    def with_gradient(function):
        def total(x):
            streams = function(x)
            return sum(jnp.sum(jnp.sin(y)) for y in streams), streams

        return jax.jit(jax.grad(total, has_aux=True), compiler_options=QUICK_COMPILATION)(image)

    gradient, streams = with_gradient(lambda x: layer(x, text, turns))
    wanted, expected = with_gradient(lambda x: joined(layer, x, text))
    for result, stream in zip(streams, expected, strict=True):
        np.testing.assert_allclose(result, stream, atol=1e-6)
    np.testing.assert_allclose(gradient, wanted, atol=1e-5)


def test_a_norm_apart_has_the_same_bits():
    x, scale = _random(3, 4, 16), _random(16)
    np.testing.assert_array_equal(rms_norm(x, scale, 1e-6, apart=True), rms_norm(x, scale, 1e-6))
