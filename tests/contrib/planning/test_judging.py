"""What a local judge takes, by its config alone."""

import shutil

import jax
import pytest

from tests import launching
from tests.contrib.planning import small
from tests.generation import fakes
from tests.launch.test_json import validated
from tests.tiny_vision_language import write_vision_language
from winobench import parallel
from winobench.base import extensions, memory
from winobench.contrib.planning import judging, topologies, vision_language
from winobench.prompts.prompt_files import Prompt
from winobench.runs.requests import ImageMatch, ImageOptions, ImageText, InputImage
from winobench.scorers import loading
from winobench.scorers.vqa_score import VQAScore

ON_H100 = {"accelerator": "h100", "usable": 80e9, "fits": True, "seconds": None}
HOW = {"dtype": "float32", "batch_size": 4, "model_parallel": 1}
IMAGES = [InputImage(f"{number}.png", f"{number}" * 64) for number in range(3)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_vision_language(tmp_path_factory.mktemp("model"), "llava")


@pytest.fixture(scope="module")
def model(folder):
    return loading.resolve(str(folder), loading.IMAGES)


def test_weights_are_those_of_the_loaded_judge(folder, model):
    requests = [ImageText(IMAGES[0], "what?")]
    loaded = VQAScore.from_pretrained(folder, mesh=parallel.make_mesh(jax.devices()[:1]))
    weights = memory.array_bytes(loaded._params)
    assert judging.estimate(model, requests, **HOW) == {"weights": weights}
    assert judging.estimate(model, requests, **{**HOW, "dtype": "bfloat16"})["weights"] < weights
    assert judging.estimate(model, [], **HOW) is None
    assert judging.estimate(loading.resolve("clip-vit-b32", loading.IMAGES), requests, **HOW) is None


@pytest.mark.parametrize(
    ("requests", "images", "pairs"),
    [
        ([ImageMatch(IMAGES[0], ("a", "b")), ImageMatch(IMAGES[0], ("c",)), ImageMatch(IMAGES[1], ("a",))], 2, 4),
        ([ImageOptions(IMAGES[0], "which?", ("a", "b"))] * 3, 3, 3),
        ([ImageText(IMAGES[0], "what?")], None, None),
    ],
)
def test_time_on_an_accelerator(monkeypatch, model, requests, images, pairs):
    devices = small.Devices(monkeypatch, 1, usable=10**12, seconds={"image": 0.5, "pair": 0.25})
    monkeypatch.setattr(topologies, "prepare", lambda: None)
    monkeypatch.setattr(topologies, "find", lambda text: devices.target)
    planned = judging.estimate(model, requests, "h100", **HOW)
    assert (planned["accelerator"], planned["usable"], planned["fits"]) == ("h100", 10**12, True)
    if images is None:
        assert planned["seconds"] is None
        return
    at_once = next(items for noun, items in devices.asked if noun == "image")
    loading_and_compiling = 6.0
    seconds = images * 0.5 / at_once + pairs * 0.25 / 4
    assert planned["seconds"] == pytest.approx(seconds + loading_and_compiling, abs=0.2)


def test_what_does_not_fit_has_no_time(monkeypatch, model):
    devices = small.Devices(monkeypatch, 1, usable=10_000, seconds={"image": 0.5, "pair": 0.25})
    monkeypatch.setattr(topologies, "prepare", lambda: None)
    monkeypatch.setattr(topologies, "find", lambda text: devices.target)
    planned = judging.estimate(model, [ImageMatch(IMAGES[0], ("a",))], "h100", **HOW)
    assert (planned["fits"], planned["seconds"]) == (False, None)


def test_command(folder, tmp_path, monkeypatch):
    """Nobody reads the weights."""
    run = fakes.draw(tmp_path / "run", prompts=[Prompt("1", "a red cube"), Prompt("2", "a ball")])
    judge = tmp_path / "judge"
    shutil.copytree(folder, judge)
    network = vision_language.read_config(str(judge))
    weights = vision_language.weight_bytes(network, parallel.make_mesh(), "bfloat16")
    for path in judge.glob("*.safetensors"):
        path.write_bytes(b"")
    words = [run.folder, f"--model={judge}", "--dtype=bfloat16", "--rubric=vqa_score", "--dry_run"]
    status, out, err = launching.launch("launch.judge", *words, "--json")
    (planned,) = validated("judgements", out)["planned"]
    assert (planned["kind"], planned["missing"], planned["local"]) == ("picture_match", 2, {"weights": weights}), err
    assert "GB on each device" in err
    monkeypatch.setattr(judging, "estimate", lambda *_, **__: {"weights": 9e9, **ON_H100, "seconds": 90.0})
    status, out, err = launching.launch("launch.judge", *words, "--accelerator=h100")
    assert "h100: weights of 9.0 GB on each device, of 80.0 GB; 1.5 minutes" in out, err
    monkeypatch.setattr(judging, "estimate", lambda *_, **__: {"weights": 9e10, **ON_H100, "fits": False})
    assert "does not fit" in launching.launch("launch.judge", *words, "--accelerator=h100")[1]
    # A checkout without the plan.
    added = extensions.added
    monkeypatch.setattr(extensions, "added", lambda group: {} if group == extensions.PARTS else added(group))
    status, out, err = launching.launch("launch.judge", *words)
    assert (status, out.splitlines()[1:]) == (0, ["  2 of 2 requests are missing"]), err
    launching.refuse("launch.judge", *words, "--accelerator=h100", named=["judging_plan"])
    assert not (run.folder / "judged").exists()
