"""What a verifier, a detector or people say of generated images: does one show what its prompt asks for?

verdicts.jsonl      in the run's folder, a line an image: ``file``, ``sha256``, ``correct``, ``found``, ``judge``

A file has the verdicts of one judge. A vision-language model's are in ``judged`` (`winobench.runs.judgements`).
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from winobench import metrics
from winobench.base import files, json_files, options
from winobench.base.errors import InputError
from winobench.runs.image_records import PictureRecord

if TYPE_CHECKING:
    from winobench.runs.image_runs import Pictures

NAME = "verdicts.jsonl"
VERIFIER, GENEVAL_DETECTOR = "CLEVR verifier", "GenEval detector"
"""Judges: `winobench.models.clevr_verifier`, and the published Mask2Former with CLIP."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Whether one image shows what its prompt asks for."""

    file: str  # path within the run's folder
    sha256: str  # of the image that was judged
    correct: bool
    found: Any = None  # in the image, as JSON values
    judge: str = VERIFIER  # who judged. Files of earlier versions, which lack it, are the verifier's


def write_verdicts(folder: str | os.PathLike, verdicts: Iterable[Verdict]) -> pathlib.Path:
    """Writes the verdicts of a run, whole or not at all, and returns the file's path."""
    path = pathlib.Path(folder) / NAME
    with files.writing(folder):
        files.write_text(path, "".join(json.dumps(dataclasses.asdict(one)) + "\n" for one in verdicts))
    return path


def read_verdicts(folder: str | os.PathLike) -> dict[str, Verdict]:
    """An image's path within the run -> its verdict. Empty if missing."""
    path = pathlib.Path(folder) / NAME
    if not path.is_file():
        return {}
    found = {}
    for number, value in json_files.read_lines(path):
        try:
            one = Verdict(**value)
            whole = isinstance(one.correct, bool)
            whole &= all(isinstance(text, str) for text in (one.file, one.sha256, one.judge))
        except TypeError:
            whole = False
        if not whole:
            raise InputError(f"line {number} of {path} is {options.quote(value)}, no verdict: judge the images again")
        found[one.file] = one
        if len(judges := {other.judge for other in (one, *itertools.islice(found.values(), 1))}) > 1:
            raise InputError(
                f"line {number} of {path} is by another judge than those before it ({' and '.join(sorted(judges))}):"
                " judge the images again",
                code="contradicting-rows",
            )
    return found


def judge_of(verdicts: Mapping[str, Verdict]) -> str | None:
    """Who gave the verdicts of a run. None without any."""
    return next((one.judge for one in verdicts.values()), None)


def verdict_on(record: PictureRecord, verdicts: Mapping[str, Verdict]) -> bool | None:
    """Whether an image is correct; None where nobody has judged it as it is now."""
    one = verdicts.get(record.file)
    return one.correct if one is not None and one.sha256 == record.sha256 else None


def generation_accuracy(run: Pictures, verdicts: Mapping[str, Verdict]) -> dict[str, dict[str, dict[str, Any]]]:
    """Label -> category, or ``all`` for their mean -> "value", "low", "high" (95%, clustered by prompt text), "n".

    Verdicts on images that were generated again do not count.
    """
    results: dict[str, dict[str, dict[str, Any]]] = {}
    for model in run.models:
        rows = [
            (record.prompt.category, record.prompt.text, verdicts[record.file].correct)
            for record in run.records
            if record.model == model.label and verdict_on(record, verdicts) is not None
        ]
        found = results[model.label] = {}
        for category in dict.fromkeys(category for category, _, _ in rows):
            _, texts, correct = zip(*(row for row in rows if row[0] == category), strict=True)
            found[category] = _entry(texts, correct)
        if rows:
            categories, texts, correct = zip(*rows, strict=True)
            found["all"] = _entry(texts, correct, categories)
    return results


def _entry(texts: Sequence[str], correct: Iterable[bool], strata: Sequence[str] | None = None) -> dict[str, Any]:
    interval = metrics.clustered(list(correct), list(texts), strata=strata)
    return {**{name: float(value) for name, value in interval._asdict().items()}, "n": len(texts)}
