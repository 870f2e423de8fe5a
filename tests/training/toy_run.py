"""A run of a toy problem, for tests that kill its process, or start two: toy_run.py FOLDER STEPS [PORT RANK]."""

import pathlib
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

from winobench import parallel
from winobench.training import loop
from winobench.training.checkpoints import Checkpoints

ROWS, FEATURES = 16, 8
CHECKPOINT_EVERY = 5
WEIGHTS = np.linspace(-1.0, 2.0, FEATURES, dtype=np.float32)


def loss_fn(params, frozen, batch, key):
    """Least squares; the key and the frozen part matter."""
    noise = 0.1 * jax.random.normal(key, batch["x"].shape)
    error = (batch["x"] + noise) @ (params["w"] * frozen["scale"]) - batch["x"] @ WEIGHTS
    return jnp.mean(error**2), {"weight": params["w"].mean()}


def batches_from(first):
    """This process's rows of every batch from a number on."""
    number = first
    while True:
        rows = np.random.default_rng(number).normal(size=(ROWS, FEATURES)).astype(np.float32)
        yield {"x": rows[loop.local_rows(ROWS)]}
        number += 1


def run(folder, num_steps, *, accumulate=1, mesh=None, slow=False, **options):
    """Trains with a checkpoint every few steps; returns the state. ``slow`` leaves time for a kill."""
    folder = pathlib.Path(folder)
    optimizer = optax.adamw(0.05)
    step = loop.make_step(loss_fn, optimizer, seed=3, ema_decay=None, accumulate=accumulate, mesh=mesh)

    def slowly(*arguments):
        time.sleep(0.05)
        return step(*arguments)

    checkpoints = Checkpoints(folder / "checkpoints")
    state = loop.train(
        slowly if slow else step,
        loop.create_state({"w": jnp.zeros(FEATURES)}, optimizer, average=False),
        batches_from,
        num_steps=num_steps,
        checkpoints=checkpoints,
        metrics_file=folder / "metrics.jsonl",
        name="toy",
        log_every=1,
        frozen={"scale": jnp.linspace(0.5, 1.0, FEATURES)},
        mesh=mesh,
        **{"checkpoint_every": CHECKPOINT_EVERY, **options},
    )
    checkpoints.close()
    return state


def main(folder, num_steps, port=None, rank=None):
    """The command line. Two processes use FSDP, so that their checkpoints hold parts from both."""
    if port is None:
        run(folder, int(num_steps), accumulate=2, slow=True)
        return
    jax.distributed.initialize(f"localhost:{port}", 2, int(rank))
    assert jax.device_count() == 4
    assert jax.local_device_count() == 2
    run(folder, int(num_steps), accumulate=2, mesh=parallel.make_mesh(model_parallel=4))


if __name__ == "__main__":
    main(*sys.argv[1:])
