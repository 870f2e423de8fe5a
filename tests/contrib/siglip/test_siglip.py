"""SigLIP as a scorer: fingerprints, and what is refused. Scores: test_parity.py."""

import json
import shutil

import pytest

from tests.contrib.siglip import tiny_siglip
from tests.expectations import raises
from winobench.base import registry
from winobench.scorers import loading
from winobench.scorers.contrastive import Contrastive


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_siglip.write_siglip(tmp_path_factory.mktemp("models") / "siglip")


def test_fingerprint(folder, tmp_path):
    found = [Contrastive.from_pretrained(folder).fingerprint()["model"]]
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
        ("config.json", {"vision_config": {"vision_use_head": False}}, ("unsupported-option", "vision_use_head=False")),
        ("config.json", {"text_config": {"projection_size": 7}}, ("unsupported-option", "projection_size=7", "32")),
        ("config.json", {"text_config": 3}, ("not-an-object", "SiglipTextConfig")),
        ("config.json", {"text_config": {}, "vision_config": {}}, ("mismatched-parts", "30", "224")),
        ("config.json", {"text_config": {"projection_size": 32, "vocab_size": 9}}, ("mismatched-parts", "39", "9")),
        ("preprocessor_config.json", {"image_processor_type": "CLIP"}, ("wrong-kind-of-processor", "CLIP")),
        ("preprocessor_config.json", {"do_convert_rgb": False}, ("unsupported-option", "do_convert_rgb=False")),
        ("tokenizer.json", {"model": {}}, ("unreadable-tokenizer",)),
        ("tokenizer.json", None, ("no-such-file", "tokenizer.json")),
        ("preprocessor_config.json", None, ("no-such-file", "preprocessor_config.json")),
    ],
)
def test_refused(folder, tmp_path, file, values, message):
    copy = shutil.copytree(folder, tmp_path / "copy")
    content = json.loads((copy / file).read_text())
    (copy / file).unlink()
    if values is not None:
        (copy / file).write_text(json.dumps(content | values))
    with raises(*message):
        Contrastive.from_pretrained(copy)
