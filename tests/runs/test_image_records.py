"""Records of images that other programs made, and of images that are missing."""

import dataclasses
import json

import numpy as np
import PIL.Image
import pytest

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
