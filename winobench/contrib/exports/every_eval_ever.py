"""Runs in the form of Every Eval Ever, a shared format of evaluation results, schema 0.3.0.

Source of the form: ``eval.schema.json`` and ``instance_level_eval.schema.json`` of evaleval/every_eval_ever on GitHub.
A run is one JSON file, and a JSON Lines file with a line an example and metric.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import re
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from winobench.base import files, registry
from winobench.base.version import __version__
from winobench.contrib.exports.inspect_logs import encodable, matching_question, moment, run_key
from winobench.metrics.association import AVERAGE
from winobench.report.wording import readable
from winobench.runs.examples import Examples, Questions
from winobench.runs.labels import task_label
from winobench.runs.private_paths import without_paths
from winobench.runs.rows import rows_of
from winobench.runs.run import Run, TaskRun
from winobench.tasks import TASKS, TEXT_TASKS

SCHEMA_VERSION = "0.3.0"
_COLLECTION = "winobench"  # folder of the format's repository
_UNKNOWN = "unknown"
# Names that some systems refuse for a folder, and the format's own one.
_RESERVED = {
    "data",
    "con",
    "prn",
    "aux",
    "nul",
    *(f"{port}{number}" for port in ("com", "lpt") for number in range(10)),
}
_UNBOUNDED = "Infinity"
# Fields of an entry of the results that are not among the details.
_PLACED = ("value", "low", "high", "n")


def write(run: Run, path: str | os.PathLike) -> list[pathlib.Path]:
    """Writes a run into ``data/winobench/<developer>/<model>`` of a folder.

    Args:
      run: a finished run of any kind. Examples of bias tasks and of rated tasks are neither right nor wrong, and have
        no lines.
      path: the folder.

    Returns:
      The paths of the results and, if the run has examples, of their lines. The same run has the same names.

    Raises:
      InputError: the path cannot be written (``cannot-write``).
    """
    root, run = pathlib.Path(files.user_path(path)), without_paths(run)
    model, key = _model_info(run), run_key(run)
    started = str(int(moment(run.config.get("started")).timestamp()))
    about = {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": f"{_COLLECTION}-{key[:8]}/{model['id']}/{started}",
    }
    name = uuid.UUID(bytes=bytes.fromhex(key)[:16], version=4)
    developer, _, rest = model["id"].partition("/")
    folder = pathlib.PurePosixPath("data", _COLLECTION, _part(developer), _part(rest))
    aggregate = {
        **about,
        "evaluation_timestamp": started,
        "retrieved_timestamp": str(int(time.time())),
        "source_metadata": _source(run),
        "eval_library": _library(run),
        "model_info": model,
        "evaluation_results": [_result(run, record, row) for record in run.tasks.values() for row in record.results],
    }
    lines = folder / f"{name}_samples.jsonl"
    paths = [root / folder / f"{name}.json"]
    with files.writing(root):
        paths[0].parent.mkdir(parents=True, exist_ok=True)
        count, checksum = _write_lines(root / lines, run, {**about, "model_id": model["id"]})
        if count:
            paths.append(root / lines)
            aggregate["detailed_evaluation_results"] = {
                "format": "jsonl",
                "file_path": str(lines),
                "hash_algorithm": "sha256",
                "checksum": checksum,
                "total_rows": count,
            }
        else:
            os.unlink(root / lines)
        files.write_json(paths[0], aggregate)
    return paths


def _part(text: str) -> str:
    """A text as a folder's name."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-.") or _UNKNOWN
    return f"{name}-model" if name.partition(".")[0].lower() in _RESERVED else name


def _strings(values: Mapping[str, Any]) -> dict[str, str]:
    """Values as the format's details: all of them texts."""
    return {
        name: encodable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for name, value in values.items()
        if value is not None
    }


def _source(run: Run) -> dict[str, Any]:
    source = {
        "source_name": "winobench",
        "source_type": "evaluation_run",
        "source_organization_name": _UNKNOWN,
        "evaluator_relationship": "other",
    }
    details = _strings({"label": run.label, "failed_tasks": dict(run.failed) or None})
    return source | {"additional_details": details}


