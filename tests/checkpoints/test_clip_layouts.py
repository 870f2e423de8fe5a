"""The files of a CLIP that are read, and the refusals of others."""

import json
import shutil

import numpy as np
import pytest
import safetensors.torch
import torch

from tests.expectations import raises
from tests.models.test_networks import filled
from tests.parity import open_clip_torch
from winobench import checkpoints
from winobench.base.errors import InputError
from winobench.checkpoints import clip_layouts, convert_pickle, pickles, sources, tokenizer_files
from winobench.data.processors import ImageProcessor
from winobench.models.clip_model import CLIPModel

VISION = {"image_size": 8, "layers": 1, "width": 8, "patch_size": 4, "head_width": 4}
RESNET = {"image_size": 32, "layers": [1, 1, 1, 1], "width": 4, "patch_size": None, "head_width": 64}
TEXT = {"context_length": 9, "width": 8, "heads": 2, "layers": 1}
MODEL_CFG, VISION_CFG, TEXT_CFG = ("model_cfg",), ("model_cfg", "vision_cfg"), ("model_cfg", "text_cfg")
KEY = "transformer.resblocks.0.attn.in_proj_weight"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("clips")
    vocab_size = open_clip_torch.vocabulary_size(root / "words")
    for name, vision in (("open_clip", VISION), ("resnet", RESNET)):
        text = {**TEXT, "vocab_size": vocab_size}
        options = {"embed_dim": 6, "quick_gelu": False, "vision_cfg": vision, "text_cfg": text}
        open_clip_torch.write_folder(root / name, open_clip_torch.random_clip(options), options)
    config = clip_layouts.open_clip_config({**options, "vision_cfg": VISION})
    checkpoints.save_model(filled(CLIPModel, config), root / "transformers")
    tokenizer_files.write_clip_tokenizer(root / "transformers", open_clip_torch.WORDS, 9)
    write_json(root / "transformers" / "preprocessor_config.json", {"size": 8, "crop_size": 8})
    return root


@pytest.fixture
def folder(folders, tmp_path, request):
    return shutil.copytree(folders / getattr(request, "param", "open_clip"), tmp_path / "clip")


def write_json(path, content):
    path.write_text(json.dumps(content))


def expect(folder, *words, **options):
    with raises(*words):
        clip_layouts.load_clip(folder, **options)


def change_config(folder, *keys, **changes):
    """Changes options of open_clip_config.json; ... removes one."""
    path = folder / "open_clip_config.json"
    content = part = json.loads(path.read_text())
    for key in keys:
        part = part[key]
    for key, value in changes.items():
        if value is ...:
            del part[key]
        else:
            part[key] = value
    write_json(path, content)


def change_tensors(folder, change):
    path = folder / "open_clip_model.safetensors"
    tensors = safetensors.torch.load_file(path)
    change(tensors)
    safetensors.torch.save_file(tensors, path)


def test_tensors_are_split_and_transposed(folder):
    theirs = safetensors.torch.load_file(folder / "open_clip_model.safetensors")
    model = clip_layouts.load_clip(folder).model
    layer = model.text_model.encoder.layers[0].self_attn
    for number, projection in enumerate((layer.q_proj, layer.k_proj, layer.v_proj)):
        rows = slice(8 * number, 8 * number + 8)
        np.testing.assert_array_equal(projection.kernel[...].T, theirs[KEY][rows])
        np.testing.assert_array_equal(projection.bias[...], theirs[KEY.replace("weight", "bias")][rows])
    np.testing.assert_array_equal(model.text_projection.kernel[...], theirs["text_projection"])
    np.testing.assert_array_equal(model.visual_projection.kernel[...], theirs["visual.proj"])


def test_buffers_and_an_axis_of_the_temperature(folder):
    before = checkpoints.weights_sha256(clip_layouts.load_clip(folder).model)

    def change(tensors):
        tensors["attn_mask"] = torch.zeros(9, 9)
        tensors["context_length"] = torch.tensor(9)
        tensors["logit_scale"] = tensors["logit_scale"][None]

    change_tensors(folder, change)
    assert checkpoints.weights_sha256(clip_layouts.load_clip(folder).model) == before


