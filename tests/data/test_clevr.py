"""Scenes, pictures and captions: deterministic, framed as stated, and true."""

import itertools
import json
import re

import numpy as np
import pytest

from winobench.data import clevr_captions, clevr_renderer, clevr_scenes


def test_a_scene_depends_on_split_seed_and_index_alone():
    many = clevr_scenes.sample_task_scenes(300, seed=3)
    for start, count in ((0, 7), (250, 50)):
        some = clevr_scenes.sample_task_scenes(count, seed=3, start=start)
        for name, array in some.arrays().items():
            np.testing.assert_array_equal(array, many.arrays()[name][start : start + count])
    for changed in ({"seed": 4}, {"seed": 3, "split": "train"}):
        other = clevr_scenes.sample_task_scenes(300, **changed)
        assert not np.any(np.all(other.position == many.position, axis=(1, 2)))


def test_task_scenes_differ_in_everything_and_stand_left_and_right():
    scenes = clevr_scenes.sample_task_scenes(500)
    for name in ("color", "shape", "size"):
        values = scenes.arrays()[name]
        assert np.all(values[:, 0] != values[:, 1])
        assert set(np.unique(values)) == set(range(len(getattr(clevr_scenes, name.upper() + "S"))))
    sides = clevr_scenes.sides(scenes)
    assert np.all(sides.sum(axis=1) == 0)
    assert np.all(np.abs(sides) == 1)
    assert 0.4 < np.mean(sides[:, 0] == -1) < 0.6
    boxes = clevr_scenes.project_boxes(scenes)
    assert boxes.min() > 0
    assert boxes.max() < 1
    left = np.take_along_axis(boxes, np.argsort(sides, axis=1)[..., None], axis=1)
    assert np.all(left[:, 0, 2] < left[:, 1, 0])
    widths = 64 * (boxes[..., 2] - boxes[..., 0])
    large = scenes.size == 1
    assert 24 < widths[large].min() < widths[large].max() < 33
    assert 13 < widths[~large].min() < widths[~large].max() < 19


def test_pictures_do_not_depend_on_the_batch():
    scenes = clevr_scenes.sample_task_scenes(80)
    together = clevr_renderer.render(scenes, 32)
    assert together.shape == (80, 32, 32, 3)
    assert together.dtype == np.uint8
    np.testing.assert_array_equal(clevr_renderer.render(scenes[70:73], 32), together[70:73])


def test_objects_are_where_their_boxes_say():
    scenes = clevr_scenes.sample_task_scenes(20)
    size = 128
    masks = clevr_renderer.object_masks(scenes, size)
    boxes = clevr_scenes.project_boxes(scenes) * size
    for mask, pair in zip(masks, boxes, strict=True):
        for index, (left, top, right, bottom) in enumerate(pair):
            rows, columns = np.nonzero(mask == index)
            found = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
            np.testing.assert_allclose(found, (left, top, right, bottom), atol=1.5)


def test_colours_are_told_apart():
    scenes = clevr_scenes.sample_task_scenes(400)
    pictures = clevr_renderer.render(scenes, 64).astype(np.float64)
    masks = clevr_renderer.object_masks(scenes, 64)
    means = np.zeros((8, 3))
    for color in range(8):
        here = np.any([(masks == j) & (scenes.color[:, j] == color)[:, None, None] for j in (0, 1)], axis=0)
        means[color] = pictures[here].mean(axis=0)
    apart = np.linalg.norm(means[:, None] - means[None], axis=-1)[np.triu_indices(8, 1)]
    assert apart.min() > 30


def true_of(caption, things):
    """An independent check: does the caption hold, with a different object for each phrase?"""
    phrases = []
    for part in caption.removesuffix(".").lower().split(" and "):
        place, words = re.fullmatch(r"(?:on the (left|right) is )?a (.*)", part).groups()
        side = {None: None, "left": -1, "right": 1}[place]
        phrases.append((side, [word for word in words.split() if word != "object"]))

    def holds(thing, phrase):
        side, words = phrase
        known = (thing.color, thing.shape, thing.size, thing.material)
        return (side is None or thing.side == side) and all(word in known for word in words)

    return any(
        all(holds(thing, phrase) for thing, phrase in zip(chosen, phrases, strict=True))
        for chosen in itertools.permutations(things, len(phrases))
    )


