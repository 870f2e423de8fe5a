"""Calls that are under way at once: their attempts, pauses and results."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import json
import os
import queue
import random
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from absl import logging

from winobench.base import files
from winobench.base import interrupts as keyboard
from winobench.base.errors import InputError
from winobench.responders.hosted import api, waits
from winobench.responders.hosted.api import INCOMPLETE, Failure, request_id
from winobench.runs.requests import Raw, Request

_LONGEST_BACKOFF = 60.0
_SECONDS_WORTH_A_WARNING = 10.0
# An incomplete answer is requested again, but not for ever, as each may be billed.
_MOST_INCOMPLETE = 3
_LEAST_ROOM = 1024  # tokens for thoughts. A server that takes fewer gets the request's own limit
_SECONDS_TO_CLOSE = 1.0


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Of a call. Empty for one that was not made because the run ends. ``error`` ends the run, also with an answer.
    ``in_row``: many such failures in a row end it, too."""

    raw: Raw | None = None
    error: BaseException | None = None
    in_row: bool = False


Results = queue.SimpleQueue[tuple[int, Outcome] | None]
"""Numbers of requests and their outcomes; None for an interrupt."""


@contextlib.contextmanager
def interrupts(results: Results) -> Iterator[list[bool]]:
    """Puts a Ctrl-C into the list and among the results: it cuts off no storing. A second one is raised at once."""
    came: list[bool] = []

    def handle(*_: Any) -> None:
        is_first = not came
        came.append(True)
        # Python drops an exception that is raised in a destructor or a callback. This stays.
        results.put(None)
        if not is_first:
            raise KeyboardInterrupt

    usual = signal.getsignal(signal.SIGINT)
    taken = threading.current_thread() is threading.main_thread() and keyboard.is_usual()
    if taken:
        signal.signal(signal.SIGINT, handle)
    try:
        yield came
    finally:
        if taken:
            with contextlib.suppress(ValueError):  # a generator that another thread has cleared away
                signal.signal(signal.SIGINT, usual)


@dataclasses.dataclass
class _Attempt:
    """One attempt of a call: an answer (status, body, headers), why it is not whole, or both."""

    body: dict[str, Any]
    number: int
    limit: int
    answer: tuple[int, str, Mapping[str, str]] | None = None
    failure: Failure | None = None
    started: float = dataclasses.field(default_factory=time.monotonic)
    seconds: float = 0.0


