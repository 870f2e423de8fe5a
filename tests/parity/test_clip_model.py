"""The whole of CLIP against torch transformers: from a folder that it wrote itself, features, logits and scores.

Errors are relative to the largest expected value, in float32; tolerances as in ``harness``.
"""

import json

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

from tests.parity import harness
from tests.parity.open_clip_torch import WORDS
from winobench import checkpoints
from winobench.checkpoints import clip_layouts, convert_pickle, tokenizer_files
from winobench.scorers.contrastive import Contrastive

TEXT = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4}
TEXT |= {"max_position_embeddings": 16}
VISION = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
VISION |= {"image_size": 24, "patch_size": 8}
OTHERS = {
    "as published": ({}, {}),
    # Activations that differ, and patches that do not fill the image: what is left over is not seen.
    "other options": ({"hidden_act": "gelu"}, {"image_size": 23, "patch_size": 7}),
    "epsilon": ({"layer_norm_eps": 1e-2},) * 2,
}
# What images and texts go through together is compared with room for rounding in the cosine and its scale.
LOGIT_TOLERANCE = 5e-5


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """Writes a random CLIP as transformers publishes it."""

    def write(text=None, vision=None, **options):
        folder = tmp_path_factory.mktemp("clip")
        vocab_size = tokenizer_files.write_clip_tokenizer(folder, WORDS, 16)
        ids = {"bos_token_id": vocab_size - 2, "eos_token_id": vocab_size - 1, "pad_token_id": vocab_size - 1}
        config = transformers.CLIPConfig(
            text_config={**TEXT, "vocab_size": vocab_size, **ids, **(text or {})},
            vision_config={**VISION, **(vision or {})},
            **{"projection_dim": 12, **options},
        )
        model = harness.randomize(transformers.CLIPModel(config))
        model.save_pretrained(folder)
        size = config.vision_config.image_size
        processor = {"size": {"shortest_edge": size}, "crop_size": size, "image_processor_type": "CLIPImageProcessor"}
        (folder / "preprocessor_config.json").write_text(json.dumps(processor))
        return model, folder

    return write


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", OTHERS)
def test_features(name, build):
    theirs, folder = build(*OTHERS[name])
    ours = clip_layouts.load_clip(folder)
    size = ours.model.config.vision_config.image_size
    pixels = np.random.default_rng(0).normal(size=(3, size, size, 3)).astype(np.float32)
    texts = ["a red cube", "the", ""]
    ids = np.asarray(ours.tokenizer(texts, padding="max_length", max_length=16)["input_ids"], np.int32)
    expected = harness.torch_clip_outputs(theirs, harness.to_torch(pixels), ids)
    # Otherwise the comparison would be one of biases.
    assert harness.relative_error(expected[0][0], expected[0][1]) > 0.1
    *features, logits = harness.clip_outputs(ours.model, pixels, ids)
    harness.check_close(features, expected[:2], harness.NETWORK_TOLERANCE)
    harness.check_close(logits, expected[2], LOGIT_TOLERANCE)


@pytest.mark.parametrize("layout", ["pickle converted", "processor_config"])
def test_layouts(layout, build):
    """The same model in other files."""
    theirs, folder = build()
    expected = Contrastive.from_pretrained(folder).fingerprint()
    if layout == "pickle converted":
        state = {key: value.clone() for key, value in theirs.state_dict().items()}
        # As files before transformers 4.31 hold it.
        state["vision_model.embeddings.position_ids"] = torch.arange(10)[None]
        torch.save(state, folder / "pytorch_model.bin")
        (folder / "model.safetensors").unlink()
        convert_pickle.convert_folder(folder)
    else:
        content = {"image_processor": json.loads((folder / "preprocessor_config.json").read_text())}
        (folder / "processor_config.json").write_text(json.dumps(content))
        (folder / "preprocessor_config.json").unlink()
    assert Contrastive.from_pretrained(folder).fingerprint() == expected


def test_scorer(build):
    """From image files and strings to scores, as transformers' own processors and model give them."""
    theirs, folder = build()
    rng = np.random.default_rng(1)
    images = []
    for number, shape in enumerate([(40, 61, 3), (33, 30, 3), (24, 24, 3)]):
        images.append(folder / f"{number}.png")
        Image.fromarray(rng.integers(0, 256, shape, np.uint8)).save(images[-1])
    texts = ["the red sphere", "a blue cube left of the red sphere", "", "a photo of " * 20]
    official = transformers.CLIPImageProcessorPil(size=24, crop_size=24)
    pixels = official([Image.open(path) for path in images], return_tensors="pt")["pixel_values"]
    tokenizer = transformers.CLIPTokenizer.from_pretrained(folder)
    encoded = tokenizer(texts, padding=True, truncation=True, max_length=16, return_tensors="pt")
    with torch.no_grad():
        output = theirs(**encoded, pixel_values=pixels)
    scorer = Contrastive.from_pretrained(folder)
    scores = scorer.score(images, texts)
    errors = [
        harness.relative_error(scores, output.logits_per_image / theirs.logit_scale.exp()),
        harness.relative_error(scorer.encode_images(images), output.image_embeds),
        harness.relative_error(scorer.encode_texts(texts), output.text_embeds),
    ]
    assert max(errors) < LOGIT_TOLERANCE


def test_saved_again(build, tmp_path):
    """What is saved here loads in transformers."""
    theirs, folder = build({"hidden_act": "gelu"}, {"layer_norm_eps": 1e-3})
    checkpoints.save_model(clip_layouts.load_clip(folder).model, tmp_path)
    again = transformers.CLIPModel.from_pretrained(tmp_path)
    harness.check_tensors(again, theirs)
    pixels, ids = np.ones((1, 24, 24, 3), np.float32), np.arange(16, dtype=np.int32)[None]
    # The same numbers elsewhere in memory: torch may add them up in another order.
    first, second = (harness.torch_clip_outputs(model, harness.to_torch(pixels), ids) for model in (theirs, again))
    harness.check_close(first, second, 1e-6)
