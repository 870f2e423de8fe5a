import json
import os
import socket
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

from tests.expectations import raises
from winobench import parallel
from winobench.base.errors import InputError
from winobench.parallel import processes


def test_mesh_has_automatic_axes_and_all_devices():
    mesh = parallel.make_mesh()
    assert mesh.axis_names == ("data",)
    assert mesh.axis_types == (AxisType.Auto,)
    assert parallel.data_parallelism(mesh) == jax.device_count()
    assert parallel.as_mesh(None) == mesh


def test_explicit_axes_become_automatic():
    explicit = jax.make_mesh((1,), ("data",), devices=jax.devices()[:1], axis_types=(AxisType.Explicit,))
    assert parallel.as_mesh(explicit).axis_types == (AxisType.Auto,)


def test_bad_meshes():
    with raises("empty-list", "devices"):
        parallel.make_mesh([])
    with raises("indivisible-devices", "model_parallel"):
        parallel.make_mesh(jax.devices()[:1], model_parallel=2)
    with raises("indivisible-devices", "model_parallel"):
        parallel.make_mesh(jax.devices()[:1], model_parallel=0)
    unclear = jax.make_mesh((1, 1), ("data", "stage"), devices=jax.devices()[:1])
    for arguments in ((unclear,), (unclear, "batch"), (jax.make_mesh((1,), ("model",), devices=jax.devices()[:1]),)):
        with raises("wrong-axes", "batch_axis"):
            parallel.as_mesh(*arguments)


@pytest.mark.parametrize(
    ("axes", "batch_axis", "expected"),
    [
        (("batch",), None, {"data": 4}),
        (("data",), None, {"data": 4}),
        (("data", "model"), None, {"data": 2, "model": 2}),
        (("model", "data"), None, {"data": 2, "model": 2}),
        (("data", "fsdp"), "data", {"data": 2, "model": 2}),
        (("data", "fsdp"), ("data", "fsdp"), {"data": 4}),
        (("replica", "data"), ["data"], {"data": 2, "model": 2}),
    ],
)
def test_axes_of_any_name(axes, batch_axis, expected):
    shape = (4,) if len(axes) == 1 else (2, 2)
    mesh = jax.make_mesh(shape, axes, devices=jax.devices()[:4])
    found = parallel.as_mesh(mesh, batch_axis=batch_axis)
    assert dict(found.shape) == expected
    assert set(found.axis_types) == {AxisType.Auto}
    if expected != {"data": 4}:  # devices along the axis of the batch stay along it
        turned = axes.index("data") == 1
        np.testing.assert_array_equal(found.devices, mesh.devices.T if turned else mesh.devices)
    assert parallel.as_mesh(found) == found


def test_parameters_are_split_where_the_devices_divide_them():
    # An abstract mesh: no test machine needs eight devices to find out where things would go.
    mesh = jax.sharding.AbstractMesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    shapes = {"kernel": (3, 3, 4, 8), "odd_outputs": (6, 5), "bias": (7,), "scalar": ()}
    arrays = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in shapes.items()}
    specs = jax.tree.map(lambda s: s.spec, parallel.parameter_shardings(arrays, mesh))
    assert specs == {
        "kernel": PartitionSpec(None, None, None, "model"),
        "odd_outputs": PartitionSpec("model"),
        "bias": PartitionSpec(),
        "scalar": PartitionSpec(),
    }
    whole = jax.sharding.AbstractMesh((8,), ("data",), axis_types=(AxisType.Auto,))
    assert {s.spec for s in jax.tree.leaves(parallel.parameter_shardings(arrays, whole))} == {PartitionSpec()}


def test_put_and_fetch_are_inverse():
    mesh = parallel.make_mesh()
    values = np.arange(24.0).reshape(3, 8)[:, : 8 - 8 % jax.device_count() or 8]
    placed = parallel.put(values, parallel.replicated(mesh))
    np.testing.assert_array_equal(parallel.fetch(placed), values)
    assert placed.sharding == parallel.replicated(mesh)


def test_map_over_data_sees_one_devices_rows():
    mesh = parallel.make_mesh()
    rows = 3 * parallel.data_parallelism(mesh)
    data = parallel.put(np.arange(rows), parallel.split_axis(mesh))
    split = PartitionSpec("data")
    mapped = parallel.map_over_data(lambda x: (x * 2, jnp.full((1,), len(x))), mesh, split, split)
    doubled, sizes = jax.jit(mapped)(data)
    np.testing.assert_array_equal(doubled, 2 * np.arange(rows))
    np.testing.assert_array_equal(sizes, 3)


def test_each_core_is_a_device():
    count = "assert jax.device_count() == min(3, len(__import__('os').sched_getaffinity(0)))"
    code = "import jax; from winobench.parallel import mesh; "
    code += f"mesh.one_device_per_core(limit=3); {count}; mesh.one_device_per_core(limit=1); {count}"
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"} | {"JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=120)


