"""The runs' settings, and their results in a sentence a run."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from typing import Any

from winobench.report.sections.shared import ReportData
from winobench.report.wording import DASH, above_chance, percent, spread_of
from winobench.runs.endings import incomplete_lines
from winobench.runs.labels import shortened, task_label
from winobench.runs.run import Run, TaskRun

# Parts of a model's description that stand elsewhere or are for machines alone.
_NO_SETTINGS = (
    *("scorer", "responder", "api", "scoring_version", "version", "model", "recorded", "ends", "start"),
    *("tokenizer", "chat_template"),
)


_LONGEST_SETTING = 80  # letters


def run_facts(run: Run) -> list[tuple[str, str]]:
    """(name, value) lines on a run and its settings."""
    identity, versions = run.config["identity"], run.config.get("versions") or run.results.get("versions") or {}
    scorer, software = identity.get("scorer") or {}, versions.get("winobench") or {}
    device = versions.get("device") or {}
    facts = [("model", run.model)]
    if scorer:
        kind = scorer.get("scorer") or scorer.get("responder") or scorer.get("api")
        if kind:
            facts.append(("scorer" if "scorer" in scorer else "model's kind", str(kind)))
        described = [
            f"{name.replace('_', ' ')} {_shown(value)}"
            for name, value in scorer.items()
            if name not in _NO_SETTINGS and value is not None and not isinstance(value, dict)
        ]
        if described:
            facts.append(("settings", ", ".join(described)))
        # A hosted model has a name here, and no countable weights.
        if re.fullmatch(r"[0-9a-f]{64}", str(scorer.get("model") or "")):
            facts.append(("weights", f"SHA-256 {str(scorer['model'])[:16]}…"))
    if run.is_text:
        facts += [("protocol", _protocol_text(run)), *_images(run)]
    else:
        facts.append(("samples a pair", _samples_text(run)))
        facts.append(("normalisation", str(identity.get("normalize", "unknown"))))
    if identity.get("limit") is not None:
        facts.append(("limit", f"{identity['limit']:,} {'items' if run.is_text else 'scenes or items'} a task"))
    facts.append(("started", _date(run.config.get("started"))))
    if run.results.get("passes") is not None:
        computed = run.results.get("computed_passes")
        text = f"{run.results['passes']:,}"
        facts.append(("passes", text if computed is None else f"{text}, of which the last call computed {computed:,}"))
    if race := run.results.get("race"):
        fewer = race["fixed_passes"] / race["passes"]
        facts.append(("race", f"{fewer:.1f} times fewer passes than the {race['fixed_passes']:,} of all samples"))
    facts += _asked(run.results) if run.is_text else []
    if run.results.get("seconds") is not None:
        facts.append(("time", _duration(run.results["seconds"])))
    if device:
        facts.append(("device", f"{device.get('count', 1)} x {device.get('kind', 'unknown')}"))
    if software:
        commit = str(software.get("commit") or "")[:10]
        dirty = " with changes" if software.get("dirty") else ""
        facts.append(("winobench", f"{software.get('version')}{f', commit {commit}{dirty}' if commit else ''}"))
    libraries = versions.get("libraries") or {}
    if libraries:
        shown = [f"{name} {libraries[name]}" for name in ("jax", "flax", "numpy", "transformers") if name in libraries]
        facts.append(("libraries", ", ".join([f"Python {versions.get('python')}", *shown])))
    if run.config.get("status") != "finished":
        facts.append(("status", str(run.config.get("status"))))
    facts.append(("folder", run.path.resolve().name))
    return facts


def summary_sentences(report_data: ReportData) -> list[str]:
    """The main result of each run in a sentence."""
    sentences = []
    for run in report_data.runs:
        entries = [
            (task, metric, record.results[metric]["value"], _distances(record, metric))
            for task, record in run.tasks.items()
            for metric in record.shown
            if record.has_answers and metric in record.results and record.results[metric]["chance"] is not None
        ]
        if not entries:
            continue
        above = sum(least > 0 for *_, (_, least) in entries)
        clearest = max(entries, key=lambda entry: entry[-1][0])
        weakest = min(entries, key=lambda entry: entry[-1][0])
        text = f"{run.label} is above chance on {above} of {len(entries)} measures"
        if clearest is not weakest:
            text += (
                f", furthest on {report_data.measure(*clearest[:2])} ({percent(clearest[2])}%) and least on "
                f"{report_data.measure(*weakest[:2])} ({percent(weakest[2])}%)"
            )
        sentences.append(text + ".")
    return sentences


def _shown(value: Any) -> str:
    """A setting in one line: a prompt may be a page long."""
    text = DASH.join(map(str, value)) if isinstance(value, list) else str(value)
    return shortened(" ".join(text.split()), _LONGEST_SETTING)


def _protocol_text(run: Run) -> str:
    """One protocol, or each task's where they differ."""
    by_task = run.config["identity"]["protocol"]
    if len(set(by_task.values())) == 1:
        return next(iter(by_task.values()))
    return ", ".join(f"{name} for {task_label(task)}" for task, name in by_task.items())


