"""Fixtures of the tests of networks."""

import pytest

from winobench import parallel


@pytest.fixture
def trace_for(monkeypatch):
    """Has functions believe that they are traced for a device. They are still computed on this machine's."""

    def choose(device):
        monkeypatch.setattr(parallel, "traced_device", lambda: device)
        monkeypatch.setattr("winobench.parallel.devices.traced_device", lambda: device)

    return choose
