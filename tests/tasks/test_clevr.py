"""The CLEVR tasks, rendered and in the published layout."""

import json

import numpy as np
import pytest
from PIL import Image

from winobench.data import clevr_captions, images
from winobench.errors import InputError
from winobench.tasks import TASKS, get_task


def test_every_task_is_declared_under_its_name():
    for name in TASKS:
        task = get_task(name)
        assert task.name == name
        example = next(iter(task.load(None, 1)))
        assert (len(example.images), len(example.texts)) == task.shape


def test_unknown_task_is_answered_with_a_near_one():
    with pytest.raises(InputError, match="did you mean clevr_image"):
        get_task("clevr_imgae")


def test_rendered_examples_are_stable_and_share_images():
    task = get_task("clevr")
    few, more = list(task.load(None, 2)), list(task.load(None, 3))
    assert len(few) == 2 * 7 * 2
    assert [(e.id, e.texts, e.groups) for e in few] == [(e.id, e.texts, e.groups) for e in more[:28]]
    assert few[0].id == "scene-000000/recognition_color/0"
    assert len({images.image_hash(e.images[0]) for e in few}) == 2
    assert len({e.id for e in more}) == len(more)
    assert task.data_fingerprint(None, 2) != task.data_fingerprint(None, 3)


@pytest.mark.parametrize("name", ["clevr_image", "clevr_winoground"])
def test_swapped_images_differ(name):
    for example in get_task(name).load(None, 3):
        one, two = example.images
        assert np.any(one != two)
        assert example.groups[0] in ("color", "shape", "size")
        if name == "clevr_winoground":
            assert example.target is None
            assert sorted(example.texts[0].lower().strip(".").split()) == sorted(
                example.texts[1].lower().strip(".").split()
            )


@pytest.fixture
def published(tmp_path):
    folder = tmp_path / "clevr"
    (folder / "images").mkdir(parents=True)
    (folder / "captions").mkdir()
    for number in range(3):
        Image.new("RGB", (32, 24), (number * 40, 0, 0)).save(folder / "images" / f"CLEVR_val_{number}.png")
    for name in clevr_captions.SUBTASKS:
        items = {f"CLEVR_val_{n}.png": [[f"{name} true {n}", "false"], ["also true", "also false"]] for n in range(3)}
        (folder / "captions" / f"{name}.json").write_text(json.dumps(items))
    return tmp_path


def test_published_layout_is_read(published):
    task = get_task("clevr")
    examples = list(task.load(str(published), None))
    assert len(examples) == 3 * 7 * 2
    first = examples[0]
    assert first.texts == ("recognition_color true 0", "false")
    assert first.images[0] == published / "clevr" / "images" / "CLEVR_val_0.png"
    assert len(list(task.load(str(published), 1))) == 14
    before = task.data_fingerprint(str(published), None)
    path = published / "clevr" / "captions" / "spatial.json"
    path.write_text(path.read_text().replace("also true", "true too"))
    assert task.data_fingerprint(str(published), None) != before


def test_incomplete_published_layout_is_named(published):
    task = get_task("clevr")
    (published / "clevr" / "images" / "CLEVR_val_1.png").unlink()
    with pytest.raises(InputError, match=r"1 of 3 images are missing .*CLEVR_val_1\.png"):
        list(task.load(str(published), None))
    path = published / "clevr" / "captions" / "spatial.json"
    path.write_text("[1]")
    with pytest.raises(InputError, match=r"spatial\.json must map"):
        list(task.load(str(published), None))
    path.unlink()
    with pytest.raises(InputError, match=r"no caption file .*spatial\.json"):
        list(task.load(str(published), None))
