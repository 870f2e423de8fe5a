"""OpenCLIP's folders, vision transformers and modified ResNets, against torch, through the production loader.

Errors are relative to the largest expected value, in float32; tolerances as in ``harness``.
"""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from tests.parity import open_clip_torch
from tests.parity.harness import NETWORK_TOLERANCE, clip_outputs, relative_error, to_torch
from winobench import checkpoints
from winobench.checkpoints import clip_layouts
from winobench.scorers.contrastive import Contrastive

VIT = {"image_size": 24, "layers": 2, "width": 32, "patch_size": 8, "head_width": 8}
RESNET = {"image_size": 64, "layers": [1, 2, 1, 1], "width": 8, "patch_size": None, "head_width": 64}
TEXT = {"context_length": 16, "width": 24, "heads": 4, "layers": 2}
# What images and texts go through together is compared with room for rounding in the cosine and its scale.
LOGIT_TOLERANCE = 5e-5


def build(tmp_path, **changes):
    options = {"embed_dim": 12, "vision_cfg": VIT, "text_cfg": TEXT, "quick_gelu": False} | changes
    vocab_size = open_clip_torch.vocabulary_size(tmp_path / "words")
    options["text_cfg"] = {**options["text_cfg"], "vocab_size": vocab_size}
    model = open_clip_torch.random_clip(options)
    folder = open_clip_torch.write_folder(tmp_path / "model", model, options)
    return model, folder, clip_layouts.load_clip(folder)


CASES = {
    "vit": {},
    "vit quick_gelu": {"quick_gelu": True},
    "vit wide feed-forward": {"vision_cfg": {**VIT, "mlp_ratio": 3.5}, "text_cfg": {**TEXT, "mlp_ratio": 2}},
    "resnet": {"vision_cfg": RESNET, "quick_gelu": True},
    "resnet one head": {"vision_cfg": {**RESNET, "head_width": 256, "layers": [2, 1, 2, 1]}},
    "resnet not pooled to one": {"vision_cfg": {**RESNET, "image_size": 96, "width": 4, "head_width": 32}},
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in ("vit", "resnet"))) for name in CASES]
)
def test_features(name, tmp_path):
    theirs, _, ours = build(tmp_path, **CASES[name])
    size = ours.model.config.vision_config.image_size
    rng = np.random.default_rng(0)
    # Noise on three colours: noise alone would average out on its way through a ResNet.
    pixels = (rng.normal(size=(3, size, size, 3)) + 3 * rng.normal(size=(3, 1, 1, 3))).astype(np.float32)
    ids = np.asarray(ours.tokenizer(["a red cube", "the", ""], padding="max_length", max_length=16)["input_ids"])
    with torch.no_grad():
        images, texts = theirs.encode_image(to_torch(pixels)), theirs.encode_text(torch.from_numpy(ids))
        logits = theirs(to_torch(pixels), torch.from_numpy(ids))
    # Otherwise the comparison would be one of biases.
    assert relative_error(images[0], images[1]) > 0.1
    expected = (images, texts, logits)
    errors = list(map(relative_error, clip_outputs(ours.model, pixels, ids.astype(np.int32)), expected))
    assert errors[0] < NETWORK_TOLERANCE
    assert errors[1] < NETWORK_TOLERANCE
    assert errors[2] < LOGIT_TOLERANCE


def theirs_options(folder):
    return json.loads((folder / "open_clip_config.json").read_text())["model_cfg"]


@pytest.mark.parametrize("vision", [VIT, pytest.param(RESNET, marks=pytest.mark.slow)])
def test_scorer(vision, tmp_path):
    """From image files and strings to scores, against torch on what torchvision's transforms would give."""
    theirs, folder, ours = build(tmp_path, vision_cfg=vision)
    size = vision["image_size"]
    rng = np.random.default_rng(1)
    images = [Image.fromarray(rng.integers(0, 256, shape, np.uint8)) for shape in ((80, 101, 3), (70, 66, 3))]
    texts = ["the red sphere", "a blue cube left of the red sphere", ""]
    pixels = []
    for image in images:
        width, height = image.size
        scale = size / min(width, height)
        width, height = (size, int(height * scale)) if width <= height else (int(width * scale), size)
        values = np.asarray(image.resize((width, height), Image.Resampling.BICUBIC))
        top, left = round((height - size) / 2), round((width - size) / 2)
        values = values[top : top + size, left : left + size].astype(np.float32) / 255
        pixels.append((values - np.float32(ours.processor.mean)) / np.float32(ours.processor.std))
    ids = torch.tensor(ours.tokenizer(texts, padding="max_length", max_length=16)["input_ids"])
    # OpenCLIP pads with 0, here with the end of text: what follows the end must not matter.
    end = ids.argmax(-1)
    ids = torch.where(torch.arange(16) <= end[:, None], ids, 0)
    with torch.no_grad():
        expected = theirs(to_torch(np.stack(pixels)), ids) / theirs.logit_scale.exp()
    scores = Contrastive.from_pretrained(folder).score(images, texts)
    error = relative_error(scores, expected)
    assert error < LOGIT_TOLERANCE


@pytest.mark.parametrize("name", ["open_clip_pytorch_model.safetensors", "open_clip_pytorch_model.bin"])
def test_file_names(name, tmp_path):
    _, folder, ours = build(tmp_path)
    theirs = open_clip_torch.random_clip(theirs_options(folder), seed=0)
    other = open_clip_torch.write_folder(tmp_path / "other", theirs, theirs_options(folder), name=name)
    again = clip_layouts.load_clip(other, allow_pickle=name.endswith(".bin"))
    assert checkpoints.weights_sha256(again.model) == checkpoints.weights_sha256(ours.model)
