"""One generation of WSC+ items from beginning to end, in its own folder.

    config.json                  the requests, and the models
    responses/                   the answers as they came in (`winobench.runs.responses`)
    answers.jsonl                a line a request: where it comes from, the text, whether the call failed
    candidates.jsonl             a line an item, with its verdict: null, or why the checks refuse it
    malformed.jsonl              a line a part of an answer that is not a sentence in the layout, with the reason
    checks.json                  how many of what
    annotations/<name>.jsonl     a person's clicks
    wscplus.csv                  the items that both annotators call valid, in the published layout
    items.jsonl                  the same with where they come from, and those that were left out with their labels
    agreement.json               how far the annotators agree
    validity_by_model.png, .csv  Figure 2
    validity_by_prompt.png, .csv Figure 3
    validity_by_batch.png, .csv  Figure 12, of requests for several numbers of pairs
    validity_by_type.png, .csv   Figure 13, and the numbers behind Table 5
    validity_by_repeat.png, .csv Figure 14, of several repeats

Offensive items carry their type in all of these files, and ``config.json`` says whether there may be any.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import datetime
import itertools
import os
import pathlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from winobench.base import files, json_files
from winobench.base.errors import InputError
from winobench.base.files import user_path
from winobench.contrib.people.wscplus_items import agreement, annotate, candidates, checks, parsing, prompts, validity
from winobench.contrib.people.wscplus_items.candidates import Answer
from winobench.contrib.people.wscplus_items.items import (
    OFFENSIVE,
    TYPES,
    Item,
    Origin,
    from_json,
    read_lines,
    to_json,
    to_rows,
    write_lines,
)
from winobench.contrib.people.wscplus_items.prompts import Prompt
from winobench.data import wscplus
from winobench.runs import asking, lifecycle, provenance, records
from winobench.runs.requests import Responder

ANSWERS, CANDIDATES, MALFORMED, CHECKS = "answers.jsonl", "candidates.jsonl", "malformed.jsonl", "checks.json"
ANNOTATIONS, DATA, ITEMS, AGREEMENT = "annotations", "wscplus.csv", "items.jsonl", "agreement.json"
"""Names in a run's folder."""


def generate(
    responders: Mapping[str, Callable[[], Responder]],
    requests: Sequence[Prompt],
    workdir: str | os.PathLike,
    *,
    config: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    reuse: bool = True,
    progress: bool = True,
) -> list[Answer]:
    """Asks the models for items and writes their answers into a folder. Resumes, and repeats failed requests only.

    The same folder may get more requests of the same prompts later.
    """
    offensive = any(prompt.type == OFFENSIVE for prompt in requests)
    identity = {"models": list(responders), "offensive": offensive, "prompts": prompts.digest(requests)}
    description = {
        "status": "running",
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "config": dict(config or {}),
        "identity": identity,
        "versions": provenance.software(),
        "warning": "some of the items may offend" if offensive else None,
    }
    folder = records.RunFolder(workdir, records.RESPONSES)
    folder.open(description, overwrite=overwrite)
    answers: list[Answer] = []
    session = asking.Session(folder.records_path, reuse=reuse, progress=progress)
    with (
        contextlib.closing(folder),
        lifecycle.recording(folder, description, lambda: bool(len(session.store)), done="generated"),
        session,
    ):
        for name, load in responders.items():
            answers += candidates.collect(load(), name, requests, session)
        write_lines(folder.path / ANSWERS, map(dataclasses.asdict, answers))
    return answers


def _read_answers(path: pathlib.Path) -> list[candidates.Answer]:
    answers = []
    for number, record in enumerate(read_lines(path), start=1):
        try:
            answers.append(candidates.answer_from_json(record))
        except InputError as error:
            raise InputError(
                f"{path}, record {number}: {error}. Give the same command again, which writes it.", code=error.code
            ) from None
    return answers


