import types

import pytest

from winobench.generation import generate


@pytest.fixture(scope="package", autouse=True)
def nothing_to_free():
    """A collection after each model takes longer than its images, and fake models have no memory to give back."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generate, "gc", types.SimpleNamespace(collect=lambda: None))
        yield
