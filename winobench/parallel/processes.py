"""Processes that run the same program and share its work: how they find each other, meet, and notice a loss."""

from __future__ import annotations

import atexit
import concurrent.futures
import contextlib
import ctypes
import functools
import glob
import itertools
import json
import os
import re
import signal
import socket
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import jax

from winobench.base import json_files
from winobench.base.errors import InputError


def join_processes(spec: str, *, fault_tolerant: bool = False) -> None:
    """Makes this process one of several that run the same program and share its work. Before JAX looks for devices.

    Args:
      spec: ``auto`` on a TPU pod, under SLURM or Open MPI, and in a Kubernetes JobSet where the package ``kubernetes``
        is installed. Elsewhere ``host:port,count,number``: an address of the first process that all can reach, the
        number of processes, and this process's number, from 0.
      fault_tolerant: whether the others continue when one is lost, which they see at the next `all_gather_object`.
        Otherwise JAX ends them, as it must where arrays are spread over all of them. The first process cannot be
        outlived: `check_first_process` raises when it was lost.
    """
    if spec == "auto":
        joining = _auto()
    else:
        address, *numbers = (part.strip() for part in spec.split(","))
        host, _, port = address.rpartition(":")
        fault = None
        if ":" not in address or len(numbers) != 2 or not all(re.fullmatch("[0-9]{1,9}", number) for number in numbers):
            fault = "is neither auto nor host:port,count,number, by which processes are joined"
        elif not (re.fullmatch(r"[0-9]{1,5}", port) and 0 < int(port) < 2**16):
            fault = f"names the port {port!r}, but a port is a number from 1 to 65535"
        elif not re.fullmatch(r"[\w.-]{1,255}|\[[\w:.%]{1,255}\]", host):
            fault = "names no host that all processes can reach: write its name, or its address"
        elif int(numbers[1]) >= int(numbers[0]):
            fault = f"names process {numbers[1]} of {numbers[0]}, but they are numbered from 0"
        if fault is not None:
            raise InputError(f"{spec!r:.300} {fault}", code="bad-address")
        count, number = map(int, numbers)
        joining = {**_by_hand(address, count, number), "local_device_ids": _own_gpus()}
    if fault_tolerant:
        jax.config.update("jax_enable_recoverability", True)
        # Only checkpoints need it. It would catch SIGTERM, so that ending a job would take a kill.
        jax.config.update("jax_enable_preemption_service", False)
    try:
        with _first_process_watched() if fault_tolerant else contextlib.nullcontext():
            jax.distributed.initialize(**joining)
    except Exception as error:  # what detection raises depends on the cluster
        reason = " ".join(str(error).split())
        hint = ": start each with host:port,count,number instead of auto" if spec == "auto" else ""
        raise InputError(f"the other processes were not found ({reason}){hint}", code="processes-not-found") from error
    if fault_tolerant and is_main_process():
        # The others need the first one until they are done. Registered after JAX's own end, this comes before it.
        atexit.register(_wait_until_alone)


_FIRST_WAS_LOST = "process 0 was lost: give the same command again, with any number of processes, to resume"
_first_is_lost = threading.Event()
_kept: list[Any] = []  # callbacks of C
# For a call between the processes to fail by itself when the first one is lost, and for the first one to answer.
_SECONDS_TO_FAIL, _SECONDS_TO_ANSWER = 1.0, 5.0
_TRIES = 3


def check_first_process() -> None:
    """Call it now and then where processes that outlive each other work by themselves."""
    if _first_is_lost.is_set():
        raise InputError(_FIRST_WAS_LOST, code="process-lost")