def check(
    workdir: str | os.PathLike,
    known: Sequence[str | os.PathLike] = (),
    *,
    max_changed_words: int = checks.MAX_CHANGED_WORDS,
    similarity: float = checks.SIMILARITY,
) -> dict[str, Any]:
    """Reads the items out of the answers and checks them. Needs no model, and may be repeated with other limits.

    Returns the content of ``checks.json``. "cost" is in dollars. It and "tokens" are None where they are not known.
    """
    folder = _folder(workdir)
    statements = [item.statement for path in known for item in wscplus.read(path)]
    answers = _read_answers(folder / ANSWERS)
    items, malformed = candidates.read_answers(answers)
    verdicts = checks.check(
        items,
        itertools.chain(prompts.example_statements(), statements),
        max_changed_words=max_changed_words,
        similarity=similarity,
    )
    judged = list(zip(items, verdicts, strict=True))
    as_json = ({**to_json(item), "verdict": verdict and dataclasses.asdict(verdict)} for item, verdict in judged)
    write_lines(folder / CANDIDATES, as_json)
    as_json = ({**dataclasses.asdict(row.origin), "reason": row.reason, "text": row.text} for row in malformed)
    write_lines(folder / MALFORMED, as_json)
    accepted = [item.origin.type for item, verdict in judged if verdict is None]
    billed = [row for row in answers if row.status == candidates.ANSWERED or row.output_tokens is not None]
    failures = [answer.problem for answer in answers if answer.status == candidates.FAILED]
    summary = {
        "requests": len(answers),
        "failed": len(failures),
        "first_failure": failures[0] if failures else None,
        "malformed": _counts(row.reason for row in malformed),
        "candidates": len(items),
        "refused": _counts(verdict.reason for verdict in verdicts if verdict is not None),
        "accepted": {kind: accepted.count(kind) for kind in TYPES if kind in accepted},
        "tokens": {
            name: _total(getattr(answer, f"{name}_tokens") for answer in billed) for name in ("input", "output")
        },
        "cost": _total(answer.cost for answer in billed),
        "limits": {"max_changed_words": max_changed_words, "similarity": similarity, "known": len(statements)},
    }
    files.write_json(folder / CHECKS, summary)
    return summary


def accepted_items(workdir: str | os.PathLike) -> list[Item]:
    """The items that have passed the checks, for annotators."""
    items = [item for item, verdict in _candidates(_folder(workdir)) if verdict is None]
    if not items:
        raise InputError(
            f"no item in {workdir} has passed the checks: {CANDIDATES} says why. Ask for more requests.",
            code="no-examples",
        )
    return items


def finish(workdir: str | os.PathLike) -> dict[str, Any]:
    """Filters the items by the annotators' labels, and writes data, agreement and figures.

    An item stays if every annotator calls it valid (paper, section 2.5). Returns the numbers of each, and "files".
    """
    # Late: drawing takes a second to load.
    from winobench.contrib.people.wscplus_items import figures

    folder = _folder(workdir)
    items = accepted_items(folder)
    annotations = annotate.read_annotations(folder / ANNOTATIONS)
    if len(annotations) < 2:
        who = f"only {next(iter(annotations))} has" if annotations else "nobody has"
        raise InputError(
            f"{who} judged the items in {folder}, and two people must: give --annotate=NAME first.",
            code="too-few-annotators",
        )
    for name, labels in annotations.items():
        if missing := sum(item.id not in labels for item in items):
            raise InputError(
                f"annotator {name} has {missing:,} of {len(items):,} items to judge: give --annotate={name} again.",
                code="unfinished-annotation",
            )
    outcomes = [validity.worst(labels[item.id] for labels in annotations.values()) for item in items]
    kept = [item for item, outcome in zip(items, outcomes, strict=True) if outcome == annotate.VALID]
    wscplus.write(folder / DATA, (row for item in kept for row in to_rows(item)))
    given = [{name: labels[item.id] for name, labels in annotations.items()} for item in items]
    write_lines(
        folder / ITEMS,
        (
            {**to_json(item), "labels": labels, "outcome": outcome}
            for item, labels, outcome in zip(items, given, outcomes, strict=True)
        ),
    )
    compared = {
        f"{first}, {other}": dataclasses.asdict(
            agreement.compare([labels[first] for labels in given], [labels[other] for labels in given], annotate.LABELS)
        )
        for first, other in itertools.combinations(annotations, 2)
    }
    files.write_json(folder / AGREEMENT, compared)
    fates = validity.fates(items, annotations, _refused(folder))
    offensive = any(fate.origin.type == OFFENSIVE for fate in fates)
    names = [DATA, ITEMS, AGREEMENT, *figures.write_by_model(validity.by_model(fates), folder, offensive=offensive)]
    by_prompt = validity.by_prompt(fates)
    if by_prompt:
        names += figures.write_by_prompt(by_prompt, folder)
    by_batch = validity.by_batch(fates)
    if len(by_batch) > 1:
        names += figures.write_by_batch(by_batch, folder)
    names += figures.write_by_type(validity.by_type(fates), folder)
    by_repeat = validity.by_repeat(fates, _requests_a_repeat(folder))
    if len({repeat for _, repeat in (spread.name for spread in by_repeat)}) > 1:
        names += figures.write_by_repeat(by_repeat, folder)
    kinds = [item.origin.type for item in items]
    return {
        "annotators": list(annotations),
        "items": {kind: kinds.count(kind) for kind in TYPES if kind in kinds},
        "kept": {kind: sum(item.origin.type == kind for item in kept) for kind in TYPES if kind in kinds},
        "sentences": sum(len(item.sentences) for item in kept),
        "agreement": compared,
        "files": names,
    }


