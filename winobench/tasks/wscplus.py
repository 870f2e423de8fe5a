"""WSC+: whom does the pronoun mean, the first candidate, the second, or can nobody tell?

Where a published result file lies next to the user's ``WSC+.csv`` (`winobench.data.wscplus`), the validation set is the
700 questions that the paper's numbers are about, as they were asked. Otherwise it is the 699 rows that they were taken
from. The prompts are in ``assets/wscplus/prompts.json``. The generation protocols put a template, examples and the
question into one user turn, as the recorded runs did. ``options`` is ours: the model reads three examples as a
conversation, and the probabilities of the answers 0, 1 and 2 are compared.

Source: P. S. Zahraei and A. Emami, "WSC+: Enhancing The Winograd Schema Challenge Using Tree-of-Experts", EACL 2024.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib
import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from winobench.base import json_files
from winobench.base.errors import InputError
from winobench.data import wscplus as data
from winobench.data.wscplus.answers import parse_answer
from winobench.metrics.intervals import clustered, wilson
from winobench.runs.requests import ANSWERED, FAILED, UNPARSABLE, Generation, Options, Request, Response, Turn
from winobench.tasks.base import DataSet
from winobench.tasks.questions import Answer, Protocol, TextQuestion, TextTask
from winobench.tasks.votes import Asked, best, counted, entry, is_right, whole_pairs

LABELS = ("0", "1", "2")
"""The possible answers: the number of a candidate, or 2 for neither."""

RESPONSE_EVASION, AMBIGUITY_MISINTERPRETATION = "response_evasion", "ambiguity_misinterpretation"
ENTITY_MISSELECTION, NO_ANSWER = "entity_misselection", "no_answer"
ERRORS = (RESPONSE_EVASION, AMBIGUITY_MISINTERPRETATION, ENTITY_MISSELECTION, NO_ANSWER)
"""The kinds of errors of section 4.1, and where no answer could be read, or several were equally probable."""

CHANCE = {"accuracy": 1 / 3, "pair_accuracy": 1 / 9}


@functools.cache
def prompts() -> Mapping[str, Any]:
    """The content of ``assets/wscplus/prompts.json``: templates, queries and examples of evaluation and generation."""
    return json_files.read(data.ASSETS / "prompts.json")


def question_text(pronoun: str, snippet: str, statement: str, options_text: str) -> str:
    """The question as the recorded runs put it."""
    return prompts()["evaluation"]["question"]["text"].format(
        pronoun=pronoun, snippet=snippet, statement=statement, options=options_text
    )


def prompt(name: str, question: str) -> str:
    """The whole text that a generation protocol sends."""
    template, shots, _ = _GENERATION[name]
    content = prompts()["evaluation"]
    text = content["templates"][template]["text"]
    if shots is None:
        return content["layout"]["zero_shot"].format(template=text, question=question)
    examples = (
        content["layout"]["shot"].format(question=_shot_question(shot), response=shot["response"])
        for shot in content["shots"][shots]["examples"]
    )
    return content["layout"]["text"].format(template=text, shots="\n".join(examples), question=question)


def to_question(item: data.Item) -> TextQuestion:
    """The question about an item. Its third option means neither candidate."""
    return TextQuestion(
        id=item.id,
        texts={
            "statement": item.statement,
            "pronoun": item.pronoun,
            "snippet": item.snippet,
            "options": item.options_text,
            "question": question_text(item.pronoun, item.snippet, item.statement, item.options_text),
        },
        options=(*item.options, "neither"),
        answer=item.answer,
        groups=(item.generator,) if item.type == data.UNTYPED else (item.type, item.generator),
        pair=item.pair,
    )


def _shot_question(shot: Mapping[str, Any]) -> str:
    return question_text(shot["pronoun"], shot["snippet"], shot["statement"], shot["options_text"])


def _generation_requests(name: str, question: TextQuestion) -> tuple[Request, ...]:
    # Recorded answers have 650 tokens at most.
    return (Generation((Turn("user", prompt(name, question.texts["question"])),), max_tokens=1024),)


def _option_requests(question: TextQuestion) -> tuple[Request, ...]:
    content = prompts()["evaluation"]
    turns = [Turn("system", content["templates"]["options"]["text"])]
    for shot in content["shots"]["plain"]["examples"]:
        turns += [Turn("user", _shot_question(shot)), Turn("assistant", LABELS[shot["answer"]])]
    shared = len(turns)
    turns.append(Turn("user", question.texts["question"]))
    return (Options(tuple(turns), LABELS, prefix_turns=shared),)


def _read_generation(question: TextQuestion, responses: Sequence[Response | None]) -> Answer:
    (response,) = responses
    if response is None:
        return Answer(FAILED)
    choice = parse_answer(response.text or "", question.options, cut_off=response.finish == "length")
    return Answer(UNPARSABLE) if choice is None else Answer(ANSWERED, choice)


def _read_options(question: TextQuestion, responses: Sequence[Response | None]) -> Answer:
    del question
    (response,) = responses
    if response is None:
        return Answer(FAILED)
    if response.scores is None or not np.isfinite(response.scores).all():
        return Answer(UNPARSABLE)
    return best(response)


def outcome(question: TextQuestion, answer: Answer) -> str:
    """``correct``, or one of ``ERRORS``."""
    if answer.status == FAILED:
        raise ValueError(f"the question {question.id} has no outcome: its call failed.")
    if is_right(question, answer):
        return "correct"
    if answer.status != ANSWERED or answer.tie:
        return NO_ANSWER
    if question.answer == data.NEITHER:  # and a candidate was chosen
        return AMBIGUITY_MISINTERPRETATION
    return RESPONSE_EVASION if answer.choice == data.NEITHER else ENTITY_MISSELECTION


def error_counts(questions: Sequence[TextQuestion], answers: Sequence[Answer]) -> dict[str, int]:
    """The frequency of each of ``ERRORS``. Failed calls are left out (paper, Figure 8)."""
    counts = collections.Counter(outcome(*both) for both in counted(questions, answers))
    return {error: counts[error] for error in ERRORS}


def metrics(questions: Sequence[TextQuestion], answers: Sequence[Answer]) -> dict[str, dict[str, Any]]:
    """The numbers of a run with 95% intervals. Questions whose call failed count nowhere. Empty rows are left out.

    Rows: ``accuracy``, ``pair_accuracy`` over the pairs with both questions (both right), each kind of error as a share
    of all errors, whose number is ``n``, ``unparsable``, a share of all questions; ``untyped``, the share that is in no
    figure by type; ``<type>/accuracy`` and ``<generator>/accuracy``. Accuracies take questions of a pair as dependent.
    """
    judged = counted(questions, answers)
    if not judged:
        return {}
    rows = {"accuracy": _accuracy(judged)}
    if whole := whole_pairs(judged):
        right = sum(all(is_right(*both) for both in pair) for pair in whole)
        ties = sum(any(answer.tie for _, answer in pair) for pair in whole)
        rows["pair_accuracy"] = entry(wilson(right, len(whole)), CHANCE["pair_accuracy"], len(whole), ties)
    errors = error_counts(questions, answers)
    if total := sum(errors.values()):
        rows |= {error: entry(wilson(count, total), None, total) for error, count in errors.items()}
    unparsable = sum(answer.status == UNPARSABLE for _, answer in judged)
    rows["unparsable"] = entry(wilson(unparsable, len(judged)), None, len(judged))
    if untyped := sum(not set(data.TYPES) & set(question.groups) for question, _ in judged):
        rows["untyped"] = entry(wilson(untyped, len(judged)), None, len(judged))
    groups: dict[str, list[Asked]] = {}
    for question, answer in judged:
        for group in question.groups:
            groups.setdefault(group, []).append((question, answer))
    # Types before generators, each in the paper's order.
    known = (*data.TYPES, *data.GENERATORS)
    for group in sorted(groups, key=lambda group: (known.index(group) if group in known else len(known), group)):
        rows[f"{group}/accuracy"] = _accuracy(groups[group])
    return rows


def _accuracy(judged: Sequence[Asked]) -> dict[str, Any]:
    right = [is_right(*both) for both in judged]
    clusters = [question.pair or question.id for question, _ in judged]
    ties = sum(answer.tie for _, answer in judged)
    return entry(clustered(right, clusters), CHANCE["accuracy"], len(judged), ties, clusters=clusters)


_PAPER = "with its example(s) (Tables 9 and 14)"
_GENERATION: Mapping[str, tuple[str, str | None, str]] = {
    # The template, the examples, and the description.
    "toe": ("toe", "tree", "Tree-of-Experts as in the recorded runs (Table 9, and the prompt of the result files)"),
    "tot": ("tot", "tree", f"Tree of Thoughts {_PAPER}"),
    "coe": ("coe", "chain", f"Chain-of-Experts {_PAPER}. The examples' reasoning is ours"),
    "sc_cot": ("sc_cot", "chain", f"Self-Consistency Chain-of-Thought {_PAPER}. The examples' reasoning is ours"),
    "cot": ("cot", "chain", f"Chain-of-Thought {_PAPER}. The examples' reasoning is ours"),
    "nt_few_shot": ("nt", "plain", "no template, three examples of Table 14. Instruction and reasons are ours"),
    "nt_zero_shot": ("nt", None, "no template and no example. The instruction is ours"),
}

PROTOCOLS: Mapping[str, Protocol] = {
    **{
        name: Protocol(
            *(name, f"{description}.", Generation.kind),
            functools.partial(_generation_requests, name),
            _read_generation,
        )
        for name, (_, _, description) in _GENERATION.items()
    },
    "options": Protocol(
        "options",
        "probabilities of the answers 0, 1 and 2 after three examples of Table 14. The protocol is ours.",
        *(Options.kind, _option_requests, _read_options),
    ),
}
"""How WSC+ is asked. The first is the paper's best."""