@pytest.mark.parametrize("form", clevr_captions.FORMS)
def test_training_captions_are_true_and_in_vocabulary(form):
    pairs = clevr_scenes.sample_free_scenes(60, distinct=0.5, clear=0.5)
    crowds = clevr_scenes.sample_free_scenes(20, min_objects=1, max_objects=5)
    for scenes in (pairs, crowds):
        captions = clevr_captions.training_captions(scenes, np.random.default_rng(0), per_scene=3, weights={form: 1.0})
        for things, said in zip(clevr_captions.describe(scenes), captions, strict=True):
            assert len(said) == 3
            for caption in said:
                assert true_of(caption, things), (caption, things)
                assert set(re.findall(r"\w+|\.", caption.lower())) <= set(clevr_captions.VOCABULARY)


def test_unknown_caption_form_is_refused():
    with pytest.raises(ValueError, match="no such caption form: poem"):
        clevr_captions.training_captions(
            clevr_scenes.sample_task_scenes(1), np.random.default_rng(0), weights={"poem": 1.0}
        )


def absent_color(things):
    return next(color for color in clevr_scenes.COLORS if color not in {thing.color for thing in things})


def test_items_are_true_and_false():
    for things in clevr_captions.describe(clevr_scenes.sample_task_scenes(100)):
        items = clevr_captions.items(things, absent_color(things))
        assert tuple(items) == clevr_captions.SUBTASKS
        for pairs in items.values():
            assert len(pairs) == 2
            for true, false in pairs:
                assert true_of(true, things)
                assert not true_of(false, things)


def test_scenes_without_a_false_answer_are_refused():
    (things,) = clevr_captions.describe(clevr_scenes.sample_task_scenes(1))
    with pytest.raises(ValueError, match="differ"):
        clevr_captions.items((things[0], things[1]._replace(color=things[0].color)), absent_color(things))
    with pytest.raises(ValueError, match="left"):
        clevr_captions.items(things[:1], absent_color(things))
    with pytest.raises(ValueError, match="no colour that the scene lacks"):
        clevr_captions.items(things, things[0].color)


def test_wording_is_the_published_one(reference_data):
    folder = reference_data / "gdbench" / "clevr"
    published = {name: json.loads((folder / f"{name}.json").read_text()) for name in clevr_captions.SUBTASKS}
    assert len(published["spatial"]) == 574
    for image, size_items in published["pair_binding_size"].items():
        things = []
        for (size_text, _), (place_text, _) in zip(size_items, published["spatial"][image], strict=True):
            _, size, shape = size_text.split(" and ")[0].split()
            _, _, side, _, _, color, same_shape = place_text.removesuffix(".").split()
            assert shape == same_shape
            things.append(clevr_captions.Thing(shape, color, size, "rubber", {"left": -1, "right": 1}[side]))
        distractor = published["recognition_color"][image][0][1].split()[1]
        for name, pairs in clevr_captions.items(things, distractor).items():
            assert [list(pair) for pair in pairs] == published[name][image]


def test_swaps_exchange_one_attribute():
    scenes = clevr_scenes.sample_task_scenes(50)
    for attribute in ("color", "shape", "size"):
        swapped = clevr_scenes.swap(scenes, attribute)
        for name in ("color", "shape", "size", "material"):
            expected = scenes.arrays()[name][:, ::-1] if name == attribute else scenes.arrays()[name]
            np.testing.assert_array_equal(swapped.arrays()[name], expected)
        assert clevr_scenes.project_boxes(swapped).min() > 0
        assert clevr_scenes.project_boxes(swapped).max() < 1
