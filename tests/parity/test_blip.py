"""BLIP against torch transformers: from a folder that torch wrote, through the loader, to states, logits and scores.

Float32, relative to the largest expected value. Measured: states, logits and similarities 3e-7 to 7e-7 (bound 2e-5),
scores from images and texts 4e-7 to 1.2e-6 (bound 1e-4), preprocessing 0.
"""

import functools
import json

import jax
import numpy as np
import pytest
import safetensors.torch
import torch
import transformers
from flax import nnx
from PIL import Image

from tests.expectations import raises
from tests.parity import harness
from winobench.models.blip import BlipForImageTextRetrieval
from winobench.scorers.itm_head import ItmHead

pytestmark = pytest.mark.usefixtures("no_gradients")
SIZE = 32
WORDS = ["a", "red", "blue", "cube", "ball", "left", "of", "the", ",", "##s"]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
# Two more ids than the tokenizer knows: [DEC] and [ENC], as published. The epsilons are larger than those published and
# unlike, so that a swapped or forgotten one shows.
TEXT = {"vocab_size": len(VOCABULARY) + 2, "bos_token_id": len(VOCABULARY), "hidden_size": 24, "intermediate_size": 40}
TEXT |= {"num_hidden_layers": 2, "num_attention_heads": 3, "max_position_embeddings": 20, "layer_norm_eps": 0.03}
VISION = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
VISION |= {"image_size": SIZE, "patch_size": 8, "layer_norm_eps": 0.01}
CONFIG = {"text_config": TEXT, "vision_config": VISION, "image_text_hidden_size": 16}


TEXTS = ["a red cube", "a blue ball left of the red cubes, of the red cubes, of the red cubes", "", "the ball"]


@pytest.fixture(scope="module")
def network():
    return harness.randomize(transformers.BlipForImageTextRetrieval(transformers.BlipConfig(**CONFIG)))


@pytest.fixture(scope="module")
def processor(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCABULARY))
    return transformers.BlipProcessor(
        transformers.BlipImageProcessorPil(size={"height": SIZE, "width": SIZE}),
        transformers.BertTokenizerFast.from_pretrained(folder),
    )


@pytest.fixture(scope="module")
def folder(network, processor, tmp_path_factory):
    folder = tmp_path_factory.mktemp("blip")
    network.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def ours(folder):
    return BlipForImageTextRetrieval.from_pretrained(folder)


def test_states_logits_and_similarities(network, ours):
    """Of four images and texts of 1, 5, 12 and 2 tokens; the states of texts alone and with images."""
    lengths = np.array([1, 5, 12, 2], np.int32)
    ids = np.random.default_rng(3).integers(0, CONFIG["text_config"]["vocab_size"], (4, 12)).astype(np.int32)
    mask = np.arange(12) < lengths[:, None]
    pixels = np.random.default_rng(5).standard_normal((4, SIZE, SIZE, 3)).astype(np.float32)
    graph, state = nnx.split(ours)

    @functools.partial(jax.jit, compiler_options=harness.QUICK_COMPILATION)
    def run(state, pixels, ids, lengths):
        model = nnx.merge(graph, state)
        states = model.image_states(pixels)
        image = model.image_keys_values(states)
        with_images = model.text_states(ids, lengths, image)
        logits = model.match_logits(ids, lengths, image)
        similarities = model.image_features(states) @ model.text_features(ids, lengths).T
        return states, model.text_states(ids, lengths), with_images, logits, similarities

    with jax.default_matmul_precision("highest"):
        states, alone, with_images, logits, similarities = run(state, pixels, ids, lengths)
    texts = {"input_ids": torch.from_numpy(ids).long(), "attention_mask": torch.from_numpy(mask).long()}
    expected = network.vision_model(harness.to_torch(pixels)).last_hidden_state
    seen = {"encoder_hidden_states": expected, "encoder_attention_mask": torch.ones(4, 17, dtype=torch.long)}
    expected_alone, expected_with = (network.text_encoder(**texts, **images)[0].numpy()[mask] for images in ({}, seen))
    scores = [
        network(**texts, pixel_values=harness.to_torch(pixels), use_itm_head=itm).itm_score for itm in (True, False)
    ]
    ours = [states, np.asarray(alone)[mask], np.asarray(with_images)[mask], logits, similarities]
    harness.check_close(ours, [expected, expected_alone, expected_with, *scores], harness.NETWORK_TOLERANCE)
    assert harness.relative_error(expected_alone, expected_with) > 1000 * harness.NETWORK_TOLERANCE


