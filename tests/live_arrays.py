"""What is alive on a device."""

import math

import jax


class LiveArrays:
    """Those that come after it was made."""

    def __init__(self):
        self._before = jax.live_arrays()  # held, so that none of their ids comes back
        self._ids = set(map(id, self._before))

    def bytes_on(self, device):
        """Of all of them, and of their parts, that are on a device."""
        return sum(
            math.prod(array.sharding.shard_shape(array.shape)) * array.dtype.itemsize
            for array in jax.live_arrays()
            if id(array) not in self._ids and device in array.sharding.device_set
        )
