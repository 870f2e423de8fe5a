"""WinoViz: what does an object look like in the state that a sentence puts it in (Jin et al.)?

Two premises about an object in two states share two hypotheses about its look. A model chooses the one that is more
likely to be true. ``individual`` counts questions, ``pair`` the pairs of which both questions are right.

**Two sets.** The paper's 1,380 items are not public. The tasks ``winoviz_single``, ``winoviz_multi`` and
``winoviz_decoupled`` ask what the user has put into the folder ``winoviz`` of the data folder, as ``items.jsonl`` or
``items.csv`` (layout: `winobench.data.winoviz.files`). The tasks ``winoviz_mini_single``, ``winoviz_mini_multi`` and
``winoviz_mini_decoupled`` ask our own small set, which comes with the package. Its numbers are not the paper's, and the
paper's stand next to none of them: see `published`.

**Decoupled.** For the same subset, the groups ``pragmatic`` (from the premise to the property), ``visual`` (from the
property to the look) and ``combined`` (the whole single-hop question).

**Order of the options.** As in the data, for both questions of a pair, so that each option is right once. The
protocols whose names end in ``_swapped`` put every question twice, the second time with the options exchanged. Their
accuracies and their ``unparsable`` are those of the first order, so that they compare with the plain protocols. Three
more rows measure the influence of the order: ``position_bias/first_option``, the share of all choices that fell on the
option listed first; ``position_bias/flipped``, the share of questions whose choice changed;
``position_bias/right_in_both_orders``.

**With images.** Some protocols (`winobench.tasks.winoviz_images`) are about images of the premises.

The paper prints the instruction. The format of the question, the four examples and the chains of thought are ours. See
``assets/winoviz/prompts.json``.

Source: W. Jin, T. Srinivasan, J. Thomason, X. Ren, "WinoViz: Probing Visual Properties of Objects Under Different
States", sections 2 and 3, appendix A.2.
"""

from __future__ import annotations

import dataclasses
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
from winobench.tasks.option_answers import read_choice, states_choice
from winobench.tasks.questions import Answer, Protocol, TextQuestion, TextTask
from winobench.tasks.votes import best
from winobench.tasks.winoviz_prompts import conversation, prompts

FOLDER = "winoviz"
"""The folder of the user's set, in the data folder."""

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


# ----------------------------------------------------------------------------------------------------------------------
# Protocols
# ----------------------------------------------------------------------------------------------------------------------


_Ask = Callable[[str, tuple[str, str]], Request]
_Read = Callable[[Response, tuple[str, str]], Answer]


def _generation(*, shots: bool = False, reasoning: bool = False) -> tuple[str, _Ask, _Read]:
    def ask(premise: str, options: tuple[str, str]) -> Request:
        turns = tuple(conversation(premise, options, shots=shots, reasoning=reasoning))
        max_tokens = _REASONING_TOKENS if reasoning else _ANSWER_TOKENS
        return Generation(turns, max_tokens=max_tokens, prefix_turns=len(turns) - 1)

    def read(response: Response, options: tuple[str, str]) -> Answer:
        choice = read_choice(response.text, options, reasoning=reasoning)
        # Where the reasoning was cut off, an option that it weighs is not an answer yet.
        if reasoning and response.finish == "length" and not states_choice(response.text):
            choice = None
        return Answer(UNPARSABLE) if choice is None else Answer(ANSWERED, choice)

    return "generation", ask, read


def _options(*, shots: bool = False) -> tuple[str, _Ask, _Read]:
    def ask(premise: str, options: tuple[str, str]) -> Request:
        turns = tuple(conversation(premise, options, shots=shots))
        answers = tuple(prompts()["answer"]["text"].format(number=number) for number in (1, 2))
        return Options(turns, answers, prefix_turns=len(turns) - 1)

    return "options", ask, _likelier


def _likelier(response: Response, options: tuple[str, str]) -> Answer:
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

    def read_one(question: TextQuestion, responses: Sequence[Response | None]) -> Answer:
        (response,) = responses
        return Answer(FAILED) if response is None else read(response, question.options)

    return Protocol(
        name=name,
        description=description,
        kind=kind,
        requests=lambda question: [ask(question.texts["premise"], question.options)],
        read=read_one,
    )