def _images(run: Run) -> list[tuple[str, str]]:
    """The origin of the images, and the writer of their captions."""
    records = [record.examples for record in run.tasks.values()]
    counts = [len(images) for examples in records for images in getattr(examples, "question_images", ()) if images]
    if not counts:
        return []
    launched = run.config.get("config") or {}
    folder = launched.get("images") or launched.get("pictures")  # the older name
    whose = folder or launched.get("generator") or launched.get("drawer")
    whose = f", {'from' if folder else 'generated by'} {whose}" if whose else ""
    facts = [("images", f"{spread_of(set(counts))} a question{whose}")]
    if "captioner" in run.config["identity"]:
        facts.append(("captions", str(launched.get("captioner") or run.config["identity"]["captioner"])))
    return facts


def _asked(results: Mapping[str, Any]) -> list[tuple[str, str]]:
    """A language model's requests, tokens and cost."""
    facts = [("requests", f"{results['requests']:,}, of which the last call made {results['asked']:,}")]
    if results.get("failed_calls"):
        calls = results["failed_calls"]
        left_out = "1 question is" if calls["questions"] == 1 else f"{calls['questions']:,} questions are"
        facts.append(("failed calls", f"{calls['requests']:,}; {left_out} left out"))
    facts += [("incomplete answers", line) for line in incomplete_lines(results)]
    tokens = results.get("tokens") or {}
    counts = [
        f"{tokens[name]:,} {verb}" for name, verb in (("input", "read"), ("output", "written")) if tokens.get(name)
    ]
    if counts:
        facts.append(("tokens", ", ".join(counts)))
    if results.get("cost") is not None:
        facts.append(("cost", f"${results['cost']:,.4f}"))
    return facts


def _distances(record: TaskRun, metric: str) -> tuple[float, float]:
    """How far a row is above chance, and how far its interval is at least."""
    entry = record.results[metric]
    value, *ends = (above_chance(entry[key], entry["chance"], record.best) for key in ("value", "low", "high"))
    return value, min(ends)


def _samples_text(run: Run) -> str:
    by_count: dict[str, list[str]] = {}
    for task, record in run.tasks.items():
        counted = "unknown" if record.num_samples is None else str(record.num_samples)
        text = "none needed" if record.deterministic else counted
        by_count.setdefault(text, []).append(task_label(task))
    text, *others = sorted(by_count, key=lambda count: -len(by_count[count]))
    for other in others:
        text += f" ({other} for {', '.join(by_count[other])})"
    sampling = run.config["identity"].get("sampling") or {}
    if sampling.get("mode") == "race":
        text = f"up to {text}, until a question is decided (alpha {sampling.get('alpha')})"
    if sampling and text != "none needed":
        rule = sampling.get("timesteps")
        text += f", timesteps {rule if isinstance(rule, str) else 'as given'}, seed {sampling.get('seed')}"
    return text


def _date(text: str | None) -> str:
    if not text:
        return "unknown"
    try:
        moment = datetime.datetime.fromisoformat(text).astimezone(datetime.UTC)
    except (ValueError, OverflowError, TypeError):  # the first year in another zone may be none here
        return str(text)
    return f"{moment.day} {moment:%B %Y, %H:%M} UTC"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"
