"""Objects of scenes, and which found object is which true one."""

import pytest

from winobench.clevr import objects as clevr_objects
from winobench.clevr import scenes as clevr_scenes


def test_objects_are_those_of_the_scene():
    scenes = clevr_scenes.sample_free_scenes(16, min_objects=1, max_objects=5)
    listed, boxes = clevr_objects.of_scenes(scenes), clevr_scenes.project_boxes(scenes)
    assert [len(objects) for objects in listed] == scenes.num_objects.tolist()
    for n, objects in enumerate(listed):
        for i, one in enumerate(objects):
            for name, values in clevr_objects.ATTRIBUTES.items():
                assert getattr(one, name) == values[getattr(scenes, name)[n, i]]
            assert one.depth == scenes.position[n, i, 1]
            left, _, right, _ = boxes[n, i]
            assert one.radius == pytest.approx((right - left) / 2)
            assert one.confidence == 1


def place(right, down=0.5):
    return clevr_objects.SceneObject("cube", "red", "small", "metal", right, down, 0.1, 0.0)


def test_found_objects_are_matched_by_place():
    truth = [place(0.2), place(0.5), place(0.8)]
    found = [place(0.81), place(0.21, 0.51), place(0.5, 0.7)]
    assert clevr_objects.match(found, truth) == [(0, 2), (1, 0)]
    assert clevr_objects.match([], truth) == clevr_objects.match(found, []) == []


def test_as_many_as_possible_are_matched():
    truth, found = [place(0.50), place(0.54)], [place(0.53), place(0.58)]
    assert clevr_objects.match(found, truth, tolerance=0.045) == [(0, 0), (1, 1)]
