"""Prepared sets: tfds opens them without TensorFlow, Grain reads them, and damage is found and named."""

import concurrent.futures
import dataclasses
import json
import pathlib
import pickle
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow_datasets as tfds

from tests.data import published_files
from tests.expectations import names, raises
from winobench.base.errors import InputError
from winobench.data import images, prepared, preparing
from winobench.data.example import ImageFile

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    root = tmp_path_factory.mktemp("source")
    return root, published_files.make_items(published_files.make_images(root))


@pytest.fixture(scope="module")
def whole_folder(source, tmp_path_factory):
    """Ten examples and twenty images in shards of six, which no test changes."""
    root, items = source
    folder = tmp_path_factory.mktemp("prepared") / "toy"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preparing, "IMAGES_A_SHARD", 6)
        published_files.prepare(folder, items, root, num_published=10)
    return folder


@pytest.fixture
def folder(whole_folder, tmp_path):
    return shutil.copytree(whole_folder, tmp_path / "toy")


def _open_all(found):
    return [image.open() for example in found.examples() for image in example.images]


def test_the_items_come_back(whole_folder, source):
    _, items = source
    found = list(prepared.PreparedSet(whole_folder).examples())
    assert [(e.id, e.texts, e.target, e.groups) for e in found] == [(i.id, i.texts, i.target, i.groups) for i in items]
    for example, item in zip(found, items, strict=True):
        for image, file in zip(example.images, item.images, strict=True):
            expected = images.open_image(file.path)
            if file.box is not None:
                expected = expected.crop(file.box)
            np.testing.assert_array_equal(np.asarray(image.open()), np.asarray(expected))
            assert image.content_hash == images.image_hash(expected)
            assert images.image_hash(image) == image.content_hash


def test_tfds_reads_both_sets_and_whole_files_keep_their_bytes(whole_folder, source):
    (_, items), folder = source, whole_folder
    found = tfds.builder_from_directory(prepared.set_folder(folder, "images"))
    assert (found.info.name, str(found.info.version)) == ("images", "1.0.0")
    assert found.info.splits["test"].num_examples == 20
    assert found.info.splits["test"].num_shards == 4
    assert len(found.as_data_source()["test"]) == 20
    encoded = found.as_data_source(split="test", decoders={"image": tfds.decode.SkipDecoding()})
    decoded = found.as_data_source(split="test")
    hashes = np.load(folder / "image_hashes.npy")
    examples = tfds.builder_from_directory(prepared.set_folder(folder, "examples")).as_data_source(split="test")
    assert len(examples) == len(items)
    for item, record in zip(items, examples, strict=True):
        assert record["id"].decode() == item.id
        assert [text.decode() for text in record["texts"]] == list(item.texts)
        assert record["target"] == (-1 if item.target is None else item.target)
        whole, cut = record["images"]
        assert encoded[whole]["image"] == item.images[0].path.read_bytes()
        assert encoded[whole]["name"].decode() == item.images[0].path.name
        assert encoded[cut]["name"].decode() == f"{item.images[1].path.name}[2,1,10,9]"
        for number, file in zip((whole, cut), item.images, strict=True):
            whole = images.open_image(file.path)
            pixels = np.asarray(whole.crop(file.box) if file.box else whole)
            np.testing.assert_array_equal(decoded[number]["image"], pixels)
            assert decoded[number]["sha256"].decode() == images.image_hash(pixels) == hashes[number].tobytes().hex()


@pytest.mark.parametrize("key", ["pythonClassName", "python_class_name", "type"])
def test_a_set_names_no_class(folder, key, tmp_path, monkeypatch):
    """tfds would import the module of a feature's class."""
    (tmp_path / "hostile_module.py").write_text(f"open({str(tmp_path / 'marker')!r}, 'w')")
    monkeypatch.syspath_prepend(tmp_path)

    def changed(value):
        if not isinstance(value, dict):
            return value
        return {**{name: changed(part) for name, part in value.items()}, key: "hostile_module.Feature"}

    for path in [*folder.rglob("features.json"), *folder.rglob("dataset_info.json")]:
        content = json.loads(path.read_text())
        path.write_text(json.dumps(changed(content) if path.name == "features.json" else {**content, key: "os.path"}))
        (path.parent / "hostile_module.py").write_text((tmp_path / "hostile_module.py").read_text())
    assert len(_open_all(prepared.PreparedSet(folder))) == 20
    assert not (tmp_path / "marker").exists()
    assert "hostile_module" not in sys.modules


