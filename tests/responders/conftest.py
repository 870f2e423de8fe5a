"""What tests of responders share."""

import pytest

from tests.responders import api_server


@pytest.fixture
def server(monkeypatch):
    with api_server.running_with_keys(monkeypatch) as server:
        yield server
