"""Rendered rows: what is said is true, what is a negative is false, by a reading of captions of the tests' own."""

import collections
import dataclasses
import itertools

import numpy as np
import pytest

from tests.clevr.clevr_grammar import true_of as is_true
from winobench.clevr import captions, renderer, scenes
from winobench.tasks.clevr_negatives import FALSIFIERS, VARIANTS, ClevrNegatives


@pytest.fixture(scope="module")
def source():
    return ClevrNegatives(30, seed=3)


def test_captions_are_true_and_negatives_are_false(source):
    things = {name: captions.describe(source.variant(name, slice(None))) for name in VARIANTS}
    unchanged = {"spatial": ["size"], "binding_color_shape": ["size", "place"], "recognition_color": ["color", "shape"]}
    assert len(source.rows) == len(source.groups) == 30 * 14
    for number, (row, group) in enumerate(zip(source.rows, source.groups, strict=True)):
        scene = number // 14
        assert row.image == scene * len(VARIANTS)
        assert is_true(row.caption, things["scene"][scene])
        assert not any(is_true(text, things["scene"][scene]) for text in row.negative_captions)
        assert [VARIANTS[image - row.image] for image in row.negative_images] == list(FALSIFIERS[group])
        assert not any(is_true(row.caption, things[name][scene]) for name in FALSIFIERS[group])
        assert all(is_true(row.caption, things[name][scene]) for name in unchanged.get(group, []))


def test_pictures_are_those_of_the_scenes(source):
    assert len(source.images) == 30 * len(VARIANTS)
    for scene, name in ((0, "scene"), (29, "place"), (17, "recolored"), (4, "size")):
        expected = renderer.render(source.variant(name, slice(scene, scene + 1)), 64)[0]
        image = source.images[scene * len(VARIANTS) + VARIANTS.index(name)]
        np.testing.assert_array_equal(image, expected)
    for name in VARIANTS:
        boxes = scenes.project_boxes(source.variant(name, slice(None)))
        assert 0 < boxes.min() < boxes.max() < 1
    # The changes of a scene can all be seen.
    of_scene = [source.images[number].astype(int) for number in range(len(VARIANTS))]
    for first, second in itertools.combinations(of_scene, 2):
        assert (abs(first - second).max(axis=-1) > 30).mean() > 0.01
    with pytest.raises(IndexError):
        source.images[30 * len(VARIANTS)]


def test_fewer_scenes_are_the_first_ones(source):
    fewer = ClevrNegatives(4, seed=3)
    assert fewer.rows == source.rows[: 4 * 14]
    np.testing.assert_array_equal(fewer.images[9], source.images[9])


def test_the_fingerprint_tells_sets_apart(source):
    changes = [{"num_scenes": 4}, {"seed": 4}, {"split": "validation"}, {"image_size": 32}]
    fingerprints = [dataclasses.replace(source, **change).fingerprint for change in changes]
    assert len({source.fingerprint, *fingerprints}) == 5
    assert ClevrNegatives(30, seed=3).fingerprint == source.fingerprint


def test_colours_that_the_scene_lacks_are_drawn_evenly():
    source = ClevrNegatives(400)
    drawn = collections.Counter(source.variant("recolored", slice(None)).color[:, 0].tolist())
    # Each colour is drawn with probability 1/8: 50 of 400, within five standard deviations.
    assert all(abs(drawn[color] - 50) < 5 * (400 * 7 / 64) ** 0.5 for color in range(8))
