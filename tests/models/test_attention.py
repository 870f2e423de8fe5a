"""Attention against JAX's own; tolerances are float32 rounding unless stated."""

import functools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu

from tests.parity.harness import QUICK_COMPILATION
from winobench import parallel
from winobench.models import attention, exponential, fused_attention, plain_attention

FLOAT32 = {"dtype": jnp.float32, "param_dtype": jnp.float32}


quick = functools.partial(jax.jit, compiler_options=QUICK_COMPILATION)


def normal(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def gradients_and_result(function, *arrays):
    def total(*arrays):
        result = function(*arrays)
        return jnp.sum(jnp.sin(result)), result

    return quick(jax.grad(total, tuple(range(len(arrays))), has_aux=True))(*arrays)


@pytest.mark.quick(1)
@pytest.mark.parametrize("is_causal", [False, True])
def test_values_and_gradients(is_causal):
    query, key, value = normal(2, 5, 3, 8), normal(2, 5, 3, 8, seed=1), normal(2, 5, 3, 8, seed=2)

    ours, theirs = (
        gradients_and_result(functools.partial(function, is_causal=is_causal), query, key, value)
        for function in (attention.dot_product_attention, jax.nn.dot_product_attention)
    )
    np.testing.assert_allclose(ours[1], theirs[1], atol=1e-6)
    for a, b in zip(ours[0], theirs[0], strict=True):
        np.testing.assert_allclose(a, b, atol=2e-6)


def test_padding_is_left_out():
    query, key, value = normal(3, 5, 2, 8), normal(3, 5, 2, 8, seed=1), normal(3, 5, 2, 8, seed=2)
    lengths = np.array([1, 3, 5], np.int32)
    result = attention.dot_product_attention(query, key, value, lengths=lengths)
    for row, length in enumerate(lengths):
        part = slice(row, row + 1)
        expected = jax.nn.dot_product_attention(query[part], key[part, :length], value[part, :length])
        np.testing.assert_allclose(result[part], expected, atol=1e-6)


@pytest.mark.parametrize(("heads", "own"), [(4, 2), (3, 3)])
@pytest.mark.parametrize("is_masked", [False, True])
def test_devices_that_share_rows_take_their_heads(monkeypatch, heads, own, is_masked):
    """JAX refuses to divide cuDNN's kernel among them."""
    shapes, taken = ((4, 6, heads, 8), (4, 7, heads, 8), (4, 7, heads, 8)), []
    arrays = [normal(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    name = "mask" if is_masked else "lengths"
    arrays.append(normal(4, heads, 6, 7) > -1 if is_masked else np.array([1, 3, 7, 5], np.int32))

    def attend(query, key, value, which):
        return attention.dot_product_attention(query, key, value, **{name: which})

    wanted = quick(attend)(*arrays)

    def kernel(query, *others, **how):
        assert parallel.runs_on_one_device()
        taken.append(query.shape[2])
        return attention._whole(query, *others, **how)

    monkeypatch.setattr(fused_attention, "cudnn", kernel)
    monkeypatch.setattr(attention, "_attention_of", lambda *_: kernel)
    mesh, split = parallel.make_mesh(jax.devices()[:4], model_parallel=2), jax.P(parallel.DATA_AXIS)
    got = quick(parallel.map_over_data(attend, mesh, (split,) * 4, split))(*arrays)
    np.testing.assert_allclose(got, wanted, atol=1e-6)
    assert taken == [own]


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("limits", "shape"),
    [
        ((600, 1200, 24), (2, 12, 3, 8)),  # two whole heads a part
        ((600, 1200, 6), (2, 12, 3, 8)),  # half a head
        ((600, 1200, 1), (1, 13, 5, 8)),  # single queries, as 13 has no other divisor
    ],
)
def test_parts_are_the_whole(monkeypatch, limits, shape):
    query, value = normal(*shape), normal(*shape, seed=2)
    # Other keys than queries, and more of them.
    key, value = normal(*shape, seed=1), np.concatenate([value, value[:, :3]], axis=1)
    key = np.concatenate([key, normal(*shape, seed=3)[:, :3]], axis=1)

    def call():
        return quick(jax.value_and_grad(lambda *a: jnp.sum(jnp.sin(attention.dot_product_attention(*a))), (0, 1, 2)))(
            query, key, value
        )

    expected = call()
    called = []
    original = plain_attention.attend_in_parts
    monkeypatch.setattr(plain_attention, "attend_in_parts", lambda *a, **k: called.append(1) or original(*a, **k))
    for name, limit in zip(("_LARGE_MATRIX", "_MANY_SCORES", "_PART_ROWS"), limits, strict=True):
        monkeypatch.setattr(attention, name, limit)
    for ours, theirs in zip(jax.tree.leaves(call()), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-6, atol=2e-6)
    assert called


@pytest.mark.quick(2)
@pytest.mark.parametrize("part_bytes", [4 * 15 * 12 * 4, 4 * 15 * 6, 1])  # two heads, half of one, one query
@pytest.mark.parametrize("scale", [None, 3.0])
def test_by_keys(part_bytes, scale):
    query, key, value = normal(2, 3, 12, 8), normal(2, 3, 15, 8, seed=1), normal(2, 3, 15, 8, seed=2)

    by_keys = functools.partial(plain_attention.attend_in_parts, part_bytes=part_bytes, by_keys=True)
    both = (
        gradients_and_result(functools.partial(function, scale=scale), query, key, value)
        for function in (by_keys, plain_attention.attend)
    )
    # With a scale of 3 either form is off by 1.5e-5 from float64.
    tolerance = 2e-6 if scale is None else 3e-5
    for ours, theirs in zip(*map(jax.tree.leaves, both), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=tolerance)


def test_by_keys_at_extremes():
    """Scores of thousands do not overflow, weights fall to 0, and NaN stays NaN, whichever key has it."""
    query = 100 * normal(1, 1, 4, 8)
    by_keys = functools.partial(plain_attention.attend_in_parts, part_bytes=1 << 19, by_keys=True)
    value = normal(1, 1, 4, 8, seed=1)
    np.testing.assert_allclose(by_keys(query, query, value), value, atol=1e-6)
    for place in range(4):
        key = query.copy()
        key[0, 0, place, 0] = np.nan
        assert np.all(np.isnan(by_keys(query, key, value)))


def test_by_keys_where_numbers_are_float64_by_default():
    query = normal(1, 2, 4, 8)
    by_keys = functools.partial(plain_attention.attend_in_parts, part_bytes=1, by_keys=True)
    total = quick(jax.value_and_grad(lambda x: jnp.sum(by_keys(x, x, x))))
    expected = total(query)
    with jax.enable_x64(True):
        ours = total(query)
    assert ours[1].dtype == jnp.float32
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), ours, expected)


