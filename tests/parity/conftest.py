"""Small random folders of whole pipelines, each written once for all tests that only read it."""

import functools
import pathlib
from collections.abc import Callable

import pytest


@pytest.fixture(scope="module")
def no_gradients():
    import torch

    with torch.no_grad():
        yield


@pytest.fixture(scope="session")
def whole(tmp_path_factory) -> Callable:
    """Kind of pipeline -> its folder, and both pipelines of it."""
    from tests.parity import whole_pipelines

    @functools.cache
    def make(kind: str) -> whole_pipelines.Whole:
        folder = whole_pipelines.KINDS[kind].write(tmp_path_factory.mktemp(kind))
        return whole_pipelines.Whole(kind, folder)

    return make


@pytest.fixture(scope="session")
def folder_of(whole) -> Callable[[str], pathlib.Path]:
    """Kind of pipeline -> its folder."""
    return lambda kind: whole(kind).folder
