import itertools
import json
import time
import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests import launching
from tests.expectations import raises
from tests.training import toy_run
from winobench import parallel
from winobench.scorers import denoising
from winobench.training import loop, optimizers
from winobench.training.checkpoints import Checkpoints


def assert_equal(one, two):
    for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_array_equal(np.asarray(left), np.asarray(right))


def test_resumed_run_equals_the_uninterrupted_one(tmp_path):
    options, folder = {"log_every": 5, "checkpoint_every": 10}, tmp_path / "parts"
    whole = toy_run.run(tmp_path / "whole", 30, **options)
    toy_run.run(folder, 17, **options)
    resumed = toy_run.run(folder, 30, **options)
    assert int(resumed.step) == 30
    assert_equal(whole, resumed)
    rows = toy_run.rows_of(folder)
    assert [row["step"] for row in rows] == [5, 10, 15, 17, 20, 25, 30]
    assert rows[-1]["loss"] < rows[0]["loss"]
    assert all(json.loads(one)["images_per_second"] > 0 for one in (folder / "metrics.jsonl").read_text().splitlines())
    # A finished run needs no batch.
    assert_equal(toy_run.run(folder, 30, batches=lambda first: pytest.fail("asked for batches")), whole)


@pytest.mark.parametrize("platform", ["cpu", "gpu", "tpu"])
def test_the_step_is_compiled_as_the_scorers(platform, monkeypatch):
    compiled = []
    monkeypatch.setattr(jax, "jit", lambda function, **how: compiled.append((function.__name__, how)))
    mesh = types.SimpleNamespace(devices=np.array([types.SimpleNamespace(platform=platform)]))
    loop.make_step(lambda *_: None, optax.sgd(0.1), seed=0, mesh=mesh)
    [(name, how)] = compiled
    assert name == "training_step"  # which the line on long compilations names
    assert how["compiler_options"] is parallel.COMPILER_OPTIONS[platform]
    assert denoising._steps.keys() == parallel.COMPILER_OPTIONS.keys()


def test_training_ends_at_the_optimum_in_closed_form(tmp_path):
    """Least squares with a ridge, whose gradient is clipped at first and whose learning rate ends at zero."""
    rows = np.random.default_rng(0).normal(size=(32, 6)).astype(np.float32)
    wanted, ridge = rows @ np.arange(6, dtype=np.float32), 0.3

    def loss_fn(params, frozen, batch, key):
        error = batch["x"] @ params["w"] - batch["y"]
        return jnp.mean(error**2) + frozen["ridge"] * jnp.sum(params["w"] ** 2), {}

    rate = optimizers.make_schedule("cosine", 0.3, warmup_steps=10, total_steps=300)
    optimizer = optimizers.make_optimizer("adamw", rate)
    state = toy_run.train(
        tmp_path,
        loop.make_step(loss_fn, optimizer, seed=0, ema_decay=None, accumulate=2),
        loop.create_state({"w": jnp.zeros(6)}, optimizer, average=False),
        300,
        lambda first: itertools.repeat({"x": rows, "y": wanted}),
        keeps=False,
        log_every=100,
        frozen={"ridge": jnp.asarray(ridge)},
    )
    optimum = np.linalg.solve(rows.T @ rows / 32 + ridge * np.eye(6), rows.T @ wanted / 32)
    np.testing.assert_allclose(state.params["w"], optimum, atol=1e-3)
    assert state.ema is None


def test_average_starts_short_and_follows():
    step, state = toy_run.make()
    expected = np.zeros(toy_run.FEATURES)
    for count, batch in zip(range(3), toy_run.batches_from(0), strict=False):
        state, _ = step(state, batch, toy_run.FROZEN)
        decay = min(0.9, (1 + count) / (10 + count))
        expected = decay * expected + (1 - decay) * np.asarray(state.params["w"])
        np.testing.assert_allclose(state.ema["w"], expected, rtol=1e-5)