def test_exponential_of_negative():
    x = -np.concatenate([np.linspace(0, 87.3, 100_001), np.logspace(-30, 0, 1000)]).astype(np.float32)
    exact = np.exp(x.astype(np.float64))
    result = jax.jit(exponential.exp_of_negative)(x)
    np.testing.assert_array_less(np.abs(result / exact - 1), 1.2e-7 * (1 + np.abs(x)))
    ends = np.array([0, -87.4, -1e30, -np.inf, np.nan], np.float32)
    np.testing.assert_array_equal(exponential.exp_of_negative(ends), [1, 0, 0, 0, np.nan])
    np.testing.assert_allclose(jax.grad(exponential.exp_of_negative)(-2.0), np.exp(-2), rtol=3e-7)


def test_large_scores():
    """Scores of thousands neither overflow nor lose the winner."""
    query = 100 * normal(1, 4, 1, 8)
    result = attention.dot_product_attention(query, query, normal(1, 4, 1, 8, seed=1))
    np.testing.assert_allclose(result, normal(1, 4, 1, 8, seed=1), atol=1e-6)


def test_scores_are_float32_in_bfloat16():
    """Scores of 1000 and 1001 are equal in bfloat16; their softmax in float32 is not."""
    query = jnp.ones((1, 1, 1, 1), jnp.bfloat16)
    key = jnp.asarray([512, 511], jnp.bfloat16).astype(jnp.float32)[None, :, None, None]
    key = jnp.asarray(np.stack([key, key], -1)[..., 0], jnp.bfloat16)
    value = jnp.asarray([1, 0], jnp.bfloat16)[None, :, None, None]
    query, key = jnp.repeat(query, 4, -1), jnp.repeat(key, 4, -1)  # scores 4 * 512 / 2 and about 2 less
    result = attention.dot_product_attention(query, key, jnp.repeat(value, 4, -1))
    exact = np.asarray(key, np.float64)[0, :, 0].sum(-1) / 2
    expected = 1 / (1 + np.exp(exact[1] - exact[0]))
    assert result.dtype == jnp.bfloat16
    # bfloat16 has steps of 2^-8 under 1.
    np.testing.assert_allclose(np.asarray(result, np.float64), expected, atol=4e-3)


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("part_bytes", "keywords"),
    [
        (4 * 12 * 4, {"is_causal": True}),
        (1, {"lengths": np.array([3, 12], np.int32)}),
        (4 * 12 * 12 * 4, {"is_causal": True}),
        (4 * 12 * 4, {"lengths": np.array([3, 12], np.int32)}),
    ],
)
def test_parts_with_masks(part_bytes, keywords):
    arrays = [normal(2, 3, 12, 8, seed=seed) for seed in range(3)]

    def total(*arrays):
        result = plain_attention.attend_in_parts(*arrays, part_bytes, **keywords)
        return jnp.sum(jnp.sin(result)), result

    def expected(*arrays):
        heads_second = [jnp.swapaxes(array, 1, 2) for array in arrays]
        lengths = keywords.get("lengths")
        result = jax.nn.dot_product_attention(
            *heads_second, is_causal="is_causal" in keywords, key_value_seq_lengths=lengths
        )
        return jnp.sum(jnp.sin(result)), jnp.swapaxes(result, 1, 2)

    for ours, theirs in zip(
        *(jax.tree.leaves(quick(jax.grad(f, (0, 1, 2), has_aux=True))(*arrays)) for f in (total, expected)), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=2e-6, atol=2e-6)


