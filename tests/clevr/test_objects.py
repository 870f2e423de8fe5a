"""Objects of scenes, how much of them is seen, and which found object is which true one."""

import dataclasses

import numpy as np
import pytest

from winobench.clevr import objects as clevr_objects
from winobench.clevr import renderer
from winobench.clevr import scenes as clevr_scenes


@pytest.fixture(scope="module")
def scenes():
    return clevr_scenes.sample_free_scenes(16, min_objects=1, max_objects=5)


def test_objects_are_those_of_the_scene(scenes):
    listed = clevr_objects.of_scenes(scenes)
    assert [len(objects) for objects in listed] == scenes.num_objects.tolist()
    for n, objects in enumerate(listed):
        for i, one in enumerate(objects):
            assert one.shape == clevr_scenes.SHAPES[scenes.shape[n, i]]
            assert one.color == clevr_scenes.COLORS[scenes.color[n, i]]
            assert one.size == clevr_scenes.SIZES[scenes.size[n, i]]
            assert one.material == clevr_scenes.MATERIALS[scenes.material[n, i]]
            assert one.depth == scenes.position[n, i, 1]
            assert one.confidence == 1


def test_places_are_where_the_renderer_draws(scenes):
    """Of objects that nothing covers the mask's middle and half width are those listed, to 1.5 pixels of 128."""
    size, compared = 128, 0
    masks = renderer.object_masks(scenes, size)
    seen = clevr_objects.visible_fractions(scenes, size)
    for n, objects in enumerate(clevr_objects.of_scenes(scenes)):
        for i, one in enumerate(objects):
            if seen[n, i] == 1:
                columns = np.flatnonzero((masks[n] == i).any(axis=0))
                left, right = columns[0] / size, (columns[-1] + 1) / size
                assert (right - left) / 2 == pytest.approx(one.radius, abs=1.5 / size)
                compared += 1
    assert compared > 20


def test_a_covered_object_is_seen_in_part():
    scenes = clevr_scenes.sample_free_scenes(1, min_objects=2, max_objects=2)
    behind = dataclasses.replace(
        scenes,
        shape=np.ones((1, 2), np.int32),
        size=np.ones((1, 2), np.int32),
        position=np.asarray([[[0.0, -3.0], [0.5, 2.0]]], np.float32),
    )
    front, back = clevr_objects.visible_fractions(behind)[0]
    assert front == 1
    assert 0 < back < 0.9
    alone = dataclasses.replace(behind, num_objects=np.asarray([1], np.int32))
    np.testing.assert_array_equal(clevr_objects.visible_fractions(alone), [[1.0, np.nan]])


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