def test_accumulation_is_the_large_batch_for_a_mean_of_examples():
    def loss_fn(params, batch, key):
        errors = (batch["x"] @ params["w"] - 1.0) ** 2
        return errors.mean(), {"largest": errors.max(), "rows": jnp.asarray(errors.size)}

    optimizer = optimizers.make_optimizer("adamw", 0.1, clip_norm=0.5)
    states, metrics = [], []
    for parts in (1, 2):
        step = loop.make_step(loss_fn, optimizer, seed=0, ema_decay=None, accumulate=parts)
        state = loop.create_state({"w": jnp.ones(toy_run.FEATURES)}, optimizer, average=False)
        for _, batch in zip(range(3), toy_run.batches_from(0), strict=False):
            state, its_metrics = step(state, batch)
        states.append(state)
        metrics.append(its_metrics)
    # The same sums in another order.
    np.testing.assert_allclose(states[0].params["w"], states[1].params["w"], rtol=1e-5)
    np.testing.assert_allclose(metrics[0]["loss"], metrics[1]["loss"], rtol=1e-5)
    np.testing.assert_allclose(metrics[0]["gradient_norm"], metrics[1]["gradient_norm"], rtol=1e-5)
    assert float(metrics[1]["rows"]) == toy_run.ROWS / 2
    assert float(metrics[1]["largest"]) < float(metrics[0]["largest"])  # a mean over micro-batches


def test_micro_batches_have_keys_of_their_own():
    drawn = []

    def loss_fn(params, batch, key):
        value = jax.random.uniform(key)
        jax.debug.callback(lambda value: drawn.append(float(value)), value)
        return (params["w"] ** 2).sum(), {}

    optimizer = optax.sgd(0.1)
    step = loop.make_step(loss_fn, optimizer, seed=0, ema_decay=None, accumulate=4)
    state = loop.create_state({"w": jnp.ones(4)}, optimizer, average=False)
    for _, batch in zip(range(2), toy_run.batches_from(0), strict=False):
        state, _ = step(state, batch)
    jax.effects_barrier()
    assert len(set(drawn)) == len(drawn) == 8


def fsdp(devices, parts):
    return parallel.make_mesh(jax.devices()[:devices], model_parallel=parts)


