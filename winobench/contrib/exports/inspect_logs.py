"""Runs as logs of inspect_ai, a log a task.

The library's classes make every entry. Its writer takes a time that grows with the square of the number of samples, and
keeps all of them in memory. So this module puts the entries into the zip archive one by one.
"""

from __future__ import annotations

import base64
import datetime
import json
import os
import pathlib
import re
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from winobench.base import files, json_files
from winobench.base.errors import InputError
from winobench.base.version import __version__
from winobench.runs.examples import Examples, Questions
from winobench.runs.labels import task_label
from winobench.runs.private_paths import without_paths
from winobench.runs.run import Run, TaskRun

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalSample

_LONGEST_ID = 200  # of a sample, which is a part of a file's name in the archive
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_RIGHT, _WRONG = "C", "I"  # as inspect_ai has them


def inspect_log(run: Run, path: str | os.PathLike) -> list[pathlib.Path]:
    """See `winobench.report.exports.inspect_log`."""
    try:
        import inspect_ai.log  # noqa: F401
    except ImportError as error:
        raise InputError(
            f"logs of inspect_ai need its package ({error}): pip install 'winobench[inspect]'.", code="missing-package"
        ) from error
    path, run = pathlib.Path(files.user_path(path)), without_paths(run)
    with files.writing(path):
        if path.suffix != ".zip":
            path.mkdir(parents=True, exist_ok=True)
            return [_write(run, name, path) for name in (*run.tasks, *run.failed)]
        with (
            tempfile.TemporaryDirectory(dir=path.parent) as folder,
            files.atomic_path(path) as temporary,
            zipfile.ZipFile(temporary, "w") as archive,  # the logs are compressed already
        ):
            for log in inspect_log(run, folder):
                archive.write(log, log.name)
    return [path]


def _write(run: Run, task: str, folder: pathlib.Path) -> pathlib.Path:
    """Writes the log of one task. The name is of the form that the library gives to files."""
    log = _header(run, task)
    when = re.sub(r"[^0-9T+-]", "-", log.eval.created)
    path = folder / f"{when}_{re.sub(r'[^A-Za-z0-9]+', '-', task)}_{log.eval.task_id}.eval"
    with (
        files.atomic_path(path) as temporary,
        zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive,
        tempfile.TemporaryFile("w+") as summaries,
    ):

        def write(name: str, text: str) -> None:
            archive.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)

        parts = {name: json_files.parse(_json(part)) for name, part in (("eval", log.eval), ("plan", log.plan))}
        start = {"version": log.version, **parts}
        write("_journal/start.json", json.dumps(start))
        separator = "["
        for sample in _samples(run, task):
            write(f"samples/{sample.id}_epoch_{sample.epoch}.json", _json(sample))
            summaries.write(separator + _json(sample.summary()))
            separator = ","
        summaries.write("]" if separator == "," else "[]")
        summaries.seek(0)
        with archive.open(zipfile.ZipInfo("summaries.json"), "w", force_zip64=True) as file:
            while text := summaries.read(2**20):
                file.write(text.encode("utf-8"))
        write("header.json", _json(log))
    return path


def _json(entry: Any) -> str:
    return entry.model_dump_json(exclude_none=True)


def _header(run: Run, task: str) -> EvalLog:
    """A log without its samples."""
    from inspect_ai.log import EvalConfig, EvalDataset, EvalError, EvalLog, EvalPlan, EvalPlanStep, EvalSpec, EvalStats

    identity, versions = run.config["identity"], run.config.get("versions") or {}
    record = run.tasks.get(task)
    count = 0 if record is None or record.examples is None else len(record.examples.ids)
    started = moment(run.config.get("started"))
    ended = started + datetime.timedelta(seconds=run.results.get("seconds") or 0)
    key = run_key(run)
    reason = run.failed.get(task)
    how = {name: value for name, value in identity.items() if name != "tasks"}
    return EvalLog(
        status="success" if record is not None else "error",
        eval=EvalSpec(
            created=started.isoformat(),
            eval_id=files.digest([key, task, "eval"])[:22],
            run_id=key[:22],
            task=task,
            task_id=files.digest([key, task])[:22],
            task_display_name=task_label(task),
            task_version=(identity.get("tasks") or {}).get(task, {}).get("version", 0),
            dataset=EvalDataset(name=task, samples=count),
            model=str(run.config.get("model") or run.model),
            config=EvalConfig(epochs=1),
            packages={"winobench": str((versions.get("winobench") or {}).get("version") or __version__)},
            metadata={"winobench": how | {"label": run.label}},
        ),
        plan=EvalPlan(name="winobench", steps=[EvalPlanStep(solver="winobench")]),
        results=None if record is None else _results(record, count),
        stats=EvalStats(started_at=started.isoformat(), completed_at=ended.isoformat()),
        error=None if reason is None else EvalError(message=reason, traceback=reason, traceback_ansi=reason),
    )


def run_key(run: Run) -> str:
    """SHA-256 that names a run: of what its numbers depend on, and when it started."""
    return files.digest({"identity": run.config["identity"], "started": run.config.get("started")})


def moment(text: Any) -> datetime.datetime:
    """A time as ``config.json`` has it. 1970 where that cannot be read."""
    try:
        return datetime.datetime.fromisoformat(str(text)).astimezone(datetime.UTC)
    except (ValueError, OverflowError):  # the first year in another zone may be none here
        return datetime.datetime.fromtimestamp(0, datetime.UTC)


