"""Makes items from prompts: asks models, keeps their answers, and reads sentences from them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired, Required, TypedDict

from winobench.base.errors import InputError
from winobench.contrib.people.wscplus_items import parsing
from winobench.contrib.people.wscplus_items.items import TYPES, Item, Origin
from winobench.contrib.people.wscplus_items.prompts import Prompt
from winobench.models import snapshots
from winobench.runs import asking, endings, responses
from winobench.runs import schema as schemas
from winobench.runs.requests import Responder

ANSWERED, FAILED = "answered", "failed"


@dataclasses.dataclass(frozen=True)
class Answer:
    """The answer to one request. A rerun repeats calls that failed for good, or brought an incomplete answer."""

    origin: Origin
    status: str
    text: str | None = None
    cut_off: bool = False  # it was as long as it may be
    problem: str | None = None  # why a call failed, or how an answer is incomplete
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: float | None = None  # in dollars, where the price is known


class _OriginJSON(TypedDict):
    """An `Origin` in a file."""

    model: Required[str]
    type: Required[Literal[TYPES]]
    template: Required[str]
    query: Required[str]
    batch: Required[int]
    sample: Required[int]


class _AnswerJSON(TypedDict):
    """An `Answer` in a file."""

    origin: Required[_OriginJSON]
    status: Required[Literal[ANSWERED, FAILED]]
    text: NotRequired[str | None]
    cut_off: NotRequired[bool]
    problem: NotRequired[str | None]
    input_tokens: NotRequired[Annotated[int, schemas.Bounds(0)] | None]
    output_tokens: NotRequired[Annotated[int, schemas.Bounds(0)] | None]
    cost: NotRequired[Annotated[float, schemas.Bounds(0)] | None]


@dataclasses.dataclass(frozen=True)
class Malformed:
    """A part of an answer that is not a sentence in the layout (`winobench.contrib.people.wscplus_items.parsing`)."""

    origin: Origin
    reason: str
    text: str  # shortened


def collect(responder: Responder, model: str, prompts: Sequence[Prompt], session: asking.Session) -> list[Answer]:
    """Asks a model the missing requests. Every response is on disk before it is parsed."""
    if "generation" not in responder.kinds:
        raise InputError(
            f"model {model!r} writes no text (it answers {', '.join(sorted(responder.kinds))}): name a language model.",
            code="wrong-kind-of-model",
        )
    responder = snapshots.snapshot(responder)
    fingerprint = responder.fingerprint()
    keys = [responses.key(fingerprint, prompt.request) for prompt in prompts]
    known = session.ask(responder, {key: prompt.request for key, prompt in zip(keys, prompts, strict=True)})
    answers = []
    for key, prompt in zip(keys, prompts, strict=True):
        origin, response = prompt.origin(model), known.read.get(key)
        if response is None:
            answers.append(Answer(origin, FAILED, problem=known.failed[key]))
            continue
        tokens = {"input_tokens": response.input_tokens, "output_tokens": response.output_tokens}
        cost = asking.spent([(responder, [response])])["cost"]
        problem = endings.why_incomplete(prompt.request, response, can_be_longer=True)
        status, text = (ANSWERED, response.text) if problem is None else (FAILED, response.partial)
        answers.append(Answer(origin, status, text, response.finish == "length", problem, **tokens, cost=cost))
    return answers


def read_answers(answers: Iterable[Answer]) -> tuple[list[Item], list[Malformed]]:
    """The items in answers, and the parts that could not be read. Failed calls and incomplete answers are neither."""
    items: list[Item] = []
    malformed: list[Malformed] = []
    for answer in answers:
        if answer.status == FAILED:
            continue
        groups, bad = parsing.parse(answer.text, answer.origin.type, cut_off=answer.cut_off)
        items += [Item(sentences, answer.origin) for sentences in groups]
        malformed += [Malformed(answer.origin, part.reason, part.text) for part in bad]
    return items, malformed


def answer_from_json(record: Mapping[str, Any]) -> Answer:
    """The answer whose fields a file holds."""
    schemas.check(record, _AnswerJSON, "the answer", strict=True)
    return Answer(**{**record, "origin": Origin(**record["origin"])})
