"""The models that answer. See the package's words."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import queue
import time
import urllib.parse
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from absl import logging

from winobench.base.errors import InputError
from winobench.responders.hosted import bodies, calls, choices, image_tokens, settings
from winobench.responders.hosted.api import LIMITS, Api, count, cut_at, one_line
from winobench.responders.hosted.prices import cost
from winobench.responders.hosted.providers import APIS
from winobench.runs.requests import (
    CUT_OFF,
    EMPTY,
    FINISHED,
    SEVERAL,
    ImageOptions,
    ImageStarts,
    ImageText,
    Raw,
    Request,
    Response,
    check_request,
    text_about,
)

_VOTE_TOKENS = 1024  # of a vote at most: models that think count that, too
_BLANK = "[key]"
_FRAME = 8  # tokens around a text or an image, at most

S = TypeVar("S", bound=settings.Connection)


class Hosted(Generic[S]):
    """A model behind an API: its client, and calls that are under way at once."""

    def __init__(self, name: str, chosen: S, apis: Mapping[str, type[Api]]):
        """Sets up the client. ``apis``: provider -> its protocol for such models."""
        self._settings, self._name = chosen, name
        self.api, self.model, named_url = settings.split(name)
        if self.api not in apis:
            raise InputError(f"{name!r} makes no images: name a model of {', '.join(apis)}", code="wrong-kind-of-model")
        api = apis[self.api]
        self.base_url = settings.base_url(name, api, chosen.base_url, named_url)
        self._is_own = urllib.parse.urlsplit(self.base_url).hostname == urllib.parse.urlsplit(api.default_url).hostname
        chosen.check(name, api)
        self.concurrency = chosen.concurrency
        self._fields = self.fields(api)
        key = settings.read_key(api, needed=self._is_own and chosen.sends)
        self._secret = settings.secret(key)
        self._server = api(key, self.base_url, self.model, chosen.timeout, self._fields)

    def fields(self, api: type[Api]) -> dict[str, Any]:
        """What the settings change in requests, as JSON values."""
        raise NotImplementedError

    def fingerprint(self) -> dict[str, Any]:
        """Everything that can change an answer, without the key."""
        return {"api": self.api, "model": self.model, "base_url": self.base_url, **self._fields}

    def cost(self, response: Response) -> float | None:
        """US dollars; None where the price is not known. Other servers have only the prices that the user gives."""
        prices = self._settings.prices or {}
        if not self._is_own and self.model not in prices:
            return None
        return cost(self.model, response.input_tokens, response.output_tokens, prices)

    def ask_parts(self, requests: Sequence[Any]) -> Generator[tuple[int, Raw], None, None]:
        """See `HostedModel.ask`, of requests that take one call each."""
        waiting = enumerate(self._bodies(requests))
        results: calls.Results = queue.SimpleQueue()
        under_way, row = 0, 0
        end: BaseException | None = None  # why no more calls are begun
        deadline: float | None = None
        with calls.interrupts(results) as came, self._calls(results) as begun:
            while True:
                if end is None and not came:
                    for index, body in itertools.islice(waiting, self.concurrency - under_way):
                        begun.begin(index, body)
                        under_way += 1
                if not under_way:
                    break
                try:
                    result = results.get(timeout=None if deadline is None else max(0.0, deadline - time.monotonic()))
                except queue.Empty:
                    break
                if result is not None:
                    index, outcome = result[0], self._checked(result[1])
                    under_way -= 1
                    if outcome.raw is not None:
                        row = row + 1 if outcome.in_row else 0
                        yield index, outcome.raw
                    if end is None and outcome.error is not None:
                        end = outcome.error
                    elif end is None and outcome.raw is not None and row >= self._settings.failures_in_a_row:
                        last = outcome.raw["error"]["message"]
                        end = InputError(
                            f"{self._name}: the last {row} calls have all failed ({last}): see whether {self.base_url}"
                            " is in order and give the same command again. Answers so far are kept.",
                            code="all-calls-failed",
                        )
                elif isinstance(end, KeyboardInterrupt):  # a second one does not wait
                    raise end
                else:
                    logging.warning("interrupted: waiting for the answers under way")
                    end = KeyboardInterrupt()
                if end is not None and deadline is None:
                    begun.stop()
                    deadline = time.monotonic() + self._settings.seconds_to_finish
            if end is not None or came:
                raise end or KeyboardInterrupt

    def _bodies(self, requests: Sequence[Any]) -> list[Any]:
        """The fields of each request, or the request itself."""
        raise NotImplementedError

    def _checked(self, outcome: calls.Outcome) -> calls.Outcome:
        """The outcome of a call, or a failure where its answer is of no use."""
        return outcome

    def _calls(self, results: calls.Results) -> calls.Calls:
        return calls.Calls(self._name, self._server, self._settings, self._blank, results)

    def _blank(self, text: str | None) -> str | None:
        return self._secret.sub(_BLANK, text) if self._secret is not None and text else text


class HostedModel(Hosted[settings.Settings]):
    """A language model behind an API. A `winobench.runs.requests.Responder` for texts, also about images.

    Options about an image are judged by the log-probabilities of the answer's first token where the API reports them.
    Otherwise the question is sent several times at temperature 1, and shares of votes count (`choices`). Only
    log-probabilities tell how an answer starts (`winobench.runs.requests.ImageStarts`).
    """

    kinds = SEVERAL | {"generation", "picture_text", "picture_turn", "picture_options"}

    def __init__(self, name: str, **options: Any):
        """Sets up the client. Nothing is sent before ``ask``. The options are `settings.Settings`."""
        super().__init__(name, settings.Settings(**options), APIS)
        logprobs = self._settings.logprobs
        self._logprobs = APIS[self.api].tells_likelihoods(self.model) if logprobs is None else bool(logprobs)
        if self._logprobs:
            self.kinds = HostedModel.kinds | {ImageStarts.kind}
        self._server.may_adapt = self._settings.max_tokens_field is None

    def fields(self, api: type[Api]) -> dict[str, Any]:
        """See `Hosted`."""
        return {
            "max_tokens_field": self._settings.max_tokens_field or (api.own_limit if self._is_own else "max_tokens"),
            "send_temperature": bool(self._settings.send_temperature),
            "seed": self._settings.seed,
            "extra_body": settings.checked_fields(self._settings.extra_body),
        }

    def fingerprint(self) -> dict[str, Any]:
        """Everything that can change an answer, without the key."""
        identity = super().fingerprint()
        if self._settings.logprobs is not None:
            identity["logprobs"] = self._settings.logprobs
        if self._settings.votes != settings.Settings.votes:
            identity["votes"] = self._settings.votes
        return identity

    def most_tokens(
        self, request: ImageText | ImageOptions | ImageStarts, sizes: Sequence[tuple[int, int]]
    ) -> dict[str, int | None]:
        """Tokens {"input", "output"} of a request about images of so many pixels, at most. None where unknown.

        A token of a text has at least one byte. A model that thinks may fill the limit of thoughts.
        """
        sent = self._server.as_text(request)
        seen = [image_tokens.most_tokens(self.model, *size) if self._is_own else None for size in sizes]
        texts = [sent.question or choices.CAPTION, *(turn.text for turn in getattr(sent, "before", ()))]
        known = [len(text.encode()) for text in texts] + [tokens for tokens in seen if tokens is not None]
        read = None if None in seen else sum(known) + _FRAME * (len(texts) + len(sizes))
        fixed = [count(self._fields["extra_body"].get(name)) for name in LIMITS]
        thinks = not self._logprobs and (self._server.thinks or APIS[self.api].may_think(self.model))
        written = next(filter(None, fixed), sent.max_tokens + self._server.room * thinks)
        return {"input": read, "output": written}

    def parts(self, request: Request) -> tuple[Request, ...]:
        """The requests that make up one: its votes, each of which can be sent and kept alone. Otherwise itself."""
        if not isinstance(request, ImageOptions) or self._logprobs:
            return (request,)
        question, _ = choices.put(request)
        return tuple(
            text_about(request, question, max_tokens=_VOTE_TOKENS, temperature=1.0, sample=number)
            for number in range(self._settings.votes)
        )

    def combine(self, request: ImageOptions, responses: Sequence[Response]) -> Response:
        """The answer to a request that is put to the vote, from those to its ``parts``."""
        _, marks = choices.put(request)
        spent: dict[str, Any] = {
            name: sum(counts) if all(count is not None for count in counts) else None
            for name in ("input_tokens", "output_tokens")
            for counts in [[getattr(response, name) for response in responses]]
        }
        for response in responses:
            if response.ending != FINISHED:
                return Response(ending=response.ending, **spent)
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

    def _bodies(self, requests: Sequence[Request]) -> list[dict[str, Any] | Request]:
        """The fields of each request. An image's request stays as it is: all images at once would fill the memory."""
        bodies: list[dict[str, Any] | Request] = []
        for request in requests:
            if request.kind not in self.kinds:
                raise InputError(
                    f"{self._name!r} answers no {request.kind} requests: choose another protocol.",
                    code="kind-not-answered",
                )
            check_request(request)
            bodies.append(request if getattr(request, "image", None) else self._server.body(request))
        return bodies

    def read(self, request: Request, raw: Raw) -> Response:
        if isinstance(request, ImageOptions) and "votes" in raw:
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
        if (stated := bodies.error(content)) is not None:
            raise ValueError(f"the server states: {self._blank(one_line(stated.message))}")
        response = self._server.parse(content)
        # The first tokens are enough, so that the limit is one token.
        if isinstance(request, ImageOptions | ImageStarts) and response.ending in (FINISHED, CUT_OFF, EMPTY):
            tokens = self._server.likely_tokens(content)
            if isinstance(request, ImageOptions):
                scores, unlisted = choices.from_tokens(tokens, choices.put(request)[1])
            else:
                score, unlisted = choices.from_starts(tokens, request.starts)
                scores = (score,)
            return dataclasses.replace(
                response, text=None, partial=None, ending=FINISHED, scores=scores, unlisted=unlisted
            )
        own_limit = getattr(request, "max_tokens", None)
        response = cut_at(response, raw.get("max_tokens", own_limit))
        # The added tokens were for thoughts. What another call's luck has given to this answer is taken away.
        longer = None if own_limit is None or "max_tokens" not in raw else own_limit + 1
        if longer and response.ending == FINISHED and not self._server.shows_thoughts(content, response):
            response = cut_at(dataclasses.replace(response, finish=None), longer)
        return dataclasses.replace(response, text=self._blank(response.text), partial=self._blank(response.partial))
