import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests import tiny_flux, tiny_sd3, tiny_sdxl
from tests.expectations import raises
from tests.live_arrays import LiveArrays
from winobench import checkpoints, parallel
from winobench.base import memory
from winobench.diffusion import families
from winobench.diffusion.pure_functions import TextEncoding
from winobench.engine import tables
from winobench.models import lora
from winobench.scorers import denoising
from winobench.scorers.diffusion_itm import DiffusionITM

TEXTS = ["a red cube", "a blue ball left of the cube", ""]
IMAGES = [np.full((32, 32, 3), value, np.uint8) for value in (10, 200)]


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path_factory):
    monkeypatch.setenv("WINOBENCH_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(params=["one array", pytest.param("a tree", marks=pytest.mark.slow)])
def folder(request, tiny_pipeline, tmp_path_factory):
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


@pytest.fixture(params=[tiny_sd3, pytest.param(tiny_flux, marks=pytest.mark.slow)], ids=["sd3", "flux"])
def three_parts(request, tmp_path_factory):
    return request.param.write(tmp_path_factory.mktemp("flow"))


@pytest.mark.slow
def test_encoders_and_denoiser_are_never_there_together(three_parts, monkeypatch):
    mesh = parallel.make_mesh(jax.devices()[2:4])
    live, device = LiveArrays(), mesh.devices.flat[0]
    few = {"table_rows": 2, "batch_size": 2, "image_size": 32, "pipeline_options": {"text_tokens": 8}}
    scorer = DiffusionITM.from_pretrained(three_parts, mesh=mesh, encoders="staged", **few)
    pipeline = scorer.pipeline
    of_denoiser, of_encoders, of_autoencoder = (
        memory.array_bytes(function()[1])
        for function in (pipeline.denoiser_function, pipeline.text_function, pipeline.image_function)
    )
    assert live.bytes_on(device) == of_autoencoder
    seen = []
    encode, step = tables.Encoder.encode, denoising.fused_step

    def spied_encode(encoder, items):
        if isinstance(encoder._how.function, TextEncoding):
            seen.append(("texts", live.bytes_on(device)))
        return encode(encoder, items)

    def spied_step(*arguments):
        seen.append(("step", live.bytes_on(device)))
        return step(*arguments)

    monkeypatch.setattr(tables.Encoder, "encode", spied_encode)
    monkeypatch.setattr(denoising, "fused_step", spied_step)

    def kinds(texts):
        seen.clear()
        scorer.errors(IMAGES, texts, num_samples=2)
        for kind, there in seen:
            alone = of_autoencoder + {"texts": of_encoders, "step": of_denoiser}[kind]
            # Tables and batches beside it are less than either of them.
            assert alone <= there < alone + min(of_denoiser, of_encoders), kind
        return list(dict.fromkeys(kind for kind, _ in seen))

    assert kinds(TEXTS) == ["texts", "step"]
    placed = scorer._params.on_devices()
    assert kinds(TEXTS[:2]) == ["step"]  # which are on disk
    assert scorer._params.on_devices() is placed
    del placed
    assert kinds(["a blue cube", *TEXTS]) == ["texts", "step"]


@pytest.mark.slow
def test_an_iteration_continues_after_other_texts_were_encoded(tiny_pipeline):
    folder = tiny_pipeline
    triples = np.indices((2, 3, 8)).reshape(3, -1).T
    expected = load(folder).errors(IMAGES, TEXTS, num_samples=8)
    staged = load(folder, encoders="staged")
    found = np.zeros_like(expected)
    under_way = staged.iter_errors(IMAGES, TEXTS, triples, num_samples=8)
    for number, (rows, errors) in enumerate(under_way):
        if number < 2:
            staged.errors(IMAGES, ["a photo of the ball" if number else "a photo"], num_samples=1)
        found[tuple(triples[rows].T)] = errors
    np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
def test_loras(tiny_pipeline, tmp_path):
    """Of both networks, added to the weights or apart, at two scales: these are not mixed up on disk."""
    pipeline = families.load_pipeline(tiny_pipeline)
    draws = np.random.default_rng(0)
    for network, targets in ((pipeline.unet, "cross"), (pipeline.text_encoder, "all")):
        lora.add_lora(network, lora.LoRAConfig(rank=2, targets=targets), rngs=nnx.Rngs(0))
        for adapter in lora.adapters(network).values():
            adapter.up[...] = jnp.asarray(draws.normal(size=adapter.up.shape), jnp.float32)
    checkpoints.save_lora(tmp_path, unet=pipeline.unet, text_encoder=pipeline.text_encoder)
    lora_of = {"dtype": "bfloat16", "lora": tmp_path}
    load(tiny_pipeline, encoders="staged", fuse_lora=False, **lora_of)._texts.table(TEXTS)
    for keywords in ({"fuse_lora": True}, {"fuse_lora": False, "lora_scale": 0.5}):
        keywords |= lora_of
        resident, staged = load(tiny_pipeline, **keywords), load(tiny_pipeline, encoders="staged", **keywords)
        held = [staged.pipeline.denoiser_function()[1], staged.pipeline.text_function()[1]]
        assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(held))
        assert staged.fingerprint() == resident.fingerprint()
        expected = resident.errors(IMAGES[:1], TEXTS, num_samples=2)
        np.testing.assert_array_equal(staged.errors(IMAGES[:1], TEXTS, num_samples=2), expected)


def test_what_stays_on_the_host_has_the_same_values(folder):
    """Numbers of the file that are rounded, or turned around, and the autoencoder, which does not stay."""
    on_host, usual = (families.load_pipeline(folder, "bfloat16", on_host=there) for there in (True, False))
    assert on_host.fingerprint == usual.fingerprint
    for name, network in on_host.networks.items():
        kinds = {isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(nnx.state(network))}
        assert kinds == {name != "vae"}