def _swapped(name: str) -> Protocol:
    description, (kind, ask, read) = _HOW[name]

    def requests(question: TextQuestion) -> Sequence[Request]:
        premise, (first, second) = question.texts["premise"], question.options
        return [ask(premise, (first, second)), ask(premise, (second, first))]

    def read_both(question: TextQuestion, responses: Sequence[Response | None]) -> Answer:
        if None in responses:
            return Answer(FAILED)
        first, second = question.options
        there, back = read(responses[0], (first, second)), read(responses[1], (second, first))
        choices = (
            there.choice if not there.tie else None,
            1 - back.choice if back.choice is not None and not back.tie else None,
        )
        return dataclasses.replace(there, choices=choices)

    return Protocol(f"{name}_swapped", f"{description}. In both orders of the options", kind, requests, read_both)


PROTOCOLS: Mapping[str, Protocol] = {
    **{name: _plain(name) for name in _HOW},
    # An encoder reads one hypothesis at a time, so that their order cannot matter.
    **{f"{name}_swapped": _swapped(name) for name in _HOW if _HOW[name][1][0] in ("generation", "options")},
    **winoviz_images.PROTOCOLS,
}


# ----------------------------------------------------------------------------------------------------------------------
# Questions
# ----------------------------------------------------------------------------------------------------------------------


def questions(items: Iterable[data.Item], group: str | None = None) -> Iterator[TextQuestion]:
    """The two questions of each item."""
    for item in items:
        for number, premise in enumerate(item.premises):
            yield TextQuestion(
                id=f"{item.id}#{number + 1}",
                texts={"premise": premise},
                options=item.hypotheses,
                answer=number,
                groups=(group or item.attribute_kind,),
                pair=item.id,
            )


def user_file(data_dir: str | None) -> pathlib.Path:
    """The file of the user's set."""
    folder = data_folder(data_dir) / FOLDER
    found = [folder / name for name in data.FILE_NAMES if (folder / name).is_file()]
    if not found:
        raise InputError(
            f"{folder} has neither {' nor '.join(data.FILE_NAMES)}: write the WinoViz items into one of them (for the"
            " layout see docs/winoviz.md), or ask the tasks winoviz_mini_..., which need no data",
            code="data-not-ready",
        )
    if len(found) > 1:
        raise InputError(f"{folder} has both {' and '.join(data.FILE_NAMES)}: keep one of them", code="two-files")
    return found[0]


def _all_items(is_ours: bool, data_dir: str | None) -> list[data.Item]:
    return data.read_items(OUR_SET if is_ours else user_file(data_dir))


def _units(version: str, items: Sequence[data.Item], where: str) -> list[dict[str, data.Item]]:
    """What a task asks, as group -> item; ``limit`` counts the elements."""
    if version != "decoupled":
        units = [{item.attribute_kind: item} for item in items if item.version == version]
    else:
        by_source = {(item.source, item.version): item for item in items if item.source is not None}
        units = []
        for item in items:
            steps = {step: by_source.get((item.id, step)) for step in (PRAGMATIC, VISUAL)}
            if item.version != "single" or set(steps.values()) == {None}:
                continue
            for step, one in steps.items():
                if one is None:
                    raise InputError(
                        f"{where} has no {step} item of the source {item.id!r}: add it, so that all steps are asked"
                        " about the same subset",
                        code="missing-items",
                    )
            units.append({COMBINED: item, **steps})
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


# ----------------------------------------------------------------------------------------------------------------------
# Metrics
# ----------------------------------------------------------------------------------------------------------------------


def metrics(asked: Sequence[TextQuestion], answers: Sequence[Answer]) -> dict[str, dict[str, Any]]:
    """Accuracies with 95% intervals. Questions of a pair are one cluster.

    Rows: ``individual`` and ``pair``; ``<kind of attribute>/individual`` and ``.../pair``; ``unparsable``, the share of
    questions from whose answer no choice could be read, which count as wrong, and ``position_bias/...`` where both
    orders of the options were asked (see the module). For decoupled items, the rows of ``combined``, ``pragmatic``
    and ``visual`` take the place of the first two and of the kinds, as a mean over the three would mean nothing.

    A question with a failed call counts nowhere, and its pair only for ``individual``. A row without anything to count
    is left out.
    """
    counted = [pair for pair in zip(asked, answers, strict=True) if pair[1].status != FAILED]
    groups = list(dict.fromkeys(group for question in asked for group in question.groups))
    is_decoupled = COMBINED in groups
    rows = {} if is_decoupled else _accuracies(counted, "")
    for group in groups:
        rows |= _accuracies([pair for pair in counted if group in pair[0].groups], f"{group}/")
    pairs = [question.pair for question, _ in counted]
    unparsable = [answer.status == UNPARSABLE for _, answer in counted]
    rows |= _share("unparsable", unparsable, pairs)
    rows |= _position_bias(counted)
    return rows


