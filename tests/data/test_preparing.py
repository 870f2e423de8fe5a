"""Preparing: what is stored for each kind of image, bad sources, and runs that are killed and go on."""

import dataclasses
import io
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image

from tests import launching
from tests.data import published_files
from tests.expectations import names, raises
from winobench.data import images, prepared, preparing, record_files, sources
from winobench.data.example import ImageFile, Item

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def items(tmp_path):
    return published_files.make_items(published_files.make_images(tmp_path / "source"))


@pytest.fixture
def root(items, tmp_path):
    return tmp_path / "source"


@pytest.fixture
def prepare(root, items, tmp_path):
    """Prepares the items, or others, as ``tmp_path / name``."""

    def call(others=None, *, name="toy", **options):
        return published_files.prepare(tmp_path / name, items if others is None else others, root, **options)

    return call


@pytest.fixture
def small_shards(monkeypatch):
    monkeypatch.setattr(preparing, "IMAGES_A_SHARD", 3)


def _stamp(folder):
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.glob("images/1.0.0/*")}


def _random_image(mode):
    pixels = np.random.default_rng(0).integers(0, 256, (9, 13, 3), np.uint8)
    return Image.fromarray(pixels).convert(mode)


@pytest.mark.parametrize(
    ("mode", "name", "keeps_bytes"),
    [
        *(("RGB", name, name in ("x.png", "x.jpg")) for name in ("x.png", "x.jpg", "x.webp")),
        *((mode, "x.png", False) for mode in ("P", "RGBA", "I;16")),
        *(("CMYK", "x.jpg", False), ("P", "x.gif", False), ("MPO", "x.jpg", True)),
    ],
)
def test_rgb_files_keep_their_bytes_and_others_become_png_without_loss(tmp_path, mode, name, keeps_bytes):
    path = tmp_path / name
    if mode == "I;16":
        Image.fromarray(np.arange(117, dtype=np.uint16).reshape(9, 13)).save(path)
    elif mode == "MPO":  # JPEG files with a second image, which cameras write
        _random_image("RGB").save(path, format="MPO", save_all=True, append_images=[_random_image("RGB")])
    else:
        _random_image(mode).save(path)
    encoded, digest = preparing.encode(path)
    assert (encoded == path.read_bytes()) is keeps_bytes
    assert digest == images.image_hash(path)
    with Image.open(io.BytesIO(encoded)) as stored:
        assert stored.mode == "RGB"
        assert stored.format in ("JPEG", "MPO", "PNG")
        assert images.image_hash(stored) == digest


def test_boxes_are_cut_as_pil_cuts_them(tmp_path):
    path = tmp_path / "x.png"
    image = _random_image("RGB")
    image.save(path)
    pixels = np.asarray(image)
    for box, expected in [
        ((2, 1, 6, 9), pixels[1:9, 2:6]),
        ((0, 0, 13, 9), pixels),
        ((10, 7, 15, 9), np.pad(pixels[7:9, 10:], ((0, 0), (0, 2), (0, 0)))),  # black beyond the image
    ]:
        encoded, digest = preparing.encode(path, box)
        with Image.open(io.BytesIO(encoded)) as stored:
            np.testing.assert_array_equal(np.asarray(stored), expected)
        assert digest == images.image_hash(np.ascontiguousarray(expected))
    for box in [(3, 3, 3, 8), (8, 3, 3, 8)]:
        with pytest.raises(ValueError, match=names("box")):
            preparing.encode(path, box)
    for box in [(0, 9, 13, 12), (-5, 0, 0, 9)]:
        with pytest.raises(ValueError, match=names("13", "9")):
            preparing.encode(path, box)


def test_rows_that_make_no_example_are_kept_with_their_reasons(prepare, items):
    rows = [sources.LeftOut("a", "no text"), *items, sources.LeftOut("b", "no text (2 words)")]
    state = prepare(rows, num_published=len(items))
    assert state["left_out"] == {
        "num_examples": 2,
        "reasons": {"no text": 2},
        "examples": {"a": {"image": "", "reason": "no text"}, "b": {"image": "", "reason": "no text"}},
    }
    assert prepared.describe_left_out(state) == ["left out 2 examples (no text): a, b"]
    assert not state["is_partial"]
    assert state["content"] == prepare(name="other")["content"]


