"""Computes documents in a child process, one at a time, so that the server's memory stays small.

The process ends after a while without requests. Its documents stay in a temporary folder. If it is killed, its document
becomes a sentence on the fault, and the next request starts a new process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import multiprocessing
import os
import pathlib
import queue
import signal
import tempfile
import threading
import time
from collections.abc import Mapping
from concurrent import futures
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from winobench.base import files
from winobench.base.errors import InputError

_SECONDS_IDLE = 60.0  # until the process ends
_SECONDS_A_DOCUMENT = 900.0
_SECONDS_OF_INTEREST = 60.0  # without a question for it, a document is not begun
_SECONDS_OF_A_FAILURE = 20.0  # until it is tried again
_MOST_KEPT = 100
_OUT_OF_MEMORY_FIRST = "500"  # of 1,000: the system kills this process before the server


class Crash(Exception):
    """A document could not be computed, and not because of the user's input. The message is one sentence."""


@dataclasses.dataclass
class _Job:
    function: str
    arguments: dict[str, Any]
    path: pathlib.Path
    result: futures.Future[pathlib.Path] = dataclasses.field(default_factory=futures.Future)
    requested: float = 0.0  # last time
    ended: float = 0.0


class Worker:
    """Functions that compute documents in another process. A context manager."""

    def __init__(self, functions: str):
        """``functions`` is a module. Each of its functions returns a text, bytes, or a value of JSON."""
        self._functions = functions
        self._jobs: dict[str, _Job] = {}
        self._queue: queue.Queue[str | None] = queue.Queue()
        self._process: BaseProcess | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ended = False

    def __enter__(self) -> Worker:
        self._folder = tempfile.TemporaryDirectory(prefix="winobench-view-", ignore_cleanup_errors=True)
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._ended = True
        self._queue.put(None)
        with self._lock:
            if self._process is not None:
                self._process.kill()
        self._thread.join()
        self._folder.cleanup()

    def find(self, function: str, arguments: Mapping[str, Any], version: Any, wait: float = 0.0) -> pathlib.Path | None:
        """The file of a function's result, or None if it is not computed within ``wait`` seconds.

        ``version`` tells on which files the content depends. Raises the function's InputError, or Crash.
        """
        key = files.digest([function, dict(arguments), version])
        now = time.monotonic()
        with self._lock:
            job = self._jobs.get(key)
            failed = job is not None and job.result.done() and job.result.exception() is not None
            if job is None or (failed and now - job.ended > _SECONDS_OF_A_FAILURE):
                job = self._jobs[key] = _Job(function, dict(arguments), pathlib.Path(self._folder.name) / key)
                self._queue.put(key)
                self._forget()
            self._jobs[key] = self._jobs.pop(key)  # the job used last is the last to go
            job.requested = now
        try:
            return job.result.result(wait)
        except TimeoutError:
            return None

    def _forget(self) -> None:
        old = [key for key, job in self._jobs.items() if job.result.done()][:-_MOST_KEPT]
        for key in old:
            with contextlib.suppress(OSError):
                self._jobs.pop(key).path.unlink()

    def _run(self) -> None:
        # The server handles an interrupt by the terminal. The process inherits this thread's signals.
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        while True:
            try:
                key = self._queue.get(timeout=None if self._process is None else _SECONDS_IDLE)
            except queue.Empty:
                self._end()
                continue
            if key is None or self._ended:
                break
            with self._lock:
                job = self._jobs[key]
                if time.monotonic() - job.requested > _SECONDS_OF_INTEREST:
                    del self._jobs[key]
                    continue
            try:
                error = self._compute(job)
            except Exception as caught:
                error = caught
            job.ended = time.monotonic()
            job.result.set_result(job.path) if error is None else job.result.set_exception(error)
        self._end()
        for job in self._jobs.values():
            if not job.result.done():
                job.result.set_exception(Crash("the viewer ends"))

    def _compute(self, job: _Job) -> Exception | None:
        process = self._started()
        try:
            self._pipe.send((self._functions, job.function, job.arguments, job.path))
            if not self._pipe.poll(_SECONDS_A_DOCUMENT):
                process.kill()
            return self._pipe.recv()
        except (EOFError, OSError):
            return Crash(
                f"the computation ended without a result (exit status {self._end()}): the runs may be too large for the"
                " memory of this computer, or took too long"
            )

    def _started(self) -> BaseProcess:
        with self._lock:
            if self._ended:
                raise Crash("the viewer ends")
            if self._process is None:
                context = multiprocessing.get_context("spawn")
                self._pipe, other_end = context.Pipe()
                with other_end:
                    process = context.Process(target=_serve, args=(other_end,), daemon=True)
                    process.start()
                self._process = process
            return self._process

    def _end(self) -> int | None:
        """Ends the process, and returns its exit status."""
        with self._lock:
            process, self._process = self._process, None
        if process is None:
            return None
        self._pipe.close()
        process.join(timeout=5)
        process.kill()
        process.join()
        return process.exitcode


def _serve(pipe: Connection) -> None:
    """The process: computes each requested document, and sends None or an error."""
    os.setsid()
    os.environ["JAX_PLATFORMS"] = "cpu"
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)  # what libraries print
    os.dup2(nowhere, 2)
    with contextlib.suppress(OSError):
        pathlib.Path("/proc/self/oom_score_adj").write_text(_OUT_OF_MEMORY_FIRST)
    threading.Thread(target=_end_with_server, daemon=True).start()
    with contextlib.suppress(EOFError):
        while True:
            pipe.send(_write(*pipe.recv()))


def _end_with_server() -> None:
    """Ends the process with the server, also in the middle of a document."""
    if (server := multiprocessing.parent_process()) is not None:
        server.join()
    os._exit(0)


def _write(module: str, function: str, arguments: dict[str, Any], path: pathlib.Path) -> Exception | None:
    try:
        content = getattr(importlib.import_module(module), function)(**arguments)
        if not isinstance(content, str | bytes):
            content = json.dumps(content, allow_nan=False)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    except InputError as error:
        return InputError(str(error), code=error.code)
    except MemoryError:
        return Crash("the runs are too large for the memory of this computer: name fewer of them")
    except Exception as error:
        message = " ".join(str(error).split())[:300]
        return Crash(f"the document cannot be made ({type(error).__name__}: {message}): report this as a fault")
    return None
