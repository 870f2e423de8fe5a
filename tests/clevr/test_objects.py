"""Objects of scenes, and which found object is which true one."""

import numpy as np
import pytest

from tests.clevr.clevr_grammar import masks
from winobench.clevr import objects as clevr_objects
from winobench.clevr import scenes as clevr_scenes


@pytest.fixture(scope="module")
def scenes():
    return clevr_scenes.sample_free_scenes(16, min_objects=1, max_objects=5)


def test_objects_are_those_of_the_scene(scenes):
    listed = clevr_objects.of_scenes(scenes)
    assert [len(objects) for objects in listed] == scenes.num_objects.tolist()
    for n, objects in enumerate(listed):
        for i, one in enumerate(objects):
            for name, values in clevr_objects.ATTRIBUTES.items():
                assert getattr(one, name) == values[getattr(scenes, name)[n, i]]
            assert one.depth == scenes.position[n, i, 1]
            assert one.confidence == 1


def test_places_are_where_the_renderer_draws():
    """The half width of an object's mask is the listed one, to 1.5 pixels of 128."""
    size, alone = 128, clevr_scenes.sample_free_scenes(24, min_objects=1, max_objects=1)
    for mask, (one,) in zip(masks(alone, size), clevr_objects.of_scenes(alone), strict=True):
        columns = np.flatnonzero((mask == 0).any(axis=0))
        left, right = columns[0] / size, (columns[-1] + 1) / size
        assert (right - left) / 2 == pytest.approx(one.radius, abs=1.5 / size)


def place(right, down=0.5):
    return clevr_objects.SceneObject("cube", "red", "small", "metal", right, down, 0.1, 0.0)


def test_found_objects_are_matched_by_place():
    truth = [place(0.2), place(0.5), place(0.8)]
    found = [place(0.81), place(0.21, 0.51), place(0.5, 0.7)]
    assert clevr_objects.match(found, truth) == [(0, 2), (1, 0)]
    assert clevr_objects.match([], truth) == clevr_objects.match(found, []) == []


def test_as_many_as_possible_are_matched():
    """The nearest pair would leave the other two alone."""
    truth, found = [place(0.50), place(0.54)], [place(0.53), place(0.58)]
    assert clevr_objects.match(found, truth, tolerance=0.045) == [(0, 0), (1, 1)]