def test_each_image_is_stored_once(prepare, items, tmp_path):
    repeated = [Item(f"again-{item.id}", item.images[::-1], ("x",)) for item in items]
    state = prepare([*items, *repeated])
    assert (state["num_examples"], state["num_images"]) == (20, 20)
    found = list(prepared.PreparedSet(tmp_path / "toy").examples())
    assert found[0].images == found[10].images[::-1]


def test_odd_names_are_stored(tmp_path):
    root = tmp_path / "source"
    root.mkdir()
    # Bytes that are no UTF-8, and a link of the user's that leads outside of the folder.
    paths = [root / os.fsdecode(b"caf\xe9.png"), root / "schön/ä b.png", root / "linked/elsewhere.png"]
    (root / "schön").mkdir()
    (tmp_path / "other").mkdir()
    (root / "linked").symlink_to(tmp_path / "other")
    for path in paths:
        _random_image("RGB").save(path)
    items = [Item(str(number), (ImageFile(path),), ("x",)) for number, path in enumerate(paths)]
    published_files.prepare(tmp_path / "toy", items, root)
    records = prepared.PreparedSet(tmp_path / "toy").images
    names = [records[number]["name"].decode() for number in range(3)]
    assert names == ["caf\ufffd.png", "schön/ä b.png", "linked/elsewhere.png"]


@pytest.mark.parametrize("name", ["folder/../../elsewhere.png", "{absolute}", "folder/../inside.png"])
def test_images_outside_of_the_source_are_refused(tmp_path, name):
    root = tmp_path / "source"
    (root / "folder").mkdir(parents=True)
    for path in (tmp_path / "elsewhere.png", root / "inside.png"):
        _random_image("RGB").save(path)
    path = root / name.replace("{absolute}", str(tmp_path / "elsewhere.png"))
    with raises("outside-of-folder", "'0'", "'toy'", kind=sources.SourceError):
        published_files.prepare(tmp_path / "toy", [Item("0", (ImageFile(path),), ("x",))], root)
    assert not (tmp_path / "toy").exists()


