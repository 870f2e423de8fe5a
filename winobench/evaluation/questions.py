"""One evaluation of text tasks from beginning to end: ask what is not yet recorded, record, read, summarise."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import pyarrow as pa

from winobench import parallel
from winobench import progress as progress_bars
from winobench.errors import InputError
from winobench.evaluation import asking, lifecycle, records, responses
from winobench.evaluation.evaluate import READY, choose_tasks
from winobench.responders.language import KINDS, Request, Responder, Response, check_request
from winobench.tasks import TEXT_TASKS
from winobench.tasks.questions import ANSWERED, FAILED, Answer, Protocol, TextQuestion, TextTask
from winobench.texts import LONGEST_PROMPT, check_texts

ATTEMPTS = "attempts.jsonl"
"""Beside the parts, where the model notes its attempts."""

# Of models whose responses cost time but no money: how much of it a crash of the machine may take.
_SECONDS_BETWEEN_SYNCS = 2.0


ALL = "all"
"""In place of protocols: every one that the model can answer."""


@dataclasses.dataclass(frozen=True)
class _Asked:
    """A task with all that is to be asked.

    Attributes:
      task: the task.
      protocol: how it is asked.
      questions: its questions.
      requests: those of each question.
      keys: of each question's requests, in the store.
    """

    task: TextTask
    protocol: Protocol
    questions: list[TextQuestion]
    requests: list[tuple[Request, ...]]
    keys: list[tuple[str, ...]]


def evaluate_questions(
    responder: Responder,
    tasks: str | Sequence[str | TextTask] = READY,
    workdir: str | os.PathLike | None = None,
    *,
    protocol: str | None = None,
    data_dir: str | None = None,
    limit: int | None = None,
    overwrite: bool = False,
    reuse: bool = True,
    progress: bool = True,
    name: str = "evaluation",
    model: str | None = None,
    config: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Evaluates a language model on text tasks and returns their numbers.

    Every request that the tasks need is made once, and every answer is on disk before anything reads it. A call with
    the same arguments continues where an earlier one was stopped, and asks again only what has failed. Answers that a
    run in a neighbouring folder has recorded for the same request to the same model are not asked for again.

    Args:
      responder: answers; see `winobench.responders.language.Responder`. It may also have ``cost(response)``, in dollars
        or None, ``log_attempts(path)``, which is told the file for its attempts, and ``bind(questions)``, which is told
        (id, requests) of all questions of the tasks.
      tasks: names, `TextTask` objects, or ``"ready"`` for every known text task whose data are there.
      workdir: the run's folder; ``runs/<name>-<hash of all that can change a number>`` by default.
      protocol: how the questions are put, a name in each task's ``protocols``; None for the first of each task that the
        responder can answer.
      data_dir: where the tasks find their data.
      limit: items a task, as the task counts them; None means all.
      overwrite: delete the records of another run in ``workdir`` instead of refusing the folder.
      reuse: look for answers in the folders beside ``workdir``.
      progress: show requests, requests a second and the time left.
      name: begins the default folder's name.
      model: what reports call the responder.
      config: recorded in the results as it is, in place of these arguments.

    Returns:
      The content of ``results.json``: {"tasks": {task: {metric: {"value", "low", "high", "chance", "n", "ties"}}},
      "failed": {task: why its data could not be used}, "failed_calls": None, or {"requests", "questions": how many,
      "first": why the first one failed}, "protocols": {task: how it was asked}, "config", "versions", "requests": that
      the numbers rest on, failed ones included, "asked": those made by this call, "seconds": with those of the calls
      that this one continues, "tokens": {"input", "output"} or None where the model does not count them, "cost": in
      dollars, or None where prices are not known}, and "workdir", the run's folder.

    Raises:
      InputError: an argument of another kind than above, unknown or unready tasks, a protocol that a task or the
        responder lacks, no task with usable data, a folder of another run, a program of several processes.
    """
    started = time.monotonic()
    _check_arguments(responder, tasks, workdir, protocol, data_dir, limit)
    chosen = choose_tasks(tasks, data_dir, TEXT_TASKS)
    protocols = {task.name: choose_protocol(task, protocol, responder.kinds) for task in chosen}
    fingerprint = dict(responder.fingerprint())
    failed: dict[str, InputError] = {}
    asked = _prepared(chosen, protocols, fingerprint, data_dir, limit, failed)
    _bind(responder, asked, data_dir, limit)
    identity = {
        # In this order a folder's refusal names what differs: causes before what follows from them.
        "limit": limit,
        "protocol": {one.task.name: one.protocol.name for one in asked},
        "scorer": fingerprint,
        "tasks": {one.task.name: _identity_of(one, data_dir, limit) for one in asked},
    }
    if config is None:
        config = dict(tasks=[task.name for task in chosen], protocol=protocol, data_dir=data_dir, limit=limit)
    paid = hasattr(responder, "cost")
    # Hosted and recorded models compute nothing here.
    versions = lifecycle.versions_of(identity, on_this_machine=not (paid or hasattr(responder, "bind")))
    description = lifecycle.described(
        identity, kind=type(responder).__name__, model=model, config=config, versions=versions
    )
    folder = lifecycle.folder_for(workdir, name, identity, records.RESPONSES)
    folder.open(description, overwrite=overwrite)
    store = responses.ResponseStore(folder.records_path, seconds_between_syncs=0.0 if paid else _SECONDS_BETWEEN_SYNCS)
    answers = asking.Answers()
    with (
        contextlib.closing(folder),
        lifecycle.recording(folder, description, lambda: bool(len(store) or answers.failed)),
        contextlib.closing(store),
    ):
        if progress:
            progress_bars.say(f"records in {folder.path}")
        wanted = _wanted(asked)
        store.open()
        if hasattr(responder, "log_attempts"):
            responder.log_attempts(folder.records_path / ATTEMPTS)
        asking.ask(responder, store, wanted, answers, reuse=reuse, progress=progress)
        results = _results(asked, answers, folder, failed, identity["protocol"])
        results |= {"config": config, "versions": versions, "requests": len(wanted), "asked": answers.asked}
        results["seconds"] = round(answers.seconds + time.monotonic() - started, 3)
        results |= _spent(responder, wanted, answers)
        records.write_json(folder.results_path, results)
    return {**results, "workdir": str(folder.path)}