def _results(record: TaskRun, count: int) -> Any:
    from inspect_ai.log import EvalMetric, EvalResults, EvalScore

    scores = []
    for name, entry in record.results.items():
        found = {
            key: entry[key]
            for key in ("value", "low", "high", "chance", "n", "independent")
            if entry.get(key) is not None
        }
        found |= {"too_few": int(entry["too_few"])} if entry.get("too_few") else {}
        metrics = {key: EvalMetric(name=key, value=value) for key, value in found.items()}
        scores.append(EvalScore(name=name, scorer=name, metrics=metrics))
    return EvalResults(total_samples=count, completed_samples=count, scores=scores)


def _samples(run: Run, task: str) -> Iterator[EvalSample]:
    record = run.tasks.get(task)
    if record is None or record.examples is None:
        return
    ids = [_id(row, name) for row, name in enumerate(record.examples.ids)]
    if len(set(ids)) < len(ids):
        ids = list(map(str, range(len(ids))))
    if isinstance(record.examples, Questions):
        for row, name in enumerate(ids):
            yield _question(run, record, record.examples, row, name)
        return
    images = run.images(task)
    for row, name in enumerate(ids):
        yield _example(record, record.examples, row, name, images)


def _id(row: int, name: str) -> str:
    """The name of an example, or the number of its row where that can be no file's name."""
    is_usable = name.isprintable() and 0 < len(name) <= _LONGEST_ID and ".." not in name
    return name if is_usable else f"row {row}"


def _question(run: Run, record: TaskRun, questions: Questions, row: int, name: str) -> EvalSample:
    from inspect_ai.log import EvalSample
    from inspect_ai.model import ChatMessageAssistant, ChatMessageUser, ModelOutput

    options, choice = questions.options[row], questions.choices[row]
    responses = [encodable(text) for text in questions.responses[row] if text is not None]
    prompt = "\n".join(f"{encodable(name)}: {encodable(text)}" for name, text in questions.named[row].items())
    output = ModelOutput(model=run.model)
    if responses:
        output = ModelOutput.from_content(run.model, "\n\n".join(responses))
    metadata = {
        "groups": questions.groups[row],
        "pair": questions.pairs[row],
        "choices_of_requests": questions.orders[row],
        "option_scores": questions.scores[row].ravel().tolist() or None,
        "images": questions.images[row] or None,
        "captions": questions.captions[row] or None,
    }
    return EvalSample(
        id=name,
        epoch=1,
        input=prompt,
        choices=[encodable(option) for option in options] or None,
        target=_letter(questions.targets[row]),
        messages=[ChatMessageUser(content=prompt), *(ChatMessageAssistant(content=text) for text in responses)],
        output=output,
        scores={record.shown[0] if record.shown else "correct": _score(questions.correct[row], _letter(choice))},
        metadata={key: value for key, value in metadata.items() if value is not None},
    )


def _example(record: TaskRun, examples: Examples, row: int, name: str, kept: Mapping[str, bytes]) -> EvalSample:
    from inspect_ai.log import EvalSample
    from inspect_ai.scorer import Score

    texts, images, target = examples.texts[row], examples.images[row], examples.targets[row]
    scores = examples.scores[row]
    labels, texts = [f"image {image[:12]}" for image in images], [encodable(text) for text in texts]
    answer = None
    if record.has_answers:
        flat = scores.ravel()
        is_sure = target is not None and np.sum(flat == flat.max()) == 1
        answer = _letter(int(flat.argmax())) if is_sure else None
        outcomes = {metric: outcome.correct for metric, outcome in record.judged.items()}
        outcomes = outcomes or {"correct": examples.correct}
        marks = {metric: _score(right[row], answer) for metric, right in outcomes.items()}
    else:
        marks = {"score": Score(value=scores.ravel().tolist() if scores.size > 1 else float(scores.ravel()[0]))}
    compete = texts if len(texts) > 1 else labels
    prompt = _asked(labels, texts, record, [kept.get(image) for image in images])
    return EvalSample(
        id=name,
        epoch=1,
        input=prompt,
        choices=compete if target is not None else None,
        target=_letter(target) if target is not None else (texts if record.has_answers else ""),
        messages=prompt if isinstance(prompt, list) else [],
        scores=marks,
        metadata={"groups": examples.groups[row], "images": images, "texts": texts, "scores": scores.tolist()},
    )


def _asked(labels: list[str], texts: list[str], record: TaskRun, jpegs: list[bytes | None]) -> Any:
    """The question of an example, with its images where the run has kept all of them."""
    from inspect_ai.model import ChatMessageUser, ContentImage, ContentText

    question = f"How well do these fit: {', '.join(labels)}; {'; '.join(texts)}?"
    if record.has_answers:
        question = matching_question(labels, texts)
    if None in jpegs:
        return question
    addresses = [f"data:image/jpeg;base64,{base64.b64encode(jpeg).decode('ascii')}" for jpeg in jpegs]
    return [
        ChatMessageUser(content=[ContentText(text=question), *(ContentImage(image=address) for address in addresses)])
    ]


def matching_question(labels: list[str], texts: list[str]) -> str:
    """What a task of images asks, in words."""
    if len(labels) > 1 and len(texts) > 1:
        return f"Which image belongs to which text? {', '.join(labels)}; {'; '.join(texts)}"
    if len(texts) > 1:
        return f"Which text fits {labels[0]}?"
    return f"Which image fits the text? {texts[0]}"


def _score(right: Any, answer: str | None) -> Any:
    from inspect_ai.scorer import Score

    return Score(value=_RIGHT if right else _WRONG, answer=answer or None)


def _letter(place: int | None) -> str:
    """A, B, ..., Z, 1, 2, ... as inspect_ai names choices. Empty for none."""
    if place is None:
        return ""
    return _LETTERS[place] if place < len(_LETTERS) else str(place - len(_LETTERS) + 1)


def encodable(text: str) -> str:
    """A text without what UTF-8 cannot hold."""
    return text.encode("utf-8", "replace").decode("utf-8")
