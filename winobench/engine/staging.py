"""Parameters that are on the devices only while they are needed there."""

from __future__ import annotations

from typing import Any

from jax.sharding import Mesh

from winobench.engine import layouts


class StagedParameters:
    """A network's parameters, put on the devices at each first use since the last `release`.

    Ask for them again for each program: any other reference keeps them on the devices.
    """

    def __init__(self, given: Any, mesh: Mesh):
        self.given = given
        self._mesh = mesh
        self._placed: Any = None

    def on_devices(self) -> Any:
        if self._placed is None:
            self._placed = layouts.place_parameters(self.given, self._mesh)
        return self._placed

    def release(self) -> None:
        """Frees the devices as soon as the programs that are under way have read the parameters."""
        self._placed = None