@pytest.mark.parametrize("orientation", [1, 3, 6])
def test_stored_pictures_are_upright_for_any_reader(tmp_path, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / "turned.jpg"
    pixels = np.zeros((16, 32, 3), np.uint8)
    pixels[:8, :16] = 255
    Image.fromarray(pixels).save(path, exif=exif)
    encoded, digest = preparing.encode(path)
    assert (encoded == path.read_bytes()) == (orientation == 1)
    with Image.open(io.BytesIO(encoded)) as stored:
        assert stored.getexif().get(0x0112, 1) == 1
        assert images.image_hash(stored) == digest == images.image_hash(path)
    # The box is of the pixels as they are stored.
    encoded, _ = preparing.encode(path, (0, 0, 16, 8))
    with Image.open(io.BytesIO(encoded)) as part:
        assert part.size == ((8, 16) if orientation > 4 else (16, 8))
        assert np.asarray(part).mean() > 250


def test_pipes_devices_and_names_that_no_file_can_have_are_problems(tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "zero.png").symlink_to("/dev/zero")
    names = ("pipe", "zero", "a\0b", "a\ud800b", "a" * 300)
    items = [Item(str(number), (ImageFile(tmp_path / f"{name}.png"),), ("x",)) for number, name in enumerate(names)]
    with raises("unusable-images", "5", "images", kind=sources.SourceProblems) as caught:
        published_files.prepare(tmp_path / "toy", items, tmp_path)
    assert {"pipe.png: is not a file", "zero.png: is not a file"} < set(caught.value.problems)


def test_missing_images_are_named_one_by_one(root, prepare, tmp_path):
    (root / "3.jpg").unlink()
    (root / "6.png").unlink()
    (root / "6.png").mkdir()
    with pytest.raises(sources.SourceProblems) as caught:
        prepare()
    assert sorted(caught.value.problems) == ["3.jpg: missing", "6.png: is not a file"]
    words = ("2", "10", "'toy'", str(root), str(tmp_path / "toy.problems.txt"), "--allow_partial")
    assert re.search(names(*words, caught.value.problems[0].split(": ")[0]), str(caught.value))
    assert (tmp_path / "toy.problems.txt").read_text().splitlines() == list(caught.value.problems)
    assert prepared.read_state(tmp_path / "toy") is None


_BROKEN = {
    "cut": lambda content: content[: len(content) // 2],
    "flipped": lambda content: content[:30] + bytes(255 - byte for byte in content[30:]),
}


@pytest.mark.parametrize("damage", _BROKEN)
def test_images_that_cannot_be_decoded_are_named_and_mending_is_enough(root, prepare, tmp_path, damage, small_shards):
    content = (root / "4.png").read_bytes()
    (root / "4.png").write_bytes(_BROKEN[damage](content))
    with raises("unusable-images", "20", "'toy'", kind=sources.SourceProblems) as caught:
        prepare()
    assert [line.split(": ")[0] for line in caught.value.problems] == ["4.png[2,1,10,9]", "4.png"]
    assert prepared.read_state(tmp_path / "toy") is None

    (root / "4.png").write_bytes(content)
    before = _stamp(tmp_path / "toy.unfinished")
    state = prepare()
    assert (state["num_images"], state["is_partial"]) == (20, False)
    after = _stamp(tmp_path / "toy")
    redone = {name for name in before if before[name] != after[name]}
    assert redone == {"images-test.array_record-00002-of-00007"}
    assert not (tmp_path / "toy.problems.txt").exists()


def test_partial_sources(root, prepare, items, tmp_path, small_shards):
    (root / "3.jpg").unlink()
    (root / "7.jpg").write_bytes(b"")
    options = {"num_published": 10, "allow_partial": True}
    state = prepare(**options)
    assert (state["num_examples"], state["num_published"], state["is_partial"]) == (6, 10, True)
    left_out = state["left_out"]
    assert left_out["num_examples"] == 4
    assert left_out["reasons"] == {"missing": 2, "is empty": 2}
    assert left_out["examples"]["item-2"] == {"image": "3.jpg[2,1,10,9]", "reason": "missing"}
    assert left_out["examples"].keys() == {"item-2", "item-3", "item-6", "item-7"}
    missing, _ = prepared.describe_left_out(state)
    assert all(word in missing for word in ("2 examples", "missing", "item-2 (3.jpg[2,1,10,9])", "item-3 (3.jpg"))
    assert prepared.read_state(tmp_path / "toy")["left_out"] == left_out
    found = prepared.PreparedSet(tmp_path / "toy")
    found.verify()
    kept = [item for item in items if item.id not in {"item-2", "item-3", "item-6", "item-7"}]
    examples = list(found.examples())
    assert [example.id for example in examples] == [item.id for item in kept]
    for example, item in zip(examples, kept, strict=True):
        assert example.images[0].content_hash == images.image_hash(item.images[0].path)
        assert images.image_hash(example.images[0].open()) == example.images[0].content_hash

    # Fewer items than were published are partial too, and a source that has become complete is not.
    few = prepare(kept, name="few", **options)
    assert few["is_partial"]
    assert prepared.describe_left_out(few) == ["the annotation files lack 4 of the 10 published examples"]
    published_files.make_images(root)
    whole = prepare(**options)
    assert not whole["is_partial"]
    assert "left_out" not in whole
    assert prepared.describe_left_out(whole) == []
    for path in root.iterdir():
        path.unlink()
    with raises("unusable-images", "10", kind=sources.SourceProblems):
        prepare(allow_partial=True)


def test_a_whole_shard_of_broken_images(root, prepare, tmp_path, small_shards):
    """Leaves a file without records in the middle."""
    for number in (2, 3, 4, 5):
        next(root.glob(f"{number}.*")).write_bytes(b"")
    prepare(allow_partial=True)
    found = prepared.PreparedSet(tmp_path / "toy")
    examples = list(found.examples())
    assert [example.id for example in examples] == [f"item-{number}" for number in (0, 6, 7, 8, 9)]
    for example in examples:
        for image in example.images:
            assert images.image_hash(image.open()) == image.content_hash
    (path,) = (tmp_path / "toy").glob("images/1.0.0/*-00006-of-00007")
    path.unlink()
    with raises("damaged-file", str(path.name)):
        [image.open() for example in prepared.PreparedSet(tmp_path / "toy").examples() for image in example.images]


def test_a_wrong_count_names_both(prepare):
    with raises("wrong-number-of-examples", "10", "'toy'", "12", "--allow_partial"):
        prepare(num_published=12)
    for allow_partial in (False, True):
        with raises("wrong-number-of-examples", "10", "'toy'", "9"):
            prepare(num_published=9, allow_partial=allow_partial)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": "item-1"}, ("repeated-id", "'toy'", "'item-1'")),
        ({"images": ()}, ("empty-example", "'item-0'", "'toy'")),
        ({"target": 2}, ("target-not-among-candidates", "2")),
        ({"texts": ("\ud800", "b")}, ("not-a-text",)),
    ],
)
def test_bad_items(prepare, items, tmp_path, change, message):
    with raises(*message):
        prepare([dataclasses.replace(items[0], **change), *items[1:]])
    assert not (tmp_path / "toy.unfinished").exists()


