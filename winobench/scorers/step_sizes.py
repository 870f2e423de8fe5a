"""How many triples a step takes on, where nobody says so."""

from __future__ import annotations

import jax.numpy as jnp
from jax.sharding import Mesh

from winobench.base import memory
from winobench.diffusion.pipeline import Pipeline
from winobench.engine import limits
from winobench.engine.limits import Limit

# Work of one step on each device, as positions of the latents (batch x height x width).
_POSITIONS_PER_STEP = Limit(131_072, cpu=8_192)
_MAX_BATCH = Limit(512, cpu=32)


def usual_batch_size(pipeline: Pipeline, latent_shape: tuple[int, ...], mesh: Mesh, resident: int) -> int:
    """Triples that a device works on at once where nobody says how many.

    Args:
      pipeline: the model. Of its denoiser only the config and the dtype are read.
      latent_shape: (h, w, c).
      mesh: the devices. What matters is their kind.
      resident: bytes of parameters and tables on each of them.
    """
    device = mesh.devices.flat[0]
    positions = latent_shape[0] * latent_shape[1]
    chosen = min(max(1, _POSITIONS_PER_STEP.on(mesh) // positions), _MAX_BATCH.on(mesh))
    if device.platform == "cpu":
        return chosen
    # Other networks than ours need not say how wide they are.
    width = getattr(getattr(pipeline.denoiser, "config", None), "width_per_position", latent_shape[2])
    itemsize = jnp.dtype(pipeline.denoiser.dtype).itemsize
    return min(chosen, limits.steps_that_fit(positions, width, itemsize, memory.of_device(device), resident))
