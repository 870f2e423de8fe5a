"""The CLEVR tasks, rendered and in the published layout."""

import json

import jax
import numpy as np
import pytest

from tests.expectations import names, raises
from tests.tasks import published_layouts
from winobench.base import random_numbers
from winobench.base.errors import InputError
from winobench.clevr import renderer, scenes
from winobench.data import images, preparing
from winobench.tasks import clevr_common, get_task


def test_unknown_task_is_answered_with_a_near_one():
    with pytest.raises(InputError, match=names("clevr_image")):
        get_task("clevr_imgae")


def test_rendered_examples_are_stable_and_share_images(tmp_path):
    task = get_task("clevr")
    few, more = (list(task.load(str(tmp_path), limit)) for limit in (2, 3))
    assert len(few) == 2 * 7 * 2
    assert [(e.id, e.texts, e.groups) for e in few] == [(e.id, e.texts, e.groups) for e in more[:28]]
    assert few[0].id == "scene-000000/recognition_color/0"
    assert len({images.image_hash(e.images[0]) for e in few}) == 2
    assert len({e.id for e in more}) == len(more)
    assert task.data_fingerprint(str(tmp_path), 2) != task.data_fingerprint(str(tmp_path), 3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["clevr_image", "clevr_winoground"])
def test_swapped_images_differ(name):
    task = get_task(name)
    for example in task.load(None, 3):
        assert (len(example.images), len(example.texts)) == task.shape
        one, two = example.images
        assert np.any(one != two)
        assert example.groups[0] in ("color", "shape", "size")
        if name == "clevr_winoground":
            assert example.target is None
            one, two = (sorted(text.lower().strip(".").split()) for text in example.texts)
            assert one == two


@pytest.fixture
def compiled(tmp_path):
    """The folder of compiled programs."""
    names = ("jax_compilation_cache_dir", "jax_enable_compilation_cache")
    before = {name: getattr(jax.config, name) for name in names}
    for name, value in zip(names, (str(tmp_path), True), strict=True):
        jax.config.update(name, value)
    yield tmp_path
    for name, value in before.items():
        jax.config.update(name, value)
    clevr_common.evaluation_images.cache_clear()


def test_few_scenes_are_kept_for_the_next_start(compiled, monkeypatch):
    def rendered():
        clevr_common.evaluation_images.cache_clear()
        return clevr_common.evaluation_images(2), clevr_common.evaluation_things(2)

    def fail(*_, **__):
        raise ZeroDivisionError

    images, things = rendered()
    monkeypatch.setattr(renderer, "render", fail)
    monkeypatch.setattr(scenes, "sample_task_scenes", fail)
    again, others = rendered()
    np.testing.assert_array_equal(again, images)
    assert (others, again.flags.writeable) == (things, False)
    with monkeypatch.context() as patch:
        patch.setattr(random_numbers, "__file__", scenes.__file__)  # other code
        with pytest.raises(ZeroDivisionError):
            rendered()
    for path in compiled.glob("winobench-*.npz"):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    with pytest.raises(ZeroDivisionError):
        rendered()


def prepare(source, data_dir):
    task = get_task("clevr")
    preparing.prepare(
        data_dir / "clevr", task.source.read(source), task="clevr", task_version=task.version, root=source, workers=1
    )


def test_prepared_data_are_used_where_they_are(tmp_path):
    task = get_task("clevr")
    assert task.ready(str(tmp_path)) is None
    assert task.count(str(tmp_path)) == 14_000
    rendered = task.data_fingerprint(str(tmp_path), 2)
    prepare(published_layouts.write_clevr(tmp_path / "source"), tmp_path)
    assert task.ready(str(tmp_path)) is None
    assert task.count(str(tmp_path)) == 42
    assert task.data_fingerprint(str(tmp_path), 2) != rendered
    examples = list(task.load(str(tmp_path), None))
    assert [example.id for example in examples] == [item.id for item in task.source.read(tmp_path / "source")]
    assert images.image_hash(examples[0].images[0]) == images.image_hash(
        tmp_path / "source" / "images" / "CLEVR_val_0.png"
    )
    assert len(list(task.load(str(tmp_path), 2))) == 28


def test_a_set_that_cannot_be_used_is_no_reason_to_render(tmp_path):
    task = get_task("clevr")
    prepare(published_layouts.write_clevr(tmp_path / "source"), tmp_path)
    path = tmp_path / "clevr" / "prepared.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"task_version": 0}))
    assert "version 0" in task.ready(str(tmp_path))
    with raises("data-not-ready", "0"):
        task.load(str(tmp_path), 1)
    path.write_text("{")
    with pytest.raises(InputError, match=names("prepared.json")):
        task.load(str(tmp_path), 1)
