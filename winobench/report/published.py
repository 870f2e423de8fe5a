"""The numbers of the papers that stand next to ours, in tables and figures."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from winobench.base import registry
from winobench.data.published_numbers import (
    GDBENCH,
    PEOPLE,
    TEXT_BENCHMARKS,
    PublishedNumber,
    numbers,
    source,
    winoviz_models,
)
from winobench.runs.run import Run

# Registry name -> name in figures, of the paper's models in our radar chart.
RADAR_MODELS = {"sd21-base": "DiffusionITM, SD 2.1", "clip-rn50x64": "CLIP RN50x64"}
_TITLES = {"sd21-base": "Stable Diffusion 2.1", PEOPLE: "people"}
# The hub ids under which the papers' authors found them. The registry names today's copies.
_SAME_CHECKPOINT = {
    "stabilityai/stable-diffusion-2-1-base": "sd21-base",
    "stabilityai/stable-diffusion-2-base": "sd20-base",
    "runwayml/stable-diffusion-v1-5": "sd15",
}
# Tasks with the published shuffles, to which the numbers belong. Tasks with ours have a note next to them.
_PUBLISHED_SHUFFLES = {f"aro_{of}_order_published": f"aro_{of}_order" for of in ("coco", "flickr")}
_PAPERS_MODEL = "sd21-base"
# Negatives of a LoRA by our training -> the paper's name of the fine-tuning.
_FINETUNINGS = {
    "none": "noneg",
    "random_text": "randneg_txt",
    "hard_text": "hardneg_txt",
    "hard_image": "hardneg_img",
    "mixed": "hardneg",
}
# WSC+'s models under the names that their runs have with us: at the API, and as recorded by the authors. Today's
# gpt-3.5-turbo is another model than the paper's.
_WSCPLUS_MODELS = {
    "gpt-4-0613": "gpt-4-0613",
    "gpt-4": "gpt-4-0613",
    "GPT4_results": "gpt-4-0613",
    "gpt-3.5-turbo-0613": "gpt-3.5-turbo-0613",
    "GPT3_results": "gpt-3.5-turbo-0613",
}


def benchmark_of(task: str) -> str | None:
    """The text benchmark of a task; None for image tasks and tasks of other packages."""
    return next((name for name in TEXT_BENCHMARKS if task.split("_")[0] == name), None)


def reference(
    task: str,
    metric: str,
    *,
    model: str,
    kind: str,
    finetuned: bool = False,
    negatives: str | None = None,
    normalize: str = "auto",
    num_samples: int | None = None,
) -> PublishedNumber | None:
    """The number of the paper to print next to one of ours.

    - Next to a baseline: the number of the same model, or none.
    - Next to a diffusion model: the number of the same model where the paper has it, otherwise of Stable Diffusion 2.1,
      for orientation. The number's ``model`` distinguishes them.
    - For image retrieval, the number with our normalisation: Diffusion Classifier for ``none``, DiffusionITM otherwise.
    - Of numbers with 10 and with 250 samples, the nearer by ratio (10 up to 49, 250 from 50 on).
    - Next to a fine-tuned model: the paper's fine-tuning with the same negatives. None where they are unknown.
    - Numbers of the published checkpoints: only with the same model and as many samples.
    """
    finetuning = _FINETUNINGS.get(negatives or "") if finetuned else None
    if finetuned and finetuning is None:
        return None
    cell = (_PUBLISHED_SHUFFLES.get(task, task), metric)
    normalizations = (None, "none" if normalize == "none" else "unconditional")
    model = _registry_name(model)
    of_cell = [
        number
        for number in _by_cell().get(cell, ())
        if number.finetuning == finetuning
        and number.normalize in normalizations
        and (not number.exactly or (number.model, number.num_samples) == (model, num_samples))
    ]
    same = [number for number in of_cell if number.model == model]
    if not same and kind == "diffusion":
        same = [number for number in of_cell if number.model == _PAPERS_MODEL]

    def distance(number: PublishedNumber) -> float:
        if number.num_samples is None:
            return 0.0
        return abs(math.log(number.num_samples / num_samples)) if num_samples else -number.num_samples

    nearest = min(same, key=distance, default=None)
    return dataclasses.replace(nearest, task=task, note="") if nearest and task in _PUBLISHED_SHUFFLES else nearest


def text_reference(
    task: str, metric: str, *, model: str, protocol: str, limit: int | None = None
) -> PublishedNumber | None:
    """The number of a text benchmark's paper to print next to one of ours: the same model by the same prompt.

    Option scores stand next to the paper's generated answers, and both orders of the options next to its one. People's
    number stands next to models that the paper of WSC+ does not have.
    """
    prompt = protocol.removesuffix("_swapped").removesuffix("_options")
    of_cell = [number for number in numbers_of_task(task) if number.metric == metric]
    if benchmark_of(task) == "winoviz":
        return next((n for n in of_cell if _is_winoviz_model(n.model or "", model) and n.protocol == prompt), None)
    name = _wscplus_model(model)
    if name is None:
        return next((number for number in of_cell if number.model == PEOPLE), None)
    same = [number for number in of_cell if number.model == name and number.protocol == prompt]
    return next((n for n in same if n.table.startswith("Figure 5") == (limit is not None)), None)


def references(results: Mapping[str, Any], *, of_others: bool = False) -> dict[tuple[str, str], PublishedNumber]:
    """(task, metric) -> the number of the same model to print next to it, for the content of ``results.json``.

    The scorer's fingerprint and the config give the model, its kind and its number of samples. With ``of_others`` the
    numbers are of another model, or of people, where the paper lacks the model. They belong into their own rows.
    """
    model = _registry_name(str((results.get("config") or {}).get("model") or ""))
    return {
        key: number for key, number in _nearest_references(results).items() if _is_of_other(number, model) == of_others
    }


def _is_of_other(number: PublishedNumber, model: str) -> bool:
    if number.paper in TEXT_BENCHMARKS:
        return number.model == PEOPLE
    return number.model != model


def _nearest_references(results: Mapping[str, Any]) -> dict[tuple[str, str], PublishedNumber]:
    """As `references`, of the same model or of another one."""
    config = results.get("config") or {}
    model = str(config.get("model") or "")
    numbers: dict[tuple[str, str], PublishedNumber | None] = {}
    if "protocols" in results:
        protocols = results["protocols"] or {}
        settings: dict[str, Any] = {"model": model, "limit": config.get("limit")}
        for task, entries in results["tasks"].items():
            settings["protocol"] = protocols.get(task) or ""
            if benchmark_of(task) is not None:
                numbers |= {(task, metric): text_reference(task, metric, **settings) for metric in entries}
    else:
        scorer = (results.get("versions") or {}).get("scorer") or {}
        settings = {
            "model": model,
            "kind": "diffusion" if scorer.get("scorer") == "diffusion_itm" else "baseline",
            "finetuned": bool(config.get("lora")),
            "negatives": (scorer.get("lora") or {}).get("negatives"),
            "normalize": config.get("normalize") or "auto",
            "num_samples": (config.get("sampling") or {}).get("num_samples"),
        }
        numbers = {
            (task, metric): reference(task, metric, **settings)
            for task, entries in results["tasks"].items()
            for metric, entry in entries.items()
            if not entry.get("left_out")  # an average over other pairs of groups
        }
    return {key: number for key, number in numbers.items() if number is not None}


_REFERENCES: weakref.WeakKeyDictionary[Run, Mapping[tuple[str, str], PublishedNumber]] = weakref.WeakKeyDictionary()


def references_of(run: Run) -> Mapping[tuple[str, str], PublishedNumber]:
    """(task, metric) -> the published number to print next to it. Found once for each run."""
    if run not in _REFERENCES:
        _REFERENCES[run] = references(run.results)
    return _REFERENCES[run]


def sources(runs: Sequence[Run]) -> list[dict[str, str]]:
    """The papers whose numbers stand next to the runs' numbers."""
    if runs[0].is_text:
        papers = [benchmark_of(task) for run in runs for task in run.tasks]
    else:
        papers = [GDBENCH, *(number.paper for run in runs for number in references_of(run).values())]
    return [source(paper) for paper in dict.fromkeys(papers) if paper is not None]


