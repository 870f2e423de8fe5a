"""A run of a toy problem, for tests that kill its process, or start two: toy_run.py FOLDER STEPS [PORT RANK]."""

import json
import pathlib
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

from winobench import parallel
from winobench.runs.training_settings import Loss
from winobench.training import loop
from winobench.training.checkpoints import Checkpoints

ROWS, FEATURES = 16, 8
CHECKPOINT_EVERY = 5
WEIGHTS = np.linspace(-1.0, 2.0, FEATURES, dtype=np.float32)
FROZEN = {"scale": np.linspace(0.5, 1.0, FEATURES, dtype=np.float32)}


def loss_fn(params, frozen, batch, key):
    noise = 0.1 * jax.random.normal(key, batch["x"].shape)
    error = (batch["x"] + noise) @ (params["w"] * frozen["scale"]) - batch["x"] @ WEIGHTS
    return jnp.mean(error**2), {"weight": params["w"].mean()}


def batches_from(first):
    number = first
    while True:
        rows = np.random.default_rng(number).normal(size=(ROWS, FEATURES)).astype(np.float32)
        yield {"x": rows[loop.local_rows(ROWS)]}
        number += 1


def make(accumulate=1, mesh=None):
    optimizer = optax.adamw(0.05)
    step = loop.make_step(loss_fn, optimizer, seed=3, ema_decay=0.9, accumulate=accumulate, mesh=mesh)
    return step, loop.create_state({"w": jnp.zeros(FEATURES)}, optimizer)


def train(
    folder,
    step,
    state,
    num_steps,
    batches=batches_from,
    *,
    keeps=True,
    max_to_keep=2,
    best=None,
    on_checkpoint=None,
    mesh=None,
    frozen=None,
    validate=None,
    **pace,
):
    folder = pathlib.Path(folder)
    checkpoints = Checkpoints(folder / "checkpoints", max_to_keep=max_to_keep, best_metric=best) if keeps else None
    try:
        return loop.train(
            step,
            state,
            batches,
            loop.Pace(num_steps, **{"log_every": 1, "checkpoint_every": CHECKPOINT_EVERY, **pace}),
            loop.Outputs("toy", folder / "metrics.jsonl", checkpoints, on_checkpoint=on_checkpoint),
            mesh=mesh,
            frozen=frozen,
            validate=validate,
        )
    finally:
        if keeps:
            checkpoints.close()


def run(folder, num_steps, *, accumulate=1, mesh=None, slow=False, **options):
    """Trains on the toy problem. ``slow`` leaves time for a kill."""
    step, state = make(accumulate, mesh)

    def slowly(*arguments):
        time.sleep(0.05)
        return step(*arguments)

    return train(folder, slowly if slow else step, state, num_steps, frozen=FROZEN, mesh=mesh, **options)


def loss_settings(
    kind="mixed", threshold=1.0, objective="hinged", mixing="batch", timestep_range=None, threshold_over="batch"
):
    return Loss(kind, threshold, threshold_over, objective, mixing, timestep_range)


def rows_of(folder):
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if "per_second" not in name} for row in rows]


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