def _prepared(
    tasks: Sequence[TextTask],
    protocols: Mapping[str, Protocol],
    fingerprint: Mapping[str, Any],
    data_dir: str | None,
    limit: int | None,
    failed: dict[str, InputError],
) -> list[_Asked]:
    """The tasks whose data can be used, of which there must be one; why others cannot ends up in ``failed``."""
    prepared = [_prepare(task, protocols[task.name], fingerprint, data_dir, limit, failed) for task in tasks]
    if not any(prepared):
        raise lifecycle.unusable(failed)
    return [one for one in prepared if one is not None]


def _bind(responder: Responder, asked: Sequence[_Asked], data_dir: str | None, limit: int | None) -> None:
    """Tells a responder that wants to know all questions, also where a limit keeps most of them from being asked."""
    if not hasattr(responder, "bind"):
        return
    responder.bind(
        [
            (question.id, tuple(one.protocol.requests(question)))
            for one in asked
            for question in (one.questions if limit is None else one.task.load(data_dir, None))
        ]
    )


def _wanted(asked: Sequence[_Asked]) -> dict[str, Request]:
    """Key -> request, of all that must have an answer."""
    return {
        key: request
        for one in asked
        for keys, requests in zip(one.keys, one.requests, strict=True)
        for key, request in zip(keys, requests, strict=True)
    }


def _identity_of(one: _Asked, data_dir: str | None, limit: int | None) -> dict[str, Any]:
    """All of a task that can change its numbers."""
    return {
        "version": one.task.version,
        "data": one.task.data_fingerprint(data_dir, limit),
        "prompts": records.digest([list(keys) for keys in one.keys]),
    }


def _results(
    asked: Sequence[_Asked],
    answers: asking.Answers,
    folder: records.RunFolder,
    failed: dict[str, InputError],
    protocols: Mapping[str, str],
) -> dict[str, Any]:
    """The numbers of all tasks, and what is missing from them."""
    results: dict[str, Any] = {"tasks": {}, "failed": {}, "failed_calls": None, "protocols": protocols}
    left_out = sum(_summarise(one, answers, folder, results, failed) for one in asked)
    if not results["tasks"]:
        raise lifecycle.unusable(failed)
    results["failed"] = {name: str(error) for name, error in failed.items()}
    if answers.failed:
        first = next(iter(answers.failed.values()))
        results["failed_calls"] = {"requests": len(answers.failed), "questions": left_out, "first": first}
    return results


