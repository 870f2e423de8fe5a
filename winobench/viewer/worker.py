"""Computes documents in a child process, one at a time, so that the server's memory stays as it is.

The process ends after a while without requests. Its documents stay in a temporary folder. If it is killed, its document
becomes a sentence on the fault, and the next request starts a new process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import os
import pathlib
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from typing import Any

from winobench.base import files, json_files
from winobench.base.errors import InputError

_SECONDS_IDLE = 60.0  # until the process ends
_SECONDS_A_DOCUMENT = 900.0
_SECONDS_OF_INTEREST = 60.0  # without a question for it, a document is not begun
_SECONDS_OF_A_FAILURE = 20.0  # until it is tried again
_MOST_KEPT = 100
_OUT_OF_MEMORY_FIRST = "500"  # of 1,000: what the system kills before the server


class Crash(Exception):
    """A document could not be computed, and not because of the user's input. The message is one sentence."""


@dataclasses.dataclass
class _Job:
    line: str  # what the process is asked
    path: pathlib.Path  # where the content comes to be
    done: threading.Event = dataclasses.field(default_factory=threading.Event)
    error: Exception | None = None
    asked: float = 0.0  # last time
    ended: float = 0.0


class Worker:
    """Functions that documents are made by, in another process. A context manager."""

    def __init__(self, functions: str):
        """``functions`` is a module. Each of its functions returns a text, bytes, or a value of JSON."""
        self._functions = functions
        self._jobs: dict[str, _Job] = {}
        self._queue: queue.Queue[str | None] = queue.Queue()
        self._process: subprocess.Popen[str] | None = None
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
        line = json.dumps([function, dict(arguments)])
        key = files.digest([line, version])
        now = time.monotonic()
        with self._lock:
            job = self._jobs.get(key)
            if job is None or (job.error is not None and now - job.ended > _SECONDS_OF_A_FAILURE):
                job = self._jobs[key] = _Job(line, pathlib.Path(self._folder.name) / key)
                self._queue.put(key)
                self._forget()
            self._jobs[key] = self._jobs.pop(key)  # the one used last is the last to go
            job.asked = now
        if not job.done.wait(wait):
            return None
        if job.error is not None:
            raise job.error
        return job.path

    def _forget(self) -> None:
        old = [key for key, job in self._jobs.items() if job.done.is_set()][:-_MOST_KEPT]
        for key in old:
            with contextlib.suppress(OSError):
                self._jobs.pop(key).path.unlink()

    def _run(self) -> None:
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
                if time.monotonic() - job.asked > _SECONDS_OF_INTEREST:
                    del self._jobs[key]
                    continue
            try:
                self._compute(job)
            except Exception as error:
                job.error = error
            job.ended = time.monotonic()
            job.done.set()
        self._end()
        for job in self._jobs.values():
            job.error = job.error or Crash("the viewer ends")
            job.done.set()

    def _compute(self, job: _Job) -> None:
        process = self._started()
        timer = threading.Timer(_SECONDS_A_DOCUMENT, process.kill)
        timer.start()
        try:
            print(json.dumps([self._functions, str(job.path)]) + job.line, file=process.stdin, flush=True)
            answer = process.stdout.readline()
        except OSError:
            answer = ""
        finally:
            timer.cancel()
        if not answer:
            code = self._end()
            raise Crash(
                f"the computation ended without a result (exit status {code}): the runs may be too large for the memory"
                " of this computer, or took too long"
            )
        found = json_files.parse(answer)
        if "crash" in found:
            raise Crash(found["crash"])
        if "error" in found:
            raise InputError(found["error"], code=found["code"])

    def _started(self) -> subprocess.Popen[str]:
        with self._lock:
            if self._process is None and not self._ended:
                root = str(pathlib.Path(__file__).parents[2])
                paths = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
                self._process = subprocess.Popen(
                    [sys.executable, "-m", __name__],
                    env={**os.environ, "PYTHONPATH": paths, "JAX_PLATFORMS": "cpu"},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                    start_new_session=True,  # an interrupt by the terminal is the server's to handle
                )
            if self._process is None:
                raise Crash("the viewer ends")
            return self._process

    def _end(self) -> int | None:
        """Ends the process, and returns its exit status."""
        with self._lock:
            process, self._process = self._process, None
        if process is None:
            return None
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()
        try:
            return process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


def main() -> None:
    """The process: a line asks for a document, and a line gives the result."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is not an answer
    with contextlib.suppress(OSError):
        pathlib.Path("/proc/self/oom_score_adj").write_text(_OUT_OF_MEMORY_FIRST)
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_listen, args=(lines,), daemon=True).start()
    while True:
        print(json.dumps(_computed(lines.get())), file=answers, flush=True)


def _listen(lines: queue.Queue[str]) -> None:
    """Takes requests. Ends the process, also in the middle of a document, once nobody is there to ask."""
    for line in sys.stdin:
        lines.put(line)
    os._exit(0)


def _computed(line: str) -> dict[str, Any]:
    try:
        (module, path), end = json_files.parse_at(line, 0)
        function, arguments = json_files.parse(line[end:])
        content = getattr(importlib.import_module(module), function)(**arguments)
        if not isinstance(content, str | bytes):
            content = json.dumps(content, allow_nan=False)
        pathlib.Path(path).write_bytes(content.encode() if isinstance(content, str) else content)
    except InputError as error:
        return {"error": str(error), "code": error.code}
    except MemoryError:
        return {"crash": "the runs are too large for the memory of this computer: name fewer of them"}
    except Exception as error:
        said = " ".join(str(error).split())[:300]
        return {"crash": f"the document cannot be made ({type(error).__name__}: {said}): report this as a fault"}
    return {}


if __name__ == "__main__":
    main()
