"""Asks a model for the answers that are not recorded yet. Every answer is on disk before anything reads it."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING

from winobench.base import answer_texts, json_files, options
from winobench.base import progress as progress_bars
from winobench.base.errors import InputError
from winobench.runs import responses
from winobench.runs.requests import BLOCKED, FINISHED, PictureText, Raw, Request, Responder, Response

if TYPE_CHECKING:
    from winobench.base.trackers import RunReporter


@dataclasses.dataclass
class Answers:
    """The answers to some requests, by their keys."""

    read: dict[str, Response] = dataclasses.field(default_factory=dict)
    failed: dict[str, str] = dataclasses.field(default_factory=dict)  # why a call failed, of those made now
    blocked: set[str] = dataclasses.field(default_factory=set)  # failed calls that would fail again
    asked: int = 0  # number of calls made now
    seconds: float = 0.0  # that the run's own answers took when an earlier call of it asked for them


def ask(
    responder: Responder,
    store: responses.ResponseStore,
    wanted: Mapping[str, Request],
    answers: Answers,
    *,
    reuse: bool = True,
    progress: bool = True,
    label: str = "asking",
    received: Callable[[str, Response], None] | None = None,
    watch: RunReporter | None = None,
) -> None:
    """Reads the store, takes answers of the runs next to it, and asks for the rest, incomplete answers included.

    A responder may have ``parts(request)``, the requests that make up one, and ``combine(request, responses)``.
    """
    if parts := _parts(responder, wanted):
        calls = {key: request for key, request in wanted.items() if key not in parts}
        for own in parts.values():
            calls |= own
        ask(responder, store, calls, answers, reuse=reuse, progress=progress, watch=watch)
        _combine(responder, wanted, parts, answers)
        return
    if reuse:
        store.share(store.neighbours(), wanted)
    for key, request in wanted.items():
        stored = store.get(key)
        if stored is None:
            continue
        try:
            response = read(responder, request, stored.raw)
        except ValueError as error:
            store.reject(key, str(error))
            continue
        if response.ending != FINISHED:
            continue
        answers.read[key] = response
        if stored.origin is None:
            answers.seconds += stored.seconds
    missing = {key: request for key, request in wanted.items() if key not in answers.read}
    answers.asked += len(missing)
    _ask(responder, store, missing, answers, len(wanted), label if progress else None, received, watch)


def _ask(
    responder: Responder,
    store: responses.ResponseStore,
    missing: Mapping[str, Request],
    answers: Answers,
    total: int,
    label: str | None,
    received: Callable[[str, Response], None] | None,
    watch: RunReporter | None,
) -> None:
    """Asks for the missing answers. Without a label, nothing is shown."""
    keys, requests = list(missing), list(missing.values())
    if not requests:
        if watch is not None:
            watch.begin(total, total)
        if label is not None:
            progress_bars.say(f"all {total:,} responses are recorded: nothing to ask")
        return
    left = set(range(len(keys)))
    bar = progress_bars.counting(
        total, total - len(keys), enabled=label is not None, label=label or "", unit="requests", watch=watch
    )
    with bar as advance, contextlib.closing(_iterator(responder.ask(requests))) as incoming:
        last = time.monotonic()
        for index, raw in incoming:
            # Since the one before came in, so that the seconds of many calls at once add up to the time they took.
            seconds, last = time.monotonic() - last, time.monotonic()
            if index not in left or not isinstance(raw, Mapping):
                raise InputError(
                    f"{type(responder).__name__}.ask yields ({index!r}, {options.quote(raw)}): yield the number of each"
                    " request once, and its raw answer as a mapping of JSON values",
                    code="bad-response",
                )
            key, request = keys[index], requests[index]
            left.remove(index)
            error = raw.get("error")
            if isinstance(error, Mapping) and "kind" in error:
                store.fail(key, request, error, seconds)
                reason = f"{error['kind']}: {error.get('message', '')}".rstrip(": ")
                answers.failed[key] = json_files.well_formed(reason)
                if error["kind"] == BLOCKED:
                    answers.blocked.add(key)
            else:
                store.add(key, request, raw, seconds)
                try:
                    answers.read[key] = read(responder, request, raw)
                except ValueError as malformed:
                    store.reject(key, str(malformed))
                    billed = ". It was answered, so it may have been billed" if hasattr(responder, "cost") else ""
                    answers.failed[key] = f"malformed: {malformed}{billed}"
                else:
                    if received is not None:
                        received(key, answers.read[key])
            advance(1)
    if left:
        raise RuntimeError(f"the model left out {len(left)} of the {len(keys)} requests it was given.")


def _parts(responder: Responder, wanted: Mapping[str, Request]) -> dict[str, dict[str, Request]]:
    """Key of a request with several parts -> key and request of each part."""
    if not hasattr(responder, "parts"):
        return {}
    fingerprint = responder.fingerprint()
    found = {}
    for key, request in wanted.items():
        own = responder.parts(request)
        if own != (request,):
            found[key] = {responses.key(fingerprint, part): part for part in own}
    return found


def _combine(
    responder: Responder, wanted: Mapping[str, Request], parts: Mapping[str, Mapping[str, Request]], answers: Answers
) -> None:
    failed = {part: answers.failed[part] for own in parts.values() for part in own if part in answers.failed}
    for key, own in parts.items():
        # Several requests may have a part in common.
        if reasons := [failed[part] for part in own if part in failed]:
            answers.failed[key] = reasons[0]
            if answers.blocked.intersection(own):
                answers.blocked.add(key)
        else:
            answers.read[key] = responder.combine(wanted[key], [answers.read[part] for part in own])
    for part in failed.keys() - wanted.keys():
        del answers.failed[part]
        answers.blocked.discard(part)


def read(responder: Responder, request: Request, raw: Raw) -> Response:
    """The response that a responder reads out of a raw answer, as texts that can be written."""
    try:
        response = responder.read(request, raw)
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise ValueError(json_files.well_formed(reason)) from error
    # Rubrics and captions read all of a text. Tasks of texts cut thoughts in their published ways.
    if isinstance(request, PictureText) and response.text is not None:
        answer = answer_texts.spoken(response.text)
        response = response if answer == response.text else dataclasses.replace(response, text=answer.strip())
    texts = {name: getattr(response, name) for name in ("text", "partial") if getattr(response, name) is not None}
    changed = {name: json_files.well_formed(text) for name, text in texts.items()}
    return dataclasses.replace(response, **changed) if changed else response


def _iterator(incoming: Iterator[tuple[int, Raw]]) -> Generator[tuple[int, Raw], None, None]:
    """A generator from any iterator. Unlike some, it can be closed, which ends calls under way."""
    yield from incoming
