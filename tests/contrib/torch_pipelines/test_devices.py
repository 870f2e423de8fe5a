"""Text encoders on the devices, one device and several, and parameters that devices share."""

import contextlib
import functools

import jax
import numpy as np
import pytest

from tests.contrib.torch_pipelines import comparison
from tests.contrib.torch_pipelines.comparison import difference
from tests.contrib.torch_pipelines.test_families import TOLERANCE
from tests.contrib.torch_pipelines.tiny.pipelines import sana_pipeline
from tests.live_arrays import LiveArrays
from winobench import parallel
from winobench.contrib.torch_pipelines import compiled
from winobench.contrib.torch_pipelines.pipeline import TorchPipeline
from winobench.models import snapshots
from winobench.scorers.diffusion_itm import DiffusionITM

TEXTS = ["a dog to the left of a cat", "two birds", "", " ".join(["a red ball and the blue cube"] * 9), "x"]
IMAGES = list(np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3)).astype(np.uint8))


# Of each kind of text encoder, and one that stays on the host.
ENCODERS_TRIED = (
    *("SanaPipeline", "QwenImagePipeline", "PixArtSigmaPipeline", "StableDiffusionXLPipeline"),
    *("Flux2Pipeline", "KolorsPipeline"),
)


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WINOBENCH_CACHE", str(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "maker"), comparison.cases(ENCODERS_TRIED))
def test_text_encoders_on_devices_equal_torch(name, maker):
    texts = TorchPipeline.from_diffusers(maker.make()).texts
    if not texts._family.encodes_by_forward:
        assert texts.on_host
        return
    wanted = texts.encode_all(TEXTS)
    live = LiveArrays()
    texts.on_host = False
    for mesh in (None, parallel.make_mesh(jax.devices()[:4], model_parallel=2)):
        with texts.placed(mesh):
            got = texts.encode_all(TEXTS)
        assert live.bytes_on(jax.devices()[0]) == 0
        assert got.keys() == wanted.keys()
        for place, array in wanted.items():
            assert difference(got[place], array) <= 5e-5 if array.any() else not got[place].any()


@pytest.mark.slow
def test_few_lengths_are_compiled():
    texts = TorchPipeline.from_diffusers(sana_pipeline.make()).texts
    texts.on_host = False
    compiled._run.clear_cache()
    for number in range(4):
        texts.encode_all([" ".join(["a red ball"] * number)])
    assert compiled._run._cache_size() == 1


@pytest.mark.slow
def test_the_denoiser_makes_room_for_text_encoders():
    pipeline = TorchPipeline.from_diffusers(sana_pipeline.make())
    expected = DiffusionITM(pipeline, image_size=32).errors(IMAGES, TEXTS, num_samples=2)
    pipeline.texts.on_host = False
    pipeline.texts.__dict__.pop("identity", None)
    scorer = DiffusionITM(pipeline, image_size=32)
    there = []
    placed = pipeline.texts.placed

    @contextlib.contextmanager
    def watched(*arguments):
        with placed(*arguments):
            there.append(scorer._params._placed)
            yield

    pipeline.texts.placed = watched
    scorer._params.on_devices()
    for path in scorer._texts.store.folder.iterdir():
        path.unlink()
    np.testing.assert_allclose(scorer.errors(IMAGES, TEXTS, num_samples=2), expected, rtol=1e-4)
    assert there
    assert set(there) == {None}
    assert scorer._params._placed is not None


@functools.cache
def _sana():
    return TorchPipeline.from_diffusers(sana_pipeline.make())


@functools.cache
def _errors(devices, model_parallel):
    mesh = parallel.make_mesh(jax.devices()[:devices], model_parallel=model_parallel)
    scorer = DiffusionITM(_sana(), image_size=32, batch_size=2, mesh=mesh)
    shared = [array for array in scorer._params.on_devices() if not array.sharding.is_fully_replicated]
    assert bool(shared) == (model_parallel > 1)
    return scorer.errors(IMAGES, TEXTS, num_samples=3)


@pytest.mark.parametrize(
    ("devices", "model_parallel"),
    [pytest.param(*each, marks=pytest.mark.slow) for each in ((2, 1), (2, 2), (8, 1))] + [(8, 2)],
)
def test_devices_share_work_and_parameters(devices, model_parallel):
    np.testing.assert_allclose(_errors(devices, model_parallel), _errors(1, 1), rtol=1e-5)


@functools.cache
def _latents(devices, model_parallel):
    mesh = parallel.make_mesh(jax.devices()[:devices], model_parallel=model_parallel)
    keywords = {"num_steps": 2, "image_size": 32, "batch_size": 4, "guidance_scale": 3, "return_latents": True}
    return _sana().generate(TEXTS[:4], mesh=mesh, **keywords)


@pytest.mark.slow
@pytest.mark.parametrize("model_parallel", [1, 2])
def test_devices_share_images(model_parallel):
    assert difference(_latents(4, model_parallel), _latents(1, 1)) <= TOLERANCE


@pytest.mark.slow
def test_pipelines_that_are_traced_otherwise_share_no_program():
    def structure(change):
        pipe = sana_pipeline.make()
        change(pipe)
        return snapshots.split(TorchPipeline.from_diffusers(pipe).network)[0]

    usual, same, other_scheduler, other_autoencoder = map(
        structure,
        (
            lambda pipe: None,
            lambda pipe: None,
            lambda pipe: pipe.scheduler.register_to_config(flow_shift=1.5),
            lambda pipe: pipe.vae.register_to_config(scaling_factor=2.0),
        ),
    )
    assert usual == same
    assert usual not in (other_scheduler, other_autoencoder)
