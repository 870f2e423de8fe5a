"""Automatic judges of a comparison: any scorer, recorded like an evaluation in ``judges/<name>`` of its folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from winobench.base import files
from winobench.contrib.people import preference
from winobench.contrib.people.comparison import Comparison
from winobench.data.example import Example
from winobench.data.images import ImageSource
from winobench.evaluation import evaluate
from winobench.runs.reading import read_run
from winobench.scorers.base import SampledScorer, Scorer
from winobench.tasks.base import Task

FOLDER = "judges"


def task(comparison: Comparison) -> Task:
    """The comparison as a task: which image of a pair fits the prompt? Accuracy is the share of the second side."""

    def load(data_dir: str | None, limit: int | None) -> Iterator[Example[ImageSource, str]]:
        del data_dir
        for pair in comparison.pairs[:limit]:
            prompt = pair.records[0].prompt
            yield Example(pair.key, pair.paths, (prompt.text,), 1, (prompt.category,) if prompt.category else ())

    content = [[record.sha256 for record in pair.records] for pair in comparison.pairs]
    return Task(
        name="comparison",
        version=1,
        description="Which of two images fits the prompt?",
        metric="accuracy",
        shape=(2, 1),
        chance={"accuracy": 1 / 2},
        load=load,
        ready=lambda data_dir: None,
        images_compete=True,
        data_fingerprint=lambda data_dir, limit: files.digest([content, limit]),
    )


def judge(comparison: Comparison, scorer: Scorer | SampledScorer, name: str, **sampling: Any) -> dict[str, Any]:
    """Has a scorer judge all pairs. An interrupted call resumes when it is made again."""
    folder = comparison.folder / FOLDER / name
    evaluate.evaluate(scorer, [task(comparison)], folder, model=name, **sampling)
    examples = read_run(folder).tasks["comparison"].examples
    outcomes = {key: _outcome(*scores[:, 0]) for key, scores in zip(examples.ids, examples.scores, strict=True)}
    return {"all": comparison.summary(outcomes), "categories": comparison.by_category(outcomes)}


def _outcome(first: float, second: float) -> int:
    if first == second:
        return preference.EQUAL
    return preference.SECOND if second > first else preference.FIRST
