"""Folders of images from the command line: collected, and judged in the same command."""

import json
import re

import PIL.Image
import pytest

from tests import launching
from tests.launch.test_json import validated
from tests.responders import api_server
from tests.rubrics.test_geneval2 import ROWS, write


@pytest.fixture
def folder(tmp_path):
    """An image for each of GenEval 2's prompts, named by its id."""
    (tmp_path / "photos").mkdir()
    for number in range(len(ROWS)):
        PIL.Image.new("RGB", (4, 4), (number, 0, 0)).save(tmp_path / "photos" / f"{number:05d}.jpg")
    return tmp_path / "photos"


@pytest.fixture
def source(tmp_path):
    return write(tmp_path / "geneval2_data.jsonl", ROWS)


def test_collected_from_the_command_line(folder, source, tmp_path):
    words = [folder, f"--prompts={source}", "--name=gpt-image-1", "--json"]
    status, out, err = launching.launch("launch.collect", *words, cwd=tmp_path)
    document = validated("collected_images", out)
    assert (status, document["images"], document["missing"]) == (0, len(ROWS), []), err
    assert re.fullmatch(r"runs/collected-photos-[0-9a-f]{8}", document["folder"])
    assert f"{len(ROWS)} files in <id> layout" in err
    assert (tmp_path / document["folder"] / "pictures.html").is_file()
    (folder / "00001.jpg").unlink()
    status, out, err = launching.launch("launch.collect", *words, cwd=tmp_path)
    assert (status, out) == (2, "")
    assert f"1 of the {len(ROWS)} images" in err
    status, out, err = launching.launch("launch.collect", *words, "--allow_missing", cwd=tmp_path)
    assert json.loads(out)["missing"] == [{"model": "gpt-image-1", "seed": 0, "id": "00001", "kind": "absent"}]


def test_a_folder_is_judged_in_one_command(folder, source, tmp_path, monkeypatch):
    (folder / "00001.jpg").unlink()
    with api_server.running_with_keys(monkeypatch) as server:
        server.answer = lambda prompt: "Yes"
        words = [folder, f"--prompts={source}", "--name=gpt-image-1", "--allow_missing"]
        words += [f"--model=openai:m@{server.address}/v1", "--api.logprobs=false", "--api.votes=1"]
        status, out, err = launching.launch("launch.judge", *words, cwd=tmp_path)
        assert status == 0, err
        assert "no image: gpt-image-1 lacks 1 of 2 images (50.0%: 1 absent)" in out
        assert re.search(r"no image, all +50\.0", out), out
        calls = len(server.calls)
        status, out, err = launching.launch("launch.judge", *words, "--json", cwd=tmp_path)
        assert (status, len(server.calls)) == (0, calls)
    (judged,) = validated("judgements", out)["judgements"]
    assert judged["no_image"] == {"gpt-image-1": {"absent": 1}}
    assert judged["models"]["gpt-image-1"]["no_image"]["all"]["value"] == 0.5

    # The run itself takes no flags of a folder.
    status, out, err = launching.launch(
        "launch.judge", judged["folder"], f"--prompts={source}", words[-3], cwd=tmp_path
    )
    assert (status, "--prompts has no effect for a run" in err) == (2, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "collect"),
        (["--name=x"], "no prompts are named"),
        (["--prompts=geneval2:absent.jsonl"], "absent.jsonl"),
        (["--pattern={seed}", "--prompts=SOURCE"], "does not name the prompt"),
    ],
)
def test_what_is_wrong_is_one_sentence(words, said, folder, source):
    words = [word.replace("SOURCE", source) for word in words]
    status, out, err = launching.launch("launch.judge", folder, "--model=openai:m@http://localhost:1/v1", *words)
    assert (status, out) == (2, "")
    assert said in err.splitlines()[-1]
    assert "Traceback" not in err