@pytest.mark.parametrize(
    ("quick_gelu", "config", "expected"),
    [
        (False, None, "gelu"),
        (True, None, "quick_gelu"),
        # The first uploads of OpenAI's weights lack quick_gelu, but timm's config.json names them.
        (..., {"architecture": "resnet50_clip", "pretrained_cfg": {"tag": "openai"}}, "quick_gelu"),
        (False, {"architecture": "resnet50_clip", "pretrained_cfg": {"tag": "openai"}}, "gelu"),
        (..., {"architecture": "vit_base_patch32_clip_quickgelu_224"}, "quick_gelu"),
        (..., {"architecture": "resnet50_clip", "pretrained_cfg": {"tag": "cc12m"}}, "gelu"),
        (..., {"pretrained_cfg": []}, None),
        (..., None, None),
    ],
)
def test_files_decide_the_activation(folders, tmp_path, quick_gelu, config, expected):
    folder = shutil.copytree(folders / "resnet", tmp_path / "resnet50_clip.openai")
    change_config(folder, "model_cfg", quick_gelu=quick_gelu)
    if config is not None:
        write_json(folder / "config.json", config)
    if expected is None:
        with raises("activation-not-named", '"quick_gelu"', "open_clip_config.json"):
            clip_layouts.load_clip(folder)
    else:
        (layout,) = clip_layouts._layouts(sources.LocalFolder(folder))
        assert layout.config.text_config.hidden_act == expected
        assert not layout.lacks_activation


def test_the_config_of_transformers_names_the_activation_of_both_layouts(folders, tmp_path):
    folder = shutil.copytree(folders / "open_clip", tmp_path / "vit.openai")
    change_config(folder, "model_cfg", quick_gelu=...)
    content = json.loads((folders / "transformers" / "config.json").read_text())
    for tower in ("text_config", "vision_config"):
        content[tower]["hidden_act"] = "quick_gelu"
    write_json(folder / "config.json", content)
    _, layout = clip_layouts._layouts(sources.LocalFolder(folder))
    assert layout.config.vision_config.hidden_act == "quick_gelu"


def test_the_checkpoint_of_a_training(folder):
    expected = checkpoints.weights_sha256(clip_layouts.load_clip(folder).model)
    path = folder / "open_clip_model.safetensors"
    state = {f"module.{name}": tensor for name, tensor in safetensors.torch.load_file(path).items()}
    safetensors.torch.save_file(state, path)
    assert checkpoints.weights_sha256(clip_layouts.load_clip(folder).model) == expected
    path.unlink()
    weight = torch.nn.Parameter(torch.ones(3))
    weight.grad = torch.ones(3)
    optimizer = torch.optim.AdamW([weight])
    optimizer.step()
    content = {"epoch": 5, "name": "x", "state_dict": state, "optimizer": optimizer.state_dict()}
    torch.save(content, trained := folder / "epoch_5.pt")
    expect(folder, "weights-are-a-pickle", f"`{pickles.CONVERT} {trained}`")
    for name in ("open_clip_pytorch_model.bin", "negclip.pth"):
        trained = trained.rename(folder / name)
        loaded = clip_layouts.load_clip(folder, allow_pickle=True)
        assert checkpoints.weights_sha256(loaded.model) == expected
    torch.save({}, folder / "epoch_4.pt")
    expect(folder, "no-weights", "negclip.pth", allow_pickle=True)
    (folder / "epoch_4.pt").unlink()
    convert_pickle._convert(trained, folder)
    assert checkpoints.weights_sha256(clip_layouts.load_clip(folder).model) == expected


def test_preprocessing(folder):
    assert clip_layouts.load_clip(folder).processor == ImageProcessor.from_open_clip({}, 8)
    change_config(folder, preprocess_cfg={"mean": [0.5] * 3, "std": [0.5] * 3, "interpolation": "bilinear"})
    processor = clip_layouts.load_clip(folder).processor
    assert (processor.mean, processor.resample, processor.size) == ((0.5, 0.5, 0.5), 2, (8, 8))


def test_folders_with_both_layouts(folders, tmp_path):
    """As LAION publishes: transformers' files first, OpenCLIP's where only they are safe, with timm's config."""
    folder = shutil.copytree(folders / "open_clip", tmp_path / "clip")
    write_json(folder / "config.json", {"architecture": "vit_base_patch32_clip_224", "num_classes": 512})

    def chosen():
        source = sources.LocalFolder(folder)
        layout, (path,) = clip_layouts._find_weights(source, clip_layouts._layouts(source), None, False)
        return layout, path.rpartition("/")[2]

    assert chosen()[1] == "open_clip_model.safetensors"
    for name in ("config.json", "model.safetensors", "preprocessor_config.json"):
        shutil.copy(folders / "transformers" / name, folder / name)
    assert chosen()[1] == "model.safetensors"
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert chosen()[1] == "open_clip_model.safetensors"
    # Without a preprocessor_config.json, OpenCLIP's states how images are processed.
    (folder / "pytorch_model.bin").rename(folder / "model.safetensors")
    (folder / "preprocessor_config.json").unlink()
    layout, name = chosen()
    assert (name, layout.processor.crop_rounding) == ("model.safetensors", "nearest")


@pytest.mark.parametrize("folder", ["transformers"], indirect=True)
def test_missing_and_other_files_of_transformers(folder):
    (folder / "preprocessor_config.json").rename(folder / "kept")
    expect(folder, "no-such-file", "preprocessor_config.json")
    write_json(folder / "preprocessor_config.json", {"size": 16, "crop_size": 16})
    expect(folder, "mismatched-parts", "16", "8")
    (folder / "kept").rename(folder / "preprocessor_config.json")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    expect(folder, "weights-are-a-pickle", "pytorch_model.bin")
    (folder / "pytorch_model.bin").unlink()
    expect(folder, "no-weights", "model.safetensors")


