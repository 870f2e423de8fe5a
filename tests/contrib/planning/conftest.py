import jax
import pytest

_EFFORT = "jax_exec_time_optimization_effort"


@pytest.fixture
def little_effort():
    """The compiler for TPUs looks for faster kernels for a third of the time. A program has the same kernels."""
    before = jax.config.jax_exec_time_optimization_effort
    jax.config.update(_EFFORT, -1.0)
    yield
    jax.config.update(_EFFORT, before)
