"""One evaluation of text tasks from beginning to end: ask missing requests, record, read, summarise."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import pyarrow as pa

from winobench import parallel
from winobench.base import files, json_files, options, parquet_files, trackers
from winobench.base import progress as progress_bars
from winobench.base.errors import InputError
from winobench.base.texts import LONGEST_PROMPT, check_texts
from winobench.evaluation import contracts, protocols, question_images
from winobench.evaluation.choice import READY, choose_tasks
from winobench.models import snapshots
from winobench.runs import asking, endings, lifecycle, records, responses
from winobench.runs import settings as of_runs
from winobench.runs.requests import (
    ANSWERED,
    ENDINGS,
    FAILED,
    FINISHED,
    UNPARSABLE,
    InputImage,
    LazyResponder,
    Request,
    Responder,
    Response,
    ability,
    check_request,
    check_responder,
)
from winobench.runs.settings import Asking, Recording
from winobench.tasks import TEXT_TASKS
from winobench.tasks.questions import Answer, Protocol, TextQuestion, TextTask


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
    images: Mapping[str, Sequence[InputImage]] | None = None,
    captioner: Responder | LazyResponder | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Evaluates a language model on text tasks and returns their numbers.

    Every request that the tasks need is made once, and every answer is on disk before anything reads it. A call with
    the same arguments continues where an earlier one was interrupted, and repeats only requests that failed, or brought
    an incomplete answer. It returns at once where nothing is left to ask. Finished answers that a run in a neighbouring
    folder has recorded for the same request to the same model are not requested again.

    No choice is read out of an incomplete answer (`winobench.runs.requests.ENDINGS`): it counts as one that
    cannot be read. A task without any finished answer has no numbers.

    Args:
      responder: answers. See `winobench.runs.requests.Responder`. Or a `winobench.runs.requests.LazyResponder`, which a
        finished run does not load.
      tasks: names, `TextTask` objects, or ``"ready"`` for every known text task whose data are there.
      workdir: the run's folder; ``runs/<name>-<hash of all that can change a number>`` by default.
      settings: the data, and the protocol.
      recording: how the run is recorded and shown.
      images: text of a question (`TextTask.illustrated`) -> images of it; None asks about none.
      captioner: writes the captions of the images, for protocols that need them. Each image's caption is recorded
        among the responses and written once.
      **more: fields of settings and recording by their names, such as ``limit=10``.

    Returns:
      The content of ``results.json``: {"tasks": {task: {metric: {"value", "low", "high", "chance", "n", "ties"}}},
      "failed": {task: why its data could not be used}, "failed_calls": None, or {"requests", "questions": how many,
      "first": why the first one failed}, "endings": {task: {ending: answers, "failed": calls, "unparsable": questions
      with finished answers that choose nothing, "max_tokens": the limit of an answer, or None}}, "protocols": {task:
      how it was asked}, "config", "versions", "requests": that the numbers rest on, failed ones included, "asked":
      calls made now, "seconds": with all calls that this one continues, "tokens": {"input",
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
    chosen = choose_tasks(tasks, settings.data_dir, TEXT_TASKS)
    run = _Evaluation(responder, captioner, chosen, settings, recording, images)
    return run.finished(workdir) or run.carry_out(workdir, started)


class _Evaluation:
    """One run: its models, tasks and options, its identity and its description. Only `carry_out` loads models."""

    def __init__(
        self,
        responder: Responder | LazyResponder,
        captioner: Responder | LazyResponder | None,
        tasks: Sequence[TextTask],
        settings: Asking,
        recording: Recording,
        images: Mapping[str, Sequence[InputImage]] | None,
    ):
        has = protocols.Available(images is not None, captioner is not None)
        self.tasks, self.settings, self.recording, self.images = tasks, settings, recording, images
        self.protocols = {task.name: protocols.choose(task, settings.protocol, responder.kinds, has) for task in tasks}
        # By their names in the identity.
        self.models: Mapping[str, Responder | LazyResponder] = {"scorer": responder}
        if captioner is not None and any(protocol.needs == "captions" for protocol in self.protocols.values()):
            self.models = {"scorer": responder, "captioner": captioner}
        # Hosted and recorded models compute nothing here.
        self._is_here = not all(ability(model, "cost") or ability(model, "bind") for model in self.models.values())
        self._files = [model.files if isinstance(model, LazyResponder) else None for model in self.models.values()]
        where = settings.data_dir, settings.limit
        named = {"tasks": [task.name for task in tasks], "protocol": settings.protocol}
        usual = {**named, "data_dir": settings.data_dir, "limit": settings.limit}
        self.config = usual if recording.config is None else recording.config
        self._by_name = {task.name: task for task in tasks}
        self._data_of = functools.cache(lambda name: self._by_name[name].data_fingerprint(*where))

    def identity(self, models: Mapping[str, Mapping[str, Any]], prompts: Mapping[str, str]) -> dict[str, Any]:
        """All that can change a number, from the models' fingerprints and a digest of each task's prompts.

        In this order a folder's refusal names what differs: causes first.
        """
        tasks = {
            name: {"version": self._by_name[name].version, "data": self._data_of(name), "prompts": digest}
            for name, digest in prompts.items()
        }
        chosen = {name: self.protocols[name].name for name in prompts}
        scorer = models["scorer"]
        return {**of_runs.described(self.settings), "protocol": chosen, "scorer": scorer, "tasks": tasks, **models}

    def describe(self, identity: Mapping[str, Any], **planned: Any) -> dict[str, Any]:
        shown = {text: [image.sha256 for image in images] for text, images in (self.images or {}).items()}
        return lifecycle.described(
            identity,
            kind=type(self.models["scorer"]).__name__,
            model=self.recording.model,
            name=self.recording.label,
            config=self.config,
            versions=lifecycle.versions_of(identity, on_this_machine=self._is_here),
            **planned,
            pictures=None if self.images is None else files.digest(shown),
            files=self._files,
        )

    def finished(self, workdir: str | os.PathLike[str] | None) -> dict[str, Any] | None:
        """The results of a run that has nothing left to ask, which need no model and no plan. None of any other run."""
        is_known = None not in [
            path
            for path, model in zip(self._files, self.models.values(), strict=True)
            if isinstance(model, LazyResponder)
        ]
        # The code of tasks that are not winobench's may have changed.
        codes = [code for task in self.tasks for code in (task.load, task.metrics)]
        is_own = all(code.__module__.startswith("winobench.") for code in codes)
        recording = self.recording
        if recording.overwrite or not is_known or not is_own:
            return None
        for folder in lifecycle.folders_named(workdir, recording.name, records.RESPONSES):
            try:
                description = self.describe(self._identity_like(json_files.load(folder.config_path)["identity"]))
            except (OSError, ValueError, LookupError, TypeError):  # planning reports it
                continue
            results = lifecycle.finished(folder, description, functools.partial(self._is_recorded, folder))
            if results is None:
                continue
            if recording.progress:
                total = results["requests"]
                progress_bars.say(f"finished before: all {total:,} responses are recorded in {folder.path}")
            with lifecycle.watched(recording, folder, description, "requests") as watch:
                lifecycle.report_results(watch, results)
            return {**results, "asked": 0, "workdir": str(folder.path)}
        return None

    def _identity_like(self, recorded: Mapping[str, Any]) -> dict[str, Any]:
        """This run's identity. A recorded one gives the parts that only loading or planning shows.

        They follow from the rest: models from their files, and prompts from data, images, models and version.
        """
        models = {
            name: recorded[name] if isinstance(model, LazyResponder) else _snapshot(model).fingerprint()
            for name, model in self.models.items()
        }
        return self.identity(models, {task.name: recorded["tasks"][task.name]["prompts"] for task in self.tasks})

    def _is_recorded(self, folder: records.RunFolder, results: Mapping[str, Any]) -> bool:
        """Whether no call has failed or brought an incomplete answer, and the folder has all responses and images."""
        if results["failed_calls"] or any(of[end] for of in results["endings"].values() for end in ENDINGS[1:]):
            return False
        for name, protocol in self.protocols.items():
            if protocol.needs:
                parquet_files.metadata(folder.gallery_path / f"{name}.parquet")
        return responses.num_recorded(folder.records_path) >= json_files.load(folder.config_path)["recorded"]

    def carry_out(self, workdir: str | os.PathLike[str] | None, started: float) -> dict[str, Any]:
        """Plans, requests missing answers, and writes the results."""
        models = {name: _snapshot(model) for name, model in self.models.items()}
        self.models = models
        fingerprints = {name: dict(model.fingerprint()) for name, model in models.items()}
        captions = question_images.Captions(models["captioner"]) if "captioner" in models else None
        workloads, failed = self._plan(fingerprints["scorer"], captions)
        _bind(models["scorer"], workloads, self.settings.data_dir, self.settings.limit)
        prompts = {workload.task.name: records.digest([list(keys) for keys in workload.keys]) for workload in workloads}
        identity = self.identity(fingerprints, prompts)
        total = len({key for workload in workloads for keys in workload.keys for key in keys})
        description = self.describe(identity, total=total)
        recording = self.recording
        folder = lifecycle.folder_for(workdir, recording.name, identity, records.RESPONSES)
        folder.open(description, overwrite=recording.overwrite)
        session = asking.Session(folder.records_path, reuse=recording.reuse, progress=recording.progress)
        with (
            contextlib.closing(folder),
            lifecycle.recording(folder, description, lambda: bool(len(session.store) or session.answers.failed)),
            lifecycle.watched(recording, folder, description, "requests") as session.watch,
            session,
        ):
            if recording.progress:
                lifecycle.report_devices(models["scorer"], folder.path)
            workloads = _ask(models["scorer"], captions, workloads, fingerprints["scorer"], session)
            results = _results(workloads, session.answers, folder, failed, identity["protocol"])
            results |= {"config": self.config, "versions": description["versions"]}
            results |= {"requests": session.num_requests, "asked": session.answers.asked}
            results["seconds"] = round(session.answers.seconds + time.monotonic() - started, 3)
            spent = session.spent()
            results |= {**spent, "cost": spent["cost"] and round(spent["cost"], 6)}
            records.write_json(folder.results_path, results)
            lifecycle.report_results(session.watch, results)
            description["recorded"] = len(session.store)
        return {**results, "workdir": str(folder.path)}

    def _plan(
        self, fingerprint: Mapping[str, Any], captions: question_images.Captions | None
    ) -> tuple[list[_Workload], dict[str, InputError]]:
        """The tasks' requests, and the errors of tasks whose data cannot be used."""
        workloads, failed = [], {}
        for task in self.tasks:
            try:
                questions = list(contracts.load(task, self.settings.data_dir, self.settings.limit))
                protocol = self.protocols[task.name]
                workloads.append(_prepare(task, protocol, questions, fingerprint, self.images or {}, captions))
            except InputError as error:
                failed[task.name] = error
        if not workloads:
            raise lifecycle.unusable(failed)
        return workloads, failed


