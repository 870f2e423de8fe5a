"""Scores of a run's images by automatic judges: by benchmarks' rubrics, or right or wrong (`winobench.runs.verdicts`).

judged/<rubric>-<judge>/responses/       a model's answers (`winobench.runs.responses`)
judged/<rubric>-<judge>/scores.jsonl     a line an image: file, sha256, model, seed, number, answers, scores
judged/<rubric>-<judge>/results.json     `Judgement`, once all images are judged
"""

from __future__ import annotations

import collections
import dataclasses
import json
import math
import os
import pathlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from winobench.base import files, json_files, options
from winobench.base.errors import InputError
from winobench.metrics import Interval

if TYPE_CHECKING:
    from winobench.prompts.prompt_files import Prompt
    from winobench.runs.image_runs import Images

FOLDER, RESULTS, SCORES = "judged", "results.json", "scores.jsonl"
VERDICT = "verdict"
"""Stands for the kind of requests in a `Judgement` of right or wrong (`winobench.runs.verdicts`)."""

NO_IMAGE = "no_image"
"""The metric of missing images: their share of a model's images, of the prompts that the rubric fits."""

Results = Mapping[str, Mapping[str, Mapping[str, Mapping[str, Any]]]]
"""Label of a model -> metric -> group -> value, low, high (95%, None for one prompt), n (numbers of the mean),
too_few (whether they are, for the interval). Results of older versions lack the last one. is_count: whether the value
counts something, so that it may be above 1. Lacking for shares."""


@dataclasses.dataclass(frozen=True)
class Judgement:
    """The results of one rubric by one judge."""

    rubric: str
    version: int
    source: str  # paper and code of the rubric
    published_judge: str
    judge: str  # the name that was given
    is_published: bool  # whether that is the published judge
    fingerprint: Mapping[str, Any]  # of the judge
    kind: str  # of the requests
    wordings: tuple[str, ...]  # that the judge has read, with {} for a question or prompt
    images: str  # SHA-256 of the digests of the run's images (`images_of`)
    num_images: int  # that were judged
    left_out: int  # images whose prompts the rubric does not fit
    num_questions: int
    models: Results
    missing: Mapping[str, int] = dataclasses.field(default_factory=dict)  # images without an answer, by the reason
    no_image: Mapping[str, Mapping[str, int]] = dataclasses.field(
        default_factory=dict
    )  # model's label -> kind -> images
    files: str | None = None  # of the judge, and its options (`winobench.runs.requests.LazyResponder`), if it has files

    @property
    def unread(self) -> float:
        """The largest share of answers that could not be read, of all models."""
        entries = [metrics["unread"]["all"] for metrics in self.models.values() if "unread" in metrics]
        return max((entry["value"] for entry in entries), default=0.0)

    @property
    def num_missing(self) -> int:
        """The number of images without an answer."""
        return sum(self.missing.values())

    @property
    def who(self) -> str:
        """The judge in words, with the published one where it is another."""
        return self.judge if self.is_published else f"{self.judge} (published: {self.published_judge})"


def images_of(run: Images) -> str:
    """SHA-256 of the digests of all images of a run, in their order, and of the places of missing ones."""
    return files.digest([record.sha256 for record in run.records] + [[*it.place, it.kind] for it in run.missing])


def count_missing(
    run: Images, models: dict[str, dict[str, Any]], fits: Callable[[Prompt], bool] = lambda prompt: True
) -> dict[str, dict[str, int]]:
    """Adds the metric `NO_IMAGE` to models that lack images. Returns label -> kind -> number of missing images."""
    counts: dict[str, dict[str, int]] = {}
    for label, results in models.items():
        kinds = collections.Counter(it.kind for it in run.missing if it.model == label and fits(it.prompt))
        if kinds:
            there = sum(record.model == label and fits(record.prompt) for record in run.records)
            entry = {"value": kinds.total() / (kinds.total() + there), "low": None, "high": None}
            results[NO_IMAGE] = {"all": {**entry, "n": kinds.total() + there, "too_few": False}}
            counts[label] = dict(kinds)
    return counts