def _check_arguments(responder: Any, tasks: Any, workdir: Any, protocol: Any, data_dir: Any, limit: Any) -> None:
    """Makes sure that arguments are of the kinds that `evaluate_questions` says, and that no other process runs it."""
    lacking = [name for name in ("kinds", "fingerprint", "ask", "read") if not hasattr(responder, name)]
    if lacking:
        raise InputError(
            f"the responder is a {type(responder).__name__}, which has no {lacking[0]}: give a language model, such as"
            " winobench.responders.loading.load_responder makes",
            code="wrong-type",
        )
    listed = [tasks] if isinstance(tasks, str) else tasks
    named = isinstance(listed, Sequence) and not isinstance(listed, bytes)
    if not named or not all(isinstance(task, str | TextTask) for task in listed):
        raise InputError(
            f"tasks is {tasks!r:.80}: give names or TextTask objects in a list, or 'ready'", code="wrong-type"
        )
    for name, value in (("workdir", workdir), ("data_dir", data_dir)):
        if value is not None and not isinstance(value, str | os.PathLike):
            raise InputError(f"{name} is {value!r:.80}: give a path, or None", code="wrong-type")
    if protocol is not None and not isinstance(protocol, str):
        raise InputError(f"protocol is {protocol!r:.80}: give a name, or None", code="wrong-type")
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        raise InputError(f"limit is {limit!r:.80}: give a whole number from 1 on, or None for all", code="bad-value")
    if jax.distributed.is_initialized() and parallel.num_processes() > 1:
        raise InputError(
            "text tasks are for a program of one process: start it without the others", code="several-processes"
        )


def protocols_of(text: str | None, tasks: Sequence[TextTask], kinds: frozenset[str]) -> list[str | None]:
    """The protocols that a config means.

    Args:
      text: names with commas, ``all`` for every one that all tasks have and the model can answer, or None.
      tasks: that are asked.
      kinds: of requests that the model answers.

    Returns:
      Their names; None stands for each task's first one that the model can answer.
    """
    if text is None:
        return [None]
    if text != ALL:
        return list(dict.fromkeys(filter(None, map(str.strip, text.split(","))))) or [text]
    able = [
        name
        for name in tasks[0].protocols
        if all(name in task.protocols and task.protocols[name].kind in kinds for task in tasks)
    ]
    return able or [None]  # which is then refused with the reason