def _snapshot(model: Responder | LazyResponder) -> Responder:
    return snapshots.snapshot(model.load() if isinstance(model, LazyResponder) else model)


def _ask(
    responder: Responder,
    captions: question_images.Captions | None,
    workloads: list[_Workload],
    fingerprint: Mapping[str, Any],
    session: asking.Session,
) -> list[_Workload]:
    """Writes captions where needed, and asks. Returns the tasks with captions."""
    if captions is not None:
        captions.write([question for workload in workloads for question in workload.questions], session)
        workloads = [_with_captions(workload, captions, fingerprint, session.answers) for workload in workloads]
    written = {} if captions is None else captions.wanted
    wanted = {
        key: request
        for workload in workloads
        for keys, requests in zip(workload.keys, workload.requests, strict=True)
        for key, request in zip(keys, requests, strict=True)
        if key not in written
    }
    session.ask(responder, wanted)
    return workloads


def _with_captions(
    workload: _Workload, captions: question_images.Captions, fingerprint: Mapping[str, Any], answers: asking.Answers
) -> _Workload:
    """A task with its captions. Requests of a question that lacks one stay those for captions, and so it fails."""
    if workload.protocol.needs != "captions":
        return workload
    questions = [captions.added(question, answers) for question in workload.questions]
    requests, keys = [], []
    for question in questions:
        is_whole = None not in question.captions
        own = tuple(workload.protocol.requests(question)) if is_whole else captions.requests(question)
        requests.append(own)
        model = fingerprint if is_whole else captions.fingerprint
        keys.append(tuple(responses.key(model, request) for request in own))
    return dataclasses.replace(workload, questions=questions, requests=requests, keys=keys)


