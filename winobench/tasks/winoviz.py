"""WinoViz: what does an object look like in the state that a sentence puts it in?

Two premises about an object in two states share two hypotheses about its look. A model chooses the one that is more
likely to be true. ``individual`` counts questions, ``pair`` the pairs of which both questions are right.

**Two sets.** The paper's 1,380 items are not public. ``winoviz_single``, ``..._multi`` and ``..._decoupled`` ask the
user's items (`winobench.data.winoviz.files`), ``winoviz_mini_...`` our own small set, which comes with the package.
The paper's numbers stand next to none of it. Decoupled items have, for the same subset, the groups ``pragmatic`` (from
the premise to the property), ``visual`` (from the property to the look) and ``combined`` (the single-hop question).

**Order of the options.** As in the data, for both questions of a pair, so that each option is right once. The
protocols whose names end in ``_swapped`` put every question again with the options exchanged. Accuracies and
``unparsable`` are from the first order. Three more rows measure the influence of the order:
``position_bias/first_option``, the share of all choices that fell on the option listed first;
``position_bias/flipped``, the share of questions whose choice changed; ``position_bias/right_in_both_orders``.

The paper prints the instruction. The format of the question, the four examples and the chains of thought are ours
(``assets/winoviz/prompts.json``). Source: W. Jin, T. Srinivasan, J. Thomason, X. Ren, "WinoViz: Probing Visual
Properties of Objects Under Different States", sections 2 and 3, appendix A.2.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import logging
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from winobench.base.errors import InputError
from winobench.data import winoviz as data
from winobench.data.prepared import data_folder
from winobench.metrics.intervals import clustered
from winobench.runs.requests import (
    ANSWERED,
    FAILED,
    UNPARSABLE,
    Entailment,
    Generation,
    Options,
    Request,
    Response,
    Similarity,
)
from winobench.tasks import winoviz_images
from winobench.tasks.base import DataSet
from winobench.tasks.option_answers import read_choice, states_choice
from winobench.tasks.questions import Answer, Protocol, TextQuestion, TextTask
from winobench.tasks.votes import Asked, best, counted, entry, is_right, whole_pairs
from winobench.tasks.winoviz_prompts import conversation, prompts

OUR_SET = data.ASSETS / "items.jsonl"

PRAGMATIC, VISUAL, COMBINED = "pragmatic", "visual", "combined"

CHANCE = {
    "individual": 1 / 2,
    "pair": 1 / 4,
    "position_bias/first_option": 1 / 2,
    "position_bias/flipped": 1 / 2,
    "position_bias/right_in_both_orders": 1 / 4,
}

_ANSWER_TOKENS = 128
_REASONING_TOKENS = 512
_log = logging.getLogger(__name__)


_Ask = Callable[[str, tuple[str, ...]], Request]
_Read = Callable[[Response, tuple[str, ...]], Answer]


def _generation(*, shots: bool = False, reasoning: bool = False) -> tuple[str, _Ask, _Read]:
    def ask(premise: str, options: tuple[str, ...]) -> Request:
        turns = tuple(conversation(premise, options, shots=shots, reasoning=reasoning))
        max_tokens = _REASONING_TOKENS if reasoning else _ANSWER_TOKENS
        return Generation(turns, max_tokens=max_tokens, prefix_turns=len(turns) - 1)

    def read(response: Response, options: tuple[str, ...]) -> Answer:
        choice = read_choice(response.text, options, reasoning=reasoning)
        # Where the reasoning was cut off, an option that it weighs is not an answer yet.
        if reasoning and response.finish == "length" and not states_choice(response.text):
            choice = None
        return Answer(UNPARSABLE) if choice is None else Answer(ANSWERED, choice)

    return "generation", ask, read


def _options(*, shots: bool = False) -> tuple[str, _Ask, _Read]:
    def ask(premise: str, options: tuple[str, ...]) -> Request:
        turns = tuple(conversation(premise, options, shots=shots))
        answers = tuple(prompts()["answer"]["text"].format(number=number) for number in (1, 2))
        return Options(turns, answers, prefix_turns=len(turns) - 1)

    return "options", ask, _likelier


def _likelier(response: Response, options: tuple[str, ...]) -> Answer:
    del options
    return best(response)


_HOW: dict[str, tuple[str, tuple[str, _Ask, _Read]]] = {
    "zero_shot": ("the paper's instruction. The answer is generated", _generation()),
    "zero_shot_options": ("the paper's instruction; 'Option 1' and 'Option 2' are scored", _options()),
    "few_shot": ("the paper's instruction and 4 examples, which are ours. Generated", _generation(shots=True)),
    "few_shot_options": ("the paper's instruction and 4 examples, which are ours. Scored", _options(shots=True)),
    "chain_of_thought": (
        "the paper's instruction and 4 examples with reasons, which are ours. Generated",
        _generation(shots=True, reasoning=True),
    ),
    "entailment": (
        "which hypothesis the premise entails with the higher probability (section 3.4)",
        ("entailment", Entailment, _likelier),
    ),
    "similarity": (
        "which hypothesis is more similar to the premise (ours: the paper has no such numbers)",
        ("similarity", Similarity, _likelier),
    ),
}


def _plain(name: str) -> Protocol:
    description, (kind, ask, read) = _HOW[name]

    def requests(question: TextQuestion) -> Sequence[Request]:
        return [ask(question.texts["premise"], question.options)]

    def read_one(question: TextQuestion, responses: Sequence[Response | None]) -> Answer:
        (response,) = responses
        return Answer(FAILED) if response is None else read(response, question.options)

    return Protocol(name, description, kind, requests, read_one)


def _swapped(name: str) -> Protocol:
    description, (kind, ask, read) = _HOW[name]

    def requests(question: TextQuestion) -> Sequence[Request]:
        premise, (first, second) = question.texts["premise"], question.options
        return [ask(premise, (first, second)), ask(premise, (second, first))]

    def read_both(question: TextQuestion, responses: Sequence[Response | None]) -> Answer:
        in_order, turned = responses
        if in_order is None or turned is None:
            return Answer(FAILED)
        first, second = question.options
        answer, swapped = read(in_order, (first, second)), read(turned, (second, first))
        choices = (
            answer.choice if not answer.tie else None,
            1 - swapped.choice if swapped.choice is not None and not swapped.tie else None,
        )
        return dataclasses.replace(answer, choices=choices)

    return Protocol(f"{name}_swapped", f"{description}. In both orders of the options", kind, requests, read_both)


PROTOCOLS: Mapping[str, Protocol] = {
    **{name: _plain(name) for name in _HOW},
    # An encoder reads one hypothesis at a time, so that their order cannot matter.
    **{f"{name}_swapped": _swapped(name) for name in _HOW if _HOW[name][1][0] in ("generation", "options")},
    **winoviz_images.PROTOCOLS,
}


def questions(items: Iterable[data.Item], group: str | None = None) -> Iterator[TextQuestion]:
    """The two questions of each item."""
    for item in items:
        for number, premise in enumerate(item.premises):
            name, groups = f"{item.id}#{number + 1}", (group or item.attribute_kind,)
            yield TextQuestion(name, {"premise": premise}, item.hypotheses, number, groups, item.id)


def user_file(data_dir: str | None) -> pathlib.Path:
    """The file of the user's set."""
    folder = data_folder(data_dir) / "winoviz"
    paths = [folder / name for name in data.FILE_NAMES if (folder / name).is_file()]
    if not paths:
        raise InputError(
            f"{folder} has neither {' nor '.join(data.FILE_NAMES)}: write the WinoViz items into one of them (for the"
            " layout see docs/howto/winoviz.md), or ask the tasks winoviz_mini_..., which need no data",
            code="data-not-ready",
        )
    if len(paths) > 1:
        raise InputError(f"{folder} has both {' and '.join(data.FILE_NAMES)}: keep one of them", code="two-files")
    return paths[0]