def numbers_of_runs(runs: Sequence[Run], task: str, metric: str) -> list[PublishedNumber]:
    """The numbers to print next to the runs' numbers, each once."""
    found = [references_of(run).get((task, metric)) for run in runs]
    return list(dict.fromkeys(number for number in found if number is not None))


def numbers_of_task(task: str) -> list[PublishedNumber]:
    """All numbers of a task in Tables 1 and 2 and of the checkpoints, in the order of print. All of a text task."""
    found = numbers(task=task)
    if benchmark_of(task) is not None:
        return [number for number in found if number.unit == "percent" and number.model is not None]
    return [number for number in found if number.table[0] in "12" or number.exactly]


def value_of(task: str, metric: str, model: str) -> float | None:
    """Table 1's number of a model as released, normalised where images compete. In [0, 1]."""
    for number in numbers(task=task, metric=metric, model=model, finetuning=None):
        if number.table[0] == "1" and number.normalize in (None, "unconditional"):
            return number.value
    return None


def columns(tables: Sequence[str], task: str) -> list[str]:
    """The methods that have numbers of a task in some tables, in the order of print."""
    return list(dict.fromkeys(number.method for number in numbers(task=task) if number.table in tables))


def cell(tables: Sequence[str], task: str, metric: str, method: str) -> PublishedNumber | None:
    """The number of a task's metric and a method in some tables."""
    found = numbers(task=task, metric=metric, method=method)
    return next((number for number in found if number.table in tables), None)