def _bind(responder: Responder, workloads: Sequence[_Workload], data_dir: str | None, limit: int | None) -> None:
    """Gives a responder that has ``bind`` all questions, also where a limit keeps most of them from being asked."""
    bind = ability(responder, "bind")
    if bind is None:
        return
    if any(workload.protocol.needs for workload in workloads):
        raise InputError(
            "recorded answers are about questions without images: name a model, or a protocol without images",
            code="kind-not-answered",
        )
    bind(
        [
            (question.id, tuple(workload.protocol.requests(question)))
            for workload in workloads
            for question in (workload.questions if limit is None else workload.task.load(data_dir, None))
        ]
    )


def _results(
    workloads: Sequence[_Workload],
    answers: asking.Answers,
    folder: records.RunFolder,
    failed: dict[str, InputError],
    protocols: Mapping[str, str],
) -> dict[str, Any]:
    """The numbers of all tasks, and their gaps."""
    results: dict[str, Any] = {"tasks": {}, "failed": {}, "failed_calls": None, "endings": {}, "protocols": protocols}
    left_out = sum(_summarise(workload, answers, folder, results, failed) for workload in workloads)
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
    images: Mapping[str, Sequence[InputImage]],
    captions: question_images.Captions | None,
) -> _Workload:
    """Makes a task's requests. Missing captions are given by their keys."""
    if not questions:
        raise InputError(
            f"task {task.name!r} has no questions: look at its data, or raise the limit.", code="no-examples"
        )
    twice, count = collections.Counter(question.id for question in questions).most_common(1)[0]
    if count > 1:
        raise ValueError(f"task {task.name!r} has two questions of the id {twice!r}.")
    if protocol.needs:
        questions = question_images.with_images(task, questions, images)
    if captions is not None and protocol.needs == "captions":
        questions = [dataclasses.replace(question, captions=captions.keys(question)) for question in questions]
    requests = [tuple(protocol.requests(question)) for question in questions]
    try:
        for question, own in zip(questions, requests, strict=True):
            texts = [question.id, *question.groups, *question.texts, *question.texts.values(), *question.options]
            texts += [] if question.pair is None else [question.pair]
            check_texts(texts, longest=LONGEST_PROMPT, together=True)
            if question.answer not in range(len(question.options)):
                answer, where = options.quote(question.answer), options.quote(question.id)
                reason = f"the answer {answer} of {where} is not the number of one of its options"
                raise InputError(f"{reason}: correct the task", code="target-not-among-candidates")
            for request in own:
                check_request(request)
    except InputError as error:
        raise InputError(f"a question of {task.name} cannot be asked: {error}", code=error.code) from error
    keys = [tuple(responses.key(fingerprint, request) for request in own) for own in requests]
    return _Workload(task, protocol, questions, requests, keys)


