"""One evaluation by several processes, which share the work and not the devices."""

import collections
import itertools
import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests import launching
from tests.evaluation.fakes import config, recorded
from tests.evaluation.one_process import NUM_TRIPLES
from tests.expectations import names
from winobench.base.errors import InputError
from winobench.evaluation import runner

NUMBERS = itertools.count()


@pytest.fixture(scope="module", autouse=True)
def _forks():
    yield
    launching.Fork.end_server()


def start(workdir, *arguments, devices=2, **environment):
    workdir.parent.mkdir(exist_ok=True)
    printed = workdir.parent / f"printed-{next(NUMBERS)}"
    how = {"cwd": launching.ROOT, "devices": devices, "printed": printed, **environment}
    return launching.Fork("tests.evaluation.one_process", workdir, *arguments, **how)


def start_two(workdir, *options):
    address = launching.free_address()
    return [start(workdir, f"{address},2,{number}", *options) for number in range(2)]


def finish(*processes, status=0):
    """What the processes print: JSON, or what they complain about where they are expected to fail."""
    printed = launching.finish(processes, status)
    return [err if status else json.loads(out.splitlines()[-1]) for out, err in printed]


def by_process(workdir):
    """Number of process -> number of errors that it has recorded."""
    count = collections.Counter()
    for path in (workdir / "errors").glob("*.parquet"):
        count[int(path.stem.split("-")[1])] += sum(map(len, pq.read_table(path)["errors"].to_pylist()))
    return count


def tables(printed):
    """What must not depend on who computed it."""
    return {name: printed[name] for name in ("plan", "noise", "timesteps")} | {"tasks": printed["results"]["tasks"]}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """One process with one device: what it prints, and its errors."""
    workdir = tmp_path_factory.mktemp("alone") / "run"
    (printed,) = finish(start(workdir, devices=1))
    assert printed["devices"] == 1
    assert printed["results"]["computed_passes"] == NUM_TRIPLES
    return tables(printed), recorded(workdir)


def check_against(alone, printed, workdir):
    assert tables(printed) == alone[0]
    errors = recorded(workdir)
    assert errors.keys() == alone[1].keys()
    keys = list(errors)
    np.testing.assert_allclose([errors[key] for key in keys], [alone[1][key] for key in keys], rtol=1e-5)


@pytest.mark.slow  # starts two processes
def test_two_processes_share_the_work(alone, tmp_path):
    """Started by Open MPI 5, which JAX does not know. Slurm is in test_cloud.py."""
    workdir, port = tmp_path / "run", launching.free_address().partition(":")[2]
    common = {"PMIX_NAMESPACE": "prterun-here-17@1", "JAX_COORDINATOR_PORT": port}
    common |= {f"OMPI_COMM_WORLD_{name}": "2" for name in ("SIZE", "LOCAL_SIZE")}
    of_each = [{f"OMPI_COMM_WORLD_{name}": f"{n}" for name in ("RANK", "LOCAL_RANK")} for n in range(2)]
    first, second = finish(*(start(workdir, "auto", **common, **own) for own in of_each))
    assert first == second
    assert first["devices"] == 2  # each process its own
    assert first["results"]["computed_passes"] == NUM_TRIPLES
    assert first["results"]["versions"]["device"]["processes"] == 2
    check_against(alone, first, workdir)
    assert by_process(workdir) == {0: NUM_TRIPLES // 2, 1: NUM_TRIPLES - NUM_TRIPLES // 2}
    assert json.loads((workdir / "results.json").read_text()).items() <= first["results"].items()


@pytest.mark.slow
def test_two_processes_race_as_one(tmp_path):
    (alone,) = finish(start(tmp_path / "one" / "run", "", "race", devices=1))
    first, second = finish(*start_two(tmp_path / "two" / "run", "race"))
    assert first == second
    race = first["results"]["race"]
    assert race["passes"] < race["fixed_passes"]
    assert {**race, "passes": 0} == {**alone["results"]["race"], "passes": 0}
    assert race["passes"] == alone["results"]["race"]["passes"]
    # Where a sample has the timestep that the pilot has tried on it, it is not scored again.
    for printed in (alone, first):
        assert 0.9 * race["passes"] < printed["results"]["computed_passes"] <= race["passes"]
    assert first["results"]["tasks"] == alone["results"]["tasks"]
    assert set(by_process(tmp_path / "two" / "run")) == {0, 1}


@pytest.mark.slow
@pytest.mark.parametrize(("killed", "lost"), [(0, "process 0 was lost"), (1, "process 1 of 2 was lost")])
def test_what_a_killed_process_left_undone_is_done_by_a_rerun(alone, tmp_path, killed, lost):
    workdir = tmp_path / "run"
    processes = start_two(workdir, "slow")
    launching.kill(processes[killed], lambda: list(workdir.glob("errors/part-1-*.parquet")))
    # The other one knows when no sign of life has come for a while.
    (complaint,) = finish(processes[1 - killed], status=1)
    assert f"{lost}: give the same command again" in complaint
    before, kept = by_process(workdir), recorded(workdir)
    assert 0 < before[1] < NUM_TRIPLES - NUM_TRIPLES // 2
    if killed == 1:  # the first one has finished its share
        assert before[0] == NUM_TRIPLES // 2
        assert config(workdir)["status"].startswith(f"failed: {lost}")

    printed = finish(*(start_two(workdir) if killed == 1 else [start(workdir)]))
    assert all(one["results"] == printed[0]["results"] for one in printed)
    assert printed[0]["results"]["computed_passes"] == NUM_TRIPLES - len(kept)
    check_against(alone, printed[0], workdir)  # and nothing is recorded twice
    assert kept.items() <= recorded(workdir).items()


def test_a_folder_that_is_not_shared_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "_SECONDS_TO_APPEAR", 0.3)
    there, missing = tmp_path / "there", tmp_path / "errors" / "part-1-00000.parquet"
    there.touch()
    runner._wait_for([there])
    with pytest.raises(InputError, match=names("part-1-00000.parquet")):
        runner._wait_for([there, missing])


@pytest.mark.slow  # starts two processes
def test_a_failure_is_told_to_all(tmp_path):
    first, second = finish(*start_two(tmp_path / "run", "fail"), status=1)
    assert "process 1 of 2 failed: ValueError: out of luck" in first
    assert "ValueError: out of luck" in second
    count = by_process(tmp_path / "run")
    assert count[0] == NUM_TRIPLES // 2
    assert count[1] == 4  # the batch before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["modes"], "process 1 has other arguments or other data than process 0"),
        (["spanning", "race"], "a race needs a mesh of one process's devices: leave mesh out, or use mode='fixed'"),
    ],
)
def test_what_is_refused_before_anything_is_scored(tmp_path, options, said):
    for complaint in finish(*start_two(tmp_path / "run", *options), status=1):
        assert said in complaint
    assert not (tmp_path / "run").exists()


@pytest.mark.slow  # most of the time is for starting processes
def test_a_mesh_may_span_the_processes(alone, tmp_path):
    workdir = tmp_path / "run"
    first, second = finish(*start_two(workdir, "spanning"))
    assert first == second
    assert first["devices"] == 4
    assert by_process(workdir) == {0: NUM_TRIPLES}
    check_against(alone, first, workdir)
