"""Tasks that read prepared sets: whether they are ready, what they say if not, and what they load."""

import dataclasses

import numpy as np
import pytest

from tests.data import published_files
from tests.expectations import names, raises
from winobench.base.errors import InputError
from winobench.data import images, prepared
from winobench.data.sources import Download
from winobench.metrics.association import Association, TargetPair
from winobench.tasks.base import PublishedData
from winobench.tasks.published import published_task

FIELDS = dict(name="toy", version=3, description="A toy.", metric="accuracy", shape=(2, 2), images_compete=False)
FIELDS |= {"chance": {"accuracy": 0.5}}


def _source(**options):
    return PublishedData(lambda folder: [], "toys, from a shop", 10, **options)


@pytest.fixture
def source(tmp_path):
    return published_files.make_items(published_files.make_images(tmp_path / "source"))


@pytest.fixture
def data_dir(source, tmp_path):
    folder = tmp_path / "data" / "toy"
    published_files.prepare(folder, source, tmp_path / "source", task_version=3, num_published=10)
    return str(folder.parent)


def test_before_it_is_prepared(tmp_path):
    task = published_task(source=_source(), **FIELDS)
    how = "run `winobench prepare --tasks=toy --source=DIR`, where DIR holds toys, from a shop"
    assert task.ready(str(tmp_path)) == how
    assert task.count(str(tmp_path)) is None
    for use in (task.load, task.data_fingerprint):
        with pytest.raises(InputError) as caught:
            use(str(tmp_path), None)
        assert str(caught.value) == f"the data of task 'toy' are not ready: {how}"
    downloads = published_task(source=_source(downloads=(Download("x", "http://x"),)), **FIELDS)
    assert downloads.ready(str(tmp_path)) == f"{how}. Without --source it downloads what may be downloaded"


def test_when_it_is_prepared(source, data_dir):
    task = published_task(source=_source(), **FIELDS)
    assert task.ready(data_dir) is None
    assert task.count(data_dir) == 10
    found = list(task.load(data_dir, None))
    assert [(e.id, e.texts, e.target, e.groups) for e in found] == [(i.id, i.texts, i.target, i.groups) for i in source]
    np.testing.assert_array_equal(
        images.load_image(found[3].images[0], 8), images.load_image(source[3].images[0].path, 8)
    )
    assert [e.id for e in task.load(data_dir, 4)] == [e.id for e in task.load(data_dir, 6)][:4]
    prints = [task.data_fingerprint(data_dir, limit) for limit in (None, 4, 6)]
    assert len(set(prints)) == 3
    assert prints == [task.data_fingerprint(data_dir, limit) for limit in (None, 4, 6)]


def test_a_set_of_another_version_is_refused(data_dir):
    task = published_task(source=_source(), **{**FIELDS, "version": 4})
    assert task.count(data_dir) is None
    with pytest.raises(InputError) as caught:
        task.load(data_dir, None)
    assert str(caught.value) == (
        f"the data of task 'toy' are not ready: {data_dir}/toy was prepared for version 3 of the task, which is now at"
        " 4: renew it with `winobench prepare --tasks=toy --source=DIR`, where DIR holds toys, from a shop"
    )


def test_a_damaged_set_is_refused_before_anything_is_scored(data_dir):
    task = published_task(source=_source(), **FIELDS)
    (shard,) = prepared.set_folder(prepared.task_folder("toy", data_dir), "images").glob("images-test*")
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    with raises("damaged-file", str(shard.name)):
        task.load(data_dir, 1)


def test_limits_of_bias_tasks_are_of_each_group(source, tmp_path):
    pair = TargetPair("odd-even", "odd", "even", ("a",), ("b",))
    task = published_task(source=_source(), association=Association((pair,)), **{**FIELDS, "metric": "effect_size"})
    items = [dataclasses.replace(item, images=item.images[:1], texts=("a", "b"), target=None) for item in source]
    published_files.prepare(tmp_path / "data" / "toy", items, tmp_path / "source", task_version=3)
    found = list(task.load(str(tmp_path / "data"), 3))
    assert sorted(example.groups for example in found) == [("even",)] * 3 + [("odd",)] * 3
    assert len(list(task.load(str(tmp_path / "data"), 99))) == 10


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"to": "x"}, ("url", "hub_id", "filename")),
        ({"to": "x", "url": "http://x", "filename": "x"}, ("url", "hub_id", "filename")),
        ({"to": "../x", "url": "http://x"}, ("'../x'",)),
        ({"to": "", "url": "http://x"}, ("''",)),
    ],
)
def test_downloads_are_well_formed(fields, named):
    with pytest.raises(ValueError, match=names("Download", *named)):
        Download(**fields)
