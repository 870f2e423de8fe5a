"""Calls that are under way at once: their attempts and results.

The clients' own retries stay off. They take no answer of status 200 for a failure, ignore waits above a minute, and
would repeat a call whose answer is too large, although it may be billed.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import queue
import random
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from absl import logging

from winobench.base import interrupts as keyboard
from winobench.base.errors import InputError
from winobench.responders.hosted import api
from winobench.responders.hosted.api import INCOMPLETE, Failure
from winobench.responders.hosted.settings import Connection
from winobench.runs.requests import Raw, Request

_LONGEST_BACKOFF = 60.0
_SECONDS_WORTH_A_WARNING = 10.0
# Each incomplete answer may be billed.
_MOST_INCOMPLETE = 3
_LEAST_ROOM = 1024  # tokens for thoughts. A server that takes fewer gets the request's own limit
_SECONDS_TO_CLOSE = 1.0


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result of a call. Empty for a call that was not made because the run ends.

    ``error`` ends the run, also with an answer. Many failures ``in_row`` end it, too.
    """

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

    limit: int
    answer: tuple[int, str, Mapping[str, str]] | None = None
    failure: Failure | None = None
    seconds: float = 0.0


class Calls:
    """Runs calls, each with its attempts, in the event loop of a thread. Calls under way end with the context.

    ``blank`` removes the key from a text.
    """

    def __init__(self, name: str, provider: api.Api, settings: Connection, blank: Callable[..., Any], results: Results):
        self._name, self._api, self._settings, self._blank, self._results = name, provider, settings, blank, results
        self._client = provider.open()
        self._ready = threading.Event()
        # A daemon: a call that hangs must not keep the process from ending.
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="winobench-api", daemon=True)

    def __enter__(self) -> Calls:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: Any) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(_SECONDS_TO_CLOSE)

    def begin(self, index: int, body: dict[str, Any] | Request) -> None:
        """Makes a call: of a body, or of a request about an image, which is read now. The results get its outcome."""
        asyncio.run_coroutine_threadsafe(self._call(index, body), self._loop)

    def stop(self) -> None:
        """Calls that are under way are waited for. Nothing else is sent."""
        self._loop.call_soon_threadsafe(self._stopped.set)

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
        try:
            fields = body if isinstance(body, dict) else await asyncio.to_thread(self._api.body, body)
            outcome = await self._outcome(fields)
        except Exception as error:  # otherwise the run would wait for ever
            outcome = Outcome(error=error)
        self._results.put((index, outcome))

    async def _outcome(self, body: dict[str, Any]) -> Outcome:
        # The same until an answer comes, so that a server that supports the header does not do the work twice.
        call_id = f"winobench-{uuid.uuid4()}"
        incomplete, attempts = 0, self._settings.attempts
        for number in range(1, attempts + 1):
            if self._stopped.is_set():
                break
            attempt = await self._attempt(body, call_id)
            failure = attempt.failure
            if attempt.answer is not None:
                call_id = f"winobench-{uuid.uuid4()}"
                incomplete += failure is not None and failure.kind == INCOMPLETE
            is_last = number == attempts or incomplete == _MOST_INCOMPLETE
            if failure is None or (failure.kind == INCOMPLETE and is_last):
                return Outcome(self._raw(attempt, api.limit(body), number))
            words = f"{self._name}: attempt {number} of {attempts}: {failure.kind}: {self._blank(failure.message)}"
            if is_last or not failure.passing or failure.wait > self._settings.longest_wait:
                logging.warning("%s. It is given up", words)
                return self._given_up(failure, number)
            backoff = min(self._settings.first_wait * 2 ** (number - 1), _LONGEST_BACKOFF) * random.uniform(0.5, 1.0)
            wait = max(backoff, failure.wait)
            # A short wait is not worth a line on the screen.
            level = logging.WARNING if wait >= _SECONDS_WORTH_A_WARNING else logging.INFO
            logging.log(level, "%s. Trying again in %.1f s", words, wait)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), wait)
        return Outcome()

    async def _attempt(self, body: dict[str, Any], call_id: str) -> _Attempt:
        """Sends a call, and sends it again where the server takes another form, or thoughts take all tokens."""
        room = self._api.room
        while True:
            sent = self._api.adapted(body, room)
            attempt = _Attempt(api.limit(sent))
            started = time.monotonic()
            try:
                async with asyncio.timeout(self._settings.timeout):
                    answer = await self._api.send(self._client, sent, call_id)
                attempt.answer = await self._api.fetched(answer)
            # The run continues after any fault of the client or the server.
            except Exception as error:
                attempt.failure = self._api.failure(error, sent)
            else:
                attempt.failure = self._api.unanswered(sent, *attempt.answer[1:])
            attempt.seconds = time.monotonic() - started
            if attempt.failure is not None and self._api.adapt(sent, attempt.failure):
                pass
            elif attempt.failure is not None and attempt.limit > api.limit(body) and api.is_too_long(attempt.failure):
                room = room // 4 if room > _LEAST_ROOM else 0
            elif attempt.answer is None or not self._api.needs_room(body, sent, room, attempt.answer[1]):
                return attempt
            logging.info("%s: sending a call again in another form", self._name)
            call_id = f"{call_id}-other"  # another content under the same name might be refused

    def _raw(self, attempt: _Attempt, own_limit: int, number: int) -> Raw | None:
        if attempt.answer is None:
            return None
        status, text, headers = attempt.answer
        request_id = self._blank(headers.get("x-request-id") or headers.get("request-id"))
        raw = {"body": self._blank(text), "status": status, "request_id": request_id}
        raw |= {"attempts": number, "seconds": round(attempt.seconds, 3)}
        return raw | ({"max_tokens": attempt.limit} if attempt.limit > own_limit else {})

    def _given_up(self, failure: Failure, attempts: int) -> Outcome:
        message, end = self._blank(failure.message), failure.fatal
        if end is None and failure.passing and failure.wait > self._settings.longest_wait:
            words = f"the server asks to be left alone for {failure.wait:.0f} s ({message}): give the same command"
            end = InputError(f"{words} again after that. Answers so far are kept.", code="rate-limited")
        if end is not None:
            return Outcome(error=InputError(f"{self._name}: {self._blank(str(end))}", code=end.code))
        error = {"kind": failure.kind, "message": message, "attempts": attempts}
        return Outcome({"error": error}, in_row=failure.passing or failure.kind in self._api.in_row)
