"""Parameters that are on the devices only while they are needed there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jax.sharding import Mesh

from winobench import parallel
from winobench.engine import layouts


class StagedParameters:
    """A network's parameters, put on the devices at each first use since the last `release`.

    Ask for them again for each program: any other reference keeps them on the devices.

    Args:
      given: the parameters.
      mesh: the devices.
      arrange_for_cpus: makes of them what the cores of a CPU compute with, where each has all of them.
    """

    def __init__(self, given: Any, mesh: Mesh, arrange_for_cpus: Callable[[Any], Any] = lambda given: given):
        self.given = given
        self._for_cpus = arrange_for_cpus
        self._mesh = mesh
        self._placed: Any = None

    def on_devices(self) -> Any:
        if self._placed is None:
            is_cpu = self._mesh.devices.flat[0].platform == "cpu" and parallel.MODEL_AXIS not in self._mesh.shape
            given = self._for_cpus(self.given) if is_cpu else self.given
            self._placed = layouts.place_parameters(given, self._mesh)
        return self._placed

    def release(self) -> None:
        """Frees the devices as soon as the programs that are under way have read the parameters."""
        self._placed = None