@pytest.fixture(scope="module")
def one_device(tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    return folder, toy_run.run(folder, 12, accumulate=2, mesh=fsdp(1, 1))


@pytest.mark.quick(1)
@pytest.mark.parametrize("parts", [1, 8])
def test_eight_devices_do_as_one(one_device, tmp_path, parts):
    if jax.device_count() < 8:
        pytest.skip("needs eight devices")
    eight = toy_run.run(tmp_path, 11, accumulate=2, mesh=fsdp(8, parts), checkpoint_every=100)
    # With an axis for it, parameters and moments are in parts, and stay so.
    moments = eight.opt_state[0].mu["w"]
    assert moments.sharding == eight.params["w"].sharding
    assert moments.addressable_shards[0].data.shape == (toy_run.FEATURES // parts,)
    # A checkpoint in parts goes on in one.
    last = toy_run.run(tmp_path, 12, accumulate=2, mesh=fsdp(1, 1), checkpoint_every=100)
    folder, one = one_device
    # Sums of eight parts in another order, eleven times.
    np.testing.assert_allclose(last.params["w"], one.params["w"], rtol=1e-5, atol=1e-6)
    losses = [[row["loss"] for row in toy_run.rows_of(path)] for path in (folder, tmp_path)]
    np.testing.assert_allclose(*losses, rtol=1e-5)


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_curve(tmp_path):
    toy_run.run(tmp_path / "whole", 40, accumulate=2, mesh=fsdp(1, 1))
    folder = tmp_path / "killed"
    process = launching.start("tests.training.toy_run", folder, 40, cwd=launching.ROOT, devices=1)
    # Two steps on.
    launching.kill(process, lambda: (folder / "checkpoints" / "10").exists() and not time.sleep(0.1))
    done = len(toy_run.rows_of(folder))
    assert 10 < done < 40
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 39, "lo')  # a line that a kill has cut off
    state = toy_run.run(folder, 40, accumulate=2, mesh=fsdp(1, 1))
    assert int(state.step) == 40
    assert toy_run.rows_of(folder) == toy_run.rows_of(tmp_path / "whole")
    assert [row["step"] for row in toy_run.rows_of(folder)] == list(range(1, 41))
    assert not list((folder / "checkpoints").glob("*tmp*"))


@pytest.mark.slow
def test_two_processes_do_as_one(one_device, tmp_path):
    port = launching.free_address().partition(":")[2]
    for steps in (8, 12):  # the second time, both go on from what they kept
        words = (tmp_path / "two", steps, port)
        how = {"cwd": launching.ROOT, "devices": 2}
        launching.finish([launching.start("tests.training.toy_run", *words, rank, **how) for rank in range(2)])
    one, two = toy_run.rows_of(one_device[0]), toy_run.rows_of(tmp_path / "two")
    assert [row["step"] for row in two] == [row["step"] for row in one] == list(range(1, 13))
    # Sums of four parts in another order.
    np.testing.assert_allclose([row["loss"] for row in two], [row["loss"] for row in one], rtol=1e-5)


def test_the_best_checkpoint_is_kept_next_to_the_newest(tmp_path):
    scores, states = {0: 0.95, 4: 0.6, 8: 0.9, 12: 0.7, 16: 0.5, 18: 0.8}, {}

    def kept():
        return Checkpoints(tmp_path / "checkpoints", max_to_keep=1, best_metric="validation")

    assert kept().best() is None
    for num_steps in (12, 18):
        step, state = toy_run.make()
        toy_run.train(
            tmp_path,
            step,
            state,
            num_steps,
            max_to_keep=1,
            best="validation",
            log_every=100,
            checkpoint_every=6,
            frozen=toy_run.FROZEN,
            validate=lambda state: {"validation": scores[int(state.step)], "other": 1.0},
            validate_every=4,
            on_checkpoint=lambda state: states.update({int(state.step): np.asarray(state.params["w"])}),
        )
        assert kept().best() == (8, 0.9)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir() if path.name.isdigit()) == ["18", "8"]
    assert sorted(states) == [4, 6, 8, 12, 16, 18]
    _, like = toy_run.make()
    np.testing.assert_array_equal(kept().restore(like, 8).params["w"], states[8])
    np.testing.assert_array_equal(kept().restore(like).params["w"], states[18])
    validations = [row for row in toy_run.rows_of(tmp_path) if "validation" in row]
    assert {row["step"]: row["validation"] for row in validations} == scores


def train(folder, loss_fn, optimizer, batches=toy_run.batches_from, num_steps=30, **options):
    state = loop.create_state({"w": jnp.ones(toy_run.FEATURES)}, optimizer)
    return toy_run.train(folder, loop.make_step(loss_fn, optimizer, seed=0), state, num_steps, batches, **options)


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path):
    def poisoned(first):
        for index, batch in enumerate(toy_run.batches_from(first)):
            yield {"x": batch["x"] * (np.nan if index == 7 else 1.0)}

    step, state = toy_run.make()
    with raises("diverged", "toy", "8", "nan", "checkpoint", kind=loop.DivergenceError) as error:
        toy_run.train(tmp_path, step, state, 30, poisoned, keeps=False, log_every=5, frozen=toy_run.FROZEN)
    assert isinstance(error.value, FloatingPointError)


def test_a_gradient_that_is_not_finite_is_never_saved(tmp_path):
    def loss_fn(params, batch, key):
        kept = jnp.where(batch["x"].mean() > 50, 0.0, 1.0)
        return jnp.sum(jnp.sqrt(kept * params["w"] ** 2)), {}  # at 0, the root's derivative is infinite: 0 * inf

    def batches(first):
        for index, batch in enumerate(toy_run.batches_from(first)):
            yield {"x": batch["x"] + (100.0 if index == 3 else 0.0)}

    folder = str(tmp_path / "checkpoints")
    with raises("diverged", "gradient_norm", "4", "nan", "2", folder, kind=loop.DivergenceError):
        train(tmp_path, loss_fn, optax.adam(0.05), batches, log_every=100, checkpoint_every=2)
    assert Checkpoints(folder).latest_step() == 2


