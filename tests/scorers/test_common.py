"""What scorers share, beside what their own tests show."""

import jax
import numpy as np
import pytest
from PIL import Image

from tests.expectations import raises
from winobench import parallel
from winobench.scorers import common


def test_distinct():
    first, number = common.distinct(["b", "a", "b", "c", "a"])
    assert first == [0, 1, 3]
    assert number.tolist() == [0, 1, 0, 2, 1]


def test_scores_that_are_no_numbers_are_refused():
    scores = np.float32([[0.1, 0.2], [0.3, 0.4]])
    assert common.finite_scores(scores) is scores
    scores[1, 0] = np.nan
    with raises("not-finite", "images[1]", "texts[0]", "weights"):
        common.finite_scores(scores)


def test_image_keys(tmp_path):
    class Lazy:
        content_hash = "00ff"

    array = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    assert common.image_key(array) == common.image_key(array[::1].copy())
    assert common.image_key(array) != common.image_key(array.reshape(1, 4, 3))
    assert common.image_key(array) != common.image_key(array + 1)
    assert common.image_key(tmp_path / "a.png") == common.image_key(str(tmp_path / "a.png"))
    assert common.image_key(Lazy()) == common.image_key(Lazy())
    # A picture may be changed in place: only itself is the same.
    assert common.image_key(Image.fromarray(array)) != common.image_key(Image.fromarray(array))


@pytest.mark.parametrize(("megabytes", "devices"), [(1, 8), (512, 4), (5000, 1)])
def test_cpu_devices_share_the_memory(monkeypatch, megabytes, devices):
    if jax.devices()[0].platform != "cpu" or len(jax.devices()) != 8:
        pytest.skip("needs 8 CPU devices")

    parameter = jax.ShapeDtypeStruct((megabytes << 20,), np.uint8)
    assert parallel.data_parallelism(parallel.default_mesh([parameter])) == devices