def images():
    rng = np.random.default_rng(4)
    return [Image.fromarray(rng.integers(0, 256, (*size, 3), dtype=np.uint8)) for size in ((50, 70), (32, 32), (20, 9))]


def torch_scores(network, processor, *, itm, first_token):
    """Pair by pair, as the model card shows it, with texts cut off at 16 tokens."""
    scores = np.zeros((len(images()), len(TEXTS)))
    for row, image in enumerate(images()):
        for column, text in enumerate(TEXTS):
            inputs = processor(images=image, text=text, return_tensors="pt", truncation=True, max_length=16)
            if first_token == "enc":
                inputs["input_ids"][:, 0] = len(VOCABULARY) + 1
            score = network(**inputs, use_itm_head=itm).itm_score
            scores[row, column] = score[0, 1] - score[0, 0] if itm else score[0, 0]
    return scores


@pytest.mark.parametrize(("head", "first_token"), [("itm", "enc"), ("itc", "cls")])
def test_scores(network, processor, folder, head, first_token):
    """The whole way from images and texts, of unlike lengths, one beyond the limit."""
    expected = torch_scores(network, processor, itm=head == "itm", first_token=first_token)
    scorer = ItmHead.from_pretrained(folder, head=head, first_token=first_token, max_text_tokens=16, batch_size=1)
    error = harness.relative_error(scorer.score(images(), TEXTS), expected)
    assert error < 1e-4
    if head == "itm":
        other = torch_scores(network, processor, itm=True, first_token={"enc": "cls", "cls": "enc"}[first_token])
        assert np.abs(other - expected).max() > 1e-3
    # Otherwise any order would do.
    assert np.ptp(expected, axis=0).min() > 1e-3
    assert np.ptp(expected, axis=1).min() > 1e-3


@pytest.mark.slow
def test_published_files_of_2022(network, folder, tmp_path):
    """A pickle or safetensors file with the buffer of positions, the text encoder's image width left out of the config,
    an image processor of its own with a number for a size, and a tokenizer with a word list only."""
    tensors = {key: tensor.clone() for key, tensor in network.state_dict().items()}
    tensors["text_encoder.embeddings.position_ids"] = torch.arange(20)[None]
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    del config["text_config"]["encoder_hidden_size"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "preprocessor_config.json").write_text(
        json.dumps({"image_processor_type": "BlipImageProcessor", "size": SIZE, "do_pad": True, "size_divisor": 32})
    )
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCABULARY))
    first, second = (ItmHead.from_pretrained(source) for source in (folder, tmp_path))
    np.testing.assert_array_equal(first.score(images(), TEXTS), second.score(images(), TEXTS))
    (tmp_path / "model.safetensors").unlink()
    torch.save(tensors, tmp_path / "pytorch_model.bin")
    with raises("weights-are-a-pickle", "pytorch_model.bin"):
        ItmHead.from_pretrained(tmp_path)
    third = ItmHead.from_pretrained(tmp_path, allow_pickle=True)
    assert third.fingerprint() == second.fingerprint()


def test_torch_loads_what_we_saved(network, ours, tmp_path):
    harness.check_files(network, ours, tmp_path)
    again = transformers.BlipConfig.from_pretrained(tmp_path / "ours")
    assert again.text_config.num_attention_heads == 3
