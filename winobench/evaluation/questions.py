"""One evaluation of text tasks from beginning to end: ask what is not yet recorded, record, read, summarise."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import pyarrow as pa

from winobench import parallel
from winobench.base import files, json_files, parquet_files, trackers
from winobench.base import progress as progress_bars
from winobench.base.errors import InputError
from winobench.base.texts import LONGEST_PROMPT, check_texts
from winobench.evaluation import contracts, protocols, question_images
from winobench.evaluation.evaluate import READY, choose_tasks
from winobench.models import snapshots
from winobench.runs import asking, endings, lifecycle, records, responses
from winobench.runs import settings as of_runs
from winobench.runs.requests import (
    ANSWERED,
    ENDINGS,
    FAILED,
    FINISHED,
    UNPARSABLE,
    LazyResponder,
    Picture,
    Request,
    Responder,
    Response,
    check_request,
    check_responder,
)
from winobench.runs.settings import Asking, Recording
from winobench.tasks import TEXT_TASKS
from winobench.tasks.questions import Answer, Protocol, TextQuestion, TextTask

# Of models whose responses cost time but no money: how much of it a crash of the machine may take.
_SECONDS_BETWEEN_SYNCS = 2.0


@dataclasses.dataclass(frozen=True)
class _Workload:
    """A task with its protocol and its questions' requests, each with its key in the store."""

    task: TextTask
    protocol: Protocol
    questions: list[TextQuestion]
    requests: list[tuple[Request, ...]]
    keys: list[tuple[str, ...]]


