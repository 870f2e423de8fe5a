"""Records of images that other programs made, and of images that are missing."""

import dataclasses
import hashlib
import json
import pathlib

import numpy as np
import PIL.Image
import pytest

from tests.expectations import raises
from winobench.base.errors import InputError
from winobench.prompts.prompt_files import Prompt, digest
from winobench.runs import image_records
from winobench.runs.image_records import FILTERED, ImageRecord, ImageStore, MissingImage
from winobench.runs.image_runs import KIND, LAYOUT, read_images

PROMPTS = (Prompt("a", "A red cube."), Prompt("b", "A blue cube."))
SOURCE = {"file": "0/1.jpg", "sha256": "ab" * 32}


def fields(number, seed=0, **more):
    known = {"prompt": PROMPTS[number], "model": "m", "seed": seed, "number": number}
    return {**known, "fingerprint": None, "lora": None, "settings": {}, **more}


def missing(number, seed=0, **more):
    of_place = {"prompt": PROMPTS[number], "model": "m", "seed": seed, "number": number, "fingerprint": None}
    return MissingImage(**of_place, kind=FILTERED, reason="a filter\nsays no", **more)


@pytest.fixture
def folder(tmp_path):
    """A run without records."""
    (tmp_path / "drawn").mkdir()
    image_records.write_prompts(tmp_path, PROMPTS)
    identity = {"prompts": {"sha256": digest(PROMPTS), "count": 2}, "seeds": [0], "models": {"m": {"name": "m"}}}
    config = {"kind": KIND, "layout": LAYOUT, "identity": identity, "drawn": {}, "status": "finished"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


def test_a_missing_image_settles_its_place_until_an_image_comes(folder):
    pixels = np.full((4, 6, 3), 7, np.uint8)
    with ImageStore(folder) as store:
        (record,) = store.add([pixels], [fields(0, source=SOURCE)])
        store.add_missing([missing(1)])
    run = read_images(folder)
    assert (run.records, run.missing) == ((record,), (missing(1),))
    assert record.source == SOURCE
    np.testing.assert_array_equal(run.image(record), pixels)

    with ImageStore(folder) as store:
        store.add([image_records.png_bytes(pixels)], [fields(1, source=SOURCE)])
    run = read_images(folder)
    assert [record.number for record in run.records] == [0, 1]
    assert run.missing == ()
    assert run.path(run.records[1]).read_bytes() == run.path(run.records[0]).read_bytes()


def test_a_missing_image_of_another_model_or_prompt_does_not_count(folder):
    with ImageStore(folder) as store:
        store.add([np.zeros((2, 2, 3), np.uint8)], [fields(0, source=SOURCE)])
        other = dataclasses.replace(missing(1), prompt=Prompt("b", "Another text."))
        store.add_missing([other, missing(1, seed=1), dataclasses.replace(missing(1), fingerprint="ab" * 32)])
    with pytest.raises(InputError, match=r"has lost 1 of its 2 images, such as pictures/m/0/00001\.png"):
        read_images(folder)
    assert read_images(folder, complete=False).missing == ()


def test_only_images_of_other_programs_have_no_fingerprint():
    record = ImageRecord(**fields(0), file="pictures/m/0/00000.png", sha256="0" * 64, size=1)
    with pytest.raises(InputError, match="fingerprint is wrong"):
        ImageRecord.from_json(record.to_json())
    known = dataclasses.replace(record, source=SOURCE)
    assert ImageRecord.from_json(json.loads(json.dumps(known.to_json()))) == known


@pytest.mark.parametrize("name", ["model", "seed", "number", "kind", "reason"])
def test_a_damaged_record_of_a_missing_image_is_left_aside(folder, name, caplog):
    line = missing(0).to_json() | {name: None}
    (folder / "drawn" / "part-0-00000.jsonl").write_text(json.dumps(line) + "\n")
    assert image_records.read_records(folder) == {}
    assert f"{name} is wrong" in caplog.text


def test_the_images_of_a_store_are_png_files(folder):
    with ImageStore(folder) as store:
        (record,) = store.add([np.zeros((3, 2, 3), np.uint8)], [fields(0, source=SOURCE)])
    with PIL.Image.open(folder / record.file) as image:
        assert (image.format, image.size, image.mode) == ("PNG", (2, 3), "RGB")


def editing(content, source=None):
    sha256 = hashlib.sha256(content).hexdigest()
    fields = {"source_image": "a.png", "source_sha256": sha256}
    return Prompt("a", "Make it red.", content=fields, source=source), sha256


def test_the_images_that_prompts_edit_are_copied(folder):
    prompt, sha256 = editing(b"image", lambda: b"image")
    image_records.write_prompts(folder, [prompt, *PROMPTS, prompt])
    assert (folder / "drawn" / "sources" / sha256).read_bytes() == b"image"
    assert all(image_records.has_source(folder, each) for each in (prompt, *PROMPTS))
    image_records.write_prompts(folder, [editing(b"image")[0]])  # as a run gives it
    assert "source" not in json.loads((folder / "drawn" / "prompts.jsonl").read_text())


@pytest.mark.parametrize(
    ("source", "said"),
    [(None, "is not there"), (pathlib.Path("/absent").read_bytes, "is not there"), (lambda: b"other", "has changed")],
    ids=["unknown", "absent", "changed"],
)
def test_prompts_without_the_image_that_they_edit_are_refused(folder, source, said):
    before = (folder / "drawn" / "prompts.jsonl").read_text()
    with raises("no-source-image", "a.png", said):
        image_records.write_prompts(folder, [*PROMPTS, editing(b"image", source)[0]])
    assert (folder / "drawn" / "prompts.jsonl").read_text() == before


@pytest.mark.parametrize("sha256", ["../../config", 5, None, "AB" * 32])
def test_no_file_outside_the_run_is_the_image_that_a_prompt_edits(folder, sha256):
    prompt = Prompt("a", "Make it red.", content={"source_image": "a.png", "source_sha256": sha256})
    assert image_records.source_path(folder, prompt) is None