def _units(version: str, items: Sequence[data.Item], where: str) -> list[dict[str, data.Item]]:
    """The items of a task, as group -> item, an element for each unit."""
    if version != "decoupled":
        units = [{item.attribute_kind: item} for item in items if item.version == version]
    else:
        by_source = {(item.source, item.version): item for item in items if item.source is not None}
        units = []
        for item in items:
            steps = {step: by_source.get((item.id, step)) for step in (PRAGMATIC, VISUAL)}
            if item.version != "single" or set(steps.values()) == {None}:
                continue
            for step, related in steps.items():
                if related is None:
                    raise InputError(
                        f"{where} has no {step} item of the source {item.id!r}: add it, so that all steps are asked"
                        " about the same subset",
                        code="missing-items",
                    )
            units.append({COMBINED: item, **{step: related for step, related in steps.items() if related is not None}})
    if not units:
        hint = ": build some with python -m winobench.data.winoviz multi_hop" if version == "multi" else ": add some"
        raise InputError(f"{where} has no {version} items{hint}", code="missing-items")
    return units


def _some(units: list[dict[str, data.Item]], limit: int | None) -> list[dict[str, data.Item]]:
    """The first ``limit`` in an order that has nothing to do with kinds or names, in the order of the file."""
    if limit is None or limit >= len(units):
        return units
    digests = [hashlib.sha256(next(iter(unit.values())).id.encode()).hexdigest() for unit in units]
    chosen = set(sorted(range(len(units)), key=digests.__getitem__)[:limit])
    return [unit for index, unit in enumerate(units) if index in chosen]