def evaluate_questions(
    responder: Responder | LazyResponder,
    tasks: str | Sequence[str | TextTask] = READY,
    workdir: str | os.PathLike[str] | None = None,
    settings: Asking = Asking(),
    recording: Recording = Recording(),
    pictures: Mapping[str, Sequence[Picture]] | None = None,
    captioner: Responder | LazyResponder | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Evaluates a language model on text tasks and returns their numbers.

    Every request that the tasks need is made once, and every answer is on disk before anything reads it. A call with
    the same arguments continues where an earlier one was interrupted, and asks again only what has failed, or brought
    an incomplete answer. It returns at once where nothing is left to ask. Finished answers that a run in a neighbouring
    folder has recorded for the same request to the same model are not requested again.

    No choice is read out of an incomplete answer (`winobench.runs.requests.ENDINGS`): it counts as one that
    cannot be read. A task without any finished answer has no numbers.

    Args:
      responder: answers. See `winobench.runs.requests.Responder`. It may also have ``cost(response)``, in dollars
        or None, and ``bind(questions)`` with (id, requests) of all questions of the tasks. Or a
        `winobench.runs.requests.LazyResponder`, which a finished run does not load.
      tasks: names, `TextTask` objects, or ``"ready"`` for every known text task whose data are there.
      workdir: the run's folder; ``runs/<name>-<hash of all that can change a number>`` by default.
      settings: the data, and the protocol.
      recording: how the run is recorded and shown.
      pictures: text of a question (`TextTask.pictured`) -> images of it; None asks about none.
      captioner: writes the captions of the images, for protocols that need them. Each image's caption is recorded
        among the responses and written once.
      **more: fields of settings and recording by their names, such as ``limit=10``.

    Returns:
      The content of ``results.json``: {"tasks": {task: {metric: {"value", "low", "high", "chance", "n", "ties"}}},
      "failed": {task: why its data could not be used}, "failed_calls": None, or {"requests", "questions": how many,
      "first": why the first one failed}, "endings": {task: {ending: answers, "failed": calls, "unparsable": questions
      with finished answers that choose nothing, "max_tokens": the limit of an answer, or None}}, "protocols": {task:
      how it was asked}, "config", "versions", "requests": that the numbers rest on, failed ones included, "asked":
      calls made now, "seconds": with those of the calls that this one continues, "tokens": {"input",
      "output"} or None where the model does not count them, "cost": in dollars, or None where prices are not known},
      and "workdir", the run's folder.

    Raises:
      InputError: an argument of another kind than above, unknown or unready tasks, a protocol that a task or the
        responder lacks, no task with usable data, a folder of another run, a program of several processes.
    """
    started = time.monotonic()
    settings, recording = of_runs.with_options(more, {Asking: settings, Recording: recording})
    trackers.read(recording.log)
    _check_arguments(responder, workdir, settings)
    settings = of_runs.checked(settings)
    protocol, data_dir, limit, config = settings.protocol, settings.data_dir, settings.limit, recording.config
    chosen = choose_tasks(tasks, data_dir, TEXT_TASKS)
    has = protocols.Available(pictures is not None, captioner is not None)
    chosen_protocols = {task.name: protocols.choose(task, protocol, responder.kinds, has) for task in chosen}
    if not any(one.needs == "captions" for one in chosen_protocols.values()):
        captioner = None
    if config is None:
        config = dict(tasks=[task.name for task in chosen], protocol=protocol, data_dir=data_dir, limit=limit)
    everybody = [responder, *([] if captioner is None else [captioner])]
    # Hosted and recorded models compute nothing here.
    is_here = not all(hasattr(one, "cost") or hasattr(one, "bind") for one in everybody)
    states = [one.files if isinstance(one, LazyResponder) else None for one in everybody]
    shown = {text: [one.sha256 for one in some] for text, some in (pictures or {}).items()}

    def describe(identity: Mapping[str, Any], **planned: Any) -> dict[str, Any]:
        return lifecycle.described(
            identity,
            kind=type(responder).__name__,
            model=recording.model,
            config=config,
            versions=lifecycle.versions_of(identity, on_this_machine=is_here),
            **planned,
            pictures=None if pictures is None else files.digest(shown),
            files=states,
        )

    asked = _Asked(settings, chosen, chosen_protocols, responder, captioner)
    if (found := _finished(asked, describe, workdir, recording)) is not None:
        return found
    responder, captions = snapshots.snapshot(_loaded(responder)), None
    fingerprint = dict(responder.fingerprint())
    if captioner is not None:
        captioner = _loaded(captioner)
        captions = question_images.Captions(captioner)
    failed: dict[str, InputError] = {}
    workloads = []
    for task in chosen:
        try:
            questions = list(contracts.load(task, data_dir, limit))
            workloads.append(
                _prepare(task, chosen_protocols[task.name], questions, fingerprint, pictures or {}, captions)
            )
        except InputError as error:
            failed[task.name] = error
    if not workloads:
        raise lifecycle.unusable(failed)
    _bind(responder, workloads, data_dir, limit)
    identity = _identity(settings, workloads, fingerprint, captions)
    description = describe(identity, total=len({key for one in workloads for keys in one.keys for key in keys}))
    everybody = [responder, *([] if captioner is None else [captioner])]
    paid = any(hasattr(one, "cost") for one in everybody)
    folder = lifecycle.folder_for(workdir, recording.name, identity, records.RESPONSES)
    folder.open(description, overwrite=recording.overwrite)
    store = responses.ResponseStore(folder.records_path, seconds_between_syncs=0.0 if paid else _SECONDS_BETWEEN_SYNCS)
    answers = asking.Answers()
    with (
        contextlib.closing(folder),
        lifecycle.recording(folder, description, lambda: bool(len(store) or answers.failed)),
        contextlib.closing(store),
        lifecycle.watched(recording, folder, description, "requests") as watch,
    ):
        if recording.progress:
            lifecycle.report_devices(responder, folder.path)
        store.open()
        how = {"reuse": recording.reuse, "progress": recording.progress, "watch": watch}
        workloads, asked_of = _ask(responder, captions, workloads, fingerprint, store, answers, **how)
        results = _results(workloads, answers, folder, failed, identity["protocol"])
        requests = sum(len(wanted) for _, wanted in asked_of)
        results |= {"config": config, "versions": description["versions"]}
        results |= {"requests": requests, "asked": answers.asked}
        results["seconds"] = round(answers.seconds + time.monotonic() - started, 3)
        results |= _spent(asked_of, answers)
        records.write_json(folder.results_path, results)
        lifecycle.report_results(watch, results)
        description["recorded"] = len(store)
    return {**results, "workdir": str(folder.path)}


def _loaded(responder: Responder | LazyResponder) -> Responder:
    return responder.load() if isinstance(responder, LazyResponder) else responder


@dataclasses.dataclass(frozen=True)
class _Asked:
    """A run, as far as it is known before a model is loaded."""

    settings: Asking
    tasks: Sequence[TextTask]
    protocols: Mapping[str, Protocol]
    responder: Responder | LazyResponder
    captioner: Responder | LazyResponder | None

    @functools.cached_property
    def _data(self) -> dict[str, str]:
        return {task.name: task.data_fingerprint(self.settings.data_dir, self.settings.limit) for task in self.tasks}

    def identity_like(self, there: Mapping[str, Any]) -> dict[str, Any]:
        """The run's identity. A finished run's gives the parts that only loading or planning shows.

        They follow from the rest: models from their files, and prompts from data, images, models and version.
        """

        def fingerprint(responder: Responder | LazyResponder, name: str) -> Mapping[str, Any]:
            return there[name] if isinstance(responder, LazyResponder) else snapshots.snapshot(responder).fingerprint()

        return {
            **of_runs.described(self.settings),
            "protocol": {name: protocol.name for name, protocol in self.protocols.items()},
            "scorer": fingerprint(self.responder, "scorer"),
            "tasks": {
                task.name: {
                    "version": task.version,
                    "data": self._data[task.name],
                    "prompts": there["tasks"][task.name]["prompts"],
                }
                for task in self.tasks
            },
            **({} if self.captioner is None else {"captioner": fingerprint(self.captioner, "captioner")}),
        }


def _finished(
    asked: _Asked,
    describe: Callable[[Mapping[str, Any]], dict[str, Any]],
    workdir: str | os.PathLike[str] | None,
    recording: Recording,
) -> dict[str, Any] | None:
    """The results of a run that has nothing left to ask, which need no model and no plan; None of any other run."""
    models = [asked.responder, *([] if asked.captioner is None else [asked.captioner])]
    is_known = all(not isinstance(one, LazyResponder) or one.files is not None for one in models)
    # The code of tasks that are not winobench's may have changed.
    is_own = all(of.__module__.startswith("winobench.") for task in asked.tasks for of in (task.load, task.metrics))
    if recording.overwrite or not is_known or not is_own:
        return None
    for folder in lifecycle.folders_named(workdir, recording.name, records.RESPONSES):
        try:
            description = describe(asked.identity_like(json_files.load(folder.config_path)["identity"]))
        except (OSError, ValueError, LookupError, TypeError):  # planning reports it
            continue
        results = lifecycle.finished(folder, description, functools.partial(_is_recorded, asked, folder))
        if results is None:
            continue
        if recording.progress:
            total = results["requests"]
            progress_bars.say(f"finished before: all {total:,} responses are recorded in {folder.path}")
        with lifecycle.watched(recording, folder, description, "requests") as watch:
            lifecycle.report_results(watch, results)
        return {**results, "asked": 0, "workdir": str(folder.path)}
    return None


def _is_recorded(asked: _Asked, folder: records.RunFolder, results: Mapping[str, Any]) -> bool:
    """Whether no call has failed or brought an incomplete answer, and the folder has all responses and images."""
    if results["failed_calls"] or any(of[end] for of in results["endings"].values() for end in ENDINGS[1:]):
        return False
    for name, protocol in asked.protocols.items():
        if protocol.needs:
            parquet_files.metadata(folder.gallery_path / f"{name}.parquet")
    return responses.num_recorded(folder.records_path) >= json_files.load(folder.config_path)["recorded"]


def _identity(
    settings: Asking,
    workloads: Sequence[_Workload],
    fingerprint: Mapping[str, Any],
    captions: question_images.Captions | None,
) -> dict[str, Any]:
    """All that can change a number. In this order a folder's refusal names what differs: causes first."""
    return {
        **of_runs.described(settings),
        "protocol": {one.task.name: one.protocol.name for one in workloads},
        "scorer": fingerprint,
        "tasks": {
            one.task.name: {
                "version": one.task.version,
                "data": one.task.data_fingerprint(settings.data_dir, settings.limit),
                "prompts": records.digest([list(keys) for keys in one.keys]),
            }
            for one in workloads
        },
        **({} if captions is None else {"captioner": captions.fingerprint}),
    }


def _ask(
    responder: Responder,
    captions: question_images.Captions | None,
    workloads: list[_Workload],
    fingerprint: Mapping[str, Any],
    store: responses.ResponseStore,
    answers: asking.Answers,
    **how: Any,
) -> tuple[list[_Workload], list[tuple[Responder, Mapping[str, Request]]]]:
    """Writes captions where needed, and asks. Returns the tasks with captions, and what each responder answers."""
    asked_of: list[tuple[Responder, Mapping[str, Request]]] = []
    if captions is not None:
        captions.write([question for one in workloads for question in one.questions], store, answers, **how)
        workloads = [_with_captions(one, captions, fingerprint, answers) for one in workloads]
        asked_of.append((captions.captioner, captions.wanted))
    written = {} if captions is None else captions.wanted
    wanted = {
        key: request
        for one in workloads
        for keys, requests in zip(one.keys, one.requests, strict=True)
        for key, request in zip(keys, requests, strict=True)
        if key not in written
    }
    asking.ask(responder, store, wanted, answers, **how)
    return workloads, [(responder, wanted), *asked_of]


def _with_captions(
    one: _Workload, captions: question_images.Captions, fingerprint: Mapping[str, Any], answers: asking.Answers
) -> _Workload:
    """A task with its captions. Requests of a question that lacks one stay those for captions, and so it fails."""
    if one.protocol.needs != "captions":
        return one
    questions = [captions.added(question, answers) for question in one.questions]
    requests, keys = [], []
    for question in questions:
        is_whole = None not in question.captions
        some = tuple(one.protocol.requests(question)) if is_whole else captions.requests(question)
        requests.append(some)
        keys.append(tuple(responses.key(fingerprint if is_whole else captions.fingerprint, each) for each in some))
    return dataclasses.replace(one, questions=questions, requests=requests, keys=keys)


def _bind(responder: Responder, workloads: Sequence[_Workload], data_dir: str | None, limit: int | None) -> None:
    """Gives a responder that has ``bind`` all questions, also where a limit keeps most of them from being asked."""
    if not hasattr(responder, "bind"):
        return
    if any(one.protocol.needs for one in workloads):
        raise InputError(
            "recorded answers are about questions without images: name a model, or a protocol without images",
            code="kind-not-answered",
        )
    responder.bind(
        [
            (question.id, tuple(one.protocol.requests(question)))
            for one in workloads
            for question in (one.questions if limit is None else one.task.load(data_dir, None))
        ]
    )


def _results(
    workloads: Sequence[_Workload],
    answers: asking.Answers,
    folder: records.RunFolder,
    failed: dict[str, InputError],
    protocols: Mapping[str, str],
) -> dict[str, Any]:
    """The numbers of all tasks, and what is missing from them."""
    results: dict[str, Any] = {"tasks": {}, "failed": {}, "failed_calls": None, "endings": {}, "protocols": protocols}
    left_out = sum(_summarise(one, answers, folder, results, failed) for one in workloads)
    if not results["tasks"]:
        folder.results_path.unlink(missing_ok=True)  # an earlier version may have read incomplete answers
        raise lifecycle.unusable(failed)
    results["failed"] = {name: str(error) for name, error in failed.items()}
    if answers.failed:
        first = next(iter(answers.failed.values()))
        results["failed_calls"] = {"requests": len(answers.failed), "questions": left_out, "first": first}
        if answers.blocked:
            results["failed_calls"]["blocked"] = len(answers.blocked)
    return results


def _check_arguments(responder: Any, workdir: Any, settings: Asking) -> None:
    """Checks the kinds of arguments, and that no other process runs the program."""
    if not isinstance(responder, LazyResponder):
        check_responder(responder)
    paths = {"workdir": workdir, "data_dir": settings.data_dir}
    for name, value in {**paths, "protocol": settings.protocol}.items():
        if not isinstance(value, str | None) and not (name in paths and isinstance(value, os.PathLike)):
            what = "path" if name in paths else "name"
            raise InputError(f"{name} is {value!r:.80}: give a {what}, or None", code="wrong-type")
    if jax.distributed.is_initialized() and parallel.num_processes() > 1:
        raise InputError(
            "text tasks are for a program of one process: start it without the others", code="several-processes"
        )


def failure_line(results: Mapping[str, Any]) -> str | None:
    """One line on calls that failed, and how to continue; None where none did."""
    calls = results.get("failed_calls")
    if not calls:
        return None
    questions = f"{calls['questions']:,} question{'s are' if calls['questions'] != 1 else ' is'} left out"
    return (
        f"{calls['requests']:,} of {results['requests']:,} calls failed and {questions} (first: {calls['first']}): "
        f"{endings.again(calls['requests'], calls.get('blocked', 0))}"
    )


def _prepare(
    task: TextTask,
    protocol: Protocol,
    questions: list[TextQuestion],
    fingerprint: Mapping[str, Any],
    pictures: Mapping[str, Sequence[Picture]],
    captions: question_images.Captions | None,
) -> _Workload:
    """Makes a task's requests. Of captions that are not yet written, the keys take their place."""
    if not questions:
        raise InputError(
            f"task {task.name!r} has no questions: look at its data, or raise the limit.", code="no-examples"
        )
    twice, count = collections.Counter(question.id for question in questions).most_common(1)[0]
    if count > 1:
        raise ValueError(f"task {task.name!r} has two questions of the id {twice!r}.")
    if protocol.needs:
        questions = question_images.with_images(task, questions, pictures)
    if protocol.needs == "captions":
        questions = [dataclasses.replace(one, captions=captions.keys(one)) for one in questions]
    requests = [tuple(protocol.requests(question)) for question in questions]
    try:
        for question, some in zip(questions, requests, strict=True):
            texts = [question.id, *question.groups, *question.texts, *question.texts.values(), *question.options]
            texts += [] if question.pair is None else [question.pair]
            check_texts(texts, longest=LONGEST_PROMPT, together=True)
            for request in some:
                check_request(request)
    except InputError as error:
        raise InputError(f"a question of {task.name} cannot be asked: {error}", code=error.code) from error
    keys = [tuple(responses.key(fingerprint, request) for request in some) for some in requests]
    return _Workload(task, protocol, questions, requests, keys)


def _summarise(
    one: _Workload,
    answers: asking.Answers,
    folder: records.RunFolder,
    results: dict[str, Any],
    failed: dict[str, InputError],
) -> int:
    """Adds a task's numbers, or the error why it has none, and writes its examples. Returns how many are left out."""
    name = one.task.name
    received = [tuple(None if key in answers.failed else answers.read.get(key) for key in keys) for keys in one.keys]
    read = [one.protocol.read(question, list(some)) for question, some in zip(one.questions, received, strict=True)]
    counts = results["endings"][name] = _endings(one, received, read)
    try:
        if all(answer.status == FAILED for answer in read):
            first = next(answers.failed[key] for keys in one.keys for key in keys if key in answers.failed)
            raise InputError(
                f"all {len(read):,} questions of {name} have failed calls, the first one: {first}",
                code="all-calls-failed",
            )
        if not counts[FINISHED]:
            raise endings.all_incomplete(name, counts)
        entries = one.task.metrics(one.questions, read)
        results["tasks"][name] = {metric: dict(entry) for metric, entry in entries.items()}
    except InputError as error:
        failed[name] = error
    folder.write_examples(name, example_table(one.questions, read, received))
    if one.protocol.needs:
        folder.write_gallery(name, question_images.image_table(one.questions))
    return sum(answer.status == FAILED for answer in read)


def _endings(
    one: _Workload, received: Sequence[Sequence[Response | None]], read: Sequence[Answer]
) -> dict[str, int | None]:
    """How the answers to a task ended: see `winobench.runs.schema.Endings`."""
    ended = collections.Counter(None if one is None else one.ending for some in received for one in some)
    whole = [all(one is not None and one.ending == FINISHED for one in some) for some in received]
    limits = {getattr(request, "max_tokens", None) for some in one.requests for request in some}
    return {
        **{ending: ended[ending] for ending in ENDINGS},
        "failed": ended[None],
        "unparsable": sum(
            is_whole and answer.status == UNPARSABLE for is_whole, answer in zip(whole, read, strict=True)
        ),
        "max_tokens": max((limit for limit in limits if limit is not None), default=None),
    }


def example_table(
    questions: Sequence[TextQuestion], answers: Sequence[Answer], received: Sequence[Sequence[Response | None]]
) -> pa.Table:
    """One row a question, with the columns that `winobench.runs.examples.read_questions` reads, and ``tie``.

    ``responses`` hold texts, incomplete ones too. ``correct`` is null where a call has failed.
    """
    string, number, strings = pa.string(), pa.int32(), pa.list_(pa.string())
    of_question = {"id": string, "groups": strings, "pair": string}
    of_question |= {"texts": pa.map_(string, string), "options": strings, "answer": number}
    of_answer = {"status": string, "choice": number, "choices": pa.list_(number)}
    of_answer |= {"scores": pa.list_(pa.float64()), "tie": pa.bool_()}
    texts = [[one and (one.partial if one.text is None else one.text) for one in some] for some in received]
    columns = {
        **{name: _column(questions, name, kind) for name, kind in of_question.items()},
        **{name: _column(answers, name, kind) for name, kind in of_answer.items()},
        "responses": pa.array(texts, strings),
        "correct": pa.array(map(is_correct, questions, answers), pa.bool_()),
    }
    if any(question.pictures for question in questions):
        images = [[one.sha256 for one in question.pictures] for question in questions]
        columns |= {"pictures": pa.array(images, strings), "captions": _column(questions, "captions", strings)}
    return pa.table(columns)


def _column(records: Sequence[Any], name: str, kind: pa.DataType) -> pa.Array:
    values = [getattr(one, name) for one in records]
    return pa.array([list(value.items()) if isinstance(value, Mapping) else value for value in values], kind)


def is_correct(question: TextQuestion, answer: Answer) -> bool | None:
    """Whether the right option was chosen, and not by a tie; None where a call has failed."""
    if answer.status == FAILED:
        return None
    return answer.status == ANSWERED and answer.choice == question.answer and not answer.tie


def _spent(asked_of: Sequence[tuple[Responder, Mapping[str, Request]]], answers: asking.Answers) -> dict[str, Any]:
    """Tokens and cost of the responses that the numbers rest on."""
    read = [(one, answers.read[key]) for one, wanted in asked_of for key in wanted if key in answers.read]
    tokens = {}
    for name in ("input", "output"):
        counts = [count for _, answer in read if (count := getattr(answer, f"{name}_tokens")) is not None]
        tokens[name] = sum(counts) if counts else None
    costs = [responder.cost(answer) for responder, answer in read if hasattr(responder, "cost")]
    # A sum with parts missing would look like the whole.
    is_known = any(hasattr(responder, "cost") for responder, _ in asked_of) and None not in costs
    return {
        "tokens": None if set(tokens.values()) == {None} else tokens,
        "cost": round(sum(costs), 6) if is_known else None,
    }
