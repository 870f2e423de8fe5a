"""Small random folders of flow models, each written once for all tests that only read it."""

import pathlib
from collections.abc import Callable

import pytest

from tests import tiny_flux, tiny_flux2, tiny_sd3

FLOW_FOLDERS = {"sd3": tiny_sd3.write, "flux": tiny_flux.write, "klein": tiny_flux2.write}


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory) -> Callable[[str], pathlib.Path]:
    """Kind of model -> its folder."""
    made = {}

    def folder(kind: str) -> pathlib.Path:
        if kind not in made:
            made[kind] = FLOW_FOLDERS[kind](tmp_path_factory.mktemp(kind))
        return made[kind]

    return folder
