"""CLIP as a scorer: shapes, order, how often things are encoded, devices, fingerprints, bad input."""

import json
import shutil

import jax
import numpy as np
import pytest
from PIL import Image

from tests.expectations import raises
from tests.scorers import tiny_models
from winobench import parallel
from winobench.engine import tables
from winobench.scorers import base
from winobench.scorers.contrastive import Contrastive

TEXTS = ["a red cube", "a blue ball", "a ball of a blue cube of a red ball", ""]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_models.write_clip(tmp_path_factory.mktemp("clip"))


@pytest.fixture(scope="module")
def scorer(folder):
    return Contrastive.from_pretrained(folder, mesh=parallel.make_mesh(jax.devices()[:2]), batch_size=2)


@pytest.fixture(scope="module")
def images():
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, (9 + number, 12, 3), np.uint8) for number in range(7)]


def test_vectors_and_scores(scorer, images):
    vectors, texts = scorer.encode_images(images), scorer.encode_texts(TEXTS)
    assert (vectors.shape, vectors.dtype) == ((7, 6), np.float32)
    assert (texts.shape, texts.dtype) == ((4, 6), np.float32)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(texts, axis=1), 1, rtol=1e-6)
    scores = scorer.score(images, TEXTS)
    assert (scores.shape, scores.dtype) == ((7, 4), np.float32)
    np.testing.assert_allclose(scores, vectors @ texts.T, atol=1e-6)
    assert np.std(scores) > 1e-3
    assert isinstance(scorer, base.Scorer)


def test_pairs_in_any_order(scorer, images):
    scores = scorer.score(images, TEXTS)
    pairs = np.random.default_rng(1).permutation(np.indices((7, 4)).reshape(2, -1).T)
    pairs = np.concatenate([pairs, pairs[:5]])
    found = np.full(len(pairs), np.nan, np.float32)
    next_start = 0
    for rows, part in scorer.iter_scores(images, TEXTS, pairs):
        np.testing.assert_array_equal(rows, next_start + np.arange(len(part)))
        assert part.dtype == np.float32
        found[rows] = part
        next_start += len(part)
    assert next_start == len(pairs)
    # Both are sums in float64, rounded once; the order of addition may differ.
    np.testing.assert_allclose(found, scores[pairs[:, 0], pairs[:, 1]], rtol=2e-7)


def test_scores_come_as_images_are_encoded(scorer, images):
    pairs = [(image, text) for image in range(7) for text in range(2)]
    lengths = [len(part) for _, part in scorer.iter_scores(images, TEXTS, pairs)]
    # Two devices with two images each; one batch is waited for while others are under way.
    assert lengths == [8, 6]


def test_everything_is_encoded_once(scorer, images, monkeypatch):
    opened, encoded = [], []
    original = tables.Encoder.encode
    monkeypatch.setattr(
        tables.Encoder, "encode", lambda self, items: encoded.append(len(items)) or original(self, items)
    )

    class InputImage:
        def __init__(self, number):
            self.number = number
            self.content_hash = str(number)

        def open(self):
            opened.append(self.number)
            return Image.fromarray(images[self.number])

    pictures = [InputImage(number) for number in range(7)]
    pairs = [(5, 0), (2, 1), (5, 1), (2, 0), (5, 0)]
    list(scorer.iter_scores(pictures, TEXTS, pairs))
    assert sorted(opened) == [2, 5]
    assert encoded == [2, 2]
    scores = scorer.score([images[1], images[0], images[1]], ["", "the", ""])
    assert encoded == [2, 2, 2, 2]
    np.testing.assert_array_equal(scores, scorer.score(images[1::-1], ["", "the"])[[0, 1, 0]][:, [0, 1, 0]])


def test_one_compilation(scorer, images):
    scorer.score(images, TEXTS)
    before = tables._encode._cache_size()
    scorer.score(images[:1], TEXTS[:1])
    scorer.score(images[:5], TEXTS[:3])
    assert tables._encode._cache_size() == before


@pytest.mark.parametrize(("devices", "batch_size"), [(1, 1), (1, 7), (8, None)])
def test_devices_do_not_matter(folder, scorer, images, devices, batch_size):
    other = Contrastive.from_pretrained(folder, mesh=parallel.make_mesh(jax.devices()[:devices]), batch_size=batch_size)
    np.testing.assert_allclose(other.score(images, TEXTS), scorer.score(images, TEXTS), atol=1e-6)
    assert other.fingerprint() == scorer.fingerprint()


def test_bfloat16(folder, scorer, images):
    other = Contrastive.from_pretrained(folder, "bfloat16")
    scores = other.score(images, TEXTS)
    assert scores.dtype == np.float32
    # bfloat16 rounds at 2^-9; cosines are at most 1.
    assert 1e-5 < np.max(np.abs(scores - scorer.score(images, TEXTS))) < 3e-2


def test_fingerprint(folder, scorer, tmp_path):
    first = scorer.fingerprint()
    assert json.loads(json.dumps(first)) == first
    assert {"scorer", "scoring_version", "model", "dtype"} <= first.keys()
    assert first["scorer"] == "contrastive"
    assert Contrastive.from_pretrained(folder).fingerprint() == first
    assert Contrastive.from_pretrained(folder, "bfloat16").fingerprint()["dtype"] == "bfloat16"
    other = shutil.copytree(folder, tmp_path / "other")
    (other / "preprocessor_config.json").write_text(json.dumps({"size": 16, "crop_size": 16, "resample": 2}))
    assert Contrastive.from_pretrained(other).fingerprint()["model"] != first["model"]


def test_long_texts_are_reported(scorer, caplog):
    with caplog.at_level("WARNING", "winobench"):
        scorer.encode_texts(["a " * 30, "a cube"])
    assert "1 of 2 texts are longer than 20 tokens and were truncated." in caplog.text


def test_bad_input(scorer, images):
    with raises("wrong-type", "texts"):
        scorer.encode_texts("a cube")
    with raises("empty-list", "images"):
        scorer.encode_images([])
    with raises("out-of-range", "pairs", "0", "4"):
        scorer.iter_scores(images, TEXTS, [(0, 0), (0, 4)])


def out_of_memory():
    raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.")


@pytest.mark.parametrize("when", ["at once", "later"])
def test_a_batch_that_does_not_fit_is_halved(folder, images, when, monkeypatch, caplog):
    mesh = parallel.make_mesh(jax.devices()[:2])
    expected = Contrastive.from_pretrained(folder, mesh=mesh, batch_size=1).score(images, TEXTS)
    scorer = Contrastive.from_pretrained(folder, mesh=mesh, batch_size=2)
    encode, fetch, started = tables.Encoder.encode, parallel.fetch, []

    def failing(encoder, items):
        values = encode(encoder, items)
        started.append(id(values) if encoder.batch_size > 2 else None)
        if encoder.batch_size > 2 and len(started) == 2 and when == "at once":
            out_of_memory()
        return values

    def failing_later(values):
        if when == "later" and len(started) > 1 and id(values) == started[1]:
            out_of_memory()
        return fetch(values)

    monkeypatch.setattr(tables.Encoder, "encode", failing)
    monkeypatch.setattr(parallel, "fetch", failing_later)
    found = scorer.encode_images(images)
    monkeypatch.undo()
    np.testing.assert_allclose(found @ scorer.encode_texts(TEXTS).T, expected, rtol=1e-5, atol=1e-6)
    assert scorer.batch_size == 1
    (message,) = caplog.messages
    assert message.startswith("2 images at once on each device do not fit into memory")
