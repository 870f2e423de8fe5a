"""SigLIP and SigLIP 2 against torch transformers: from published folders, through the loader, to features and logits.

Float32, relative to the largest expected value. Measured: images 4e-7, texts 5e-7, logits 2e-7; preprocessing 0.
"""

import json

import jax
import numpy as np
import pytest
import transformers

from tests.contrib.siglip import tiny_siglip
from tests.contrib.siglip.tiny_siglip import LENGTH, PIECES, SIZE
from tests.parity import harness
from winobench import parallel
from winobench.checkpoints import models
from winobench.contrib.siglip import siglip_files
from winobench.contrib.siglip.network import SiglipConfig, SiglipModel
from winobench.scorers.contrastive import Contrastive

TOLERANCE = 1e-5
TEXTS = ["A red, CUBE!", "the ball left of a blue cube", "", "- a  well-known ball\n", "a photo of " * 40]
# The same as pieces, by hand, and as transformers' own SiglipTokenizer has them, which needs SentencePiece.
PIECES_OF = [
    ["▁a", "▁red", "▁cube"],
    ["▁the", "▁ball", "▁left", "▁of", "▁a", "▁blue", "▁cube"],
    [],
    ["▁", "▁a", "▁", *"wellknown", "▁ball"],
    (["▁a", "▁photo", "▁of"] * 40)[: LENGTH - 1],
]


@pytest.fixture(scope="module", params=["siglip", "siglip2"])
def family(request):
    return request.param


@pytest.fixture(scope="module")
def folder(family, tmp_path_factory):
    return tiny_siglip.write_siglip(tmp_path_factory.mktemp(family), family)


@pytest.fixture(scope="module")
def theirs(folder):
    return transformers.SiglipModel.from_pretrained(folder).eval()


@pytest.fixture(scope="module")
def ours(folder):
    return siglip_files.load_siglip(folder)


def test_features_and_logits(theirs, ours, family):
    rng = np.random.default_rng(0)
    pixels = rng.normal(size=(3, SIZE, SIZE, 3)).astype(np.float32)
    ids = rng.integers(0, theirs.config.text_config.vocab_size, (4, LENGTH)).astype(np.int32)
    expected = harness.torch_clip_outputs(theirs, harness.to_torch(pixels), ids)
    # Otherwise the comparison would be one of biases.
    assert harness.relative_error(expected[0][0], expected[0][1]) > 0.1
    assert harness.relative_error(expected[1][0], expected[1][1]) > 0.1
    harness.check_close(harness.clip_outputs(ours.model, pixels, ids), expected, TOLERANCE)


def torch_pixels(folder):
    """By transformers' own processor, with all images made RGB."""
    options = json.loads((folder / "preprocessor_config.json").read_text()) | {"do_convert_rgb": True}
    official = transformers.SiglipImageProcessorPil(**options)
    return official(harness.odd_images(), return_tensors="pt")["pixel_values"]


def test_preprocessing(folder, ours):
    """Pixel values of odd shapes, of gray, and of an alpha channel that is opaque, bit for bit."""
    expected = torch_pixels(folder).numpy().transpose(0, 2, 3, 1)
    for image, values in zip(harness.odd_images(), expected, strict=True):
        np.testing.assert_array_equal(ours.processor.normalize(ours.processor(image)), values)


def expected_ids(folder, family):
    if family == "siglip2":
        official = transformers.AutoTokenizer.from_pretrained(folder)
        lower = [text.lower() for text in TEXTS]
        encoded = official(lower, padding="max_length", truncation=True, max_length=LENGTH)
        assert encoded["input_ids"][0][-1] == official.pad_token_id  # at the end
        return np.asarray(encoded["input_ids"])
    numbers = {piece: number for number, (piece, _) in enumerate(PIECES)}
    rows = [[numbers[piece] for piece in pieces] for pieces in PIECES_OF]
    return np.asarray([[*row, *[numbers["</s>"]] * (LENGTH - len(row))] for row in rows])


def test_texts(folder, ours, family):
    ids = siglip_files.siglip_ids(ours.tokenizer, TEXTS, LENGTH)
    assert ids.dtype == np.int32
    np.testing.assert_array_equal(ids, expected_ids(folder, family))
    # What the two do with capitals and signs is not the same.
    same = siglip_files.siglip_ids(ours.tokenizer, ["a red cube", "A RED cube", "a red, cube"], LENGTH)
    assert np.array_equal(same[0], same[1])
    assert np.array_equal(same[0], same[2]) == (family == "siglip")


def test_pieces_of_sentencepiece(tmp_path):
    """``spiece.model`` alone gives the same ids as ``tokenizer.json``."""
    count = tiny_siglip.write_pieces(tmp_path, spiece=True)
    tokenizer = siglip_files.read_siglip_tokenizer(tmp_path, count)
    ids = siglip_files.siglip_ids(tokenizer, TEXTS, LENGTH)
    np.testing.assert_array_equal(ids, expected_ids(tmp_path, "siglip"))


@pytest.mark.parametrize("family", ["siglip", pytest.param("siglip2", marks=pytest.mark.slow)], indirect=True)
def test_scores(folder, theirs, family):
    """From images and strings to the logits of all pairs, in both ways to ask for them."""
    expected = harness.torch_clip_outputs(theirs, torch_pixels(folder), expected_ids(folder, family))[2]
    scorer = Contrastive.from_pretrained(folder, mesh=parallel.make_mesh(jax.devices()[:1]))
    scores = scorer.score(harness.odd_images(), TEXTS)
    assert scores.dtype == np.float32
    assert harness.relative_error(scores, expected) < TOLERANCE
    pairs = np.argwhere(np.ones(scores.shape))
    listed = np.concatenate([part for _, part in scorer.iter_scores(harness.odd_images(), TEXTS, pairs)])
    np.testing.assert_allclose(listed, scores.ravel(), rtol=1e-6)


def test_saved_again(theirs, ours, tmp_path):
    harness.check_files(theirs, ours.model, tmp_path)
    assert theirs.state_dict().keys() == models.torch_names(ours.model).keys()


def test_published_shapes():
    """The config of ``google/siglip-base-patch16-224`` leaves all to the defaults; its file has 203,155,970 numbers."""
    towers = {f"{tower}_config": {"model_type": f"siglip_{tower}_model"} for tower in ("text", "vision")}
    config = SiglipConfig.from_dict({"architectures": ["SiglipModel"], "model_type": "siglip", **towers})
    names = models.torch_names(models.abstract_model(SiglipModel, config))
    assert sum(int(np.prod(shape)) for _, shape in names.values()) == 203_155_970