def test_a_number_of_devices_in_the_environment_is_kept(monkeypatch):
    monkeypatch.setattr(jax.config, "update", lambda *_: pytest.fail("changed the configuration"))
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=5")
    parallel.one_device_per_core()


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        *((spec, "bad-address") for spec in ("localhost", "localhost:1234,2", "localhost:1234,two,0")),
        *((spec, "bad-address") for spec in ("localhost:1234,2,2", "localhost:0,2,0", "local host:1234,2,0")),
        ("auto", "processes-not-found"),
    ],
)
def test_bad_processes(spec, code):
    with raises(code, *([] if spec == "auto" else [repr(spec)])):
        parallel.join_processes(spec)


@pytest.mark.parametrize(("length", "count"), [(0, 3), (2, 3), (10, 3), (225, 2), (7, 1)])
def test_shares_are_equal_and_leave_nothing_out(length, count):
    shares = [range(length)[parallel.process_slice(length, process, count)] for process in range(count)]
    assert [number for share in shares for number in share] == list(range(length))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_process_by_itself_meets_nobody():
    assert parallel.all_gather_object(lambda: (1, 2)) == [(1, 2)]
    assert parallel.broadcast_from_host0(lambda: "told") == "told"
    assert not parallel.is_multihost(parallel.make_mesh())
    assert not parallel.is_multihost(None)


@pytest.mark.parametrize(
    ("variables", "gpus"),
    [
        ({}, [0, 1, 2, 3]),
        ({"SLURM_LOCALID": "0", "SLURM_STEP_TASKS_PER_NODE": "1(x8)"}, [0, 1, 2, 3]),
        ({"SLURM_LOCALID": "2", "SLURM_STEP_TASKS_PER_NODE": "4(x2),3"}, [2]),
        ({"SLURM_LOCALID": "1", "SLURM_STEP_TASKS_PER_NODE": "2"}, [2, 3]),
        ({"SLURM_LOCALID": "1", "SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_GPUS_PER_TASK": "4"}, [0, 1, 2, 3]),
        ({"SLURM_LOCALID": "7", "SLURM_STEP_TASKS_PER_NODE": "8", "CUDA_VISIBLE_DEVICES": "0"}, [0]),
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "3", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, [3]),
        ({"CUDA_VISIBLE_DEVICES": ""}, None),
        ({"JAX_LOCAL_DEVICE_IDS": "1"}, None),
    ],
)
def test_processes_of_one_machine_divide_its_gpus(monkeypatch, variables, gpus):
    for name in list(os.environ):
        if name.startswith(("SLURM_", "OMPI_")):
            monkeypatch.delenv(name)
    for name, value in ({"CUDA_VISIBLE_DEVICES": "4,5,6,7"} | variables).items():
        monkeypatch.setenv(name, value)
    assert processes._own_gpus() == gpus


def test_open_mpi_5_has_to_be_told_where_the_first_process_is(monkeypatch):
    for name, value in {"SIZE": "4", "RANK": "3", "LOCAL_SIZE": "2", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(f"OMPI_COMM_WORLD_{name}", value)
    with raises("processes-not-found", "JAX_COORDINATOR_ADDRESS"):
        parallel.join_processes("auto")


def test_what_is_there_already_is_not_put_again():
    mesh = parallel.make_mesh()
    there = parallel.put(np.arange(8.0), parallel.replicated(mesh))
    assert parallel.put(there, parallel.replicated(mesh)) is there
    one = jax.device_put(np.arange(8.0), jax.devices()[0])
    assert parallel.put(one, parallel.replicated(mesh)).sharding == parallel.replicated(mesh)


def test_batches_are_split_over_all_devices():
    mesh = jax.sharding.AbstractMesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    assert parallel.split_rows(mesh, axis=1).shard_shape((3, 16, 5)) == (3, 2, 5)
    assert parallel.split_axis(mesh, axis=1).shard_shape((3, 16, 5)) == (3, 4, 5)


def test_a_process_that_ends_is_not_there(monkeypatch):
    """One that listens is; one that takes a last connection and closes it, and one that is gone, are not."""
    monkeypatch.setattr(processes, "_SECONDS_TO_FAIL", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert processes._is_there("127.0.0.1", port)

        def close_the_next():
            while True:
                try:
                    server.accept()[0].close()
                except OSError:
                    return

        threading.Thread(target=close_the_next, daemon=True).start()
        assert not processes._is_there("127.0.0.1", port)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        assert not processes._is_there("127.0.0.1", free.getsockname()[1])


def test_an_error_of_another_process_keeps_its_code(monkeypatch):
    def fail():
        raise InputError("the file x is torn: mend it", code="torn-file")

    heard = []

    def exchange(said):
        heard.append(said)
        return {0: json.dumps({"result": 1}).encode(), 1: heard[0]}

    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(processes, "_exchange", exchange)
    with raises("torn-file", "x"):
        parallel.all_gather_object(fail)
    with raises("torn-file", "process 1 of 2", "x"):
        parallel.all_gather_object(lambda: 1)