def test_parameters_that_overflow_are_never_saved(tmp_path):
    """The loss and the gradient before the step are finite, and the step itself is too large."""
    optimizer = optax.sgd(lambda step: jnp.where(step == 3, 3e38, 0.01))
    with raises("diverged", "4", "2", kind=loop.DivergenceError):
        train(tmp_path, lambda params, batch, key: (-200.0 * params["w"].sum(), {}), optimizer, checkpoint_every=2)
    assert Checkpoints(tmp_path / "checkpoints").latest_step() == 2


def test_a_loss_that_explodes_stops_the_run(tmp_path):
    def batches(first):
        for index in itertools.count(first + 1):
            yield {"x": jnp.full((8, 4), 10.0 if index >= 33 else 1.0)}

    def loss_fn(params, batch, key):
        return 0.0 * params["w"].sum(), {"error": batch["x"].mean()}

    options = {"log_every": 100, "checkpoint_every": 8, "watched": "error", "explosion_factor": 5.0}
    with raises("diverged", "33", "10", "5", "32", kind=loop.DivergenceError):
        train(tmp_path, loss_fn, optax.sgd(0.0), batches, **options, num_steps=60)
    assert Checkpoints(tmp_path / "checkpoints").latest_step() == 32
    assert toy_run.rows_of(tmp_path)[-1] == {"step": 33, "loss": 0.0, "gradient_norm": 0.0, "error": 10.0}


def test_the_first_steps_and_negative_losses_are_no_explosion():
    watch = loop._Watch("loss", 2.0)
    rows = [{"loss": value, "gradient_norm": 0.0} for value in [1.0] * 19 + [50.0]]
    assert [watch.fault(step, row) for step, row in enumerate(rows)] == [None] * 20
    assert "more than 2 times" in watch.fault(20, rows[-1])
    for factor in (None, 60.0):
        watch = loop._Watch("loss", factor)
        assert [watch.fault(step, row) for step, row in enumerate([*rows, rows[-1]])] == [None] * 21
    watch = loop._Watch("loss", 2.0)
    for step in range(30):
        assert watch.fault(step, {"loss": -1.0, "gradient_norm": 0.0}) is None
    assert watch.fault(30, {"loss": 7.0, "gradient_norm": 0.0}) is None


def test_a_batch_that_devices_cannot_share_is_refused(tmp_path):
    step, state = toy_run.make()
    uneven = ({"x": np.ones((3, toy_run.FEATURES), np.float32)} for _ in range(2))
    with raises("indivisible-batch", "3", "2", "batch_size", "4"):
        toy_run.train(tmp_path, step, state, 2, lambda first: uneven, keeps=False, mesh=fsdp(2, 1))


def test_the_rows_of_a_batch_are_those_of_its_arrays():
    batch = {"input_ids": {name: np.ones((4, 2), np.int32) for name in ("first", "second", "third")}}
    shared = loop._share(batch, parallel.split_rows(fsdp(2, 1)))
    assert {len(array.sharding.device_set) for array in jax.tree.leaves(shared)} == {2}


def test_batch_sizes_are_checked_ahead():
    mesh = fsdp(2, 1)
    loop.check_batch_size(12, 3, mesh)
    with raises("indivisible-batch", "10", "3", "6", "12"):
        loop.check_batch_size(10, 3, mesh)
    with raises("indivisible-batch", "0", "2", "batch_size"):
        loop.check_batch_size(0, 1, mesh)


def test_a_time_limit_leaves_a_checkpoint(tmp_path):
    state = toy_run.run(tmp_path, 10_000_000, max_seconds=0.5, checkpoint_every=2000, log_every=5)
    assert 0 < int(state.step) < 10_000_000
    assert Checkpoints(tmp_path / "checkpoints").latest_step() == int(state.step)