GPUS = {"9.0": "NVIDIA H100 80GB HBM3", "8.0": "NVIDIA A100-SXM4-80GB", "8.9": "NVIDIA L4"}


@pytest.mark.parametrize(
    ("platform", "capability", "dtype", "head_size", "form"),
    [
        ("gpu", "9.0", jnp.bfloat16, 160, fused_attention.cudnn),
        ("gpu", "8.9", jnp.bfloat16, 160, attention._in_large_parts),
        ("gpu", "9.0", jnp.bfloat16, 264, attention._in_large_parts),
        ("gpu", "9.0", jnp.bfloat16, 20, attention._in_large_parts),
        ("gpu", "9.0", jnp.float32, 64, attention._in_large_parts),
        ("gpu", "7.5", jnp.float16, 64, attention._in_large_parts),  # no GPU here, and none that is known
        ("tpu", "", jnp.float32, 160, fused_attention.flash),
        ("cpu", "", jnp.bfloat16, 64, attention._in_parts),
    ],
)
def test_form_for_a_device(platform, capability, dtype, head_size, form, monkeypatch):
    monkeypatch.setattr(parallel, "runs_on_one_device", lambda: True)
    arrays = jax.ShapeDtypeStruct((32, 4096, 2, head_size), dtype)
    device = parallel.Device(platform, GPUS.get(capability, "another kind"))
    assert attention._attention_of(device, arrays, arrays) is form


@pytest.mark.parametrize(("devices", "model_parallel", "alone"), [(4, 1, True), (4, 2, False), (1, 1, True)])
def test_kernels_that_cannot_be_divided(devices, model_parallel, alone):
    """They are for one device's own part of a program, or are given it."""
    mesh = parallel.make_mesh(jax.devices()[:devices], model_parallel=model_parallel)
    split, seen = jax.sharding.PartitionSpec("data"), []
    arrays = jax.ShapeDtypeStruct((32, 4096, 2, 64), jnp.bfloat16)

    def look(x):
        seen.append((parallel.runs_on_one_device(), attention._attention_of(parallel.Device("tpu"), arrays, arrays)))
        return x

    jax.jit(parallel.map_over_data(look, mesh, (split,), split)).lower(jnp.ones(8))
    # In a program that XLA divides, among devices that can share the rows and others, and where nobody knows.
    for count in (4, 5):
        with jax.set_mesh(parallel.make_mesh(jax.devices()[:count])):
            jax.jit(look).lower(jnp.ones(8))
    jax.jit(look).lower(jnp.ones(8))
    parts = (False, attention._in_large_parts)
    assert seen == [(True, fused_attention.flash) if alone else parts, (False, fused_attention.flash), parts, parts]


def test_devices_are_given_rows_of_their_own(monkeypatch):
    """In a program that XLA divides, forward and backward: the plain form stands for a kernel that it cannot divide."""
    mesh, seen = parallel.make_mesh(jax.devices()[:4], model_parallel=2), []

    def kernel(query, key, value, **keywords):
        seen.append((parallel.runs_on_one_device(), query.shape[0]))
        return attention._whole(query, key, value, **keywords)

    arrays = [normal(8, 6, 2, 16, seed=seed) for seed in range(3)]
    lengths = jnp.arange(1, 9) % 6 + 1

    def total(*arrays):
        with parallel.traced_on(mesh):
            return jnp.sum(jnp.sin(attention.dot_product_attention(*arrays, lengths=lengths)))

    plain = quick(jax.value_and_grad(total, (0, 1, 2)))(*arrays)
    assert not seen
    monkeypatch.setattr(attention, "_attention_of", lambda *of: kernel)
    rows = parallel.split_rows(mesh)
    shared = [jax.device_put(array, rows) for array in arrays]
    ours = quick(jax.value_and_grad(total, (0, 1, 2)))(*shared)
    assert set(seen) == {(True, 2)}
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), ours, plain)
    assert all(gradient.sharding.is_equivalent_to(rows, 4) for gradient in ours[1])