def metrics(questions: Sequence[TextQuestion], answers: Sequence[Answer]) -> dict[str, dict[str, Any]]:
    """Accuracies with 95% intervals. Questions of a pair are one cluster.

    Rows: ``individual`` and ``pair``; ``<kind of attribute>/individual`` and ``.../pair``; ``unparsable``, the share of
    questions from whose answer no choice could be read, which count as wrong, and ``position_bias/...`` where both
    orders of the options were asked. For decoupled items, the rows of ``combined``, ``pragmatic`` and ``visual`` take
    the place of the first two and of the kinds, as a mean over the three would mean nothing.

    A question with a failed call counts nowhere, and its pair only for ``individual``. Empty rows are left out.
    """
    judged = counted(questions, answers)
    groups = list(dict.fromkeys(group for question in questions for group in question.groups))
    rows = {} if COMBINED in groups else _accuracies(judged, "")
    for group in groups:
        rows |= _accuracies([judgement for judgement in judged if group in judgement[0].groups], f"{group}/")
    pairs = [question.pair for question, _ in judged]
    rows |= _share("unparsable", [answer.status == UNPARSABLE for _, answer in judged], pairs)
    return rows | _position_bias(judged)


def _accuracies(judged: Sequence[Asked], prefix: str) -> dict[str, dict[str, Any]]:
    right, ties = [is_right(*judgement) for judgement in judged], [answer.tie for _, answer in judged]
    rows = _share(f"{prefix}individual", right, [question.pair for question, _ in judged], ties)
    whole = whole_pairs(judged)
    right = [all(is_right(*judgement) for judgement in pair) for pair in whole]
    ties = [any(answer.tie for _, answer in pair) for pair in whole]
    return rows | _share(f"{prefix}pair", right, range(len(whole)), ties)


