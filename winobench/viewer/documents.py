"""Contents that the application reads: JSON documents, the report as a page, and tables of errors.

Texts in JSON are as the run has them. The report's page has them as HTML.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from winobench.base import extensions
from winobench.base.errors import InputError
from winobench.metrics.agreement import NUM_RESAMPLES
from winobench.report import analysis, exports, page, published
from winobench.report.sections import differences, what_was_run
from winobench.report.sections.shared import ReportData
from winobench.rubrics.named_rubrics import is_outdated
from winobench.runs import image_records
from winobench.runs.examples import TERM_COLUMNS, terms_of
from winobench.runs.image_runs import read_images
from winobench.runs.judgements import VERDICT, missing_in_words, read_all, rows_of
from winobench.runs.labels import task_label
from winobench.runs.private_paths import without_paths
from winobench.runs.reading import read_run, read_runs, read_without_tables
from winobench.runs.run import OTHER_METRIC, Run, TaskRun
from winobench.runs.verdicts import judgement_of, read_verdicts
from winobench.viewer import library

Reproduce = Callable[[Run], str | None]


def run_document(
    path: str | os.PathLike, slug: str, label: str | None = None, reproduce: Reproduce = lambda run: None
) -> dict[str, Any]:
    """A run's settings and what its tables hold. Reads no whole table."""
    run = read_without_tables(path)
    notes = list(run.notes)
    tasks = {name: _task(run, record, notes) for name, record in run.tasks.items()}
    return {
        "slug": slug,
        "label": label or run.label,
        "model": run.model,
        "kind": "text" if run.is_text else "images",
        "facts": [list(fact) for fact in what_was_run.run_facts(run)],
        "command": reproduce(run),
        "notes": notes,
        "failed": dict(run.failed),
        "exports": list(library.EXPORTS),
        "tasks": tasks,
    }


def report_page(
    paths: Sequence[str | os.PathLike],
    labels: Sequence[str] | None = None,
    reproduce: Reproduce = lambda run: None,
    examples: int = page.GALLERY_EXAMPLES,
) -> str:
    """The report on runs as HTML. The first run is the baseline."""
    report_data = _report_data(paths, labels, examples)
    sections, galleries, _ = page.make_sections(report_data)
    return page.render(report_data, sections, galleries, reproduce)


def pair_document(
    first: str | os.PathLike, second: str | os.PathLike, labels: Sequence[str] | None = None
) -> dict[str, Any]:
    """Paired differences of the second run less the first one, by task, group and skill."""
    report_data = _report_data([first, second], labels, 0)
    by_row, _, notes = differences.find_differences(report_data, [(0, 1)])
    rows = [_difference(difference) for by_pair in by_row.values() for difference in by_pair.values()]
    names = [run.label for run in report_data.runs]
    return {
        "first": names[0],
        "second": names[1],
        "is_text": report_data.is_text,
        "clear_below": analysis.CLEAR_BELOW,
        "few_clusters": analysis.FEW_CLUSTERS,
        "rows": rows,
        "notes": notes,
    }


def images_document(path: str | os.PathLike, slug: str) -> dict[str, Any]:
    """A run of generated images. Of one that has not finished, the images that are there."""
    run = read_images(path, complete=False)
    written = read_verdicts(run.folder)
    # Without verdicts on images that were generated again.
    verdicts = {
        record.file: found
        for record in run.records
        if (found := written.get(record.file)) is not None and found.sha256 == record.sha256
    }
    by_judges = [judgement for judgement in read_all(run) if judgement.kind != VERDICT]
    if verdicts:
        by_judges.insert(0, judgement_of(run, verdicts))
    judged = _judged_by_others(run.folder)
    images = []
    for record in run.records:
        verdict = verdicts.get(record.file)
        thumbnail = f"{image_records.THUMBNAILS}/{record.sha256[:32]}.jpg"
        images.append(
            {
                "file": record.file,
                "thumbnail": thumbnail if (run.folder / thumbnail).is_file() else None,
                "model": record.model,
                "seed": record.seed,
                "number": record.number,
                "prompt": record.prompt.text,
                "shown": record.prompt.shown,
                "category": record.prompt.category,
                "verdict": None
                if verdict is None
                else {name: getattr(verdict, name) for name in ("correct", "found", "judge")},
                "judgements": judged.get(record.file, {}),
            }
        )
    return {
        "slug": slug,
        "status": run.config.get("status"),
        "prompts": [prompt.to_json() for prompt in run.prompts],
        "models": [dataclasses.asdict(model) for model in run.models],
        "seeds": list(run.seeds),
        "images": images,
        "missing": [
            {
                "prompt": it.prompt.text,
                **{name: getattr(it, name) for name in ("model", "seed", "number", "kind", "reason")},
            }
            for it in run.missing
        ],
        "rubrics": [
            {
                "rubric": judgement.rubric,
                "judge": judgement.who
                + (f", by version {judgement.version} of the rubric" if is_outdated(judgement) else ""),
                "wordings": list(judgement.wordings),
                "missing": judgement.num_missing,
                "no_image": [*missing_in_words(judgement).values()],
                "rows": list(rows_of(judgement)),
            }
            for judgement in by_judges
        ],
    }