def notes(tables: Sequence[str], task: str) -> dict[str, list[str]]:
    """Caveat of numbers of a task in some tables -> their metrics."""
    return _by_note((number, number.metric) for number in numbers(task=task) if number.table in tables)


def notes_of_runs(runs: Sequence[Run], tasks: Sequence[str]) -> dict[str, list[str]]:
    """Caveat of the numbers next to the runs' numbers -> their tasks."""
    quoted = (item for run in runs for item in references_of(run).items())
    return _by_note((number, task) for (task, _), number in quoted if task in tasks)


def _by_note(named: Iterable[tuple[PublishedNumber, str]]) -> dict[str, list[str]]:
    found: dict[str, dict[str, None]] = {}
    for number, name in named:
        if number.note:
            found.setdefault(number.note, {})[name] = None
    return {note: list(names) for note, names in found.items()}


def title(number: PublishedNumber) -> str:
    """The name of the row of another model's number."""
    name = number.model or ""
    return f"{_TITLES.get(name, name)} (paper)"


def citation(number: PublishedNumber) -> str:
    """Method and place: ``DiffusionITM (Ours), Table 1a``."""
    return f"{number.method}, {number.place}"


@functools.cache
def _by_cell() -> dict[tuple[str | None, str], list[PublishedNumber]]:
    """(task, metric) -> its numbers, in the order of print."""
    found: dict[tuple[str | None, str], list[PublishedNumber]] = {}
    for number in numbers():
        found.setdefault((number.task, number.metric), []).append(number)
    return found


def _registry_name(model: str) -> str:
    if model in registry.MODELS:
        return model
    of_source = {entry.source: name for name, entry in registry.MODELS.items()}
    return of_source.get(model) or _SAME_CHECKPOINT.get(model, model)


def _is_winoviz_model(short: str, name: str) -> bool:
    """Whether a name, a hub id, or a hosted model's name after its provider belongs to the model."""
    names = {one.lower() for one in (short, *winoviz_models()[short])}
    name = name.lower()
    short_names = names | {one.split("/")[-1] for one in names}
    return not short_names.isdisjoint((name, name.rsplit(":", 1)[-1], name.rsplit("/", 1)[-1]))


def _wscplus_model(model: str) -> str | None:
    """The paper's name of a model that it has."""
    prefix, _, rest = model.partition(":")
    if prefix == "recorded":
        return _WSCPLUS_MODELS.get(os.path.splitext(os.path.basename(rest))[0])
    return _WSCPLUS_MODELS.get(rest if prefix == "openai" else model)