def test_no_items_and_files_that_cannot_be_read_or_made(root, prepare, tmp_path):
    with raises("no-examples", "'toy'"):
        prepare([])

    def unreadable():
        yield Item("x", (ImageFile(root / "0.png"),), ("a",))
        tmp_path.read_text()

    with raises("cannot-read", str(tmp_path)):
        prepare(unreadable())
    (tmp_path / "file").write_text("")
    with raises("cannot-write", "file/data", "--data_dir"):
        prepare(name="file/data/toy")


def test_an_earlier_set_stays_until_the_new_one_is_complete(root, prepare, items, tmp_path):
    prepare(items[:3])
    (root / "9.jpg").write_bytes(b"")
    with pytest.raises(sources.SourceProblems):
        prepare()
    found = prepared.PreparedSet(tmp_path / "toy")
    found.verify()
    assert found.num_examples == 3
    prepare(items[:9], allow_partial=True)
    assert prepared.PreparedSet(tmp_path / "toy").num_examples == 8
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source", "toy"]


_KILLED = """
import pathlib, sys, time
from tests import launching
from tests.data import published_files
from winobench.data import preparing

root, folder, stop_at, workers = sys.argv[1:]
preparing.IMAGES_A_SHARD = 3
encode, calls = preparing.encode, 0

def stopping(*arguments):
    global calls
    calls += 1
    if calls > int(stop_at):
        print("stopped", flush=True)
        time.sleep(600)
    return encode(*arguments)

preparing.encode = stopping
items = published_files.make_items(sorted(pathlib.Path(root).iterdir(), key=lambda path: int(path.stem)))
published_files.prepare(folder, items, root, workers=int(workers))
"""