def _summarise(
    workload: _Workload,
    answers: asking.Answers,
    folder: records.RunFolder,
    results: dict[str, Any],
    failed: dict[str, InputError],
) -> int:
    """Adds a task's numbers, or the error why it has none, and writes its examples. Returns how many are left out."""
    name = workload.task.name
    received = [
        tuple(None if key in answers.failed else answers.read.get(key) for key in keys) for keys in workload.keys
    ]
    read = [
        workload.protocol.read(question, list(responses))
        for question, responses in zip(workload.questions, received, strict=True)
    ]
    counts = results["endings"][name] = _endings(workload, received, read)
    try:
        if all(answer.status == FAILED for answer in read):
            first = next(answers.failed[key] for keys in workload.keys for key in keys if key in answers.failed)
            raise InputError(
                f"all {len(read):,} questions of {name} have failed calls, the first one: {first}",
                code="all-calls-failed",
            )
        if not counts[FINISHED]:
            raise endings.all_incomplete(name, counts)
        entries = workload.task.metrics(workload.questions, read)
        results["tasks"][name] = {metric: dict(entry) for metric, entry in entries.items()}
    except InputError as error:
        failed[name] = error
    folder.write_examples(name, example_table(workload.questions, read, received))
    if workload.protocol.needs:
        folder.write_gallery(name, question_images.image_table(workload.questions))
    return sum(answer.status == FAILED for answer in read)


def _endings(
    workload: _Workload, received: Sequence[Sequence[Response | None]], read: Sequence[Answer]
) -> dict[str, int | None]:
    """How the answers to a task ended: see `winobench.runs.schema.Endings`."""
    endings_of = [[None if response is None else response.ending for response in own] for own in received]
    ended = collections.Counter(ending for own in endings_of for ending in own)
    whole = [all(ending == FINISHED for ending in own) for own in endings_of]
    limits = {getattr(request, "max_tokens", None) for own in workload.requests for request in own}
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
    texts = [[read and (read.partial if read.text is None else read.text) for read in own] for own in received]
    columns = {
        **{name: _column(questions, name, kind) for name, kind in of_question.items()},
        **{name: _column(answers, name, kind) for name, kind in of_answer.items()},
        "responses": pa.array(texts, strings),
        "correct": pa.array(map(is_correct, questions, answers), pa.bool_()),
    }
    if any(question.images for question in questions):
        images = [[image.sha256 for image in question.images] for question in questions]
        columns |= {"pictures": pa.array(images, strings), "captions": _column(questions, "captions", strings)}
    return pa.table(columns)


def _column(records: Sequence[Any], name: str, kind: pa.DataType) -> pa.Array:
    values = [getattr(record, name) for record in records]
    return pa.array([list(value.items()) if isinstance(value, Mapping) else value for value in values], kind)


def is_correct(question: TextQuestion, answer: Answer) -> bool | None:
    """Whether the right option was chosen, and not by a tie; None where a call has failed."""
    if answer.status == FAILED:
        return None
    return answer.status == ANSWERED and answer.choice == question.answer and not answer.tie
