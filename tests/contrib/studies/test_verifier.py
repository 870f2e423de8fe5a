"""The verifier: targets and decoding by hand, files, and the accuracy of the one that comes with winobench."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.expectations import raises
from tests.models.test_networks import filled
from winobench import checkpoints
from winobench.base.errors import InputError
from winobench.clevr.objects import ATTRIBUTES
from winobench.contrib.studies import verifier as clevr_verifier
from winobench.contrib.studies.verifier import ClevrVerifier, ClevrVerifierConfig, Maps

SIDE = 32
COUNTS = tuple(len(values) for values in ATTRIBUTES.values())
# Each compiled as one program.
targets = jax.jit(clevr_verifier.targets, static_argnums=2)
loss = jax.jit(clevr_verifier.loss)


@pytest.fixture(scope="module")
def small():
    return filled(ClevrVerifier, ClevrVerifierConfig(widths=(8, 8), num_blocks=(1, 1, 1)))


def empty_maps():
    return Maps(
        np.full((1, SIDE, SIDE), -9.0),
        np.zeros((1, SIDE, SIDE, 4)),
        tuple(np.zeros((1, SIDE, SIDE, count)) for count in COUNTS),
    )


def put(maps, row, column, *, heat, at=(0.5, 0.5), radius=0.1, depth=0.0, values=(0, 0, 0, 0)):
    maps.heat[0, row, column] = heat
    maps.measures[0, row, column] = (*at, np.log(radius), depth / 4)
    for logits, value in zip(maps.attributes, values, strict=True):
        logits[0, row, column, value] = 5.0


def test_targets_by_hand():
    """Centres (0.25, 0.5) and (0.51, 0.99); of the second, a small one, the deviation is the least, 0.7 cells."""
    objects = np.asarray([[[0.25, 0.5, 0.25, 2.0], [0.51, 0.99, 0.05, -1.0], [0.9, 0.1, 0.3, 0.0]]], np.float32)
    heat, cells, measures = targets(objects, np.asarray([[True, True, False]]), SIDE)
    np.testing.assert_array_equal(cells[0, :2], [[16, 8], [31, 16]])
    assert heat.shape == (1, SIDE, SIDE)
    assert heat[0, 16, 8] == heat[0, 31, 16] == 1
    # The first one's radius is 8 cells, so its deviation is 2.
    np.testing.assert_allclose(heat[0, 16, 10], np.exp(-4 / 8), rtol=1e-6)
    np.testing.assert_allclose(heat[0, 14, 7], np.exp(-5 / 8), rtol=1e-6)
    np.testing.assert_allclose(heat[0, 30, 16], np.exp(-1 / 0.98), rtol=1e-6)
    assert heat[0, 3, 28] < 1e-6  # the third is padding
    np.testing.assert_allclose(measures[0, 0], [0.0, 0.0, np.log(0.25), 0.5], atol=1e-5)
    np.testing.assert_allclose(measures[0, 1], [0.32, 0.68, np.log(0.05), -0.25], atol=1e-5)


def test_maps_that_are_no_numbers_are_refused(small):
    """Otherwise nothing would be found in any image."""
    network = nnx.clone(small)
    first = jax.tree.leaves(nnx.state(network, nnx.Param), is_leaf=lambda leaf: isinstance(leaf, nnx.Variable))[0]
    first[...] = first[...].at[0].set(np.nan)
    with raises("not-finite", "verifier"):
        network.objects(np.zeros((1, 64, 64, 3), np.uint8))


def test_decoding_by_hand():
    maps = empty_maps()
    put(maps, 16, 8, heat=2.0, at=(0.0, 0.5), radius=0.2, depth=2.0, values=(2, 7, 1, 1))
    put(maps, 31, 16, heat=3.0, at=(0.32, 0.68), radius=0.05, depth=-1.0, values=(1, 0, 0, 1))
    put(maps, 2, 2, heat=-0.5)  # below the threshold: sigmoid(-0.5) = 0.378
    (result,) = clevr_verifier.decode(maps)
    np.testing.assert_allclose(result.confidence, 1 / (1 + np.exp([-3.0, -2.0])))
    np.testing.assert_allclose(result.measures, [[0.51, 0.99, 0.05, -1.0], [0.25, 16.5 / 32, 0.2, 2.0]])
    np.testing.assert_array_equal(result.attributes, [[1, 0, 0, 1], [2, 7, 1, 1]])
    (more,) = clevr_verifier.decode(maps, threshold=0.3)
    assert len(more.confidence) == 3
    (none,) = clevr_verifier.decode(empty_maps())
    assert none.measures.shape == (0, 4)
    assert none.attributes.shape == (0, 4)


def test_only_peaks_count_and_of_two_too_close_the_surer_one():
    maps = empty_maps()
    put(maps, 10, 10, heat=2.0, values=(1, 0, 0, 0))
    put(maps, 11, 11, heat=1.0)  # its neighbour is higher
    put(maps, 10, 12, heat=1.5)  # a peak, but 2 cells = 0.0625 away, and 0.4 (0.1 + 0.1) = 0.08
    put(maps, 10, 14, heat=1.2)  # 0.125 away
    (found,) = clevr_verifier.decode(maps)
    np.testing.assert_allclose(found.measures[:, 0], [10.5 / 32, 14.5 / 32])
    np.testing.assert_array_equal(found.attributes[:, 0], [1, 0])


def test_true_maps_are_decoded_into_the_truth():
    """What the loss takes as the truth, read back; and the loss of such maps is near zero, that of others not."""
    objects = np.asarray([[[0.3, 0.4, 0.2, 1.0], [0.7, 0.6, 0.08, -2.0], [0.0, 0.0, 0.0, 0.0]]], np.float32)
    attributes = np.asarray([[[0, 3, 1, 0], [2, 7, 0, 1], [0, 0, 0, 0]]], np.int32)
    present = np.asarray([[True, True, False]])
    heat, cells, measures = targets(objects, present, SIDE)
    maps = empty_maps()
    maps.heat[:] = np.where(heat >= 1, 20.0, -20.0)
    for at in range(2):
        row, column = cells[0, at]
        maps.measures[0, row, column] = measures[0, at]
        for logits, value in zip(maps.attributes, attributes[0, at], strict=True):
            logits[0, row, column, value] = 20.0
    (result,) = clevr_verifier.decode(maps)
    np.testing.assert_allclose(result.measures, objects[0, :2], atol=1e-5)
    np.testing.assert_array_equal(result.attributes, attributes[0, :2])
    maps = jax.tree.map(jnp.asarray, maps)
    total, parts = loss(maps, objects, attributes, present)
    assert float(total) < 1e-5
    wrong, _ = loss(maps, objects, attributes[..., ::-1] % 2, present)
    assert float(wrong) > 10
    _, parts = loss(maps._replace(heat=-maps.heat), objects, attributes, present)
    assert float(parts["heat"]) > 10


def test_the_loss_of_heat_by_hand():
    """One object in the middle of nothing; the logits are 0 everywhere: (1 - 1/2)^2 log 2 at its cell, and elsewhere
    (1 - y)^4 / 4 log 2."""
    objects = np.asarray([[[0.5, 0.5, 0.1, 0.0]]], np.float32)
    maps = empty_maps()
    maps.heat[:] = 0.0
    heat, _, _ = targets(objects, np.ones((1, 1), bool), SIDE)
    _, parts = loss(jax.tree.map(jnp.asarray, maps), objects, np.zeros((1, 1, 4), np.int32), np.ones((1, 1), bool))
    expected = np.log(2) / 4 * (1 + ((1 - np.asarray(heat, np.float64)) ** 4).sum())
    np.testing.assert_allclose(parts["heat"], expected, rtol=1e-4)
    np.testing.assert_allclose(parts["attributes"], np.log(COUNTS).sum(), rtol=1e-5)
    np.testing.assert_allclose(parts["measures"], 0.5 + 0.5 - 0.5 - 0.5 + abs(np.log(0.1)), atol=1e-4)


def test_maps_are_of_half_the_picture_and_quarters_lie_where_they_belong(small):
    maps = nnx.jit(lambda network, images: network(images))(small, jnp.zeros((2, 64, 64, 3)))
    assert maps.heat.shape == (2, SIDE, SIDE)
    assert [logits.shape[-1] for logits in maps.attributes] == list(COUNTS)
    x = np.arange(2 * 2 * 8, dtype=np.float32).reshape(1, 2, 2, 8)
    finer = np.asarray(clevr_verifier._finer(jnp.asarray(x)))
    for row in range(4):
        for column in range(4):
            quarter = 2 * (row % 2) + column % 2
            np.testing.assert_array_equal(finer[0, row, column], x[0, row // 2, column // 2, 2 * quarter :][:2])


def test_a_saved_verifier_comes_back(small, tmp_path):
    checkpoints.save_model(small, tmp_path)
    again = ClevrVerifier.from_pretrained(tmp_path)
    images = np.random.default_rng(0).integers(0, 256, (2, 64, 64, 3), np.uint8)
    assert again.config == small.config
    assert again.objects(images, threshold=0.0) == small.objects(images, threshold=0.0)


@pytest.mark.parametrize(
    "images", [np.zeros((1, 32, 32, 3), np.uint8), np.zeros((1, 64, 64, 3)), [np.zeros((64, 64), np.uint8)]]
)
def test_other_pictures_are_refused(small, images):
    with pytest.raises(InputError, match=r"image 0 is .* the verifier knows uint8"):
        small.objects(images)


def test_no_pictures_have_no_objects(small):
    assert small.objects(np.zeros((0, 64, 64, 3), np.uint8)) == []


@pytest.mark.parametrize(
    "change", [{"sample_size": 60}, {"widths": (12, 96)}, {"num_blocks": (1, 1)}, {"num_values": (3, 8, 2, 0)}]
)
def test_shapes_that_cannot_be_are_refused(change):
    with pytest.raises(InputError, match=f"unsupported option {next(iter(change))}"):
        ClevrVerifierConfig.from_dict({"_class_name": "ClevrVerifier", **change})