def _library(run: Run) -> dict[str, Any]:
    versions = run.config.get("versions") or {}
    own = versions.get("winobench") or {}
    details = {"commit": own.get("commit"), "python": versions.get("python"), "libraries": versions.get("libraries")}
    version = str(own.get("version") or __version__)
    return {"name": "winobench", "version": version, "additional_details": _strings(details)}


def _model_info(run: Run) -> dict[str, Any]:
    """The model by its hub id, as far as its name tells. LoRAs and other settings are with the results."""
    name = str(run.config.get("model") or run.model)
    stated = (run.config.get("config") or {}).get("model")
    named = stated if isinstance(stated, str) else name
    api, deployment, availability = registry.api_of(named), "self_deployed", _UNKNOWN
    if api is not None:
        deployment, model_id = "externally_managed", f"{api}/{registry.ModelRef(named, registry.HOSTED, named).title}"
    elif named in registry.MODELS:
        source, availability = registry.MODELS[named].source, "open_weights"
        model_id = source if registry.HUB_ID.fullmatch(source) else f"winobench/{named}"
    elif registry.HUB_ID.fullmatch(named) and not os.path.isdir(named):
        model_id = named
    else:
        deployment = _UNKNOWN if named.startswith(f"{registry.RECORDED}:") else deployment
        model_id = f"{_UNKNOWN}/{registry.model_label(name)}"
    details = {"deployment_type": deployment, "model_availability": availability}
    return {
        "name": encodable(name),
        "id": encodable(model_id),
        "developer": model_id.partition("/")[0],
        "additional_details": details | _strings({"weights": run.config.get("weights")}),
    }


def _result(run: Run, record: TaskRun, row: str) -> dict[str, Any]:
    """A row of a task's results."""
    entry, (group, _, metric) = record.results[row], row.rpartition("/")
    identity = run.config["identity"]
    settings = {name: value for name, value in identity.items() if name != "tasks"}
    uncertainty = {
        "confidence_interval": {"lower": entry["low"], "upper": entry["high"], "confidence_level": 0.95},
        "num_samples": entry["n"],
    }
    details = {name: value for name, value in entry.items() if name not in _PLACED}
    return {
        "evaluation_result_id": f"{record.name}/{row}",
        "evaluation_name": ".".join(filter(None, (_COLLECTION, record.name, group))),
        "source_data": _data(record),
        "metric_config": _metric(record, row, metric),
        "score_details": {"score": entry["value"], "details": _strings(details), "uncertainty": uncertainty},
        "generation_config": {"additional_details": _strings(settings)},
    }


def _data(record: TaskRun) -> dict[str, Any]:
    task = TASKS.get(record.name) or TEXT_TASKS.get(record.name)
    details = {
        "version": record.identity.get("version"),
        "fingerprint": record.identity.get("data"),
        "paper": None if task is None else task.paper,
        "licence": None if task is None else task.licence,
    }
    place: dict[str, Any] = {"source_type": "other"}
    if task is not None and task.url:
        place = {"source_type": "url", "url": [task.url]}
    return {"dataset_name": task_label(record.name), **place, "additional_details": _strings(details)}


def _metric(record: TaskRun, row: str, metric: str) -> dict[str, Any]:
    """A metric with its bounds. Shares of right answers lie between 0 and 1, agreement with people from -1 on."""
    low, high, unit = (
        (-1 if record.is_rated else 0),
        1,
        "correlation or proportion" if record.is_rated else "proportion",
    )
    is_lower_better = record.best < 1
    about = f"{readable(metric)} of {task_label(record.name)}"
    if record.is_bias:
        low, high, unit = (0 if row == AVERAGE else f"-{_UNBOUNDED}"), _UNBOUNDED, "standard deviations"
        about += ". 0 means no bias, and a sign says towards which group"
        is_lower_better = True
    return {
        "evaluation_description": about,
        "metric_id": metric if metric == "accuracy" else f"{_COLLECTION}.{metric}",
        "metric_name": readable(metric),
        "metric_unit": unit,
        "lower_is_better": is_lower_better,
        "score_type": "continuous",
        "min_score": low,
        "max_score": high,
    }