HOW_TO_GET = (
    "get WSC+.csv (3,026 rows) from the repository that the paper names (arXiv 2401.17703, footnote 1)"
    " and put it at {path}"
)


def _ready(data_dir: str | None) -> str | None:
    path = data.data_file(data_dir)
    return None if path.is_file() else HOW_TO_GET.format(path=path)


def _validation(data_dir: str | None, limit: int | None, results: str | os.PathLike | None = None) -> list[data.Item]:
    """The items in the shuffled order of the result files. ``limit`` counts items."""
    path, results = data.data_file(data_dir), results or data.result_file(data_dir)
    items = data.validation(path, results)
    if notice := _about_types(items, results):
        warnings.warn(notice, stacklevel=2)
    expected = len(data.validation_ids())
    if not items:
        raise InputError(
            f"{path} has none of the {expected} validation items of WSC+: put the published file there",
            code="missing-items",
        )
    if results is None and len(items) < expected:
        warnings.warn(
            f"{path} has {len(items)} of the {expected} validation items of WSC+: numbers over the others are not"
            " those of the paper",
            stacklevel=2,
        )
    return list(items[:limit])


def _about_types(items: Sequence[data.Item], results: str | os.PathLike | None) -> str:
    """A sentence on the rows of a result file without a type: the repaired ones, and the others."""
    rows = [item for item in items if "type" in item.original]
    if not rows:
        return ""
    fixed = [f"{item.row} ({item.original['type']!r}: {item.type})" for item in rows if item.type != data.UNTYPED]
    left = [f"{item.row} ({item.original['type']!r})" for item in rows if item.type == data.UNTYPED]
    rows_have = f"{len(rows)} row{'s' * (len(rows) > 1)} whose type is not one of {', '.join(data.TYPES)}"
    sentences = [f"{results} has {rows_have}"]
    if fixed:
        sentences.append(f"{len(fixed)} took it from the same sentence in {data.FILE_NAME}: {', '.join(fixed)}")
    if left:
        sentences.append(f"{len(left)} not found there count in the total but in no figure by type: {', '.join(left)}")
    return "; ".join(sentences)


