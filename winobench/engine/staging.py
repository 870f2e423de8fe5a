"""Parameters that are on the devices only while something needs them there."""

from __future__ import annotations

from typing import Any

from jax.sharding import Mesh

from winobench.engine import layouts


class StagedParameters:
    """A network's parameters, put on the devices when they are first asked for, and again once they were let go.

    Ask for them again for each program: what is kept of them elsewhere keeps them on the devices.

    Attributes:
      given: as they were given, wherever they are.
    """

    def __init__(self, given: Any, mesh: Mesh):
        """Puts nothing anywhere."""
        self.given = given
        self._mesh = mesh
        self._placed: Any = None

    def on_devices(self) -> Any:
        """The parameters, on the devices, as `winobench.engine.layouts.place_parameters` puts them there."""
        if self._placed is None:
            self._placed = layouts.place_parameters(self.given, self._mesh)
        return self._placed

    def release(self) -> None:
        """Frees the devices of them, as soon as the programs that are under way have read them."""
        self._placed = None
