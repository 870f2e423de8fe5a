"""Asks a model for the answers that are not recorded yet. Every answer is on disk before anything reads it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from winobench.base import answer_texts, json_files, options
from winobench.base import progress as progress_bars
from winobench.base.errors import InputError
from winobench.runs import endings, responses
from winobench.runs.requests import BLOCKED, FINISHED, ImageText, Raw, Request, Responder, Response, ability

if TYPE_CHECKING:
    from winobench.base.trackers import RunReporter

# How much answers that cost time, but no money, may lose in a crash of the machine.
_SECONDS_BETWEEN_SYNCS = 2.0


@dataclasses.dataclass
class Answers:
    """The answers to some requests, by their keys."""

    read: dict[str, Response] = dataclasses.field(default_factory=dict)
    failed: dict[str, str] = dataclasses.field(default_factory=dict)  # why a call failed, of those made now
    blocked: set[str] = dataclasses.field(default_factory=set)  # failed calls that would fail again
    asked: int = 0  # number of calls made now
    received: list[Response] = dataclasses.field(default_factory=list)  # of calls made now
    seconds: float = 0.0  # that the run's own answers took when an earlier call of it asked for them


@dataclasses.dataclass(frozen=True)
class Looked:
    """Recorded answers to some requests, the requests without one, and the number of requests that are sent in all."""

    read: dict[str, Response]
    missing: dict[str, Request]
    total: int


class Session:
    """The answers of one run: their store, calls that failed, and the cost.

    Attributes:
      store: the answers on disk. ``open`` or a ``with`` statement opens it.
      answers: the answers so far.
      calls: (responder, requests by their keys) of each call of `ask`.
      watch: gets the progress.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        process: int = 0,
        *,
        reuse: bool = True,
        progress: bool = True,
        watch: RunReporter | None = None,
    ):
        """``process``: this process's number, where several write into the folder. ``reuse``: answers of other runs."""
        self.store = responses.ResponseStore(folder, process)
        self.answers = Answers()
        self.calls: list[tuple[Responder, Mapping[str, Request]]] = []
        self.watch = watch
        self._reuse, self._progress = reuse, progress

    def __enter__(self) -> Session:
        self.store.open()
        return self

    def __exit__(self, *_: Any) -> None:
        self.store.close()

    def ask(
        self,
        responder: Responder,
        wanted: Mapping[str, Request],
        label: str = "asking",
        received: Callable[[str, Response], None] | None = None,
    ) -> Answers:
        """Reads the store, takes answers of the runs next to it, and asks for the rest, incomplete answers included."""
        self.store.seconds_between_syncs = 0.0 if ability(responder, "cost") else _SECONDS_BETWEEN_SYNCS
        self.calls.append((responder, wanted))
        parts, requests = _with_parts(responder, wanted)
        self._read_recorded(responder, requests)
        missing = {key: request for key, request in requests.items() if key not in self.answers.read}
        self._ask(responder, missing, len(requests), label, received)
        self._combine(responder, wanted, parts)
        return self.answers

    @property
    def num_requests(self) -> int:
        return sum(len(wanted) for _, wanted in self.calls)

    def missing(self, wanted: Mapping[str, Request], *, can_be_longer: bool = False) -> dict[str, str]:
        """Key -> why its call failed, or how its answer is incomplete."""
        read = self.answers.read
        return self.answers.failed | endings.incomplete(wanted, read, can_be_longer=can_be_longer)

    def spent(self) -> dict[str, Any]:
        """`spent` on all requested answers, recorded ones included."""
        read = self.answers.read
        return spent((model, [read[key] for key in wanted if key in read]) for model, wanted in self.calls)

    def _read_recorded(self, responder: Responder, wanted: Mapping[str, Request]) -> None:
        if self._reuse:
            sources = self.store.share(self.store.neighbours(), wanted)
            if sources and self._progress:
                progress_bars.say_reused(len(sources), len(wanted), "responses", sources.values())
        for key, request in wanted.items():
            stored = None if key in self.answers.read else self.store.get(key)
            if stored is None:
                continue
            try:
                response = read(responder, request, stored.raw)
            except ValueError as error:
                self.store.reject(key, str(error))
                continue
            if response.ending != FINISHED:
                continue
            self.answers.read[key] = response
            if stored.origin is None:
                self.answers.seconds += stored.seconds

    def _ask(
        self,
        responder: Responder,
        missing: Mapping[str, Request],
        total: int,
        label: str,
        received: Callable[[str, Response], None] | None,
    ) -> None:
        self.answers.asked += len(missing)
        keys, requests = list(missing), list(missing.values())
        if not requests:
            if self.watch is not None:
                self.watch.begin(total, total)
            if self._progress:
                say_nothing_to_ask(total)
            return
        left = set(range(len(keys)))
        bar = progress_bars.counting(
            total, total - len(keys), label=label, unit="requests", enabled=self._progress, watch=self.watch
        )
        with bar as advance, contextlib.closing(_iterator(responder.ask(requests))) as incoming:
            last = time.monotonic()
            for index, raw in incoming:
                # Since the one before came in, so that the seconds of many calls at once add up to the time they took.
                seconds, last = time.monotonic() - last, time.monotonic()
                if index not in left or not isinstance(raw, Mapping):
                    raise InputError(
                        f"{type(responder).__name__}.ask yields ({index!r}, {options.quote(raw)}): yield the number of"
                        " each request once, and its raw answer as a mapping of JSON values",
                        code="bad-response",
                    )
                left.remove(index)
                response = self._record(responder, keys[index], requests[index], raw, seconds)
                if response is not None and received is not None:
                    received(keys[index], response)
                advance(1)
        if left:
            raise RuntimeError(f"the model left out {len(left)} of the {len(keys)} requests it was given.")

    def _record(self, responder: Responder, key: str, request: Request, raw: Raw, seconds: float) -> Response | None:
        """Stores an answer that came in, and reads it. None for one that failed."""
        answers, error = self.answers, raw.get("error")
        if isinstance(error, Mapping) and "kind" in error:
            self.store.fail(key, request, error, seconds)
            reason = f"{error['kind']}: {error.get('message', '')}".rstrip(": ")
            answers.failed[key] = json_files.well_formed(reason)
            if error["kind"] == BLOCKED:
                answers.blocked.add(key)
            return None
        self.store.add(key, request, raw, seconds)
        try:
            response = read(responder, request, raw)
        except ValueError as malformed:
            self.store.reject(key, str(malformed))
            billed = ". It was answered, so it may have been billed" if ability(responder, "cost") else ""
            answers.failed[key] = f"malformed: {malformed}{billed}"
            return None
        answers.read[key] = response
        answers.received.append(response)
        return response

    def _combine(
        self, responder: Responder, wanted: Mapping[str, Request], parts: Mapping[str, Mapping[str, Request]]
    ) -> None:
        answers, combine = self.answers, ability(responder, "combine")
        failed = {part: answers.failed[part] for own in parts.values() for part in own if part in answers.failed}
        for key, own in parts.items():
            # Several requests may have a part in common.
            if reasons := [failed[part] for part in own if part in failed]:
                answers.failed[key] = reasons[0]
                if answers.blocked.intersection(own):
                    answers.blocked.add(key)
            elif combine is not None:
                answers.read[key] = combine(wanted[key], [answers.read[part] for part in own])
        for part in failed.keys() - wanted.keys():
            del answers.failed[part]
            answers.blocked.discard(part)