def choose_protocol(task: TextTask, name: str | None, kinds: frozenset[str]) -> Protocol:
    """The protocol of a task that is meant.

    Args:
      task: the task.
      name: the protocol's; None for the task's first one that the model can answer.
      kinds: what the model can be asked, of `winobench.responders.language.KINDS`.

    Raises:
      InputError: the task has no such protocol, or the model cannot answer it.
    """
    able = [protocol.name for protocol in task.protocols.values() if protocol.kind in kinds]
    if name is not None and name not in task.protocols:
        near = difflib.get_close_matches(name, task.protocols, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise InputError(
            f"task {task.name!r} has no protocol {name!r}: {hint}its protocols are {', '.join(task.protocols)}.",
            code="unknown-name",
        )
    if not able:
        needed = ", ".join(dict.fromkeys(protocol.kind for protocol in task.protocols.values()))
        raise InputError(
            f"the model can answer none of the protocols of task {task.name!r}: it does {_joined(kinds)}, and they"
            f" need {needed}.",
            code="kind-not-answered",
        )
    chosen = task.protocols[able[0] if name is None else name]
    if chosen.kind not in kinds:
        raise InputError(
            f"protocol {chosen.name!r} asks for {chosen.kind}, and the model does {_joined(kinds)}: for task"
            f" {task.name!r} it can do {', '.join(able)}.",
            code="kind-not-answered",
        )
    return chosen


def failure_line(results: Mapping[str, Any]) -> str | None:
    """One line on calls that failed, and how to go on; None where none did.

    Args:
      results: what `evaluate_questions` returns.
    """
    calls = results.get("failed_calls")
    if not calls:
        return None
    questions = f"{calls['questions']:,} question{'s are' if calls['questions'] != 1 else ' is'} left out"
    return (
        f"{calls['requests']:,} of {results['requests']:,} calls failed and {questions} (first: {calls['first']}): "
        "give the same command again, which asks only for what is missing"
    )


def _prepare(
    task: TextTask,
    protocol: Protocol,
    fingerprint: Mapping[str, Any],
    data_dir: str | None,
    limit: int | None,
    failed: dict[str, InputError],
) -> _Asked | None:
    """Reads a task's questions and makes its requests; a task whose data cannot be used ends up in ``failed``."""
    try:
        questions = list(task.load(data_dir, limit))
        if not questions:
            raise InputError(
                f"task {task.name!r} has no questions: look at its data, or raise the limit.", code="no-examples"
            )
    except InputError as error:
        failed[task.name] = error
        return None
    seen: set[str] = set()
    for question in questions:
        if question.id in seen:
            raise ValueError(f"task {task.name!r} has two questions of the id {question.id!r}.")
        seen.add(question.id)
    requests = [tuple(protocol.requests(question)) for question in questions]
    try:
        for question, some in zip(questions, requests, strict=True):
            _check_question(question, some)
    except InputError as error:
        failed[task.name] = InputError(f"a question of {task.name} cannot be asked: {error}", code=error.code)
        return None
    keys = [tuple(responses.key(fingerprint, request) for request in some) for some in requests]
    return _Asked(task, protocol, questions, requests, keys)


def _check_question(question: TextQuestion, requests: Sequence[Request]) -> None:
    """Makes sure that a question can be asked and written down.

    Raises:
      InputError: says which text cannot, and why.
    """
    texts = [question.id, *question.groups, *question.texts, *question.texts.values(), *question.options]
    check_texts(texts if question.pair is None else [*texts, question.pair], longest=LONGEST_PROMPT, together=True)
    for request in requests:
        check_request(request)


def _summarise(
    one: _Asked,
    answers: asking.Answers,
    folder: records.RunFolder,
    results: dict[str, Any],
    failed: dict[str, InputError],
) -> int:
    """Adds a task's numbers, or the error why it has none, and writes its examples; returns how many are left out."""
    name = one.task.name
    received = [tuple(answers.read.get(key) for key in keys) for keys in one.keys]
    read = [one.protocol.read(question, list(some)) for question, some in zip(one.questions, received, strict=True)]
    try:
        if all(answer.status == FAILED for answer in read):
            first = next(answers.failed[key] for keys in one.keys for key in keys if key in answers.failed)
            raise InputError(
                f"all {len(read):,} questions of {name} have failed calls, the first one: {first}",
                code="all-calls-failed",
            )
        entries = one.task.metrics(one.questions, read)
        results["tasks"][name] = {metric: dict(entry) for metric, entry in entries.items()}
    except InputError as error:
        failed[name] = error
    folder.write_examples(name, example_table(one.questions, read, received))
    return sum(answer.status == FAILED for answer in read)


def example_table(
    questions: Sequence[TextQuestion], answers: Sequence[Answer], received: Sequence[Sequence[Response | None]]
) -> pa.Table:
    """One row a question: what was asked, what was answered, and whether it is right.

    Args:
      questions: the task's.
      answers: to them.
      received: the responses that each answer was read from; None for a failed call.

    Returns:
      Columns id, groups, pair, texts (a map), options, answer, status, choice, choices, scores, tie, responses (texts;
      null where there is none) and correct (null where a call has failed).
    """
    strings, numbers = pa.list_(pa.string()), pa.list_(pa.int32())
    return pa.table(
        {
            "id": pa.array([question.id for question in questions], pa.string()),
            "groups": pa.array([list(question.groups) for question in questions], strings),
            "pair": pa.array([question.pair for question in questions], pa.string()),
            "texts": pa.array([list(q.texts.items()) for q in questions], pa.map_(pa.string(), pa.string())),
            "options": pa.array([list(question.options) for question in questions], strings),
            "answer": pa.array([question.answer for question in questions], pa.int32()),
            "status": pa.array([answer.status for answer in answers], pa.string()),
            "choice": pa.array([answer.choice for answer in answers], pa.int32()),
            "choices": pa.array([list(answer.choices) for answer in answers], numbers),
            "scores": pa.array(
                [None if answer.scores is None else list(answer.scores) for answer in answers],
                pa.list_(pa.float64()),
            ),
            "tie": pa.array([answer.tie for answer in answers], pa.bool_()),
            "responses": pa.array([[None if one is None else one.text for one in some] for some in received], strings),
            "correct": pa.array(
                [is_correct(question, answer) for question, answer in zip(questions, answers, strict=True)],
                pa.bool_(),
            ),
        }
    )


def is_correct(question: TextQuestion, answer: Answer) -> bool | None:
    """Whether the right option was chosen, and not by a tie; None where a call has failed."""
    if answer.status == FAILED:
        return None
    return answer.status == ANSWERED and answer.choice == question.answer and not answer.tie


def _spent(responder: Responder, wanted: Mapping[str, Request], answers: asking.Answers) -> dict[str, Any]:
    """Tokens and cost of the responses that the numbers rest on, whoever asked for them."""
    tokens = {
        name: [getattr(answers.read[key], f"{name}_tokens") for key in wanted if key in answers.read]
        for name in ("input", "output")
    }
    counted = {name: [count for count in counts if count is not None] for name, counts in tokens.items()}
    summed = {name: sum(counts) if counts else None for name, counts in counted.items()}
    cost = None
    if hasattr(responder, "cost"):
        costs = [responder.cost(answers.read[key]) for key in wanted if key in answers.read]
        # A sum with parts missing would look like the whole.
        cost = None if None in costs else round(sum(costs), 6)
    return {"tokens": summed if any(counted.values()) else None, "cost": cost}


def _joined(kinds: frozenset[str]) -> str:
    return " and ".join(kind for kind in KINDS if kind in kinds)