@contextlib.contextmanager
def _first_process_watched() -> Iterator[None]:
    """Inside, `jax.distributed.initialize` does not have this process aborted when the first one is lost.

    JAX's connection reports that in its own thread, in which it aborts the process, with two stack traces. JAX takes no
    other callback, and JAX 0.10 has one that cannot be called: the call ends in an abort, too, which is caught here.
    The thread is then held for good. The others continue, and `check_first_process` raises in them.
    """
    from jax._src import distributed

    connect = distributed._jax.get_distributed_runtime_client
    distributed._jax.get_distributed_runtime_client = functools.partial(
        connect, missed_heartbeat_callback=lambda *_: _lose_first_process()
    )
    try:
        yield
    finally:
        distributed._jax.get_distributed_runtime_client = connect
    if jax.process_index() == 0:
        return
    host, _, port = (distributed.global_state.coordinator_address or "").rpartition(":")

    def on_abort(_: int) -> None:
        """Returns to let the process be aborted."""
        if threading.current_thread() is threading.main_thread():
            return
        if _is_there(host.strip("[]"), int(port)):
            return
        _lose_first_process()
        while True:
            time.sleep(3600)

    handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(on_abort)
    _kept.append(handler)
    # Python's own handlers run later, in the main thread, which is too late.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).signal(signal.SIGABRT, handler)


def _is_there(host: str, port: int) -> bool:
    """Whether a process continues listening. One that is ending may still accept a last connection."""
    for _ in range(_TRIES):
        try:
            with socket.create_connection((host, port), _SECONDS_TO_ANSWER) as connection:
                connection.settimeout(_SECONDS_TO_FAIL)
                if not connection.recv(1):
                    return False
        except TimeoutError:
            pass  # it listens, and has nothing to say
        except OSError:
            return False
        time.sleep(_SECONDS_TO_FAIL / _TRIES)
    return True


def _lose_first_process() -> None:
    if not _first_is_lost.is_set():
        _first_is_lost.set()
        # Before JAX's own end, which would wait for the first process and for the thread that is held.
        atexit.register(_leave_at_once)


def _leave_at_once() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(2 if getattr(sys, "last_value", None) is None else 1)


def _unless_lost(call: Callable[[], Any]) -> Any:
    """Waits for a call between the processes, which may never come back if the first one is lost meanwhile."""
    if is_main_process():
        return call()
    check_first_process()
    result: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def work() -> None:
        try:
            result.set_result(call())
        except Exception as error:
            result.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    while True:
        try:
            return result.result(timeout=0.2)
        except concurrent.futures.TimeoutError:
            check_first_process()
        except jax.errors.JaxRuntimeError:
            if _first_is_lost.wait(_SECONDS_TO_FAIL):
                raise InputError(_FIRST_WAS_LOST, code="process-lost") from None
            raise


def _auto() -> dict[str, Any]:
    """Arguments of `jax.distributed.initialize` from the environment. JAX finds the others by itself."""
    from_open_mpi = all(f"OMPI_COMM_WORLD_{name}" in os.environ for name in ("SIZE", "RANK", "LOCAL_SIZE"))
    if not from_open_mpi or "OMPI_MCA_orte_hnp_uri" in os.environ:
        return {"local_device_ids": _own_gpus()}
    # Open MPI 5 no longer names its starting place, the only thing that JAX looks for.
    count, number, here = (int(os.environ[f"OMPI_COMM_WORLD_{name}"]) for name in ("SIZE", "RANK", "LOCAL_SIZE"))
    address = os.environ.get("JAX_COORDINATOR_ADDRESS")
    if address is None and here == count:
        port = os.environ.get("JAX_COORDINATOR_PORT")
        address = f"localhost:{port or 61440 + zlib.crc32(os.environ.get('PMIX_NAMESPACE', '').encode()) % 4096}"
    if address is None:
        raise InputError(
            "this Open MPI does not name the place of the first process: set JAX_COORDINATOR_ADDRESS to its host:port"
            " (mpirun -x JAX_COORDINATOR_ADDRESS=...)",
            code="processes-not-found",
        )
    return {**_by_hand(address, count, number), "local_device_ids": _own_gpus()}


def _by_hand(address: str, count: int, number: int) -> dict[str, Any]:
    return {
        "coordinator_address": address,
        "num_processes": count,
        "process_id": number,
        "cluster_detection_method": "deactivate",
    }


