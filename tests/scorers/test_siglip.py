"""SigLIP as a scorer: devices, fingerprints, and what is refused. Scores: tests/parity/test_siglip.py."""

import json
import shutil

import jax
import numpy as np
import pytest

from tests import tiny_siglip
from tests.expectations import raises
from winobench import parallel
from winobench.base import registry
from winobench.scorers import loading
from winobench.scorers.contrastive import Contrastive

IMAGES = [np.random.default_rng(seed).integers(0, 256, (20, 24, 3), dtype=np.uint8) for seed in range(5)]
TEXTS = ["a red cube", "the blue ball", ""]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_siglip.write_siglip(tmp_path_factory.mktemp("models") / "siglip")


@pytest.fixture(scope="module")
def scorer(folder):
    return Contrastive.from_pretrained(folder, mesh=parallel.make_mesh(jax.devices()[:1]), batch_size=2)


def change(path, **values):
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | values))


def test_devices_do_not_matter(folder, scorer):
    several = Contrastive.from_pretrained(folder, mesh=parallel.make_mesh(jax.devices()[:3]), batch_size=1)
    assert parallel.data_parallelism(several.mesh) == 3
    scores = scorer.score(IMAGES, TEXTS)
    np.testing.assert_allclose(several.score(IMAGES, TEXTS), scores, rtol=1e-5)
    # Images and texts count; otherwise equality says little.
    assert np.ptp(scores, axis=0).min() > 1e-2 < np.ptp(scores, axis=1).min()
    assert several.fingerprint() == scorer.fingerprint()


def test_fingerprint(folder, scorer, tmp_path):
    fingerprint = scorer.fingerprint()
    assert json.loads(json.dumps(fingerprint)) == fingerprint
    found = [fingerprint["model"]]
    for file, old, new in (("tokenizer.json", "▁red", "▁ted"), ("preprocessor_config.json", "0.5", "0.4")):
        copy = shutil.copytree(folder, tmp_path / file)
        text = (copy / file).read_text(encoding="utf-8")
        assert old in text
        (copy / file).write_text(text.replace(old, new), encoding="utf-8")
        found.append(Contrastive.from_pretrained(copy).fingerprint()["model"])
    assert len(set(found)) == 3


def test_names_and_folders(folder):
    for name in ("siglip-base-patch16-224", "siglip-so400m-patch14-384", "siglip2-so400m-patch14-384"):
        assert (registry.MODELS[name].scorer, registry.MODELS[name].source) == ("contrastive", f"google/{name}")
    assert type(loading.load_scorer(str(folder))) is Contrastive


@pytest.mark.parametrize(
    ("file", "values", "message"),
    [
        ("config.json", {"model_type": "siglip2"}, ("wrong-kind-of-model", "'siglip2'", "NaFlex", "config.json")),
        (
            "config.json",
            {"vision_config": {"vision_use_head": False}},
            ("unsupported-option", "vision_use_head=False", "config.json"),
        ),
        ("config.json", {"text_config": {"projection_size": 7}}, ("unsupported-option", "projection_size=7", "32")),
        ("config.json", {"text_config": {"hidden_act": "relu"}}, ("unsupported-option", "hidden_act='relu'")),
        ("config.json", {"text_config": 3}, ("not-an-object", "SiglipTextConfig")),
        ("config.json", {"text_config": {}, "vision_config": {}}, ("mismatched-parts", "30", "224")),
        ("config.json", {"text_config": {"projection_size": 32, "vocab_size": 9}}, ("mismatched-parts", "39", "9")),
        (
            "preprocessor_config.json",
            {"image_processor_type": "CLIPImageProcessor"},
            ("wrong-kind-of-processor", "CLIPImageProcessor", "SiglipImageProcessor"),
        ),
        ("preprocessor_config.json", {"do_convert_rgb": False}, ("unsupported-option", "do_convert_rgb=False")),
        ("tokenizer.json", {"model": {}}, ("unreadable-tokenizer",)),
    ],
)
def test_refused(folder, tmp_path, file, values, message):
    copy = shutil.copytree(folder, tmp_path / "copy")
    change(copy / file, **values)
    with raises(*message):
        Contrastive.from_pretrained(copy)


def test_missing_files(folder, tmp_path):
    for name in ("tokenizer.json", "preprocessor_config.json", "model.safetensors"):
        copy = shutil.copytree(folder, tmp_path / name.partition(".")[0])
        (copy / name).unlink()
        with raises({"model.safetensors": "no-weights"}.get(name, "no-such-file"), name):
            Contrastive.from_pretrained(copy)


def test_bad_texts(scorer):
    with raises("lone-surrogate"):
        scorer.score(IMAGES[:1], ["a \ud800 cube"])
