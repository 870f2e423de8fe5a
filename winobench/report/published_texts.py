"""The papers' numbers of the text benchmarks, and which of them to print beside ours."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from winobench.base import json_files
from winobench.data.winoviz import published as winoviz
from winobench.data.wscplus import published as wscplus

_ASSETS = pathlib.Path(__file__).resolve().parents[1] / "assets"

BENCHMARKS = ("winoviz", "wscplus")
"""The text benchmarks; the names of their tasks begin with one of these."""

PEOPLE = "human"
"""The model's name beside which people's numbers stand."""

# WSC+'s models under the names that their runs have with us: at the API, and as recorded by the authors. Today's
# gpt-3.5-turbo is another model than the paper's.
_WSCPLUS_MODELS = {
    "gpt-4-0613": "gpt-4-0613",
    "gpt-4": "gpt-4-0613",
    "GPT4_results": "gpt-4-0613",
    "gpt-3.5-turbo-0613": "gpt-3.5-turbo-0613",
    "GPT3_results": "gpt-3.5-turbo-0613",
}


@dataclasses.dataclass(frozen=True)
class TextNumber:
    """A number that a paper prints, and which number of ours it stands next to.

    Attributes:
      benchmark: of ``BENCHMARKS``.
      task: our task.
      metric: its key in our results.
      model: a name of our registry, of an API, or ``human``.
      method: what the paper calls what was measured.
      column: heading of its column.
      protocol: ours; None for people.
      place: ``"Table 1"``, ``"Figure 5, as stated in section 3.2"``.
      printed: in percent, without a sign.
    """

    benchmark: str
    task: str
    metric: str
    model: str
    method: str
    column: str
    protocol: str | None
    place: str
    printed: str

    significant = None
    num_samples = None

    @property
    def in_our_unit(self) -> float:
        """In [0, 1]."""
        return float(self.printed) / 100


def source(benchmark: str) -> dict[str, str]:
    """Where a benchmark's numbers are from: ``authors``, ``title``, ``short``, and ``venue`` and ``arxiv`` if known."""
    path = _ASSETS / benchmark / "published.json"
    return dict(json_files.read(path)["source"])


def benchmark_of(task: str) -> str | None:
    """The benchmark that a task is of; None for a task of another package."""
    return next((name for name in BENCHMARKS if task.split("_")[0] == name), None)


def numbers(task: str) -> tuple[TextNumber, ...]:
    """All numbers that stand beside a task's, in the order of print."""
    if benchmark_of(task) == "winoviz":
        return tuple(
            TextNumber(
                "winoviz",
                task,
                number.metric,
                number.model,
                number.row,
                number.column,
                number.protocol,
                f"Table {number.table}",
                number.printed,
            )
            for number in winoviz.published(task)
        )
    return tuple(
        TextNumber(
            "wscplus",
            task,
            number.metric,
            number.model,
            "people" if number.model == PEOPLE else number.row,
            number.column,
            number.protocol,
            number.place,
            number.printed.rstrip("%"),
        )
        for number in wscplus.published(task=task)
        if number.unit == "percent" and number.model is not None
    )


def reference(task: str, metric: str, *, model: str, protocol: str, limit: int | None = None) -> TextNumber | None:
    """The number of a paper to print next to one of ours: that of the same model by the same prompt.

    Option scores stand next to the paper's generated answers, and both orders of the options next to its one. Next to
    models that the paper of WSC+ does not have stands what people reach.

    Args:
      task, metric: ours.
      model: what the user called it.
      protocol: ours.
      limit: of the run. Runs that have one stand next to the paper's numbers on 100 questions, and no others do.
    """
    prompt = protocol.removesuffix("_swapped").removesuffix("_options")
    of_cell = [number for number in numbers(task) if number.metric == metric]
    if benchmark_of(task) == "winoviz":
        here = {number.model for number in winoviz.published(task, model)}
        same = [number for number in of_cell if number.model in here and number.protocol == prompt]
        return next(iter(same), None)
    name = _wscplus_model(model)
    if name is None:
        return next((number for number in of_cell if number.model == PEOPLE), None)
    same = [number for number in of_cell if number.model == name and number.protocol == prompt]
    subset = [number for number in same if number.place.startswith("Figure 5")]
    return next(iter(subset if limit is not None else [number for number in same if number not in subset]), None)


def references(results: Mapping[str, Any]) -> dict[tuple[str, str], TextNumber]:
    """(task, metric) -> the number to print next to it, for all numbers of a run that have one.

    Args:
      results: what `winobench.evaluation.questions.evaluate_questions` returns, or the content of its results.json.
    """
    config = results.get("config") or {}
    protocols = results.get("protocols") or {}
    found = {}
    for task, entries in results["tasks"].items():
        if benchmark_of(task) is None:
            continue
        settings = {"model": str(config.get("model") or ""), "protocol": protocols.get(task) or ""}
        for metric in entries:
            number = reference(task, metric, **settings, limit=config.get("limit"))
            if number is not None:
                found[task, metric] = number
    return found


def _wscplus_model(model: str) -> str | None:
    """The paper's name of a model that it has."""
    prefix, _, rest = model.partition(":")
    if prefix == "recorded":
        return _WSCPLUS_MODELS.get(os.path.splitext(os.path.basename(rest))[0])
    return _WSCPLUS_MODELS.get(rest if prefix == "openai" else model)