@pytest.mark.quick(1)
def test_parts_stay_on_their_devices(monkeypatch):
    """XLA gathers what a loop runs over, so that each device would work on all rows."""
    monkeypatch.setattr(attention, "_LARGE_BY_KEYS", 1)
    monkeypatch.setattr(attention, "_PART_BY_KEYS", 4 * 8 * 4)
    mesh = parallel.make_mesh(jax.devices()[:2])

    def total(*arrays):
        with parallel.traced_on(mesh):
            return jnp.sum(jnp.sin(attention.dot_product_attention(*arrays)))

    arrays = [jax.device_put(normal(4, 8, 2, 16, seed=seed), parallel.split_rows(mesh)) for seed in range(3)]
    program = quick(jax.grad(total, (0, 1, 2))).lower(*arrays).compile().as_text()
    assert "while" in program
    assert "all-gather" not in program


def test_few_scores_are_worked_on_at_once():
    few = jax.ShapeDtypeStruct((2, 64, 2, 20), jnp.bfloat16)
    for platform in ("cpu", "gpu", "tpu"):
        assert attention._attention_of(parallel.Device(platform), few, few) is attention._whole


def test_large_matrices_on_cpus_go_by_keys():
    query, cpu = jax.ShapeDtypeStruct((8, 256, 8, 16), jnp.float32), parallel.Device("cpu")
    few = jax.ShapeDtypeStruct((8, 64, 8, 16), jnp.float32)
    half = jax.ShapeDtypeStruct((8, 256, 8, 16), jnp.bfloat16)
    # Nobody knows whether devices share the rows, and three cannot.
    assert attention._attention_of(cpu, query, query) is attention._whole
    for devices, form in ((1, attention._by_keys), (2, attention._by_keys), (3, attention._whole)):
        with parallel.traced_on(parallel.make_mesh(jax.devices()[:devices])):
            assert attention._attention_of(cpu, query, query) is form
            assert attention._attention_of(cpu, query, query, is_masked=True) is attention._whole
            assert attention._attention_of(cpu, few, few) is attention._whole
            assert attention._attention_of(cpu, half, half) is attention._whole


def test_the_device_is_that_of_the_mesh():
    """Not the process's own: this one has CPUs only."""
    seen = []

    def look(x):
        seen.append(parallel.traced_device())
        return x

    devices = types.SimpleNamespace(platform="tpu", device_kind="TPU v5 lite")
    mesh = parallel.make_mesh(jax.devices()[:1])
    look(1)
    split = jax.sharding.PartitionSpec("data")
    jax.jit(parallel.map_over_data(look, mesh, (split,), split))(jnp.ones(4))
    assert seen == [None, parallel.Device("cpu", jax.devices()[0].device_kind)]
    abstract = jax.sharding.AbstractDevice(devices.device_kind, 1, devices.platform)
    described = jax.sharding.AbstractMesh((1,), ("data",), axis_types=mesh.axis_types, abstract_device=abstract)
    with jax.sharding.use_abstract_mesh(described):
        assert parallel.traced_device() == parallel.Device("tpu", "TPU v5 lite")


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("queries", "keys", "head_size", "keywords"),
    [
        (200, 77, 40, {}),  # positions that fill no register, and a text
        (256, 1536, 160, {}),  # several blocks of keys, and heads that fill no two registers
        (1110, 1357, 64, {"lengths": np.array([1300, 1357], np.int32)}),  # several blocks that take more padding
        (256, 256, 64, {"is_causal": True}),
    ],
)
def test_flash_is_the_plain_form(queries, keys, head_size, keywords):
    """JAX's TPU kernel in interpret mode, forward and backward, to float32 rounding."""
    query = normal(2, queries, 1, head_size)
    key, value = normal(2, keys, 1, head_size, seed=1), normal(2, keys, 1, head_size, seed=2)

    def total(function):
        return lambda *arrays: jnp.sum(jnp.sin(function(*arrays, **keywords)))

    with pltpu.force_tpu_interpret_mode():
        ours = quick(jax.value_and_grad(total(fused_attention.flash), (0, 1, 2)))(query, key, value)
    plain = quick(jax.value_and_grad(total(attention.dot_product_attention), (0, 1, 2)))(query, key, value)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    ("positions", "padded", "queries", "keys"),
    [
        (576, 640, 640, 640),
        (4096, 4096, 1024, 2048),
        (4096 + 154, 4608, 768, 1536),  # whole registers, 4,352, have no divisor between 256 and 2,176
    ],
)
def test_blocks_of_flash(positions, padded, queries, keys):
    """Large blocks, with little padding: what an image and a text have together is no multiple of a block."""
    *lengths, sizes = fused_attention._blocks(positions, positions, 256)
    assert lengths == [padded, padded]
    assert (sizes.block_q, sizes.block_k_major) == (queries, keys)
