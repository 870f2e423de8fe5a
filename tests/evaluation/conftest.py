import functools

import pytest

from winobench.runs import provenance


@pytest.fixture(scope="package", autouse=True)
def software_once():
    """The state of the repository is looked up once: every run records it, which takes longer than the run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "software", functools.cache(provenance.software))
        yield