def is_right(question: TextQuestion, answer: Answer) -> bool:
    """Whether the answer is the right one. A tie is wrong."""
    return answer.status == ANSWERED and answer.choice == question.answer and not answer.tie


def _accuracies(counted: Sequence[tuple[TextQuestion, Answer]], prefix: str) -> dict[str, dict[str, Any]]:
    right = [is_right(*pair) for pair in counted]
    ties = [answer.tie for _, answer in counted]
    rows = _share(f"{prefix}individual", right, [question.pair for question, _ in counted], ties)
    members: dict[str | None, list[int]] = {}
    for index, (question, _) in enumerate(counted):
        members.setdefault(question.pair, []).append(index)
    whole = [indices for indices in members.values() if len(indices) == 2]
    pair_right = [all(right[index] for index in indices) for indices in whole]
    pair_ties = [any(ties[index] for index in indices) for indices in whole]
    return rows | _share(f"{prefix}pair", pair_right, range(len(whole)), pair_ties)


def _position_bias(counted: Sequence[tuple[TextQuestion, Answer]]) -> dict[str, dict[str, Any]]:
    both = [
        (question, answer.choices)
        for question, answer in counted
        if len(answer.choices) == 2 and not question.pictures  # two images are not two orders
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
        rows |= _share(f"position_bias/{name}", [one for one, _ in outcomes], [pair for _, pair in outcomes])
    return rows


def _share(
    name: str, outcomes: Sequence[bool], clusters: Sequence[Any], ties: Sequence[bool] = ()
) -> dict[str, dict[str, Any]]:
    if not outcomes:
        return {}
    interval = clustered(np.array(outcomes), clusters)
    chance = CHANCE.get(name, CHANCE.get(name.rsplit("/", 1)[-1]))
    return {name: {**interval._asdict(), "chance": chance, "n": len(outcomes), "ties": sum(ties)}}


# ----------------------------------------------------------------------------------------------------------------------
# The paper's numbers
# ----------------------------------------------------------------------------------------------------------------------


# ----------------------------------------------------------------------------------------------------------------------
# Declarations
# ----------------------------------------------------------------------------------------------------------------------

_ABOUT = {
    "single": "which look an object has in the state that a sentence puts it in",
    "multi": "which other object an object looks like in the state that a sentence puts it in",
    "decoupled": "what a sentence says of an object's state, and what the object looks like in that state",
}


def _task(version: str, *, is_ours: bool) -> TextTask:
    def units(data_dir: str | None, limit: int | None = None) -> list[dict[str, data.Item]]:
        where = "our set" if is_ours else str(user_file(data_dir))
        return _some(_units(version, _all_items(is_ours, data_dir), where), limit)

    def load(data_dir: str | None, limit: int | None) -> Iterable[TextQuestion]:
        found = units(data_dir, limit)
        problems = [] if is_ours else data.check_items(item for unit in found for item in unit.values())
        if problems:
            _log.warning(
                "%s: %d breaks of the paper's annotation rules in %d of %d items, which are asked all the same;"
                " python -m winobench.data.winoviz check lists them",
                user_file(data_dir),
                len(problems),
                len({problem.item for problem in problems}),
                sum(len(unit) for unit in found),
            )
        return [question for unit in found for group, item in unit.items() for question in questions([item], group)]

    def ready(data_dir: str | None) -> str | None:
        try:
            units(data_dir)
        except InputError as error:
            return str(error)
        return None

    def fingerprint(data_dir: str | None, limit: int | None) -> str:
        found = [{group: item.to_json() for group, item in unit.items()} for unit in units(data_dir, limit)]
        digest = hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()
        return f"{'winobench-mini' if is_ours else 'user'}:{digest}"

    def count(data_dir: str | None) -> int | None:
        return None if ready(data_dir) is not None else sum(2 * len(unit) for unit in units(data_dir))

    whose = "our own small set, not the paper's" if is_ours else "the items in the user's folder winoviz"
    return TextTask(
        name=f"winoviz_mini_{version}" if is_ours else f"winoviz_{version}",
        version=1,
        description=f"WinoViz, {version}: {_ABOUT[version]}; {whose}.",
        protocols=PROTOCOLS,
        chance=CHANCE,
        load=load,
        ready=ready,
        data_fingerprint=fingerprint,
        metrics=metrics,
        count=count,
        pictured="premise",
    )


TEXT_TASKS = tuple(_task(version, is_ours=is_ours) for is_ours in (False, True) for version in _ABOUT)
