"""The model that answers: calls in threads, tried again, paced, interrupted; see the package's words."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import os
import queue
import random
import threading
import time
import urllib.parse
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from absl import logging

from winobench.base import json_files
from winobench.base.errors import InputError
from winobench.responders.hosted import bodies, choices, settings
from winobench.responders.hosted.anthropic import Anthropic
from winobench.responders.hosted.api import INCOMPLETE, Api, Failure, ended, exhausted, one_line
from winobench.responders.hosted.calls import AttemptsLog, Interrupts, Outcome, Pace, Results
from winobench.responders.hosted.openai import OpenAI
from winobench.responders.hosted.prices import cost
from winobench.runs.requests import (
    CUT_OFF,
    EMPTY,
    FINISHED,
    PictureOptions,
    PictureText,
    Raw,
    Request,
    Response,
    check_request,
)


def is_hosted(name: str) -> bool:
    """Whether a model's name is of the kind that this module knows."""
    return name.partition(":")[0] in APIS and ":" in name


_LONGEST_BACKOFF = 60.0
_SECONDS_WORTH_A_WARNING = 10.0
# An incomplete answer is requested again, but not for ever, as each may be billed.
_MOST_INCOMPLETE = 3
# Votes on a question with options, and the longest of them: models that think count that, too.
_VOTES = 5
_VOTE_TOKENS = 1024
_BLANK = "[key]"
# Makes the fields of a call.
_Body = Callable[[], dict[str, Any]]


