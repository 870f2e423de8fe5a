"""What a config.json asks for is compared with its files, or with the machine, before anything of it is made."""

import json
import shutil
import time

import pytest

import winobench
from tests.expectations import raises
from winobench.base import memory, registry
from winobench.diffusion.stable_diffusion import StableDiffusion

SCHEDULER = "scheduler/scheduler_config.json"


@pytest.fixture
def copy(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(registry.resolve("clevr-tiny").source, folder)
    return folder


def change(folder, name, **values):
    path = folder / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("unet/config.json", {"layers_per_block": 10**6}, ("mismatched-parts", "UNet2DConditionModel")),
        ("text_encoder/config.json", {"vocab_size": 10**9}, ("mismatched-parts", "token_embedding.weight", f"{10**9}")),
        ("text_encoder/config.json", {"vocab_size": 10**50}, ("unsupported-option", "vocab_size=1" + 50 * "0")),
        ("unet/config.json", {"norm_eps": float("inf")}, ("not-a-json-number", "Infinity")),
        ("unet/config.json", {"norm_eps": 1e30}, ("unsupported-option", "norm_eps=1e+30", "1e-37", "0.1")),
        ("vae/config.json", {"scaling_factor": 1e-30}, ("unsupported-option", "scaling_factor=1e-30", "1e-06")),
        (SCHEDULER, {"num_train_timesteps": 10**10}, ("out-of-range", "10000000000")),
        (SCHEDULER, {"_winobench": {"timestep_range": [800, 300]}}, ("bad-value", "timestep_range", "_winobench")),
        (SCHEDULER, {"_winobench": {"timesteps": 5}}, ("not-an-object", "_winobench", "timestep_range")),
    ],
)
def test_configs_that_ask_for_too_much(copy, name, values, message):
    change(copy, name, **values)
    started = time.monotonic()
    with raises(*message):
        StableDiffusion.from_pretrained(copy)
    assert time.monotonic() - started < 20  # on a busy machine; no limit at all before


@pytest.mark.parametrize(
    ("size", "message"), [(10**7, ("bad-value", "image_size", "80000000")), (8000, ("out-of-memory", "64,000"))]
)
def test_a_sample_size_beyond_all_memory(copy, monkeypatch, size, message):
    monkeypatch.setattr(memory, "host_bytes", lambda: 10**10)
    change(copy, "unet/config.json", sample_size=size)
    with raises(*message):
        winobench.DiffusionITM.from_pretrained(copy)


@pytest.mark.slow
def test_a_models_timesteps_lie_in_its_folder(copy, tmp_path):
    recorded = {"scorer": "diffusion_itm", "scoring_version": 1}
    recorded |= {"model": "85479d12b6563bcc75b5dc13ac8f387fa79f8b3e1f3b4d0dea92950d917f4c8b", "dtype": "float32"}
    recorded |= {"error": "squared_l2", "target": "own", "image_size": 64, "timestep_range": [300, 800]}
    named = winobench.DiffusionITM.from_pretrained("clevr-tiny")
    assert named.fingerprint() == recorded  # as it was before the range lay in the folder
    by_path = winobench.DiffusionITM.from_pretrained(copy)
    assert by_path.fingerprint() == recorded
    assert (by_path.choose_timesteps(50) == named.choose_timesteps(50)).all()
    whole = winobench.DiffusionITM(by_path.pipeline, timestep_range="all")
    assert whole.fingerprint() == {**recorded, "timestep_range": None}
    assert whole.choose_timesteps(500).min() < 100
    with raises("bad-value", "timestep_range", "'some'"):
        winobench.DiffusionITM(by_path.pipeline, timestep_range="some")

    by_path.pipeline.save_pretrained(tmp_path / "saved")
    assert StableDiffusion.from_pretrained(tmp_path / "saved").timestep_range == (300, 800)
    change(copy, "scheduler/scheduler_config.json", _winobench={})
    assert winobench.DiffusionITM.from_pretrained(copy).timestep_range is None
