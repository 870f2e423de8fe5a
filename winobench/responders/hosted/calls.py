"""Calls that are under way at once: their results, pauses, interruptions, and a log of their attempts."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import datetime
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

from winobench.base import files
from winobench.base.errors import InputError
from winobench.runs.requests import Raw


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of a call. All None for one that was not made because the run ends.

    An error ends the run, and may come with an answer.
    """

    raw: Raw | None = None
    error: BaseException | None = None
    passing: bool = False


class Results:
    """What the threads have for `ask`. Waiting and taking are apart, so that an interrupt of the wait loses nothing."""

    def __init__(self):
        self._there: collections.deque[tuple[int, Outcome]] = collections.deque()
        self._arrived = threading.Event()

    def put(self, index: int, outcome: Outcome) -> None:
        """Adds the outcome of a request; from any thread."""
        self._there.append((index, outcome))
        self._arrived.set()

    def wait(self, seconds: float | None) -> bool:
        """Waits for a result; False if there is none in time."""
        if not self._there:
            self._arrived.clear()
            if not self._there:  # it may have come in between
                self._arrived.wait(seconds)
        return bool(self._there)

    def take(self) -> tuple[int, Outcome]:
        """The oldest outcome that nobody has taken."""
        return self._there.popleft()


class Interrupts:
    """Ctrl-C while answers are asked for: it is raised where `ask` waits, and kept until then where others work.

    Otherwise it would cut off whoever stores an answer, with that answer and those under way. A second one is raised
    at once.
    """

    def __init__(self):
        self.kept = False  # one has come that `ask` has not seen yet
        self._taken = self._waiting = self._came = False

    def take_over(self) -> None:
        """From now on, where Python's own handler would raise it."""
        self._taken = (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        )
        if self._taken:
            signal.signal(signal.SIGINT, self._handle)

    def give_back(self) -> None:
        """Has interrupts do again what they did before `take_over`."""
        if self._taken:
            with contextlib.suppress(ValueError):  # a generator that another thread has cleared away
                signal.signal(signal.SIGINT, signal.default_int_handler)

    @contextlib.contextmanager
    def raised(self) -> Iterator[None]:
        """Here interrupts are raised, one that was kept among them."""
        self._waiting = True
        try:
            if self.kept:
                self.kept = False
                raise KeyboardInterrupt
            yield
        finally:
            self._waiting = False

    def _handle(self, *_: Any) -> None:
        first, self._came = not self._came, True
        # Python drops what is raised in a destructor or a callback: then it is raised again by the next `raised`.
        self.kept = True
        if self._waiting or not first:
            raise KeyboardInterrupt


class Pace:
    """Keeps all threads from sending while the server wants to be left alone."""

    def __init__(self):
        self._until = 0.0
        self._lock = threading.Lock()

    def pause(self, seconds: float) -> None:
        """Has all calls wait for so many seconds."""
        with self._lock:
            self._until = max(self._until, time.monotonic() + seconds)

    def wait(self, stop: threading.Event) -> None:
        """Waits until calls may be made, or everything is to stop."""
        while (left := self._until - time.monotonic()) > 0 and not stop.wait(left):
            pass


class AttemptsLog:
    """A line for each attempt."""

    def __init__(self, path: str | os.PathLike | None):
        self.path = path
        self._lock = threading.Lock()

    def add(
        self,
        body: dict[str, Any],
        attempt: int,
        status: int | None,
        seconds: float,
        outcome: str,
        wait: float | None,
        request_id: str | None,
    ) -> None:
        """Writes down one attempt, at once."""
        if self.path is None:
            return
        line = {
            "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
            "request": files.digest(body)[:16],
            "attempt": attempt,
            "status": status,
            "seconds": round(seconds, 3),
            "outcome": outcome,
            "wait": None if wait is None else round(wait, 3),
            "request_id": request_id,
        }
        try:
            with self._lock, open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise InputError(
                f"{self.path} cannot be written: {error.strerror or error}.", code="cannot-write"
            ) from error