def _write_lines(path: pathlib.Path, run: Run, about: Mapping[str, str]) -> tuple[int, str]:
    """Writes the examples' lines. Returns how many there are, and the file's SHA-256."""
    count, sha256 = 0, hashlib.sha256()
    with files.atomic_path(path) as temporary, open(temporary, "wb") as file:
        for record in run.tasks.values():
            for line in _lines(record):
                text = json.dumps({**about, **line}, ensure_ascii=False, allow_nan=False).encode("utf-8") + b"\n"
                file.write(text)
                sha256.update(text)
                count += 1
    return count, sha256.hexdigest()


def _lines(record: TaskRun) -> Iterator[dict[str, Any]]:
    """A line an example and metric, without groups and metrics that weigh examples or ask for two at once."""
    examples = record.examples
    if examples is None or not record.has_answers:
        return
    count = len(examples.ids)
    rows = [row for row in rows_of(record) if row.name in record.results and "/" not in row.name]
    rows = [row for row in rows if row.strata is None and np.array_equal(row.members, np.arange(count))]
    for number, name in enumerate(examples.ids):
        answered = _question(examples, number) if isinstance(examples, Questions) else _example(examples, number)
        asked = {"raw": answered["input"]["raw"], "reference": answered["input"]["reference"]}
        metadata = {"task": record.name, "groups": list(examples.groups[number]) or None, **answered.pop("metadata")}
        for row in rows:
            right = bool(row.correct[number])
            yield {
                "evaluation_name": f"{_COLLECTION}.{record.name}",
                "evaluation_result_id": f"{record.name}/{row.name}",
                "sample_id": encodable(name),
                "sample_hash": files.digest(asked),
                "interaction_type": "single_turn",
                **answered,
                "evaluation": {"score": float(right), "is_correct": right},
                "metadata": _strings(metadata),
            }


def _question(questions: Questions, number: int) -> dict[str, Any]:
    """A question of a text task. The answer is the model's text, or the option with the highest score."""
    options = [encodable(option) for option in questions.options[number]]
    target, choice = questions.targets[number], questions.choices[number]
    responses = [encodable(text) for text in questions.responses[number] if text is not None]
    scores = questions.scores[number].ravel().tolist()
    raw = "\n".join(f"{encodable(name)}: {encodable(text)}" for name, text in questions.named[number].items())
    return {
        "input": {"raw": raw, "reference": [] if target is None else [options[target]], "choices": options or None},
        "output": {"raw": responses or [json.dumps(scores)]},
        "answer_attribution": _attribution(
            None if choice is None else options[choice], "regex" if responses else "highest_score"
        ),
        "metadata": {
            "pair": questions.pairs[number],
            "images": list(questions.question_images[number]) or None,
            "scores": scores or None,
        },
    }


def _example(examples: Examples, number: int) -> dict[str, Any]:
    """Images and texts that are matched. The answer is the candidate with the highest score."""
    scores, target = examples.scores[number], examples.targets[number]
    labels = [f"image {image}" for image in examples.images[number]]
    texts = [encodable(text) for text in examples.texts[number]]
    candidates, answer, question = (texts if len(texts) > 1 else labels), None, matching_question(labels, texts)
    if target is None:
        reference = [f"{label}: {text}" for label, text in zip(labels, texts, strict=False)]
    else:
        reference, flat, question = [candidates[target]], scores.ravel(), f"{question} {'; '.join(candidates)}"
        answer = candidates[int(flat.argmax())] if np.sum(flat == flat.max()) == 1 else None
    return {
        "input": {
            "raw": question,
            "reference": reference,
            "choices": None if target is None else candidates,
        },
        "output": {"raw": [json.dumps(scores.tolist())]},
        "answer_attribution": _attribution(answer, "highest_score"),
        "metadata": {"images": list(examples.images[number]), "texts": texts},
    }


def _attribution(answer: str | None, method: str) -> list[dict[str, Any]]:
    """How the answer was read from the output. Empty without an answer."""
    if answer is None:
        return []
    return [
        {
            "turn_idx": 0,
            "source": "output.raw",
            "extracted_value": answer,
            "extraction_method": method,
            "is_terminal": True,
        }
    ]