def _position_bias(judged: Sequence[Asked]) -> dict[str, dict[str, Any]]:
    both = [
        (question, answer.choices)
        for question, answer in judged
        if len(answer.choices) == 2 and not question.images  # two images are not two orders
    ]
    # Of the options as they are listed in the second order, the first one is option 1 of the question.
    first = [
        (choice == order, question.pair)
        for question, choices in both
        for order, choice in enumerate(choices)
        if choice is not None
    ]
    flipped = [(choices[0] != choices[1], question.pair) for question, choices in both if None not in choices]
    right = [(set(choices) == {question.answer}, question.pair) for question, choices in both]
    rows: dict[str, dict[str, Any]] = {}
    for name, outcomes in (("first_option", first), ("flipped", flipped), ("right_in_both_orders", right)):
        rows |= _share(f"position_bias/{name}", [outcome for outcome, _ in outcomes], [pair for _, pair in outcomes])
    return rows


def _share(name: str, outcomes: Sequence[bool], clusters: Sequence[Any], ties: Sequence[bool] = ()) -> dict[str, Any]:
    if not outcomes:
        return {}
    chance = CHANCE.get(name, CHANCE.get(name.rsplit("/", 1)[-1]))
    return {name: entry(clustered(np.array(outcomes), clusters), chance, len(outcomes), sum(ties), clusters=clusters)}


_ABOUT = {
    "single": "which look an object has in the state that a sentence puts it in",
    "multi": "which other object an object looks like in the state that a sentence puts it in",
    "decoupled": "what a sentence says of an object's state, and what the object looks like in that state",
}


@functools.cache
def _our_items() -> tuple[data.Item, ...]:
    return tuple(data.read_items(OUR_SET))


def _task(version: str, *, is_ours: bool) -> TextTask:
    def units(data_dir: str | None, limit: int | None = None) -> list[dict[str, data.Item]]:
        if is_ours:
            return _some(_units(version, _our_items(), "our set"), limit)
        path = user_file(data_dir)
        return _some(_units(version, data.read_items(path), str(path)), limit)

    def load(data_dir: str | None, limit: int | None) -> Iterable[TextQuestion]:
        loaded = units(data_dir, limit)
        problems = [] if is_ours else data.check_items(item for unit in loaded for item in unit.values())
        if problems:
            _log.warning(
                "%s: %d breaks of the paper's annotation rules in %d of %d items, which are asked all the same;"
                " python -m winobench.data.winoviz check lists them",
                user_file(data_dir),
                len(problems),
                len({problem.item for problem in problems}),
                sum(len(unit) for unit in loaded),
            )
        return [question for unit in loaded for group, item in unit.items() for question in questions([item], group)]

    def ready(data_dir: str | None) -> str | None:
        try:
            units(data_dir)
        except InputError as error:
            return str(error)
        return None

    def fingerprint(data_dir: str | None, limit: int | None) -> str:
        content = [{group: item.to_json() for group, item in unit.items()} for unit in units(data_dir, limit)]
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        return f"{'winobench-mini' if is_ours else 'user'}:{digest}"

    def count(data_dir: str | None) -> int | None:
        return None if ready(data_dir) is not None else sum(2 * len(unit) for unit in units(data_dir))

    whose = "our own small set, not the paper's" if is_ours else "the items in the user's folder winoviz"
    name = f"winoviz_mini_{version}" if is_ours else f"winoviz_{version}"
    about = f"WinoViz, {version}: {_ABOUT[version]}; {whose}."
    of_set = {"illustrated": "premise", "paper": None if is_ours else "Jin et al."}
    return TextTask(name, 1, about, PROTOCOLS, CHANCE, load, ready, fingerprint, metrics, count, **of_set)


TEXT_TASKS = tuple(_task(version, is_ours=is_ours) for is_ours in (False, True) for version in _ABOUT)

DATA_SETS = (
    DataSet(
        name="winoviz",
        title="WinoViz",
        description="looks of objects, texts alone",
        tasks=tuple(task for task in TEXT_TASKS if "mini" not in task.name),
        downloads="",
        supplies="the published items",
        licence="unpublished",
    ),
    DataSet(
        name="winoviz_mini",
        title="WinoViz, our own items",
        description="our own small set, texts alone",
        tasks=tuple(task for task in TEXT_TASKS if "mini" in task.name),
    ),
)