def test_missing_files_of_open_clip(folder):
    (folder / "open_clip_model.safetensors").rename(folder / "open_clip_pytorch_model.bin")
    expect(folder, "weights-are-a-pickle", "open_clip_pytorch_model.bin")
    expect(folder, "damaged-file", "open_clip_pytorch_model.bin", allow_pickle=True)
    (folder / "open_clip_pytorch_model.bin").unlink()
    expect(folder, "no-weights", "open_clip_model.safetensors")


def test_no_clip_at_all(tmp_path):
    expect(tmp_path, "no-such-file", "config.json", "open_clip_config.json", "CLIP")
    (tmp_path / "RN50x64.pt").touch()
    expect(tmp_path, "unsupported-file-format", "RN50x64.pt", "OpenAI", "timm/resnet50x64_clip.openai")
    write_json(tmp_path / "config.json", {"model_type": "bert"})
    expect(tmp_path, "wrong-kind-of-model", "config.json", "model_type")
    write_json(tmp_path / "config.json", {})
    (tmp_path / "RN50x64.pt").unlink()
    expect(tmp_path, "unknown-kind-of-model", "model_type", "open_clip_config.json")


def test_openai_tokenizer_stands_in_where_it_can_be_had(folder, monkeypatch):
    for name in ("vocab.json", "merges.txt"):
        (folder / name).unlink()
    # A vocabulary of its own cannot be OpenAI's.
    expect(folder, "no-such-file", "vocab.json", "CLIP")

    class Tokenizer:
        def get_vocab(self):
            return {"first": 0, "last": 49407}

    requests = []
    monkeypatch.setattr(tokenizer_files, "read_clip_tokenizer", lambda source: requests.append(source) or Tokenizer())
    assert isinstance(clip_layouts._read_tokenizer(sources.LocalFolder(folder), 49408), Tokenizer)
    assert requests == ["openai/clip-vit-base-patch32"]

    def unreachable(source):
        raise InputError(f"vocab.json of {source} is not at hand")

    monkeypatch.setattr(tokenizer_files, "read_clip_tokenizer", unreachable)
    with raises("no-tokenizer", "openai/clip-vit-base-patch32", "vocab.json"):
        clip_layouts._read_tokenizer(sources.LocalFolder(folder), 49408)


def test_tokenizer_of_another_model(folder):
    words = [*open_clip_torch.WORDS, "triangle", "cylinder"]
    tokenizer_files.write_clip_tokenizer(folder, words, 9)
    expect(folder, "mismatched-parts", "tokenizer")


def test_tensors_that_do_not_fit(folder):
    change_tensors(folder, lambda tensors: tensors.update(text_projection=torch.zeros(8, 7)))
    message = ("open_clip_config.json", "text_projection (transposed) is [7, 8] instead of [6, 8]")
    expect(folder, "mismatched-parts", "open_clip_model.safetensors", *message)


@pytest.mark.parametrize(
    ("keys", "changes", "message"),
    [
        (MODEL_CFG, {"custom_text": True}, ("unsupported-option", "custom_text=True", "model_cfg", "False")),
        (MODEL_CFG, {"quick_gelu": "yes"}, ("unsupported-option", "quick_gelu='yes'")),
        (MODEL_CFG, {"text_cfg": ...}, ("not-an-object", "text_cfg")),
        (MODEL_CFG, {"multimodal_cfg": {}}, ("unknown-option", "multimodal_cfg={}", "model_cfg")),
        (VISION_CFG, {"timm_model_name": "convnext_base"}, ("unsupported-option", "timm_model_name='convnext_base'")),
        (VISION_CFG, {"layers": [1, 2]}, ("unsupported-option", "depths=(1, 2)")),
        (VISION_CFG, {"pool_type": "avg"}, ("unsupported-option", "pool_type='avg'", "vision_cfg")),
        (TEXT_CFG, {"hf_model_name": "roberta-base"}, ("unsupported-option", "hf_model_name=", "text_cfg")),
        ((), {"model_cfg": ...}, ("not-an-object", "model_cfg")),
        ((), {"preprocess_cfg": {"resize_mode": "longest"}}, ("unsupported-option", "resize_mode='longest'")),
        ((), {"preprocess_cfg": [1]}, ("not-an-object", "preprocess_cfg")),
    ],
)
def test_bad_open_clip_configs(folder, keys, changes, message):
    change_config(folder, *keys, **changes)
    with raises(*message) as caught:
        clip_layouts.load_clip(folder)
    assert f"{folder}/open_clip_config.json: " in str(caught.value)
