"""Captions from the command line, and models that write none."""

import csv
import json
import os

import numpy as np
import pytest
from PIL import Image

from tests import launching, tiny_language_models
from tests.expectations import raises
from tests.generation import fakes
from tests.launch import test_json
from tests.launch.test_help import check_teaches, read_help
from tests.responders import api_server
from tests.responders.api_server import openai_body, openai_error
from tests.tiny_vision_language import write_vision_language
from winobench.contrib.captions import writing
from winobench.generation.generate import generate_images
from winobench.responders import loading
from winobench.runs.requests import InputImage


@pytest.fixture(scope="module", autouse=True)
def _quick():
    with pytest.MonkeyPatch.context() as patch:
        tiny_language_models.compile_quickly(patch)
        yield


@pytest.fixture(scope="module")
def sees(tmp_path_factory):
    return write_vision_language(tmp_path_factory.mktemp("sees"), "blip-2")


@pytest.fixture(scope="module")
def blind(tmp_path_factory):
    return tiny_language_models.write_language_model(tmp_path_factory.mktemp("blind"), "t5")


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(3):
        pixels = np.random.default_rng(number).integers(0, 256, (20, 24, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    (folder / "notes.txt").write_text("no image")
    return folder


def lines(folder):
    return [json.loads(line) for line in (folder / "captions.jsonl").read_text().splitlines()]


def caption(*words, cwd=None):
    return launching.launch("launch.caption", *words, cwd=cwd)


@pytest.mark.slow
def test_a_model_with_weights_writes_about_a_folder(sees, photos, tmp_path):
    words = [photos, f"--model={sees}", "--max_tokens=6", f"--workdir={tmp_path / 'run'}"]
    status, out, err = caption(*words)
    assert (status, "3 texts about 3 images, 3 of them written now" in out) == (0, True), err
    written = lines(tmp_path / "run")
    assert [line["file"] for line in written] == [str(photos / f"{number}.png") for number in range(3)]
    assert all(line["text"] and line["question"] == "" for line in written)
    with open(tmp_path / "run" / "captions.csv", newline="") as file:
        assert [row["text"] for row in csv.DictReader(file)] == [line["text"] for line in written]
    Image.new("RGB", (9, 9), "blue").save(photos / "-1.png")
    status, out, err = caption(*words)
    assert (status, "4 texts about 4 images, 1 of them written now" in out) == (0, True), err
    assert lines(tmp_path / "run")[1:] == written
    status, _, err = caption(*words, "--question=Why?")
    assert (status, "whose question is ''" in err) == (2, True), err


def test_a_hosted_model_answers_about_a_run_of_pictures(monkeypatch, tmp_path):
    generate_images([fakes.generator(fakes.FakePipeline("a"))], fakes.PROMPTS, tmp_path / "run", progress=False)
    with api_server.running_with_keys(monkeypatch) as server:
        server.answer = lambda prompt: f"asked: {prompt[0]['text']}"
        cut = openai_body("a red", "length")
        server.script = ["ok", (400, {}, openai_error("this picture is unwanted")), (200, {}, cut)]
        model = f"--model=openai:m@{server.address}/v1"
        words = [tmp_path / "run", model, "--question=What colour?", f"--workdir={tmp_path / 'out'}"]
        status, out, err = caption(*words, "--json")
        assert (status, "1 texts about 3 images" in err) == (2, True)
        assert "2 images have no text" in err
        document = test_json.validated("captions", out)
        assert sorted(row["text"] or "" for row in document["captions"]) == ["", "", "asked: What colour?"]
        assert {row["file"] for row in document["captions"] if row["text"] is None} == document["failed"].keys()
        assert ("this picture is unwanted" in err) or ("max_tokens=30" in err)
        status, out, err = caption(*words)
        assert (status, "3 texts about 3 images, 2 of them written now" in out) == (0, True), err
        assert len(server.calls) == 5
    found = lines(tmp_path / "out")
    assert {line["text"] for line in found} == {"asked: What colour?"}
    assert [(line["prompt"], line["drawn_by"], line["seed"]) for line in found] == [
        (prompt.text, "a", 0) for prompt in fakes.PROMPTS
    ]


def test_a_name_that_no_line_can_hold_stops_a_run_before_anything_is_paid(monkeypatch, photos, tmp_path):
    with api_server.running_with_keys(monkeypatch) as server:
        server.answer = lambda prompt: "a photo"
        words = [photos, f"--model=openai:m@{server.address}/v1", f"--workdir={tmp_path / 'out'}"]
        assert caption(*words)[0] == 0
        bad = os.fsencode(photos / "caf") + b"\xe9\xff.png"
        Image.new("RGB", (8, 8), "red").save(photos / "red.png")
        os.rename(photos / "red.png", bad)
        status, _, err = caption(*words)
        assert (status, err.count("\n"), "caf\\udce9\\udcff.png" in err, len(server.calls)) == (2, 1, True, 3), err
        shown = writing.ImageFile(InputImage(os.fsdecode(bad), "0" * 64), {})
        with raises("name-not-utf8", "udce9"):
            writing.write(loading.load_responder("openai:m"), [shown], tmp_path / "new", model="m")
        with raises("lone-surrogate"):
            writing.write(loading.load_responder("openai:m"), [], tmp_path / "new", model="m", question="\udcff?")
        for name in ('two\nlines, and a "quote".png', f"{'n' * 251}.png"):
            Image.new("RGB", (8, 8), "red" if name[0] == "n" else "blue").save(photos / name)
        os.remove(bad)
        status, out, err = caption(*words)
        assert (status, len(server.calls), "2 of them written now" in out) == (0, 5, True), err
    names = sorted(str(path) for path in photos.glob("*.png"))
    assert [line["file"] for line in lines(tmp_path / "out")] == names
    with open(tmp_path / "out" / "captions.csv", newline="") as file:
        assert [row["file"] for row in csv.DictReader(file)] == names


def test_each_picture_is_taken_once_and_what_has_none_is_one_sentence(photos, tmp_path):
    found = writing.find([str(photos), str(photos / "*.png"), str(photos / "1.png")])
    assert [one.image.path for one in found] == [str(photos / f"{number}.png") for number in range(3)]
    (photos / "empty.png").write_bytes(b"")
    for places, code in (
        ([], None),
        ([str(tmp_path)], "no-pictures"),
        ([str(tmp_path / "*.gif")], "no-pictures"),
        ([str(tmp_path / "gone.png")], "no-such-file"),
        ([str(photos / "empty.png")], "empty-file"),
    ):
        with raises(code):
            writing.find(places)


def test_a_text_only_model_is_one_sentence_wherever_it_is_named(blind, photos):
    launching.refuse("launch.eval", "--config=gdbench", f"--model={blind}", named=["text-only"])
    for words, message in (
        ([photos, f"--model={blind}"], "writes no texts about images"),
        ([photos, "--model=clip-vit-b32"], "writes no texts about images"),
        ([photos], "give --model=MODEL"),
        ([photos.parent, "--model=blip2-flan-t5-xl"], "has no images right in it"),
    ):
        launching.refuse("launch.caption", *words, named=[message])


@pytest.mark.parametrize("flag", ["--rater=a", "--max_tokens=0", "--dtype=float8"])
def test_a_flag_of_another_launcher_is_one_sentence(flag, tmp_path):
    launching.refuse("launch.caption", "a.png", flag, named=[flag.partition("=")[0]], cwd=tmp_path)
    assert not list(tmp_path.iterdir())


def test_help_teaches_by_examples():
    check_teaches(read_help("caption"), "caption", ["--question", "--max_tokens", "captions.jsonl"])