def missing_in_words(judgement: Judgement) -> dict[str, str]:
    """Label -> a sentence on the missing images of a model, for models that lack some."""
    sentences = {}
    for label, kinds in judgement.no_image.items():
        entry = judgement.models[label][NO_IMAGE]["all"]
        said = ", ".join(f"{number:,} {kind}" for kind, number in kinds.items())
        sentences[label] = (
            f"{label} lacks {sum(kinds.values()):,} of {entry['n']:,} images ({entry['value']:.1%}: {said})"
        )
    return sentences


def interval(entry: Mapping[str, Any]) -> Interval:
    """A value of `Results` with the ends of its interval, NaN where it has none."""
    return Interval(entry["value"], *(math.nan if entry[end] is None else entry[end] for end in ("low", "high")))


def write(folder: pathlib.Path, judgement: Judgement, scores: Iterable[Mapping[str, Any]]) -> None:
    """Writes the scores of images, and after them the results."""
    with files.writing(folder):
        files.write_text(folder / SCORES, "".join(json.dumps(line) + "\n" for line in scores))
        files.write_text(folder / RESULTS, json.dumps(dataclasses.asdict(judgement), indent=2) + "\n")


def read(folder: str | os.PathLike) -> Judgement:
    """The results in a folder of ``judged``.

    Raises:
      InputError: they are missing or damaged.
    """
    path = pathlib.Path(folder) / RESULTS
    advice = "give the same winobench judge command again"
    value = json_files.read_object(path, advice)
    names = {field.name for field in dataclasses.fields(Judgement)}
    # Earlier versions had no results where an answer or image was missing, and did not keep the state of files.
    value = {"missing": {}, "files": None, "no_image": {}} | value
    whole = value.keys() == names and isinstance(value["wordings"], list) and _are_counts(value["missing"])
    whole = whole and _are(value["no_image"], _are_counts)
    if not whole or not _are_results(value["models"]):
        raise InputError(f"{path} holds {options.quote(value)}, not results of a judge: {advice}", code="damaged-file")
    return Judgement(**{**value, "wordings": tuple(value["wordings"])})


def rows_of(judgement: Judgement) -> Iterator[dict[str, Any]]:
    """A row for each value: model, metric, group, value, low, high, n."""
    for model, metrics in judgement.models.items():
        for metric, groups in metrics.items():
            for group, entry in groups.items():
                yield {"model": model, "metric": metric, "group": group, **entry}


def read_all(run: Images) -> list[Judgement]:
    """The finished judgements of a run, by their folders' names. A warning names a judgement of other images."""
    current, images = [], images_of(run)
    for path in sorted((run.folder / FOLDER).glob(f"*/{RESULTS}")):
        judgement = read(path.parent)
        if judgement.images == images:
            current.append(judgement)
        elif judgement.kind != VERDICT:  # `read_verdicts` checks each image
            advice = "give the same winobench judge command again"
            warnings.warn(f"{path} is about other images than the run now has, and is left out: {advice}", stacklevel=2)
    return current


def _are_counts(missing: Any) -> bool:
    return _are(missing, lambda count: type(count) is int)


def _are_results(models: Any) -> bool:
    """Whether these are `Results`."""
    return _are(models, lambda metrics: _are(metrics, lambda groups: _are(groups, _is_entry)))


def _are(values: Any, is_right: Callable[[Any], bool]) -> bool:
    return isinstance(values, dict) and all(map(is_right, values.values()))


def _is_entry(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and entry.keys() - {"too_few", "is_count"} == {"value", "low", "high", "n"}
        and all(isinstance(entry.get(name, False), bool) for name in ("too_few", "is_count"))
        and all(options.is_number(entry[name]) for name in ("value", "n"))
        and all(entry[end] is None or options.is_number(entry[end]) for end in ("low", "high"))
    )