def _requests_a_repeat(folder: pathlib.Path) -> int:
    """The number of requests of a prompt that make up one repeat. All of them without repeats."""
    config = json_files.read_object(folder / "config.json").get("config") or {}
    requests, repeats = (config.get(name, 1) for name in ("requests", "repeats"))
    if not all(isinstance(number, int) and number > 0 for number in (requests, repeats)):
        raise InputError(
            f"{folder / 'config.json'} is damaged (requests {requests!r}, repeats {repeats!r}): give the command that"
            " generates again, which writes it.",
            code="damaged-file",
        )
    return requests if repeats > 1 else sys.maxsize


def _counts(reasons: Iterable[str]) -> dict[str, int]:
    """Counts each reason, the most frequent first."""
    return dict(collections.Counter(reasons).most_common())


def _total(amounts: Iterable[float | None]) -> float | None:
    """The sum, or None where one is missing, or all are."""
    known = list(amounts)
    return None if not known or None in known else sum(known)


def _folder(workdir: str | os.PathLike) -> pathlib.Path:
    folder = pathlib.Path(user_path(workdir))
    if not (folder / ANSWERS).is_file():
        raise InputError(
            f"nothing was generated in {folder} (no {ANSWERS}): generate first, or name another --workdir.",
            code="not-a-run",
        )
    return folder


def _candidates(folder: pathlib.Path) -> list[tuple[Item, str | None]]:
    """Items with the reason for which the checks refuse them, or None."""
    try:
        return [
            (from_json(record), None if record["verdict"] is None else record["verdict"]["reason"])
            for record in read_lines(folder / CANDIDATES)
        ]
    except (KeyError, TypeError) as error:
        raise InputError(
            f"{folder / CANDIDATES} is damaged ({error!r}): give --check, which writes it again.", code="damaged-file"
        ) from None


def _refused(folder: pathlib.Path) -> list[tuple[Origin, str]]:
    """Items without annotations, with the reason: refused by the checks, or malformed.

    Two malformed sentences of an answer count as one pair. Answers without anything in the layout, such as refusals,
    are not items; ``checks.json`` counts them.
    """
    refused = [(item.origin, reason) for item, reason in _candidates(folder) if reason is not None]
    fields = [field.name for field in dataclasses.fields(Origin)]
    reasons: dict[Origin, list[str]] = {}
    for record in read_lines(folder / MALFORMED):
        if record["reason"] not in (parsing.REFUSED, parsing.NOTHING):
            reasons.setdefault(Origin(**{name: record[name] for name in fields}), []).append(record["reason"])
    for origin, of_origin in reasons.items():
        refused += [(origin, reason) for reason in of_origin[:: 1 if origin.type == OFFENSIVE else 2]]
    return refused