def _own_gpus() -> list[int] | None:
    """This process's own among the visible GPUs; None where JAX finds them.

    JAX itself would take one a process where SLURM or Open MPI number them, also where a single process has the whole
    machine, or where each sees only its own.
    """
    if "JAX_LOCAL_DEVICE_IDS" in os.environ:
        return None
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = glob.glob("/dev/nvidia[0-9]*") if visible is None else [name for name in visible.split(",") if name]
    if not names:
        return None
    number, here = _place_on_machine()
    if here > len(names) or "SLURM_GPUS_PER_TASK" in os.environ:
        number, here = 0, 1
    return list(range(len(names)))[process_slice(len(names), number, here)]


def _place_on_machine() -> tuple[int, int]:
    """This process's number among those that a scheduler has started on this machine, and their number."""
    for number, count in (
        ("SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"),
        ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ):
        if number in os.environ:
            # SLURM writes a count for each node, such as 4(x2),3. The largest one gives nobody another's devices.
            counts = re.findall(r"(\d+)(?:\(x\d+\))?(?:,|$)", os.environ.get(count, ""))
            here = int(os.environ[number])
            return here, max([here + 1, *map(int, counts)])
    return 0, 1


def is_main_process() -> bool:
    """Whether this process writes files and prints for its program."""
    return jax.process_index() == 0


def process_number() -> int:
    """The number of this process in its program, from 0."""
    return jax.process_index()


def num_processes() -> int:
    """The number of processes that run this program."""
    return jax.process_count()


def process_slice(length: int, process: int, num_processes: int) -> slice:
    """The contiguous part of a sequence that one of several processes works on. Lengths differ by at most 1."""
    return slice(length * process // num_processes, length * (process + 1) // num_processes)


def all_gather_object(work: Callable[[], Any]) -> list[Any]:
    """Calls a function in every process of the program, and waits until all have done so.

    This does not touch the devices: the processes may differ in their time. All processes have to meet equally often.
    Only a signal that ends the process interrupts the wait.
    """
    if jax.process_count() == 1:
        return [work()]
    failure = None
    try:
        said = {"result": work()}
    except Exception as error:
        failure = error
        if isinstance(error, InputError):
            said = {"error": str(error), "code": error.code}
        else:
            said = {"error": f"{type(error).__name__}: {error}"}
    try:
        heard = _exchange(json.dumps(said).encode())
    finally:
        if failure is not None:
            raise failure
    results = []
    for process in range(jax.process_count()):
        name = f"process {process} of {jax.process_count()}"
        if process not in heard:
            message = f"{name} was lost: give the same command again, with any number of processes, to resume"
            raise InputError(message, code="process-lost")
        answer = json_files.parse(heard[process], foreign=True, largest=len(heard[process]))
        if "error" in answer:
            raise InputError(f"{name} failed: {answer['error']}", code=answer.get("code"))
        results.append(answer["result"])
    return results


def broadcast_from_host0(work: Callable[[], Any]) -> Any:
    """Calls a function in the first process, and returns its result in all. Waits as `all_gather_object` does."""
    return all_gather_object(lambda: work() if is_main_process() else None)[0]


_meetings = itertools.count()


def _exchange(value: bytes) -> dict[int, bytes]:
    """The value of each process, without lost ones, once all others have come."""
    client, meeting = _client(), next(_meetings)

    def exchange() -> list[tuple[str, bytes]]:
        client.key_value_set_bytes(f"winobench/{meeting}/{jax.process_index()}", value)
        client.get_live_nodes(list(range(jax.process_count())))  # waits for the live ones
        return client.key_value_dir_get_bytes(f"winobench/{meeting}/")

    heard = _unless_lost(exchange)
    if is_main_process():
        client.key_value_delete(f"winobench/{meeting - 1}/")  # all live ones have read it
    return {int(key.rsplit("/", 1)[1]): value for key, value in heard}


def _wait_until_alone() -> None:
    """Waits until the other processes have ended."""
    with contextlib.suppress(Exception):  # any fault: this process is about to end
        _client().get_live_nodes(list(range(jax.process_count())))


def _client() -> Any:
    """JAX's connection between the processes, which it has no public name for."""
    from jax._src import distributed

    client = distributed.global_state.client
    if client is None:
        message = "the processes are not connected: call winobench.parallel.join_processes('auto') first"
        raise InputError(message, code="processes-not-joined")
    return client
