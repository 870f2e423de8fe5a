"""Text encoders that leave the devices before scoring begins."""

import os

import jax
import numpy as np
import pytest

from tests import tiny_sdxl
from tests.expectations import raises
from winobench import parallel
from winobench.engine import tables
from winobench.scorers.diffusion_itm import DiffusionITM

TEXTS = ["a red cube", "a blue ball left of the cube", ""]
IMAGES = [np.full((32, 32, 3), value, np.uint8) for value in (10, 200)]


@pytest.fixture(params=["one array", pytest.param("a tree", marks=pytest.mark.slow)])
def folder(request, tiny_pipeline, tmp_path_factory, monkeypatch):
    monkeypatch.setenv("WINOBENCH_CACHE", str(tmp_path_factory.mktemp("cache")))
    return tiny_pipeline if request.param == "one array" else tiny_sdxl.write(tmp_path_factory.mktemp("sdxl"))


def load(folder, **keywords):
    return DiffusionITM.from_pretrained(folder, batch_size=4, mesh=parallel.make_mesh(jax.devices()[:1]), **keywords)


@pytest.mark.slow
def test_errors_are_the_same_and_texts_are_encoded_once(folder, monkeypatch):
    expected = load(folder).errors(IMAGES, TEXTS, num_samples=3)
    staged = load(folder, encoders="staged")
    np.testing.assert_array_equal(staged.errors(IMAGES, TEXTS, num_samples=3), expected)
    assert staged.fingerprint() == load(folder).fingerprint()
    kept = sorted(staged._texts.store.folder.iterdir())
    assert len(kept) == len(TEXTS)

    encoded = []
    encode = tables.Encoder.encode
    monkeypatch.setattr(tables.Encoder, "encode", lambda self, items: encoded.append(len(items)) or encode(self, items))
    again = load(folder, encoders="staged")
    again._texts.store.prepare(again._texts.tokenize(TEXTS[:1]))
    assert not encoded
    # What is damaged is encoded again.
    content = bytearray(kept[0].read_bytes())
    content[-1] ^= 1
    kept[0].write_bytes(content)
    os.remove(kept[1])
    np.testing.assert_array_equal(again.errors(IMAGES, TEXTS, num_samples=3), expected)


def test_encoders_are_not_on_the_devices(folder):
    staged = load(folder, encoders="staged")
    assert jax.tree.leaves(staged._texts.encoder.params) == []
    with raises("bad-value", "encoders"):
        load(folder, encoders="sometimes")
