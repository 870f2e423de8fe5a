import contextlib
import os
import pathlib
import types

import jax.monitoring
import pytest

_COMPILED = "/jax/core/compile/backend_compile_duration"


@pytest.fixture(scope="session")
def _compile_events():
    events = []
    jax.monitoring.register_event_duration_secs_listener(lambda name, *_, **__: events.append(name))
    return events


@pytest.fixture
def compilations(_compile_events):
    """``with compilations() as count``: afterwards ``count.total`` is the number of programs that XLA compiled."""

    @contextlib.contextmanager
    def counting():
        before = len(_compile_events)
        count = types.SimpleNamespace(total=None)
        yield count
        count.total = _compile_events[before:].count(_COMPILED)

    return counting


@pytest.fixture
def fake_devices():
    """The environment of a subprocess that sees this number of CPU devices, and imports from this checkout."""

    def environment(count):
        root = str(pathlib.Path(__file__).parents[2])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}".strip()
        return os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags, "PYTHONPATH": path}

    return environment
