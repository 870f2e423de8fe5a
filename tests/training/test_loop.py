"""The loop: a resumed run is the uninterrupted one, and bad losses stop it."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from winobench import parallel
from winobench.errors import InputError
from winobench.training import loop


def make(seed=0):
    def loss_fn(params, batch, key):
        noise = 0.1 * jax.random.normal(key, batch["x"].shape)
        loss = jnp.mean((params["w"] * batch["x"] + noise - 3.0 * batch["x"]) ** 2)
        return loss, {"weight": params["w"].mean()}

    optimizer = optax.adam(0.05)
    return loop.make_step(loss_fn, optimizer, seed=seed, ema_decay=0.9), loop.create_state(
        {"w": jnp.zeros(4)}, optimizer
    )


def batches_from(first):
    step = first
    while True:
        yield {"x": np.random.default_rng(step).normal(size=(8, 4)).astype(np.float32)}
        step += 1


def run(folder, num_steps):
    step, state = make()
    checkpoints = loop.Checkpoints(folder / "checkpoints")
    state = loop.train(
        step,
        state,
        batches_from,
        num_steps=num_steps,
        checkpoints=checkpoints,
        metrics_file=folder / "metrics.jsonl",
        name="toy",
        log_every=5,
        checkpoint_every=10,
    )
    checkpoints.close()
    return state


def test_resumed_run_equals_the_uninterrupted_one(tmp_path):
    whole = run(tmp_path / "whole", 30)
    run(tmp_path / "parts", 17)
    resumed = run(tmp_path / "parts", 30)
    assert int(resumed.step) == 30
    for one, two in zip(jax.tree.leaves(whole), jax.tree.leaves(resumed), strict=True):
        np.testing.assert_array_equal(one, two)
    rows = [json.loads(line) for line in (tmp_path / "parts" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [5, 10, 15, 17, 20, 25, 30]
    assert rows[-1]["loss"] < rows[0]["loss"]


def test_average_starts_short_and_follows(tmp_path):
    step, state = make()
    states = [jax.tree.map(np.asarray, state)]
    for _, batch in zip(range(3), batches_from(0), strict=False):
        state, _ = step(state, batch)
        states.append(jax.tree.map(np.asarray, state))
    expected = np.zeros(4)
    for count, after in enumerate(states[1:]):
        decay = min(0.9, (1 + count) / (10 + count))
        expected = decay * expected + (1 - decay) * after.params["w"]
        np.testing.assert_allclose(after.ema["w"], expected, rtol=1e-5)


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path):
    step, state = make()

    def poisoned(first):
        for index, batch in enumerate(batches_from(first)):
            yield {"x": batch["x"] * (np.nan if index == 7 else 1.0)}

    with pytest.raises(FloatingPointError, match="toy: the loss at step 10 is nan"):
        loop.train(
            step,
            state,
            poisoned,
            num_steps=30,
            checkpoints=None,
            metrics_file=tmp_path / "metrics.jsonl",
            name="toy",
            log_every=5,
        )


def test_a_gradient_that_is_not_finite_is_never_saved(tmp_path):
    def loss_fn(params, batch, key):
        kept = jnp.where(batch["x"].mean() > 50, 0.0, 1.0)
        return jnp.sum(jnp.sqrt(kept * params["w"] ** 2)), {}  # at 0, the root's derivative is infinite: 0 * inf

    def batches(first):
        for index, batch in enumerate(batches_from(first)):
            yield {"x": batch["x"] + (100.0 if index == 3 else 0.0)}

    optimizer = optax.adam(0.05)
    checkpoints = loop.Checkpoints(tmp_path / "checkpoints")
    with pytest.raises(FloatingPointError, match="gradient_norm at step 4 is nan; checkpoints from before are sound"):
        loop.train(
            loop.make_step(loss_fn, optimizer, seed=0),
            loop.create_state({"w": jnp.ones(4)}, optimizer),
            batches,
            num_steps=30,
            checkpoints=checkpoints,
            metrics_file=tmp_path / "metrics.jsonl",
            name="toy",
            log_every=100,
            checkpoint_every=2,
        )
    checkpoints.close()
    assert loop.Checkpoints(tmp_path / "checkpoints").latest_step() == 2


def test_a_batch_that_devices_cannot_share_is_refused(tmp_path):
    step, state = make()
    uneven = ({"x": np.ones((3, 4), np.float32)} for _ in range(2))
    with pytest.raises(InputError, match="a batch of 3 cannot be shared by 2 devices"):
        loop.train(
            step,
            state,
            lambda first: uneven,
            num_steps=2,
            checkpoints=None,
            metrics_file=tmp_path / "metrics.jsonl",
            name="toy",
            mesh=parallel.make_mesh(jax.devices()[:2]),
        )


def test_a_time_limit_leaves_a_checkpoint(tmp_path):
    step, state = make()
    checkpoints = loop.Checkpoints(tmp_path / "checkpoints")
    state = loop.train(
        step,
        state,
        batches_from,
        num_steps=10_000_000,
        checkpoints=checkpoints,
        metrics_file=tmp_path / "metrics.jsonl",
        name="toy",
        max_seconds=0.5,
    )
    checkpoints.close()
    assert 0 < int(state.step) < 10_000_000
    assert loop.Checkpoints(tmp_path / "checkpoints").latest_step() == int(state.step)
