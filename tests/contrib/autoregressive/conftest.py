"""Tiny generators: their folders, loaded models and references, made once a session."""

import functools

import jax
import pytest
import transformers

from tests.contrib.autoregressive.reference import Reference
from tests.contrib.autoregressive.tiny import IMAGE_SIZES, WRITERS, pictures
from winobench import parallel
from winobench.contrib.autoregressive import loading
from winobench.engine.limits import Limit
from winobench.scorers import pairs


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory):
    """Comparisons with torch run once a session."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WINOBENCH_CACHE", str(tmp_path_factory.mktemp("cache")))
        transformers.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        yield


@pytest.fixture(autouse=True)
def _small_tables(monkeypatch):
    """The devices of the tests share one memory."""
    monkeypatch.setattr(pairs, "_TABLE_BYTES", Limit(1 << 22, cpu=1 << 22))


@pytest.fixture(scope="session")
def write_generator(tmp_path_factory):
    """A function of a family's name: the folder of its tiny model, which no test may change."""
    base = tmp_path_factory.mktemp("generators")
    return functools.cache(lambda family: WRITERS[family](base / family))


@pytest.fixture(scope="session")
def load_generator(write_generator):
    """A function of a family's name and a dtype: the loaded model."""
    return functools.cache(
        lambda family, dtype="float32": loading.load(write_generator(family), dtype, image_size=IMAGE_SIZES[family])
    )


@pytest.fixture(scope="session")
def reference_of(write_generator):
    """A function of a family's name and a dtype: its `Reference`."""
    return functools.cache(lambda family, dtype="float32": Reference(write_generator(family), family, dtype))


@pytest.fixture(scope="session")
def codes_in_torch(reference_of):
    """A function of a family's name: codes of `tiny.pictures`, by torch."""
    return functools.cache(lambda family: [reference_of(family).codes(image) for image in pictures()])


@pytest.fixture(scope="session")
def one_device():
    return parallel.make_mesh(jax.devices()[:1])