class Caller:
    """Makes calls, each with its retries, logs attempts, and pauses all calls while the server requests it."""

    def __init__(
        self,
        name: str,
        provider: api.Api,
        blank: Callable[[str | None], str | None],
        *,
        attempts: int,
        first_wait: float,
        longest_wait: float,
        log: str | os.PathLike | None,
    ):
        self.log = log
        self._name, self._api, self._blank = name, provider, blank
        self._attempts, self._first_wait, self._longest_wait = attempts, first_wait, longest_wait
        self._free_at = 0.0  # no call is sent before this moment

    async def call(self, client: Any, body: dict[str, Any] | Request, stop: asyncio.Event) -> Outcome:
        """One call: of a body, or of a request about an image, which is read now."""
        try:
            if not isinstance(body, dict):
                body = await asyncio.to_thread(self._api.body, body)
            return await self._call(client, body, stop)
        except Exception as error:  # otherwise the run would wait for ever
            return Outcome(error=error)

    async def _call(self, client: Any, body: dict[str, Any], stop: asyncio.Event) -> Outcome:
        # The same until an answer comes, so that a server that supports the header does not do the work twice.
        call_id = f"winobench-{uuid.uuid4()}"
        incomplete = 0
        for number in range(1, self._attempts + 1):
            while (left := self._free_at - time.monotonic()) > 0 and not stop.is_set():
                await _wait(stop, left)
            if stop.is_set():
                return Outcome()
            attempt = await self._attempt(client, body, call_id, number)
            if attempt.answer is not None:
                call_id = f"winobench-{uuid.uuid4()}"
                incomplete += attempt.failure is not None and attempt.failure.kind == INCOMPLETE
                if (wait := waits.exhausted(attempt.answer[2])) <= self._longest_wait:
                    self._pause(wait)
            given_up = number == self._attempts or incomplete == _MOST_INCOMPLETE
            if attempt.failure is None or (attempt.failure.kind == INCOMPLETE and given_up):
                return self._answered(attempt)
            outcome = self._failed(attempt)
            if isinstance(outcome, Outcome):
                return outcome
            await _wait(stop, outcome)
        raise AssertionError("attempts is at least 1")

    async def _attempt(self, client: Any, body: dict[str, Any], call_id: str, number: int) -> _Attempt:
        """Sends a call, and sends it again where the server takes another form, or thoughts take all tokens."""
        room = self._api.room
        while True:
            sent = self._api.adapted(body, room)
            attempt = _Attempt(body, number, api.limit(sent))
            try:
                async with asyncio.timeout(self._api.timeout):
                    attempt.answer = await self._api.send(client, sent, call_id)
            # The run continues after any fault of the client or the server.
            except Exception as error:
                attempt.failure = self._api.failure(error, sent)
            else:
                attempt.failure = self._api.unanswered(sent, *attempt.answer[1:])
            attempt.seconds = time.monotonic() - attempt.started
            if attempt.failure is not None and self._api.adapt(sent, attempt.failure):
                pass
            elif attempt.failure is not None and attempt.limit > api.limit(body) and api.is_too_long(attempt.failure):
                room = room // 4 if room > _LEAST_ROOM else 0
            elif attempt.answer is None or not self._api.needs_room(body, sent, room, attempt.answer[1]):
                return attempt
            outcome = self._write(attempt, 0.0)
            logging.info("%s: %s, sending it again in another form", self._name, outcome)
            call_id = f"{call_id}-other"  # another content under the same name might be refused

    def _answered(self, attempt: _Attempt) -> Outcome:
        status, text, headers = attempt.answer
        raw = {"body": self._blank(text), "status": status, "request_id": self._blank(request_id(headers))}
        raw |= {"attempts": attempt.number, "seconds": round(attempt.seconds, 3)}
        if attempt.limit > api.limit(attempt.body):
            raw["max_tokens"] = attempt.limit
        try:
            self._write(attempt, None)
        except InputError as error:  # the answer is paid for
            return Outcome(raw=raw, error=error)
        return Outcome(raw=raw)

    def _failed(self, attempt: _Attempt) -> Outcome | float:
        """The end of a call that failed, or the seconds until its next attempt."""
        failure = attempt.failure
        message, asked = self._blank(failure.message), failure.wait or 0.0
        backoff = min(self._first_wait * 2 ** (attempt.number - 1), _LONGEST_BACKOFF) * random.uniform(0.5, 1.0)
        wait = max(backoff, asked) if attempt.number < self._attempts and failure.passing else None
        outcome = self._write(attempt, wait)
        then = "it is given up" if wait is None else f"trying again in {wait:.1f} s"
        # A short wait is not worth a line on the screen.
        level = logging.WARNING if wait is None or wait >= _SECONDS_WORTH_A_WARNING else logging.INFO
        logging.log(level, "%s: attempt %d of %d: %s; %s", self._name, attempt.number, self._attempts, outcome, then)
        if failure.fatal is not None:
            words = self._blank(str(failure.fatal))
            return Outcome(error=InputError(f"{self._name}: {words}", code=failure.fatal.code))
        if failure.passing and asked > self._longest_wait:
            words = f"the server asks to be left alone for {asked:.0f} s ({message}): give the same command again after"
            words += " that. What has been answered is kept."
            return Outcome(error=InputError(f"{self._name}: {words}", code="rate-limited"))
        if wait is None:
            error = {"kind": failure.kind, "message": message, "attempts": attempt.number}
            return Outcome(raw={"error": error}, in_row=failure.passing or failure.kind == "unusable")
        if failure.kind == "rate limit":
            self._pause(asked)  # the others would meet the same
        return wait

    def _pause(self, seconds: float) -> None:
        self._free_at = max(self._free_at, time.monotonic() + seconds)

    def _write(self, attempt: _Attempt, wait: float | None) -> str:
        """Appends an attempt to the log, at once, and returns its outcome in words."""
        failure = attempt.failure
        outcome = "answered" if failure is None else f"{failure.kind}: {self._blank(failure.message)}"
        if self.log is None:
            return outcome
        identifier = failure.request_id if attempt.answer is None else request_id(attempt.answer[2])
        line = {
            "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
            "request": files.digest(attempt.body)[:16],
            "attempt": attempt.number,
            "status": failure.status if failure is not None else attempt.answer[0],
            "seconds": round(attempt.seconds, 3),
            "outcome": outcome,
            "wait": None if wait is None else round(wait, 3),
            "request_id": self._blank(identifier),
        }
        try:
            with open(self.log, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            reason = error.strerror or error
            raise InputError(f"{self.log} cannot be written: {reason}.", code="cannot-write") from error
        return outcome


class Calls:
    """Runs calls in an event loop in a separate thread. Calls under way end with the context."""

    def __init__(self, caller: Caller, client: Any, results: Results):
        self._caller, self._client, self._results = caller, client, results
        self._ready = threading.Event()
        # A daemon: a call that hangs must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="winobench-api", daemon=True)

    def __enter__(self) -> Calls:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: Any) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(_SECONDS_TO_CLOSE)

    def begin(self, index: int, body: dict[str, Any] | Request) -> None:
        """Makes a call. Its outcome comes into the results."""
        asyncio.run_coroutine_threadsafe(self._call(index, body), self._loop)

    def stop(self) -> None:
        """Calls that are under way are waited for. Nothing else is sent."""
        self._loop.call_soon_threadsafe(self._stopped.set)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._stopped, self._over = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        async with self._client:
            self._ready.set()
            await self._over.wait()
            calls = asyncio.all_tasks() - {asyncio.current_task()}
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)

    async def _call(self, index: int, body: dict[str, Any] | Request) -> None:
        self._results.put((index, await self._caller.call(self._client, body, self._stopped)))


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    """Waits so long, or until everything is to stop."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)
