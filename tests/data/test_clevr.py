"""Scenes, pictures and captions: deterministic, framed as stated, and true."""

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
    text = caption.removesuffix(".").lower()
    parts = text.split(" and ")
    used = set()
    for part in parts:
        place = re.match(r"on the (left|right) is a (.*)", part)
        words = (place.group(2) if place else part.removeprefix("a ")).split()
        fits = [
            index
            for index, thing in enumerate(things)
            if index not in used
            and (place is None or thing.side == place.group(1))
            and all(word in (thing.color, thing.shape, thing.size, thing.material, "object") for word in words)
        ]
        if not fits:
            return False
        used.add(fits[0])
    return True


@pytest.mark.parametrize("form", clevr_captions.TRAINING_WEIGHTS)
def test_training_captions_are_true_and_in_vocabulary(form):
    generator = np.random.default_rng(0)
    scenes = clevr_scenes.sample_free_scenes(200, distinct=0.5)
    said = 0
    for things in clevr_captions.describe(scenes):
        try:
            caption = clevr_captions.caption(form, things, generator)
        except ValueError:
            continue
        said += 1
        assert true_of(caption, things), (caption, things)
        assert set(re.findall(r"\w+|\.", caption.lower())) <= set(clevr_captions.VOCABULARY)
    assert said > 150


def test_items_are_true_and_false():
    scenes = clevr_scenes.sample_task_scenes(100)
    for index, things in enumerate(clevr_captions.describe(scenes)):
        items = clevr_captions.items(things, np.random.default_rng(index))
        assert list(items) == list(clevr_captions.SUB_TASKS)
        for pairs in items.values():
            assert len(pairs) == 2
            for true, false in pairs:
                assert true_of(true, things)
                assert not true_of(false, things)


def test_scenes_without_a_false_answer_are_refused():
    scenes = clevr_scenes.sample_task_scenes(1)
    (things,) = clevr_captions.describe(scenes)
    with pytest.raises(ValueError, match="differ"):
        clevr_captions.items((things[0], type(things[1])(**{**vars(things[1]), "color": things[0].color})), np.random)
    with pytest.raises(ValueError, match="left"):
        clevr_captions.items(things[:1], np.random)


def test_wording_is_the_published_one(reference_data):
    folder = reference_data / "gdbench" / "clevr"
    published = {name: json.loads((folder / f"{name}.json").read_text()) for name in clevr_captions.SUB_TASKS}
    for image, pair_items in published["pair_binding_size"].items():
        things = []
        for (size_text, _), (place_text, _) in zip(pair_items, published["spatial"][image], strict=True):
            _, size, shape = size_text.split(" and ")[0].split()
            _, _, side, _, _, color, same_shape = place_text.removesuffix(".").split()
            assert shape == same_shape
            things.append(clevr_captions.Thing(color, shape, size, "rubber", side))

        class Published:  # draws the absent colour that the published file drew
            @staticmethod
            def choice(colors, image=image):
                color = published["recognition_color"][image][0][1].split()[1]
                assert color in colors
                return color

        ours = clevr_captions.items(tuple(things), Published)
        for name in clevr_captions.SUB_TASKS:
            assert [list(pair) for pair in ours[name]] == published[name][image]


def test_swaps_exchange_one_attribute():
    scenes = clevr_scenes.sample_task_scenes(50)
    for attribute in ("color", "shape", "size"):
        swapped = clevr_scenes.swap(scenes, attribute)
        for name in ("color", "shape", "size", "material"):
            expected = scenes.arrays()[name][:, ::-1] if name == attribute else scenes.arrays()[name]
            np.testing.assert_array_equal(swapped.arrays()[name], expected)
        assert clevr_scenes.project_boxes(swapped).min() > 0
        assert clevr_scenes.project_boxes(swapped).max() < 1