def _test(data_dir: str | None, limit: int | None) -> list[data.Item]:
    """The items in an order that mixes types and generators and keeps pairs together. ``limit`` counts units."""
    groups: dict[str, list[data.Item]] = {}
    for item in data.read(data.data_file(data_dir)):
        if item.split == "test":
            groups.setdefault(item.pair or item.id, []).append(item)
    order = sorted(groups, key=lambda id: hashlib.sha256(id.encode()).digest())
    return [item for id in order[:limit] for item in groups[id]]


def _task(name: str, description: str, items: Callable[[str | None, int | None], Sequence[data.Item]]) -> TextTask:
    def load(data_dir: str | None = None, limit: int | None = None) -> list[TextQuestion]:
        return [to_question(item) for item in items(data_dir, limit)]

    def fingerprint(data_dir: str | None = None, limit: int | None = None) -> str:
        content = [dataclasses.asdict(question) for question in load(data_dir, limit)]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def count(data_dir: str | None = None) -> int | None:
        return len(items(data_dir, None)) if _ready(data_dir) is None else None

    paper = "Zahraei and Emami 2024, arXiv:2401.17703"
    return TextTask(name, 1, description, PROTOCOLS, CHANCE, load, _ready, fingerprint, metrics, count, paper=paper)


TEXT_TASKS = (
    _task(
        "wscplus",
        "WSC+, validation set: whom a pronoun means, where only common sense can tell or nothing can.",
        _validation,
    ),
    _task("wscplus_test", "WSC+, test set: what neither the validation set nor the few-shot examples hold.", _test),
)


def of_results(path: str | os.PathLike) -> TextTask | None:
    """The validation set as it was put to the model of a published result file. The two files differ in a question.

    Returns a task instead of ``wscplus``; None where the file has responses but not the columns of a result file.
    """
    try:
        rows = data.read_rows(path)
    except InputError:
        return None
    if not rows or not {*data.COLUMNS, "query", "predicted_answer"} <= rows[0].keys():
        return None
    first = TEXT_TASKS[0]
    return _task(first.name, first.description, functools.partial(_validation, results=path))


DATA_SETS = (
    DataSet(
        name="wscplus",
        title="WSC+",
        description="what pronouns mean, texts alone",
        tasks=TEXT_TASKS,
        downloads="",
        supplies="the published items",
    ),
)
