"""Judgements of right or wrong: does a generated image show what its prompt asks for, by a verifier or a detector?

They are in ``judged``, as other judgements (`winobench.runs.judgements`). The answer for an image has the objects or
reasons that its judge found, and the score is 0 or 1. Earlier versions wrote another file, which is still read:

verdicts.jsonl      in the run's folder, a line an image: ``file``, ``sha256``, ``correct``, ``found``, ``judge``
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from winobench import metrics
from winobench.base import files, json_files, options, registry
from winobench.base.errors import InputError
from winobench.runs import judgements
from winobench.runs.image_records import ImageRecord
from winobench.runs.judgements import Judgement

if TYPE_CHECKING:
    from winobench.runs.image_runs import Images

EARLIER = "verdicts.jsonl"
VERIFIER, GENEVAL_DETECTOR = "CLEVR verifier", "GenEval detector"
"""Judges: `winobench.ClevrVerifier`, and the published Mask2Former with CLIP."""

# Judge -> its rubric, and the paper and code of the rubric.
_RUBRICS = {
    VERIFIER: ("clevr", "winobench.models.clevr_verifier"),  # as in records of former versions, which had it there
    GENEVAL_DETECTOR: ("geneval", "Ghosh et al. 2023, arXiv:2310.11513, code github.com/djghosh13/geneval af4902f"),
}


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Whether one image shows what its prompt asks for."""

    file: str  # path within the run's folder
    sha256: str  # of the image that was judged
    correct: bool
    found: Any = None  # in the image, as JSON values
    judge: str = VERIFIER  # files of the first versions lack it


def folder_of(folder: str | os.PathLike[str], judge: str) -> pathlib.Path:
    """The folder of a judge's verdicts in a run's folder."""
    return pathlib.Path(folder) / judgements.FOLDER / f"{_RUBRICS[judge][0]}-{registry.model_label(judge)}"


def write_verdicts(run: Images, verdicts: Iterable[Verdict]) -> Judgement:
    """Writes the verdicts of one judge on images of a run, and their results."""
    by_file = {verdict.file: verdict for verdict in verdicts}
    judged = judgement_of(run, by_file)
    lines = []
    for record in run.records:
        if (verdict := by_file.get(record.file)) is not None:
            of_image = {"file": verdict.file, "sha256": verdict.sha256, "model": record.model}
            numbers = {"seed": record.seed, "number": record.number}
            groups = filter(None, ["all", record.prompt.category])
            scores = [{"metric": "accuracy", "group": group, "value": float(verdict.correct)} for group in groups]
            lines.append({**of_image, **numbers, "answers": [verdict.found], "scores": scores})
    folder = folder_of(run.folder, judged.judge)
    with files.writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    judgements.write(folder, judged, lines)
    return judged


def judgement_of(run: Images, verdicts: Mapping[str, Verdict]) -> Judgement:
    """The results of verdicts on a run's images, also from earlier versions."""
    judge = judge_of(verdicts) or VERIFIER
    rubric, source = _RUBRICS.get(judge, ("verdicts", ""))
    count = sum(verdict_on(record, verdicts) is not None for record in run.records)
    models: dict[str, dict[str, Any]]
    models = {label: {"accuracy": groups} for label, groups in generation_accuracy(run, verdicts).items()}
    no_image = judgements.count_missing(run, models)
    return Judgement(
        rubric=rubric,
        version=1,
        source=source,
        published_judge=judge,
        judge=judge,
        is_published=True,
        fingerprint={"judge": judge},
        kind=judgements.VERDICT,
        wordings=(),
        images=judgements.images_of(run),
        num_images=count,
        left_out=len(run.records) - count,
        num_questions=count,
        models=models,
        no_image=no_image,
    )


def read_verdicts(folder: str | os.PathLike) -> dict[str, Verdict]:
    """An image's path within the run -> its verdict. Empty if missing."""
    for judge in _RUBRICS:
        path = folder_of(folder, judge) / judgements.SCORES
        if path.is_file():
            return _checked(path, ((number, _verdict_of(line, judge)) for number, line in json_files.read_lines(path)))
    path = pathlib.Path(folder) / EARLIER
    return _checked(path, json_files.read_lines(path)) if path.is_file() else {}


def _verdict_of(line: Any, judge: str) -> Any:
    """The fields of a verdict in a line of scores. A damaged line as it is."""
    try:
        (found,), score = line["answers"], line["scores"][0]
        correct = {1.0: True, 0.0: False}[score["value"]]
        return {"file": line["file"], "sha256": line["sha256"], "correct": correct, "found": found, "judge": judge}
    except (TypeError, LookupError, ValueError):
        return line


def _checked(path: pathlib.Path, lines: Iterable[tuple[int, Any]]) -> dict[str, Verdict]:
    verdicts: dict[str, Verdict] = {}
    for number, value in lines:
        try:
            verdict = Verdict(**value)
            whole = isinstance(verdict.correct, bool)
            whole &= all(isinstance(text, str) for text in (verdict.file, verdict.sha256, verdict.judge))
        except TypeError:
            whole = False
        if not whole:
            raise InputError(f"line {number} of {path} is {options.quote(value)}, no verdict: judge the images again")
        verdicts[verdict.file] = verdict
        if len(judges := {other.judge for other in (verdict, *itertools.islice(verdicts.values(), 1))}) > 1:
            raise InputError(
                f"line {number} of {path} is by another judge than those before it ({' and '.join(sorted(judges))}):"
                " judge the images again",
                code="contradicting-rows",
            )
    return verdicts


def judge_of(verdicts: Mapping[str, Verdict]) -> str | None:
    """The judge of a run's verdicts. None without verdicts."""
    return next((verdict.judge for verdict in verdicts.values()), None)


def verdict_on(record: ImageRecord, verdicts: Mapping[str, Verdict]) -> bool | None:
    """Whether an image is correct; None where nobody has judged it as it is now."""
    verdict = verdicts.get(record.file)
    return verdict.correct if verdict is not None and verdict.sha256 == record.sha256 else None


def generation_accuracy(run: Images, verdicts: Mapping[str, Verdict]) -> dict[str, dict[str, dict[str, Any]]]:
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
        entries = results[model.label] = {}
        for category in dict.fromkeys(category for category, _, _ in rows):
            _, texts, correct = zip(*(row for row in rows if row[0] == category), strict=True)
            entries[category] = _entry(texts, correct)
        if rows:
            categories, texts, correct = zip(*rows, strict=True)
            entries["all"] = _entry(texts, correct, categories)
    return results


def _entry(texts: Sequence[str], correct: Iterable[bool], strata: Sequence[str] | None = None) -> dict[str, Any]:
    interval = metrics.clustered(list(correct), list(texts), strata=strata)
    return {**{name: float(value) for name, value in interval._asdict().items()}, "n": len(texts)}