def export(path: str | os.PathLike, name: str, reproduce: Reproduce = lambda run: None) -> str | bytes:
    """A run as a file for others, by the file's name, one of `winobench.viewer.library.EXPORTS`."""
    if name == "report.html":
        return report_page([path], reproduce=reproduce)
    run = without_paths(read_run(path))
    match name:
        case "results.csv":
            return run.table("csv", groups=True)
        case "results.tex":
            return run.table("latex")
        case "model-card.md":
            return exports.model_card(run, reproduce(run))
        case "eval_results.yaml":
            return exports.eval_results(run)
        case "inspect.zip":
            with tempfile.TemporaryDirectory() as folder:
                (archive,) = exports.inspect_log(run, pathlib.Path(folder) / name)
                return archive.read_bytes()
    raise InputError(
        f"{name!r:.80} is not a file of a run: choose from {', '.join(library.EXPORTS)}.", code="unknown-name"
    )


def errors_table(run: Run, task: str) -> pa.Table | None:
    """The errors behind a task's scores: a row an example, a column a term, [images or 1][texts or 1][samples].

    A sample that a race never computed is null. None where the errors are not complete.
    """
    batches = run.recorded_batches(task)
    if batches is None:
        return None
    order = np.argsort(np.concatenate([batch.rows for batch in batches]), kind="stable")
    names = [term.name for term in batches[0].terms]
    return pa.table(
        {name: pa.concat_arrays([_nested(batch.errors[name]) for batch in batches]).take(order) for name in names}
    )


def _nested(errors: np.ndarray) -> pa.Array:
    """[n, images, texts, samples] float32 as n lists."""
    found = pa.array(errors.ravel(), from_pandas=True)
    for axis in (3, 2, 1):
        ends = np.arange(0, len(found) + 1, errors.shape[axis], dtype=np.int32)
        found = pa.ListArray.from_arrays(ends, found)
    return found


def _report_data(paths: Sequence[str | os.PathLike], labels: Sequence[str] | None, examples: int) -> ReportData:
    runs = read_runs(paths)
    for run, label in zip(runs, labels or [run.label for run in runs], strict=True):
        run.label = label
    return ReportData([without_paths(run) for run in runs], resamples=NUM_RESAMPLES, seed=0, examples=examples)


def _task(run: Run, record: TaskRun, notes: list[str]) -> dict[str, Any]:
    """A task's numbers and its table. Adds a sentence to the notes where the table cannot be read."""
    rows, terms = None, None
    path = run.path / "examples" / f"{record.name}.parquet"
    if path.is_file():
        try:
            rows, terms = _looked_at(path, run.is_text)
        except (OSError, pa.ArrowException, InputError) as error:
            notes.append(f"The table of the examples of {record.name} cannot be read: {_in_one_line(error)}")
    return {
        "label": task_label(record.name),
        "metric": record.metric,
        "best": record.best,
        "shown": list(record.shown),
        # As `read_without_tables` mends them, which results.json of an older run does not have.
        "chances": {row: entry.get("chance") for row, entry in record.results.items()},
        "kind": task_kind(run, record),
        "deterministic": record.deterministic,
        "num_samples": record.num_samples,
        "timesteps": None if record.timesteps is None else record.timesteps.tolist(),
        "weights": None if record.mean.weights is None else record.mean.weights.tolist(),
        "raced": run.has_raced(record.name),
        "rows": rows,
        "has_errors": rows is not None and record.has_answers and not run.is_text and _has_parts(run),
        "has_gallery": (run.path / "gallery" / path.name).is_file(),
        "terms": terms,
        "published": [
            {
                "metric": metric,
                "value": number.value,
                "printed": number.printed,
                "model": number.model,
                "citation": published.citation(number),
                "note": number.note,
            }
            for (task, metric), number in published.references_of(run).items()
            if task == record.name
        ],
    }


def task_kind(run: Run, record: TaskRun) -> str:
    if run.is_text:
        return "text"
    if record.is_bias:
        return "bias"
    if record.is_rated:
        return "rated"
    return "other" if record.metric in (OTHER_METRIC, None) else "answers"


def _judged_by_others(folder: pathlib.Path) -> dict[str, dict[str, str]]:
    """An image's path in a run -> judge -> words, by the functions that plug in."""
    judged: dict[str, dict[str, str]] = {}
    for judgements in extensions.loaded(extensions.JUDGEMENTS).values():
        for file, words in judgements(folder).items():
            judged.setdefault(file, {}).update(words)
    return judged


def _looked_at(path: pathlib.Path, is_text: bool) -> tuple[int, list[str] | None]:
    """The number of rows of a table of examples, and what its scores are made of."""
    with pq.ParquetFile(path) as file:
        names = [name for name in TERM_COLUMNS if name in file.schema_arrow.names]
        # One row says it in tables with the first of these columns.
        size = 1 if TERM_COLUMNS[0] in names else max(1, file.metadata.num_rows)
        table = next(file.iter_batches(size, columns=names), None) if names and not is_text else None
        terms = None if table is None else terms_of(pa.Table.from_batches([table]), path)
        return file.metadata.num_rows, None if terms is None else list(terms)


def _has_parts(run: Run) -> bool:
    return any((run.path / "errors").glob("part-*.parquet"))


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _difference(difference: analysis.Difference) -> dict[str, Any]:
    return {
        "task": difference.task,
        "metric": difference.metric,
        "group": difference.group,
        "first": difference.first,
        "second": difference.second,
        "difference": difference.value,
        "low": difference.low,
        "high": difference.high,
        "p": difference.p_value,
        "only_first": difference.only_first,
        "only_second": difference.only_second,
        "n": difference.num_examples,
        "clusters": difference.clusters_apart,
        "lacks_noise": difference.lacks_noise,
    }
