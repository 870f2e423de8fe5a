"""Documents from another process: kept, asked again, and said in a sentence where that process fails."""

import json
import os
import subprocess
import sys
import time

import pytest

from tests.expectations import raises
from tests.launching import is_running
from winobench.viewer import worker as workers
from winobench.viewer.worker import Crash, Worker

FUNCTIONS = "tests.viewer.worker_functions"
LONG = 60.0


@pytest.fixture(scope="module")
def worker():
    with Worker(FUNCTIONS) as running:
        yield running


def value(worker, number, version=0):
    return json.loads(worker.find("double", {"number": number}, version, LONG).read_text())


def wait_for(condition):
    end = time.monotonic() + 20
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    assert condition()


def test_a_result_is_kept_for_its_version(worker):
    first = worker.find("double", {"number": 4}, 0, LONG)
    assert json.loads(first.read_text())["value"] == 8
    assert worker.find("double", {"number": 4}, 0) == first
    assert worker.find("double", {"number": 4}, 1, LONG) != first
    assert value(worker, 5)["process"] != os.getpid()


def test_who_cannot_wait_asks_again(worker):
    asked = ("slowly", {"seconds": 0.3}, 0)
    assert worker.find(*asked) is None
    assert worker.find(*asked) is None
    assert worker.find(*asked, LONG).read_text() == "done"


@pytest.mark.parametrize(
    ("function", "said"),
    {"die": "-9", "leave": "3", "fail": "KeyError: 'key", "fill": "memory", "odd": "ValueError", "no": "no"}.items(),
)
def test_a_fault_is_a_sentence_and_the_next_document_comes(worker, function, said):
    with pytest.raises(Crash) as caught:
        worker.find(function, {}, 0, LONG)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert value(worker, 6)["value"] == 12


def test_what_is_wrong_with_a_run_is_told_as_it_is(worker):
    with raises("no-such-folder", "name another"):
        worker.find("refuse", {}, 0, LONG)


def test_a_fault_is_tried_again_after_a_while(worker, monkeypatch):
    with pytest.raises(Crash):
        worker.find("die", {}, 1, LONG)
    monkeypatch.setattr(workers, "_SECONDS_OF_A_FAILURE", 0.0)
    assert worker.find("die", {}, 1) is None


def test_the_process_ends_when_nobody_asks_and_with_the_worker(monkeypatch):
    monkeypatch.setattr(workers, "_SECONDS_IDLE", 0.1)
    with Worker(FUNCTIONS) as worker:
        first = value(worker, 1)["process"]
        wait_for(lambda: not is_running(first))
        second = worker.find("double", {"number": 2}, 0, LONG)
        process = json.loads(second.read_text())["process"]
        assert worker.find("slowly", {"seconds": 600}, 0) is None
        began = time.monotonic()
    assert time.monotonic() - began < 5
    wait_for(lambda: not is_running(process))
    assert not second.exists()


def test_the_process_ends_with_a_server_that_is_killed():
    code = f"""
from winobench.viewer.worker import Worker
with Worker({FUNCTIONS!r}) as worker:
    print(worker.find("double", {{"number": 1}}, 0, {LONG}).read_text(), flush=True)
    worker.find("slowly", {{"seconds": 600}}, 0, {LONG})
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as server:
        process = json.loads(server.stdout.readline())["process"]
        assert is_running(process)
        time.sleep(0.2)  # the next document begins
        server.kill()
    wait_for(lambda: not is_running(process))


def test_the_process_is_apart_from_its_server(worker):
    surroundings = json.loads(worker.find("surroundings", {}, 0, LONG).read_text())
    assert surroundings == {"leads_session": True, "out_of_memory": "500", "platforms": "cpu", "has_jax": False}


def test_a_document_that_takes_too_long_is_given_up(monkeypatch):
    monkeypatch.setattr(workers, "_SECONDS_A_DOCUMENT", 0.5)
    with Worker(FUNCTIONS) as worker, pytest.raises(Crash, match="too long"):
        worker.find("slowly", {"seconds": 600}, 0, LONG)


def test_what_nobody_asks_for_any_more_is_not_begun(monkeypatch):
    monkeypatch.setattr(workers, "_SECONDS_OF_INTEREST", 0.2)
    with Worker(FUNCTIONS) as worker:
        assert worker.find("slowly", {"seconds": 0.5}, 0) is None
        assert worker.find("slowly", {"seconds": 600}, 0) is None
        assert worker.find("slowly", {"seconds": 0.5}, 0, LONG) is not None
        assert value(worker, 1)["value"] == 2
