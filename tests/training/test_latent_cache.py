import dataclasses
import functools

import jax
import numpy as np
import pytest

import winobench.parallel
from tests.expectations import raises
from winobench.base.errors import InputError
from winobench.clevr import renderer
from winobench.diffusion.stable_diffusion import StableDiffusion
from winobench.tasks import clevr_negatives as negatives
from winobench.training import latent_cache

NUM_IMAGES = 3 * len(negatives.VARIANTS)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(latent_cache, "_IMAGES_A_SHARD", 8)
    monkeypatch.setattr(renderer, "_RAYS_PER_CHUNK", 1 << 14)


@pytest.fixture(scope="module")
def pipeline(tiny_pipeline):
    return StableDiffusion.from_pretrained(tiny_pipeline)


@pytest.fixture
def source():
    return negatives.ClevrNegatives(3, image_size=32)


def stamps(folder):
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}


@pytest.mark.slow
def test_latents_are_those_of_the_pipeline(pipeline, source, tmp_path):
    done = []
    found = latent_cache.encode(
        pipeline, source, tmp_path, on_start=lambda *numbers: done.append(numbers), on_progress=done.append
    )
    assert done[0] == (NUM_IMAGES, 0)
    assert sum(done[1:]) == len(found.latents) == NUM_IMAGES
    expected = np.asarray(pipeline.encode_images(np.stack(list(source.images))))
    cached = np.stack([found.latents[number] for number in range(NUM_IMAGES)])
    assert cached.dtype == np.float16
    # Half a unit in float16's last place, and what another batch changes.
    np.testing.assert_allclose(cached, expected, rtol=6e-4, atol=1e-5)
    assert found.rows == source.rows
    # What is complete is opened as it is, also without the source.
    before = stamps(found.folder)
    again = latent_cache.encode(pipeline, source, tmp_path, on_start=pytest.fail)
    assert (again.folder, stamps(again.folder)) == (found.folder, before)
    assert latent_cache.LatentSet(found.folder).rows == source.rows


@pytest.mark.slow
def test_another_size_resizes(pipeline, source, tmp_path):
    found = latent_cache.encode(pipeline, source, tmp_path, image_size=16, batch_size=1)
    assert found.latents[20].shape == (4, 4, 4)
    with raises("not-a-multiple", "image_size", "18", "4"):
        latent_cache.encode(pipeline, source, tmp_path, image_size=18)


@pytest.mark.slow
def test_an_interrupted_encoding_goes_on_at_the_missing_shard(pipeline, source, tmp_path):
    # A batch is then less than a shard, as it is in practice.
    encode = functools.partial(latent_cache.encode, pipeline, source, batch_size=1)
    whole, first, seen, started = encode(tmp_path / "whole"), "shard-00000-of-00003.arrayrecord", [], []

    def interrupt(count):
        seen.append(count)
        if sum(seen) >= 12:  # within the second shard
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encode(tmp_path / "cut", on_progress=interrupt)
    (folder,) = (tmp_path / "cut").iterdir()
    before = stamps(folder)
    assert set(before) == {first, "rows.parquet"}
    with raises("unfinished-latents"):
        latent_cache.LatentSet(folder)
    found = encode(tmp_path / "cut", on_start=lambda *numbers: started.append(numbers))
    assert started == [(NUM_IMAGES, 8)]
    assert stamps(folder)[first] == before[first]
    for number in range(NUM_IMAGES):
        np.testing.assert_array_equal(found.latents[number], whole.latents[number])


@pytest.mark.slow
def test_trainings_share_a_hidden_folder_and_one_of_an_earlier_version(tmp_path):
    assert latent_cache.folder_near(tmp_path / "run") == tmp_path.resolve() / ".latents"
    (tmp_path / "latents").mkdir()
    assert latent_cache.folder_near(tmp_path / "run") == tmp_path.resolve() / "latents"


def test_the_key_holds_all_that_latents_depend_on(pipeline, tiny_pipeline, source, tmp_path):
    about = latent_cache._about(pipeline, source, 32)
    assert about == latent_cache._about(StableDiffusion.from_pretrained(tiny_pipeline), source, 32)
    others = [
        latent_cache._about(pipeline, source, 16),
        latent_cache._about(pipeline, dataclasses.replace(source, seed=1), 32),
        latent_cache._about(StableDiffusion.from_pretrained(tiny_pipeline, dtype="bfloat16"), source, 32),
    ]
    changed = StableDiffusion.from_pretrained(tiny_pipeline)
    kernel = changed.vae.encoder.conv_in.kernel
    kernel[...] = kernel[...] * 1.001
    others.append(latent_cache._about(changed, source, 32))
    assert all(other != about for other in others)


def test_latents_that_are_not_finite_are_no_cache(tiny_pipeline, source, tmp_path):
    broken = StableDiffusion.from_pretrained(tiny_pipeline)
    bias = broken.vae.quant_conv.bias
    bias[...] = bias[...] + 1e7
    with raises("not-finite", "0", "float16"):
        latent_cache.encode(broken, source, tmp_path, batch_size=1)
    (folder,) = tmp_path.iterdir()
    assert [path.name for path in folder.iterdir()] == ["rows.parquet"]


def test_a_damaged_source_is_told_of_before_encoding(pipeline, source, tmp_path, monkeypatch):
    def damaged(self):
        raise InputError("is damaged", code="damaged-file")

    monkeypatch.setattr(negatives.ClevrNegatives, "verify", damaged)
    with raises("damaged-file"):
        latent_cache.encode(pipeline, source, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written(pipeline, source, tmp_path):
    (tmp_path / "file").write_text("")
    with raises("cannot-write"):
        latent_cache.encode(pipeline, source, tmp_path / "file")


@pytest.mark.slow
def test_processes_share_the_shards(pipeline, source, tmp_path, monkeypatch):
    """Two processes in turn stand for two at once: what each leaves to the other, and what is said where it lacks."""
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(latent_cache, "_wait_for_all", lambda: None)
    monkeypatch.setattr(winobench.parallel, "fetch", np.asarray)
    for process in (1, 0):
        monkeypatch.setattr(jax, "process_index", lambda process=process: process)
        if process:
            with raises("folder-not-shared", "shard-00000-of-00003"):
                latent_cache.encode(pipeline, source, tmp_path, batch_size=1)
            (folder,) = tmp_path.iterdir()
            assert [path.name for path in folder.iterdir()] == ["shard-00001-of-00003.arrayrecord"]
        else:
            assert len(latent_cache.encode(pipeline, source, tmp_path, batch_size=1).latents) == NUM_IMAGES
