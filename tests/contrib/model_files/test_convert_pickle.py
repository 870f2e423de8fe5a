import json
import pathlib
import shlex

import numpy as np
import pytest
import torch
from huggingface_hub import constants

from tests.expectations import raises
from winobench.checkpoints import convert_pickle, pickles, sources, weights


def torch_weights(path: pathlib.Path, **tensors: torch.Tensor) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(tensors, path)


def test_names():
    assert convert_pickle.safetensors_name("pytorch_model.fp16.bin") == "model.fp16.safetensors"
    assert convert_pickle.safetensors_name("pytorch_model.bin.index.json") == "model.safetensors.index.json"


def test_the_command_that_the_refusal_names_works(tmp_path, capsys):
    values = torch.randn(3, 4)
    torch_weights(tmp_path / "unet" / "diffusion_pytorch_model.bin", weight=values)
    torch_weights(tmp_path / "text_encoder" / "pytorch_model.bin", weight=values.half())
    source = sources.resolve(tmp_path)
    with raises("weights-are-a-pickle") as caught:
        weights.find_weights(source, "unet", "diffusion_pytorch_model")
    command = str(caught.value).split("`")[1]
    assert command == pickles.conversion_command(source)
    program, arguments = command.removeprefix("python -m ").split(maxsplit=1)
    convert_pickle._main([program, *shlex.split(arguments)])
    written = capsys.readouterr().out.splitlines()
    for part in (("unet", "diffusion_pytorch_model", "float32"), ("text_encoder", "model", "float16")):
        subfolder, stem, dtype = part
        paths = weights.find_weights(source, subfolder, stem)
        assert paths[0] in written
        read = weights.read_weights(paths)["weight"].read()
        assert read.dtype == dtype
        np.testing.assert_array_equal(read, values.numpy().astype(dtype))


def test_shards_and_their_index(tmp_path):
    shards = ["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"]
    torch_weights(tmp_path / shards[0], a=torch.ones(2))
    torch_weights(tmp_path / shards[1], b=torch.zeros(2))
    index = {"metadata": {"total_size": 16}, "weight_map": {"a": shards[0], "b": shards[1]}}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    convert_pickle.convert_folder(tmp_path)
    paths = weights.find_weights(sources.resolve(tmp_path), None, "model")
    assert [pathlib.Path(path).name for path in paths] == [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    assert set(weights.read_weights(paths)) == {"a", "b"}


@pytest.fixture
def snapshot(tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    repository = tmp_path / "cache" / "models--owner--name"
    folder = repository / "snapshots" / ("0" * 40)
    folder.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)
    return folder


def test_a_hub_repository_becomes_a_new_folder(tmp_path, snapshot):
    torch_weights(snapshot / "unet" / "diffusion_pytorch_model.bin", weight=torch.ones(2))
    torch_weights(snapshot / "unet" / "diffusion_pytorch_model.non_ema.bin", weight=torch.ones(2))
    torch_weights(snapshot / "safety_checker" / "pytorch_model.bin", weight=torch.ones(2))
    (snapshot / "unet" / "config.json").write_text("{}")
    index = {name: ["diffusers", "Some"] for name in ("unet", "safety_checker")} | {"_class_name": "Some"}
    (snapshot / "model_index.json").write_text(json.dumps(index))

    target = tmp_path / "new"
    written = convert_pickle.convert_repository("owner/name", target)
    assert written == [target / "unet" / "diffusion_pytorch_model.safetensors"]
    files = sorted(str(path.relative_to(target)) for path in target.rglob("*") if path.is_file())
    expected = ["model_index.json", "unet/config.json", "unet/diffusion_pytorch_model.safetensors"]
    assert files == expected
    with raises("already-exists"):
        convert_pickle.convert_repository("owner/name", target)


def test_nothing_is_left_of_a_conversion_that_fails(tmp_path, snapshot):
    (snapshot / "config.json").write_text("{}")
    (snapshot / "pytorch_model.bin").write_bytes(b"no pickle")
    with raises("damaged-file"):
        convert_pickle.convert_repository("owner/name", tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name a folder"),
        (["{folder}"], "has no weight files that are pickles"),
        (["no/such"], "is not a file or folder"),
        (["{folder}", "other"], "is converted in place"),
        (["{folder}/weights.bin"], "damaged"),
    ],
)
def test_mistakes_are_one_sentence_and_exit_code_2(tmp_path, capsys, arguments, message):
    (tmp_path / "weights.bin").write_bytes(b"no pickle")
    with pytest.raises(SystemExit) as caught:
        convert_pickle._main(["convert_pickle", *(argument.format(folder=tmp_path) for argument in arguments)])
    assert caught.value.code == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert len(printed.splitlines()) == 1


def test_conversion_command():
    local = sources.LocalFolder("my model")
    assert pickles.conversion_command(local) == "python -m winobench.checkpoints.convert_pickle 'my model'"
    remote = sources.HubRepository("owner/name", "v1")
    expected = "python -m winobench.checkpoints.convert_pickle owner/name name --revision=v1"
    assert pickles.conversion_command(remote) == expected
