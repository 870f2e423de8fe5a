"""The model that answers. See the package's words."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import queue
import time
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from absl import logging

from winobench.base.errors import InputError
from winobench.responders.hosted import bodies, calls, choices, settings
from winobench.responders.hosted.api import cut_at, one_line
from winobench.responders.hosted.prices import cost
from winobench.responders.hosted.providers import APIS
from winobench.runs.requests import (
    CUT_OFF,
    EMPTY,
    FINISHED,
    PictureOptions,
    PictureStarts,
    PictureText,
    Raw,
    Request,
    Response,
    check_request,
)

# Votes on a question with options, and the longest of them: models that think count that, too.
_VOTES = 5
_VOTE_TOKENS = 1024
_BLANK = "[key]"


class HostedModel:
    """A language model behind an API. A `winobench.runs.requests.Responder` for texts, also about images.

    Options about an image are judged by the log-probabilities of the answer's first token where the API reports them.
    Otherwise the question is sent several times at temperature 1, and shares of votes count (`choices`). Only
    log-probabilities tell how an answer starts (`winobench.runs.requests.PictureStarts`).
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
          timeout: seconds after which a call is given up and tried again, from the request to the last byte of the
            answer. To connect, at most 20 of them.
          first_wait: seconds before the second attempt. Doubled from attempt to attempt up to a minute, less a random
            part of up to a half. Longer where the server requests it.
          longest_wait: seconds. The run ends with an error where the server requests a longer wait.
          max_tokens_field: ``max_tokens`` or ``max_completion_tokens``. When None, OpenAI's own server gets the latter
            and others the former, until the server refuses that field: then all calls have the other one.
          logprobs: whether options about an image are judged by log-probabilities. When None, the name decides.
          attempts_log: a JSONL file with a line for each attempt. Failed ones go to absl's log, too.
        """
        self.api, self.model, named_url = settings.split(name)
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
        patience = {"attempts": attempts, "first_wait": first_wait, "longest_wait": longest_wait}
        others = {"failures_in_a_row": failures_in_a_row, "seconds_to_finish": seconds_to_finish, "votes": votes}
        settings.check_numbers(name, concurrency=concurrency, timeout=timeout, **patience, **others)
        settings.check_fields(name, kind, seed, max_tokens_field, logprobs)
        settings.check_prices(prices)
        self.concurrency = concurrency
        self._name = name
        self._failures_in_a_row, self._seconds_to_finish = failures_in_a_row, seconds_to_finish
        self._prices = prices
        self._settings = {
            "max_tokens_field": max_tokens_field or (kind.own_limit if self._is_own else "max_tokens"),
            "send_temperature": bool(send_temperature),
            "seed": seed,
            "extra_body": settings.checked_fields(extra_body),
        }
        self._votes = votes
        self._logprobs = kind.tells_likelihoods(self.model) if logprobs is None else bool(logprobs)
        if self._logprobs:
            self.kinds = HostedModel.kinds | {PictureStarts.kind}
        unusual = {"logprobs": logprobs, "votes": None if votes == _VOTES else votes}
        self._of_options = {name: value for name, value in unusual.items() if value is not None}
        self._key = settings.read_key(kind, needed=self._is_own)
        self._secret = settings.secret(self._key)
        self._server = kind(self._key, self.base_url, self.model, timeout, self._settings)
        self._server.may_adapt = max_tokens_field is None
        self._caller = calls.Caller(name, self._server, self._blank, **patience, log=attempts_log)

    def fingerprint(self) -> dict[str, Any]:
        """Everything that can change an answer, without the key."""
        named = {"api": self.api, "model": self.model, "base_url": self.base_url}
        return {**named, **self._settings, **self._of_options}

    def log_attempts(self, path: str | os.PathLike) -> None:
        """Appends every attempt from now on to a JSONL file, unless one was named before."""
        if self._caller.log is None:
            self._caller.log = path

    def cost(self, response: Response) -> float | None:
        """US dollars; None where the price is not known. Other servers have only the prices that the user gives."""
        if not self._is_own and self.model not in (self._prices or {}):
            return None
        return cost(self.model, response.input_tokens, response.output_tokens, self._prices)

    def parts(self, request: Request) -> tuple[Request, ...]:
        """The requests that make up one: its votes, each of which can be sent and kept alone. Otherwise itself."""
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
        scores = choices.from_votes([response.text for response in responses], marks)
        return Response(scores=scores, unlisted=0.0, **spent)

    def ask(self, requests: Sequence[Request]) -> Iterator[tuple[int, Raw]]:
        """Yields ``{"body", "status", "request_id", "attempts", "seconds"}``: the text as the server sent it.

        Of a request with several ``parts`` it is ``{"votes"}``, a list of these, or the error of one that has failed.
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
        """See `ask`, of requests that take one call each."""
        bodies = self._bodies(requests)
        waiting = iter(bodies.items())
        results: calls.Results = queue.SimpleQueue()
        under_way, row = 0, 0
        end: BaseException | None = None  # why no more calls are begun
        deadline: float | None = None
        with calls.interrupts(results) as came, calls.Calls(self._caller, self._server.open(), results) as begun:
            while True:
                if end is None and not came:
                    for index, body in itertools.islice(waiting, self.concurrency - under_way):
                        begun.begin(index, body)
                        under_way += 1
                if not under_way:
                    break
                try:
                    found = results.get(timeout=None if deadline is None else max(0.0, deadline - time.monotonic()))
                except queue.Empty:
                    break
                if found is not None:
                    index, outcome = found
                    under_way -= 1
                    if outcome.raw is not None:
                        row = row + 1 if "error" in outcome.raw and outcome.in_row else 0
                        yield index, outcome.raw
                    if end is None and outcome.error is not None:
                        end = outcome.error
                    elif end is None and row >= self._failures_in_a_row:
                        last = outcome.raw["error"]["message"]
                        end = InputError(
                            f"{self._name}: the last {row} calls have all failed ({last}): see whether {self.base_url}"
                            " is in order and give the same command again. What has been answered is kept.",
                            code="all-calls-failed",
                        )
                elif isinstance(end, KeyboardInterrupt):  # a second one does not wait
                    raise end
                else:
                    logging.warning("interrupted: waiting for the answers under way")
                    end = KeyboardInterrupt()
                if end is not None and deadline is None:
                    begun.stop()
                    deadline = time.monotonic() + self._seconds_to_finish
            if end is not None or came:
                raise end or KeyboardInterrupt

    def _bodies(self, requests: Sequence[Request]) -> dict[int, dict[str, Any] | Request]:
        """The fields of each request. One about an image stays as it is: all images at once would fill the memory."""
        bodies: dict[int, dict[str, Any] | Request] = {}
        for index, request in enumerate(requests):
            if request.kind not in self.kinds:
                raise InputError(
                    f"{self._name!r} answers no {request.kind} requests: choose another protocol.",
                    code="kind-not-answered",
                )
            check_request(request)
            bodies[index] = request if hasattr(request, "picture") else self._server.body(request)
        return bodies

    def read(self, request: Request, raw: Raw) -> Response:
        if "votes" in raw:
            parts = zip(self.parts(request), raw["votes"], strict=True)
            return self.combine(request, [self.read(part, vote) for part, vote in parts])
        body = raw.get("body")
        if not isinstance(body, str):
            raise ValueError("no body")
        try:
            content = bodies.parse(body)
        except ValueError as error:
            raise ValueError(f"the body is not JSON ({error})") from None
        if not isinstance(content, dict):
            raise ValueError("the body is not a JSON object")
        if (error := bodies.error(content)) is not None:
            raise ValueError(f"the server states: {self._blank(one_line(error.message))}")
        response = self._server.parse(content)
        # The first tokens are enough, so that the limit is one token.
        if isinstance(request, PictureOptions | PictureStarts) and response.ending in (FINISHED, CUT_OFF, EMPTY):
            tokens = self._server.likely_tokens(content)
            if isinstance(request, PictureStarts):
                score, unlisted = choices.from_starts(tokens, request.starts)
                scores = (score,)
            else:
                scores, unlisted = choices.from_tokens(tokens, choices.put(request)[1])
            whole = {"text": None, "partial": None, "ending": FINISHED}
            return dataclasses.replace(response, **whole, scores=scores, unlisted=unlisted)
        own_limit = getattr(request, "max_tokens", None)
        response = cut_at(response, raw.get("max_tokens", own_limit))
        # The added tokens were for thoughts. What another call's luck has given to this answer is taken away.
        if "max_tokens" in raw and response.ending == FINISHED and not self._server.shows_thoughts(content, response):
            response = cut_at(dataclasses.replace(response, finish=None), own_limit + 1)
        return dataclasses.replace(response, text=self._blank(response.text), partial=self._blank(response.partial))

    def _blank(self, text: str | None) -> str | None:
        return self._secret.sub(_BLANK, text) if self._secret is not None and text else text
