"""Asking a model what it has not been asked yet: every answer is on disk before anything reads it."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Generator, Iterator, Mapping

from winobench.evaluation import progress as progress_bars
from winobench.evaluation import responses
from winobench.scorers.language import Raw, Request, Responder, Response


@dataclasses.dataclass
class Answers:
    """What is known of some requests, by their keys.

    Attributes:
      read: answers, read.
      failed: why a call failed, of those made now.
      asked: number of calls made now.
      seconds: that the run's own answers took when an earlier call of it asked for them.
    """

    read: dict[str, Response] = dataclasses.field(default_factory=dict)
    failed: dict[str, str] = dataclasses.field(default_factory=dict)
    asked: int = 0
    seconds: float = 0.0


def ask(
    responder: Responder,
    store: responses.ResponseStore,
    wanted: Mapping[str, Request],
    answers: Answers,
    *,
    reuse: bool = True,
    progress: bool = True,
) -> None:
    """Reads what the store has, takes what the runs beside it have, and asks for the rest.

    Args:
      responder: the model.
      store: of its responses, open.
      wanted: key of `winobench.evaluation.responses.key` -> request.
      answers: filled in while the answers come in, so that it says what is there after an error as well.
      reuse: take responses that runs beside the store's have recorded.
      progress: show requests, requests a second and the time left.

    Raises:
      InputError: the store cannot be written, or every further call would fail.
    """
    if reuse:
        store.share(store.neighbours(), wanted)
    for key, request in wanted.items():
        stored = store.get(key)
        if stored is None:
            continue
        try:
            answers.read[key] = responder.read(request, stored.raw)
        except ValueError as error:
            store.reject(key, str(error))
            continue
        if stored.origin is None:
            answers.seconds += stored.seconds
    missing = {key: request for key, request in wanted.items() if key not in answers.read}
    answers.asked = len(missing)
    _ask(responder, store, missing, answers, len(wanted), progress)


def _ask(
    responder: Responder,
    store: responses.ResponseStore,
    missing: Mapping[str, Request],
    answers: Answers,
    total: int,
    progress: bool,
) -> None:
    keys, requests = list(missing), list(missing.values())
    if not requests:
        if progress:
            progress_bars.say(f"all {total:,} responses are recorded: nothing to ask")
        return
    left = set(range(len(keys)))
    bar = progress_bars.passes(total, total - len(keys), enabled=progress, doing="asking", noun="requests")
    with bar as advance, contextlib.closing(_iterator(responder.ask(requests))) as incoming:
        last = time.monotonic()
        for index, raw in incoming:
            # Since the one before came in, so that the seconds of many calls at once add up to the time they took.
            seconds, last = time.monotonic() - last, time.monotonic()
            key, request = keys[index], requests[index]
            left.remove(index)
            error = raw.get("error")
            if isinstance(error, Mapping) and "kind" in error:
                store.fail(key, request, error, seconds)
                answers.failed[key] = f"{error['kind']}: {error.get('message', '')}".rstrip(": ")
            else:
                store.add(key, request, raw, seconds)
                try:
                    answers.read[key] = responder.read(request, raw)
                except ValueError as malformed:
                    store.reject(key, str(malformed))
                    answers.failed[key] = f"malformed: {malformed}"
            advance(1)
    if left:
        raise RuntimeError(f"the model left out {len(left)} of the {len(keys)} requests it was given.")


def _iterator(incoming: Iterator[tuple[int, Raw]]) -> Generator[tuple[int, Raw], None, None]:
    """A generator, which can be closed, of what may be any iterator; calls under way end with it."""
    yield from incoming
