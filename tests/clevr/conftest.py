import pytest

from winobench.clevr import renderer


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(renderer, "_RAYS_PER_CHUNK", 1 << 15)