class HostedModel:
    """A language model behind an API. A `winobench.runs.requests.Responder` for texts, also about images.

    Whether a model sees is known when it is asked. Of a question about an image with options, the log-likelihoods are
    those of the answer's first token where the API tells them, and otherwise logarithms of shares of votes: then the
    question is asked several times at temperature 1 (`winobench.responders.hosted.choices`).

    Attributes:
      kinds: what it answers.
      api: ``openai`` or ``anthropic``, the protocol that is spoken.
      model: the model's name there.
      base_url: where.
    """

    kinds = frozenset({"generation", "picture_text", "picture_options"})

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        concurrency: int = 8,
        timeout: float = 300.0,
        attempts: int = 8,
        first_wait: float = 1.0,
        longest_wait: float = 600.0,
        failures_in_a_row: int = 20,
        seconds_to_finish: float = 15.0,
        max_tokens_field: str | None = None,
        send_temperature: bool = True,
        seed: int | None = None,
        extra_body: Mapping[str, Any] | None = None,
        logprobs: bool | None = None,
        votes: int = _VOTES,
        prices: Mapping[str, Sequence[float]] | None = None,
        attempts_log: str | os.PathLike | None = None,
    ):
        """Sets up the client. Nothing is sent before ``ask``.

        Args:
          name: ``<api>:<model>`` or ``<api>:<model>@<base URL>``.
          base_url: of the server, instead of the one in the name. The provider's own, or that of the variables
            OPENAI_BASE_URL and ANTHROPIC_BASE_URL, where neither is given.
          concurrency: how many calls may be under way at a time.
          timeout: seconds after which a call is given up and tried again, from the request to the last byte of the
            answer. To connect, at most 20 of them.
          attempts: how often a call is tried. Of those that bring an incomplete answer, three at most.
          first_wait: seconds before the second attempt. Doubled from attempt to attempt up to a minute, less a random
            part of up to a half. Longer where the server asks for it.
          longest_wait: where the server asks for more seconds than these, the run ends and says so.
          failures_in_a_row: so many calls that fail for good although they were tried again, with none between that
            ends in another way, end the run. A refusal of one request says nothing about the others.
          seconds_to_finish: how long an interrupt waits for calls that are under way.
          max_tokens_field: ``max_tokens`` or ``max_completion_tokens``, the field that holds the limit in OpenAI's
            protocol. When None, OpenAI's own server gets the latter and others the former, until the server refuses
            that field: then all calls have the other one.
          send_temperature: False for models that refuse the field. They then draw as they please.
          seed: sent to servers of OpenAI's protocol, plus the number of the sample. Not sent when None.
          extra_body: further fields of every request, such as ``{"reasoning_effort": "low"}``. Not for secrets.
          logprobs: whether options about an image are judged by log-probabilities, which Anthropic's protocol does not
            have, and OpenAI's models that think do not tell. For the name to decide when None.
          votes: how often a question with options about an image is asked where there are none.
          prices: see ``cost``.
          attempts_log: a JSONL file to which every attempt is appended: time, request (the first digits of a SHA-256 of
            its content), attempt, status, seconds, outcome, seconds to wait, the server's id. Failed attempts go to
            absl's log too: as warnings where the call is given up or the wait is long, as notes otherwise.

        Raises:
          InputError: the name is none, an option is out of range or not for this API, the key or the client is missing.
        """
        self.api, self.model, named_url = settings.split(name, APIS)
        if base_url is not None and named_url is not None and base_url != named_url:
            raise InputError(
                f"{name!r} names a server, but base_url is {base_url!r}: give one of them.", code="bad-url"
            )
        kind = APIS[self.api]
        variable = kind.url_variable
        given = {"base_url": base_url, "in the model's name": named_url}
        given |= {variable: (os.environ.get(variable) or "").strip() or None, "default": kind.default_url}
        where, url = next((where, url) for where, url in given.items() if url is not None)
        self.base_url = settings.checked_url(url, where)
        self._is_own = urllib.parse.urlsplit(self.base_url).hostname == urllib.parse.urlsplit(kind.default_url).hostname
        settings.check_wholes(
            name, concurrency=concurrency, attempts=attempts, failures_in_a_row=failures_in_a_row, votes=votes
        )
        settings.check_seconds(name, "above 0", timeout=timeout)
        settings.check_seconds(
            name, "from 0 on", first_wait=first_wait, longest_wait=longest_wait, seconds_to_finish=seconds_to_finish
        )
        settings.check_fields(name, self.api, seed, max_tokens_field, logprobs)
        settings.check_prices(prices)
        self.concurrency = concurrency
        self._name = name
        self._attempts, self._first_wait, self._longest_wait = attempts, first_wait, longest_wait
        self._failures_in_a_row, self._seconds_to_finish = failures_in_a_row, seconds_to_finish
        self._prices = prices
        own_field = "max_completion_tokens" if self._is_own else "max_tokens"
        self._settings = {
            "max_tokens_field": (max_tokens_field or own_field) if self.api == "openai" else "max_tokens",
            "send_temperature": bool(send_temperature),
            "seed": seed,
            "extra_body": settings.checked_fields(extra_body),
        }
        self._votes = votes
        self._logprobs = kind.tells_likelihoods(self.model) if logprobs is None else bool(logprobs)
        unusual = {"logprobs": logprobs, "votes": None if votes == _VOTES else votes}
        self._of_options = {name: value for name, value in unusual.items() if value is not None}
        self._key = settings.read_key(kind, needed=self._is_own)
        self._secret = settings.secret(self._key)
        self._server = kind(self._key, self.base_url, self.model, timeout, self._settings)
        self._server.may_adapt = max_tokens_field is None
        self._pace = Pace()
        self._log = AttemptsLog(attempts_log)

    def fingerprint(self) -> dict[str, Any]:
        """Everything that can change an answer; the key is not among it."""
        named = {"api": self.api, "model": self.model, "base_url": self.base_url}
        return {**named, **self._settings, **self._of_options}

    def log_attempts(self, path: str | os.PathLike) -> None:
        """Appends every attempt from now on to a JSONL file, unless one was named before."""
        if self._log.path is None:
            self._log = AttemptsLog(path)

    def cost(self, response: Response) -> float | None:
        """What a response has cost in US dollars; None where the price is not known.

        The table's prices are those of the providers: at other servers only prices given by the user count.
        """
        if self._is_own:
            return cost(self.model, response.input_tokens, response.output_tokens, self._prices)
        if self.model not in (self._prices or {}):
            return None
        return cost(self.model, response.input_tokens, response.output_tokens, self._prices)

    def parts(self, request: Request) -> tuple[Request, ...]:
        """The requests that make up one: its votes, each of which can be asked and kept alone; otherwise itself."""
        if not isinstance(request, PictureOptions) or self._logprobs:
            return (request,)
        question, _ = choices.put(request)
        return tuple(
            PictureText(request.picture, question, max_tokens=_VOTE_TOKENS, temperature=1.0, sample=number)
            for number in range(self._votes)
        )

    def combine(self, request: Request, responses: Sequence[Response]) -> Response:
        """The answer to a request that is put to the vote, from those to its ``parts``."""
        _, marks = choices.put(request)
        spent = {
            name: sum(counts) if all(count is not None for count in counts) else None
            for name in ("input_tokens", "output_tokens")
            for counts in [[getattr(response, name) for response in responses]]
        }
        incomplete = next((one.ending for one in responses if one.ending != FINISHED), None)
        if incomplete is not None:
            return Response(ending=incomplete, **spent)
        return Response(scores=choices.from_votes([response.text for response in responses], marks), **spent)

    def ask(self, requests: Sequence[Request]) -> Iterator[tuple[int, Raw]]:
        """Yields the answers as they come in.

        Each is ``{"body", "status", "request_id", "attempts", "seconds"}``: the text as the server sent it, the HTTP
        status, the server's name for the call, the number of the attempt that succeeded, and how long that one took. Of
        a request with several ``parts`` it is ``{"votes"}``, a list of these, or the error of one that has failed. Who
        wants to keep each vote as it comes in asks for the parts.

        Raises:
          InputError: see `ask_parts`.
        """
        parts = [self.parts(request) for request in requests]
        owners = [index for index, own in enumerate(parts) for _ in own]
        came: dict[int, dict[int, Raw]] = {}
        with contextlib.closing(self.ask_parts([part for own in parts for part in own])) as incoming:
            for number, raw in incoming:
                index = owners[number]
                votes = came.setdefault(index, {})
                votes[number] = raw
                if len(votes) < len(parts[index]):
                    continue
                raws = [votes[number] for number in sorted(came.pop(index))]
                failed = next((raw for raw in raws if "error" in raw), None)
                is_whole = parts[index] == (requests[index],)
                yield index, failed or (raws[0] if is_whole else {"votes": raws})

    def ask_parts(self, requests: Sequence[Request]) -> Iterator[tuple[int, Raw]]:
        """See `ask`, of requests that take one call each.

        Raises:
          InputError: a request is of a kind that no API answers. An image cannot be read. Or an error that every call
            would meet (key, rights, model, quota, a field that is refused) has come up, or nothing succeeds any more.
            The answers under way are yielded before it is raised.
        """
        bodies = self._bodies(requests)
        tasks: queue.SimpleQueue[tuple[int, _Body] | None] = queue.SimpleQueue()
        results = Results()
        stop = threading.Event()
        threads = self._start(min(self.concurrency, len(bodies)), tasks, results, stop)
        waiting = iter(bodies.items())
        under_way, row = 0, 0
        end: BaseException | None = None  # why no more calls are begun
        deadline: float | None = None
        interrupts = Interrupts()
        try:
            interrupts.take_over()
            while True:
                if end is None and not interrupts.kept:
                    for task in itertools.islice(waiting, len(threads) - under_way):
                        tasks.put(task)
                        under_way += 1
                if not under_way:
                    break
                try:
                    left = None if deadline is None else max(0.0, deadline - time.monotonic())
                    with interrupts.raised():
                        there = results.wait(left)
                except KeyboardInterrupt as interrupt:
                    interrupts.kept = False
                    if isinstance(end, KeyboardInterrupt):  # a second one does not wait
                        raise
                    logging.warning("interrupted: waiting for the answers under way")
                    end, deadline = interrupt, time.monotonic() + self._seconds_to_finish
                    stop.set()
                    continue
                if not there:
                    break
                index, outcome = results.take()
                under_way -= 1
                if outcome.raw is not None:
                    row = row + 1 if "error" in outcome.raw and outcome.passing else 0
                    yield index, outcome.raw
                if end is None and outcome.error is not None:
                    end = outcome.error
                elif end is None and row >= self._failures_in_a_row:
                    end = self._all_failed(row, outcome.raw["error"]["message"])
                if end is not None and not stop.is_set():
                    stop.set()
                    deadline = time.monotonic() + self._seconds_to_finish
            if end is not None:
                raise end
            with interrupts.raised():
                pass
        finally:
            interrupts.give_back()
            stop.set()
            for _ in threads:
                tasks.put(None)

    def _bodies(self, requests: Sequence[Request]) -> dict[int, _Body]:
        bodies: dict[int, _Body] = {}
        for index, request in enumerate(requests):
            if request.kind not in self.kinds:
                raise InputError(
                    f"{self._name!r} answers no {request.kind} requests: choose another protocol.",
                    code="kind-not-answered",
                )
            check_request(request)
            if hasattr(request, "picture"):  # which is read when its turn comes: all at once would fill the memory
                bodies[index] = functools.partial(self._server.body, request)
            else:
                body = self._server.body(request)
                bodies[index] = lambda body=body: body
        return bodies

    def _start(
        self, count: int, tasks: queue.SimpleQueue, results: Results, stop: threading.Event
    ) -> list[threading.Thread]:
        threads = [
            # Daemons: a call that hangs must not keep the process from ending.
            threading.Thread(target=self._work, args=(tasks, results, stop), name="winobench-api", daemon=True)
            for _ in range(count)
        ]
        for thread in threads:
            thread.start()
        return threads

    def _all_failed(self, count: int, last: str) -> InputError:
        return InputError(
            f"{self._name}: the last {count} calls have all failed ({last}): see whether {self.base_url} is"
            " in order and give the same command again; what has been answered is kept.",
            code="all-calls-failed",
        )

    def read(self, request: Request, raw: Raw) -> Response:
        """The answer in a server's body.

        Raises:
          ValueError: it is not JSON, or not of the form that the API documents.
        """
        if "votes" in raw:
            parts = zip(self.parts(request), raw["votes"], strict=True)
            return self.combine(request, [self.read(part, vote) for part, vote in parts])
        body = raw.get("body")
        if not isinstance(body, str):
            raise ValueError("no body")
        try:
            content = json_files.parse(body, foreign=True)
        except ValueError as error:
            raise ValueError(f"the body is not JSON ({error})") from None
        if not isinstance(content, dict):
            raise ValueError("the body is not a JSON object")
        if (error := bodies.error(content)) is not None:
            raise ValueError(f"the server says: {self._blank(one_line(error.message))}")
        response = self._server.parse(content)
        # The first tokens tell all, so that the limit is that of one token.
        if isinstance(request, PictureOptions) and response.ending in (FINISHED, CUT_OFF, EMPTY):
            scores = choices.from_tokens(self._server.likely_tokens(content), choices.put(request)[1])
            return dataclasses.replace(response, text=None, partial=None, ending=FINISHED, scores=scores)
        limit, written = getattr(request, "max_tokens", None), response.output_tokens or 0
        if response.ending == FINISHED and response.finish is None and limit is not None and written >= limit:
            response = ended(response.text, CUT_OFF, input_tokens=response.input_tokens, output_tokens=written)
        return dataclasses.replace(response, text=self._blank(response.text), partial=self._blank(response.partial))

    def _work(self, tasks: queue.SimpleQueue, results: Results, stop: threading.Event) -> None:
        while (task := tasks.get()) is not None:
            index, body = task
            try:
                outcome = self._call(body(), stop)
            except BaseException as error:  # else `ask` would wait for ever. It raises it
                outcome = Outcome(error=error)
            results.put(index, outcome)

    def _call(self, body: dict[str, Any], stop: threading.Event) -> Outcome:
        """One call with its retries."""
        # The same until an answer comes: a server that knows the header does not do the work twice.
        call_id = f"winobench-{uuid.uuid4()}"
        incomplete = 0
        for attempt in range(1, self._attempts + 1):
            self._pace.wait(stop)
            if stop.is_set():
                return Outcome()
            started = time.monotonic()
            answer, failure = self._attempt(body, call_id, attempt)
            if answer is not None:
                status, text, headers = answer
                call_id = f"winobench-{uuid.uuid4()}"
                incomplete += failure is not None and failure.kind == INCOMPLETE
                if 0 < (wait := exhausted(headers)) <= self._longest_wait:
                    self._pace.pause(wait)
            seconds = time.monotonic() - started
            given_up = attempt == self._attempts or incomplete == _MOST_INCOMPLETE
            if failure is None or (failure.kind == INCOMPLETE and given_up):
                identifier = self._blank(headers.get("x-request-id") or headers.get("request-id"))
                raw = {"body": self._blank(text), "status": status, "request_id": identifier, "attempts": attempt}
                raw["seconds"] = round(seconds, 3)
                try:
                    outcome = "answered" if failure is None else f"{failure.kind}: {failure.message}"
                    self._log.add(body, attempt, status, seconds, outcome, None, identifier)
                except InputError as error:  # the answer is paid for
                    return Outcome(raw=raw, error=error)
                return Outcome(raw=raw)
            message = self._blank(failure.message)
            asked = failure.wait or 0.0
            last = attempt == self._attempts or not failure.passing
            backoff = min(self._first_wait * 2 ** (attempt - 1), _LONGEST_BACKOFF) * random.uniform(0.5, 1.0)
            wait = None if last else max(backoff, asked)
            outcome = f"{failure.kind}: {message}"
            self._log.add(body, attempt, failure.status, seconds, outcome, wait, self._blank(failure.request_id))
            then = "it is given up" if wait is None else f"trying again in {wait:.1f} s"
            # What is mended soon is not worth a line on the screen.
            level = logging.WARNING if wait is None or wait >= _SECONDS_WORTH_A_WARNING else logging.INFO
            logging.log(level, "%s: attempt %d of %d: %s; %s", self._name, attempt, self._attempts, outcome, then)
            if (end := self._end(failure, message)) is not None:
                return Outcome(error=end)
            if last:
                error = {"kind": failure.kind, "message": message, "attempts": attempt}
                return Outcome(raw={"error": error}, passing=failure.passing)
            if failure.kind == "rate limit":
                self._pace.pause(asked)  # the others would meet the same
            stop.wait(wait)
        raise AssertionError("attempts is at least 1")

    def _attempt(
        self, body: dict[str, Any], call_id: str, attempt: int
    ) -> tuple[tuple[int, str, Mapping[str, str]] | None, Failure | None]:
        """(status, body, headers), and why it is not whole. Sent again where the server takes another field."""
        while True:
            sent, started, answer = self._server.adapted(body), time.monotonic(), None
            try:
                answer = self._server.send(sent, call_id)
            # The run continues, whatever the client and the server make of each other.
            except Exception as error:
                failure = self._server.failure(error, sent)
            else:
                failure = self._server.unanswered(sent, *answer[1:])
            if failure is None or not self._server.adapt(sent, failure):
                return answer, failure
            outcome = f"{failure.kind}: {self._blank(failure.message)}"
            seconds, identifier = time.monotonic() - started, self._blank(failure.request_id)
            self._log.add(body, attempt, failure.status, seconds, outcome, 0.0, identifier)
            logging.info("%s: %s, sending it again with the other field", self._name, outcome)
            call_id = f"{call_id}-other"  # another content under the same name might be refused

    def _end(self, failure: Failure, message: str) -> InputError | None:
        """The error that ends the run; None where the others may fare better."""
        if failure.fatal is not None:
            return InputError(f"{self._name}: {self._blank(str(failure.fatal))}", code=failure.fatal.code)
        if failure.passing and (failure.wait or 0.0) > self._longest_wait:
            end = (
                f"{self._name}: the server asks to be left alone for {failure.wait:.0f} s ({message}): give the same"
                " command again after that; what has been answered is kept."
            )
            return InputError(end, code="rate-limited")
        return None

    def _blank(self, text: str | None) -> str | None:
        """A text without the key."""
        return self._secret.sub(_BLANK, text) if self._secret is not None and text else text


APIS: dict[str, type[Api]] = {"openai": OpenAI, "anthropic": Anthropic}