def test_a_killed_run_goes_on_where_it_was(root, prepare, tmp_path, small_shards, monkeypatch):
    """kill -9 within the fifth shard: the first four are neither read nor written again."""
    process = subprocess.Popen(
        [sys.executable, "-c", _KILLED, str(root), str(tmp_path / "toy"), "13", "1"], cwd=ROOT, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout.readline() == b"stopped\n"
        with raises("in-use", "'toy'", "toy.unfinished"):
            prepare()
        process.send_signal(signal.SIGKILL)
        assert process.wait(timeout=10) == -signal.SIGKILL
    finally:
        process.kill()
        process.stdout.close()
    unfinished = tmp_path / "toy.unfinished"
    assert prepared.read_state(tmp_path / "toy") is None
    assert any(path.suffix == ".tmp" for path in unfinished.rglob("*"))
    # The journal's last line may have been cut by the power failing.
    with open(unfinished / "journal.jsonl", "a") as journal:
        journal.write('{"file": "images-te')
    before = _stamp(unfinished)
    finished = {name for name in before if name.startswith("images-test")}
    assert len(finished) == 4

    read, encode, told, notes = [], preparing.encode, [], []
    monkeypatch.setattr(preparing, "encode", lambda path, box: read.append((path, box)) or encode(path, box))
    state = prepare(on_start=lambda *counts: told.append(counts), on_progress=told.append, note=notes.append)
    assert told == [(20, 12), 3, 3, 2]
    assert notes == []
    assert len(read) == len(set(read)) == 8
    after = _stamp(tmp_path / "toy")
    assert {name: after[name] for name in finished} == {name: before[name] for name in finished}
    assert not list((tmp_path / "toy").rglob("*.tmp"))

    monkeypatch.undo()
    prepared.PreparedSet(tmp_path / "toy").verify()
    assert state["content"] == prepare(name="whole")["content"]
    assert state["num_images"] == 20


def _stop_at(module, name, prepare, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(module, name, lambda *arguments: sys.exit("killed"))
        with pytest.raises(SystemExit):
            prepare()


def test_stopped_between_images_and_end(prepare, tmp_path, small_shards, monkeypatch):
    """What follows the images is made again, whatever is left of it."""
    for module, name in ((record_files, "write_metadata"), (preparing, "_replace")):
        _stop_at(module, name, prepare, monkeypatch)
        assert prepared.read_state(tmp_path / "toy") is None
    with monkeypatch.context() as patch:
        patch.setattr(preparing, "encode", lambda *arguments: pytest.fail("an image was read again"))
        prepare()
    prepared.PreparedSet(tmp_path / "toy").verify()


def test_a_changed_source_is_seen(root, prepare, items, tmp_path, small_shards, monkeypatch):
    _stop_at(preparing, "_finish", prepare, monkeypatch)
    before = _stamp(tmp_path / "toy.unfinished")
    # The same size, another time of change.
    os.utime(root / "9.jpg", ns=(0, 0))
    notes = []
    prepare(note=notes.append)
    assert notes == ["toy: the source has changed or was incomplete, 2 finished shards are made again"]
    after = _stamp(tmp_path / "toy")
    assert len([name for name in before if before[name] == after[name]]) == 5
    # Other items make other shards.
    (tmp_path / "toy").rename(tmp_path / "toy.unfinished")
    notes.clear()
    with open(tmp_path / "toy.unfinished" / "journal.jsonl", "w") as journal:
        journal.write(json.dumps({"file": "images-test.array_record-00000-of-00007", "inputs": "x"}) + "\n")
    prepare(items[::-1], note=notes.append)
    assert len(notes) == 1
    prepared.PreparedSet(tmp_path / "toy").verify()


def test_processes_write_what_one_writes(prepare, small_shards):
    """To the byte, so that folders of two machines can be compared by their checksums."""
    told = []
    many = prepare(name="many", workers=2, on_start=lambda *counts: told.append(counts), on_progress=told.append)
    one = prepare(name="one")
    assert told[0] == (20, 0)
    assert sorted(told[1:]) == [2, 3, 3, 3, 3, 3, 3]
    assert many["content"] == one["content"]
    assert many["files"] == one["files"]


def test_errors_of_processes_are_input_errors(root, items, tmp_path, small_shards):
    """The folder of the images goes away under the workers."""
    found, _, _ = sources.collect(items, root, "toy")
    jobs = preparing._jobs(tmp_path / "nowhere", found, sources.stamps(found)[0])
    with raises("cannot-write"):
        list(preparing._work_off(jobs, 2))


_PARENT = """
import concurrent.futures, multiprocessing, os, time
from winobench.data import preparing

if __name__ == "__main__":
    pool = concurrent.futures.ProcessPoolExecutor(
        1, multiprocessing.get_context("spawn"), initializer=preparing._follow_parent
    )
    print(pool.submit(os.getpid).result(), flush=True)
    pool.submit(time.sleep, 600).result()
"""


def test_workers_end_with_a_killed_parent(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(_PARENT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, str(script)], cwd=ROOT, env=environment, stdout=subprocess.PIPE)
    try:
        worker = int(process.stdout.readline())
        os.kill(worker, 0)
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=10)
        deadline = time.monotonic() + 20
        while launching.is_running(worker) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not launching.is_running(worker)
    finally:
        process.kill()
        process.stdout.close()


def test_a_full_disk_is_an_input_error_and_leaves_no_part(prepare, tmp_path):
    """A limit on the size of files stands for the disk. Python ignores the signal."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
    try:
        with raises("cannot-write", "disk's"):
            prepare()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list((tmp_path / "toy.unfinished").rglob("*test*"))