def test_sets_without_ratings_are_read(folder):
    """As sets of earlier versions are."""
    (path,) = (folder / "examples").rglob("features.json")
    content = json.loads(path.read_text())
    del content["featuresDict"]["features"]["ratings"]
    path.write_text(json.dumps(content))
    assert [example.ratings for example in prepared.PreparedSet(folder).examples()] == [()] * 10


@pytest.mark.slow
def test_neither_preparing_nor_reading_imports_tensorflow(source, tmp_path):
    root, _ = source
    (tmp_path / "tensorflow.py").write_text("print('imported')\nraise ImportError\n")
    code = f"""
import pathlib, sys
sys.path.append({str(tmp_path)!r})  # so that an attempt shows even where there is no TensorFlow
from tests.data import published_files
from winobench.data import prepared
items = published_files.make_items(sorted(pathlib.Path({str(root)!r}).iterdir()))
published_files.prepare({str(tmp_path / "toy")!r}, items, {str(root)!r})
found = prepared.PreparedSet({str(tmp_path / "toy")!r})
found.verify()
examples = list(found.examples(4))
print(len(examples), examples[0].images[0].open().size)
print([name for name in sys.modules if name.split(".")[0] in ("tensorflow", "torch")])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout.splitlines()) == (0, ["4 (24, 16)", "[]"]), done.stderr


def test_what_prepared_json_says(whole_folder, source):
    (root, _), folder = source, whole_folder
    state = prepared.read_state(folder)
    assert state == json.loads((folder / "prepared.json").read_text())
    expected = {
        **{"format": 1, "task": "toy", "task_version": 1, "num_examples": 10, "num_published": 10, "num_images": 20},
        **{"is_partial": False, "source": str(root)},
    }
    assert {name: state[name] for name in expected} == expected
    on_disk = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert on_disk == {*state["files"], "prepared.json"}
    assert state["num_bytes"] == sum((folder / name).stat().st_size for name in state["files"])
    assert prepared.describe(state) == f"10 examples, 20 images, {state['num_bytes'] / 1e6:.1f} MB"
    partial = {**state, "is_partial": True, "num_published": 12}
    assert prepared.describe(partial).startswith("10 of 12 examples (partial), 20 images")


def test_smaller_limits_are_prefixes_of_larger_ones(whole_folder):
    found = prepared.PreparedSet(whole_folder)

    def ids(*arguments, **options):
        return [example.id for example in found.examples(*arguments, **options)]

    everything = ids()
    assert everything == [f"item-{number}" for number in range(10)]
    shuffled = ids(10)
    assert sorted(shuffled) == sorted(everything)
    assert shuffled != everything
    for limit in range(1, 10):
        assert ids(limit) == shuffled[:limit]
    assert ids(99) == shuffled
    assert ids(10, seed=1) != shuffled
    # The choice is part of what results mean: it may not change from release to release.
    assert ids(3) == ["item-4", "item-0", "item-6"]

    assert ids(None, per_group=True) == everything
    both = [example.groups[0] for example in found.examples(2, per_group=True)]
    assert sorted(both) == ["even", "even", "odd", "odd"]
    assert set(ids(1, per_group=True)) < set(ids(2, per_group=True)) < set(everything)
    assert sorted(ids(9, per_group=True)) == sorted(everything)
    with raises("out-of-range", "limit", "0", "1"):
        found.examples(0)


def test_images_are_opened_by_many_threads_and_after_pickling(whole_folder):
    found = prepared.PreparedSet(whole_folder)
    opened = [image for example in found.examples() for image in example.images]
    # Nothing has been read of the images yet, and a pickle holds none.
    assert len(pickle.dumps(opened[0])) < 500
    copies = pickle.loads(pickle.dumps(opened))
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        hashes = list(pool.map(lambda image: images.image_hash(image.open()), [*opened, *copies] * 8))
    assert hashes == [image.content_hash for image in opened] * 16
    for number in (-1, 20):
        with pytest.raises(IndexError):
            found.images[number]
    assert opened[0] == copies[0]
    assert opened[0] != opened[1]


def test_the_fingerprint_is_of_the_content(source, tmp_path, monkeypatch):
    root, items = source

    def fingerprint(name, items, root=root):
        published_files.prepare(tmp_path / name, items, root)
        return prepared.PreparedSet(tmp_path / name).fingerprint

    first = fingerprint("first", items)
    monkeypatch.setattr(preparing, "IMAGES_A_SHARD", 3)
    monkeypatch.setattr(preparing, "EXAMPLES_A_SHARD", 4)
    assert fingerprint("shards", items) == first
    moved = published_files.make_items(published_files.make_images(tmp_path / "moved"))
    assert fingerprint("moved_set", moved, tmp_path / "moved") == first
    assert fingerprint("fewer", items[:-1]) != first
    changed = dataclasses.replace(items[0], texts=("naive", "text 0"))
    assert fingerprint("text", [changed, *items[1:]]) != first
    other_box = (items[0].images[0], ImageFile(items[1].images[0].path, (2, 1, 10, 8)))
    changed = dataclasses.replace(items[0], images=other_box)
    assert fingerprint("box", [changed, *items[1:]]) != first

    found = prepared.PreparedSet(tmp_path / "first")
    assert len({found.subset_fingerprint(limit) for limit in (None, 1, 2, 10)}) == 4


def test_every_damaged_or_missing_file_is_found_and_named(folder):
    found = prepared.PreparedSet(folder)
    found.verify()
    assert len(found.state["files"]) == 10  # four and one shards, two times two of metadata, hashes
    for name in found.state["files"]:
        path = folder / name
        content = path.read_bytes()
        for broken in (content[:-1], bytes([content[0] ^ 1]) + content[1:], None):
            path.unlink() if broken is None else path.write_bytes(broken)
            with pytest.raises(InputError) as caught:
                found.verify()
            assert str(caught.value) == (
                f"{path} is damaged or missing: prepare the data again with"
                " `winobench prepare --tasks=toy --source=DIR --overwrite`"
            )
        path.write_bytes(content)
    found.verify()
    for name in list(found.state["files"])[:3]:
        (folder / name).unlink()
    with raises("damaged-file", "2"):
        found.verify()


@pytest.mark.parametrize("damage", ["flipped", "gone"])
@pytest.mark.parametrize("name", ["images/1.0.0/images-test.array_record-00001-of-00004", "examples/1.0.0/examples-*"])
def test_a_shard_that_breaks_later_is_named(folder, name, damage):
    (path,) = folder.glob(name)
    content = path.read_bytes()
    # Every byte, so that it does not matter which of them are padding.
    path.unlink() if damage == "gone" else path.write_bytes(bytes(255 - byte for byte in content))
    found = prepared.PreparedSet(folder)
    with pytest.raises(InputError) as caught:
        _open_all(found)
    assert str(caught.value).startswith(f"{path} is damaged or missing: prepare the data again with")


@pytest.mark.parametrize(
    "changes",
    [
        *({"num_examples": value} for value in (-1, 1.5, "20", None, True, 21, 0)),
        *({key: "20"} for key in ("num_images", "num_bytes", "num_published")),
        *({"files": value} for value in (None, [], {"a": 1}, {"a": {"sha256": 1, "num_bytes": 1}})),
        {"files": {"a\0b": {"sha256": "", "num_bytes": 1}}},
        *({key: value} for key, value in (("num_images", 19), ("task", 7), ("content", None), ("is_partial", "no"))),
        {"format": [1]},
    ],
)
def test_a_state_of_wrong_numbers_or_types_is_an_input_error(folder, changes):
    state = json.loads((folder / "prepared.json").read_text())
    (folder / "prepared.json").write_text(json.dumps({**state, **changes}))

    def read():
        found = prepared.PreparedSet(folder)
        found.verify()
        _open_all(found)

    with pytest.raises(InputError, match=names(str(folder))) as caught:
        read()
    assert caught.value.code in ("damaged-file", "not-prepared")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *((name, b"{") for name in ("images/1.0.0/dataset_info.json", "examples/1.0.0/features.json")),
        *(("image_hashes.npy", content) for content in (b"{", np.zeros((20, 31), np.uint8), np.zeros((20, 32), int))),
    ],
)
def test_broken_metadata_are_an_input_error(folder, name, content):
    path = folder / name
    path.write_bytes(content) if isinstance(content, bytes) else np.save(path, content)
    with raises("damaged-file"):
        _open_all(prepared.PreparedSet(folder))


@pytest.mark.parametrize("content", [None, "{", "[]", '{"format": 1}'])
def test_a_folder_without_a_finished_set(tmp_path, content):
    if content is not None:
        (tmp_path / "prepared.json").write_text(content)
    assert prepared.read_state(tmp_path) is None
    assert prepared.has_state(tmp_path) == (content is not None)
    with raises("not-prepared"):
        prepared.PreparedSet(tmp_path)


def test_the_default_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("WINOBENCH_DATA", raising=False)
    assert prepared.default_data_dir() == pathlib.Path.home() / "winobench_data"
    monkeypatch.setenv("WINOBENCH_DATA", str(tmp_path))
    assert prepared.task_folder("toy") == tmp_path / "toy"
    assert prepared.task_folder("toy", "/elsewhere") == pathlib.Path("/elsewhere/toy")
    assert prepared.task_folder("toy", "~/x") == pathlib.Path.home() / "x" / "toy"