def say_nothing_to_ask(total: int) -> None:
    progress_bars.say(f"all {total:,} responses are recorded: nothing to ask")


def look(folder: pathlib.Path, responder: Responder, wanted: Mapping[str, Request]) -> Looked:
    """What `Session.ask` would find on disk, and send. Nothing is written or asked."""
    parts, requests = _with_parts(responder, wanted)
    stored, whole = responses.recorded(folder, requests), {}
    for key, response in stored.items():
        with contextlib.suppress(ValueError):  # `Session` will reject it
            whole[key] = read(responder, requests[key], response.raw)
    whole = {key: response for key, response in whole.items() if response.ending == FINISHED}
    missing = {key: request for key, request in requests.items() if key not in whole}
    combine = ability(responder, "combine")
    for key, own in parts.items():
        if combine is not None and not missing.keys() & own.keys():
            whole[key] = combine(wanted[key], [whole[part] for part in own])
    return Looked(whole, missing, len(requests))


def _with_parts(
    responder: Responder, wanted: Mapping[str, Request]
) -> tuple[dict[str, dict[str, Request]], dict[str, Request]]:
    """`_parts`, and all requests that are sent: the parts of those that have some, and the others."""
    parts = _parts(responder, wanted)
    requests = {key: request for key, request in wanted.items() if key not in parts}
    for own in parts.values():
        requests |= own
    return parts, requests


def _parts(responder: Responder, wanted: Mapping[str, Request]) -> dict[str, dict[str, Request]]:
    """Key of a request with several parts -> key and request of each part."""
    parts_of = ability(responder, "parts")
    if parts_of is None:
        return {}
    fingerprint = responder.fingerprint()
    parts = {key: parts_of(request) for key, request in wanted.items()}
    return {
        key: {responses.key(fingerprint, part): part for part in own}
        for key, own in parts.items()
        if own != (wanted[key],)
    }


def spent(answers: Iterable[tuple[Responder, Sequence[Response]]]) -> dict[str, Any]:
    """Tokens, {"input", "output"}, and cost in dollars of models' answers. None where unknown."""
    answers, tokens = list(answers), {}
    for name in ("input", "output"):
        counts = [getattr(response, f"{name}_tokens") for _, read in answers for response in read]
        known = [count for count in counts if count is not None]
        tokens[name] = sum(known) if known else None
    priced = [(cost, read) for model, read in answers if (cost := ability(model, "cost"))]
    costs = [cost(response) for cost, read in priced for response in read]
    # A sum with parts missing would look like the whole.
    is_known = priced and None not in costs
    return {
        "tokens": None if set(tokens.values()) == {None} else tokens,
        "cost": sum(costs) if is_known else None,
    }


def read(responder: Responder, request: Request, raw: Raw) -> Response:
    """The response that a responder reads out of a raw answer, as texts that can be written."""
    try:
        response = responder.read(request, raw)
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise ValueError(json_files.well_formed(reason)) from error
    # Rubrics and captions read all of a text. Tasks of texts cut thoughts in their published ways.
    if isinstance(request, ImageText) and response.text is not None:
        answer = answer_texts.spoken(response.text)
        response = response if answer == response.text else dataclasses.replace(response, text=answer.strip())
    text, partial = (words and json_files.well_formed(words) for words in (response.text, response.partial))
    return dataclasses.replace(response, text=text, partial=partial)


def _iterator(incoming: Iterator[tuple[int, Raw]]) -> Generator[tuple[int, Raw], None, None]:
    """A generator from any iterator. Unlike some, it can be closed, which ends calls under way."""
    yield from incoming
