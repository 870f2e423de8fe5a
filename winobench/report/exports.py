"""Results for other programs: tables, parts of model cards, metadata of the Hugging Face hub, formats that plug in."""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from winobench.base import extensions, files, options, text_tables
from winobench.base.errors import InputError

if TYPE_CHECKING:
    from winobench.runs.run import Run

MODEL_CARD, EVAL_RESULTS, INSPECT, PARQUET = "model-card", "eval-results", "inspect", "parquet"
_OWN = (*text_tables.FILE_FORMATS, PARQUET, MODEL_CARD, EVAL_RESULTS)
FORMATS = tuple(dict.fromkeys([*_OWN, *extensions.added(extensions.EXPORTS)]))

# Of the hub, for tasks with images and without.
_PIPELINE_TAGS = {False: "zero-shot-image-classification", True: "question-answering"}
# A data set on the hub.
_DATASET = re.compile(r"[\w.-]+/[\w.-]+")


def export(
    runs: Sequence[Run],
    format: str,
    out: str | os.PathLike | None = None,
    *,
    groups: bool = False,
    dataset: str | None = None,
    reproduce: Callable[[Run], str | None] = lambda run: None,
) -> str | None:
    """Writes runs to a file or, for logs, a folder. Returns the text instead without ``out``."""
    text_tables.check_format(format, FORMATS)
    if dataset is not None and format != EVAL_RESULTS:
        raise InputError(
            f"a data set of the hub is for the format {EVAL_RESULTS}: leave it out.", code="option-of-others"
        )
    plugs_in = format not in _OWN
    path = None if out is None else pathlib.Path(files.user_path(out))
    if path is None and (plugs_in or format == PARQUET):
        what = "a folder" if plugs_in else "a file"
        raise InputError(f"{format} is not text: name {what} with --out.", code="nothing-named")
    runs = [_public(run) for run in runs]
    if plugs_in:
        for run in runs:
            extensions.find(extensions.EXPORTS, format)(run, path)
        return None
    if format == PARQUET and path is not None:
        _write_parquet(runs, path, groups)
        return None
    text = _text(runs, format, groups, dataset, reproduce)
    if path is None:
        return text
    with files.writing(path):
        files.write_text(path, text)
    return None


def inspect_log(run: Run, path: str | os.PathLike) -> list[pathlib.Path]:
    """Writes a run as logs of ``inspect_ai``, which ``inspect view`` opens.

    A log has a sample an example: the question, the candidates as choices, the target, right or wrong under each
    metric, and the model's words. Scores of candidates and SHA-256 of images are in the metadata. A task that failed
    gives a log with its error.

    Args:
      run: a finished run of any kind.
      path: a folder for the logs, or a file whose name ends with ``.zip`` for an archive of them.

    Returns:
      The paths of the logs, or of the archive.

    Raises:
      InputError: inspect_ai is not installed (``missing-package``), or the path cannot be written (``cannot-write``).
    """
    return extensions.find(extensions.EXPORTS, INSPECT)(run, path)


def _public(run: Run) -> Run:
    from winobench.runs.private_paths import without_paths

    return without_paths(run)


def _text(
    runs: Sequence[Run], format: str, groups: bool, dataset: str | None, reproduce: Callable[[Run], str | None]
) -> str:
    if format == MODEL_CARD:
        return "\n".join(model_card(run, reproduce(run)) for run in runs)
    if format == EVAL_RESULTS:
        if len(runs) > 1:
            raise InputError(f"{format} is of one run, and {len(runs)} are named: name one.", code="too-many-runs")
        return eval_results(runs[0], dataset)
    from winobench.runs import run_tables

    return run_tables.results_table(runs, cast(text_tables.TableFormat, format), groups)


def _write_parquet(runs: Sequence[Run], path: pathlib.Path, groups: bool) -> None:
    import pyarrow as pa

    from winobench.runs import records, run_tables

    rows, columns = run_tables.records_of(runs, groups)
    kinds = {"value": pa.float64(), "low": pa.float64(), "high": pa.float64(), "chance": pa.float64()}
    kinds |= {"n": pa.int64(), "independent": pa.int64(), "ties": pa.int64(), "too_few": pa.bool_()}
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in columns])
    records.write_table(path, pa.Table.from_pylist(rows, schema))


def model_card(run: Run, command: str | None = None) -> str:
    """A part of a model card, in Markdown: the numbers, how they were measured, and whom to cite.

    Args:
      run: a finished run of any kind.
      command: repeats the run.

    Returns:
      Sections from the level ``##`` on, with a line end. Everything from the run is escaped.
    """
    from winobench.base.version import __version__
    from winobench.report import published
    from winobench.report.sections.tasks import notes_of
    from winobench.report.sections.what_was_run import run_facts

    run = _public(run)
    command = options.instance("a text", str).or_none().check("command", command, "wrong-type")
    escaped = text_tables.escape_markdown
    kind = "understanding of texts" if run.is_text else "understanding of images and texts"
    parts = [
        "## Evaluation with winobench",
        f"{escaped(run.label)}: {kind}, on {len(run.tasks):,} task{'s' * (len(run.tasks) != 1)}. The intervals are"
        " 95% intervals. Chance is the value of a guess, and n the number of examples. At least as many of these as"
        f" the column independent says {'belong to no common pair' if run.is_text else 'share no image'}.",
        run.table("markdown").rstrip("\n"),
        "\n".join(f"- {escaped(note)}" for note in notes_of(run, list(run.tasks), several=False)),
        "### How it was measured",
        text_tables.write_table(
            "markdown", ["setting", "value"], [fact for fact in run_facts(run) if fact[0] != "folder"], texts=2
        ).rstrip("\n"),
    ]
    if command:
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", command)), default=0))
        version = (run.config.get("versions") or {}).get("winobench") or {}
        install = f"pip install winobench=={version.get('version') or __version__}"
        parts += ["To repeat it:", f"{fence}bash\n{install}\n{command}\n{fence}"]
    parts += ["### Citation", "\n".join(f"- {escaped(_citation(paper))}" for paper in published.sources([run]))]
    return "\n\n".join(filter(None, parts)) + "\n"


def _citation(paper: dict[str, str]) -> str:
    arxiv = f"arXiv:{paper['arxiv']}" if paper.get("arxiv") else None
    return ", ".join(filter(None, [paper["authors"], f"“{paper['title']}”", paper.get("venue"), arxiv])) + "."


def eval_results(run: Run, dataset: str | None = None) -> str:
    """The numbers as YAML for the Hugging Face hub, made by ``huggingface_hub``.

    Args:
      run: a finished run of any kind. Tasks that failed, and rows of sub-tasks, are left out.
      dataset: the id of a benchmark on the hub whose ``eval.yaml`` has the run's tasks by their names.

    Returns:
      The field ``model-index`` of a model card's metadata. It needs no benchmark on the hub. With ``dataset``, a file
      for the model's folder ``.eval_results``, with each task's first row. Values equal ``results.json``.

    Raises:
      InputError: ``dataset`` is not of the form OWNER/NAME (``bad-name``).
    """
    import huggingface_hub

    run = _public(run)
    date = str(run.config.get("started") or "")
    if dataset is None:
        results = [result for task in run.tasks for result in _of_task(run, task)]
        return huggingface_hub.ModelCardData(model_name=run.label, eval_results=results).to_yaml() + "\n"
    if not isinstance(dataset, str) or not _DATASET.fullmatch(dataset):
        raise InputError(
            f"the data set {options.quote(dataset)} is not OWNER/NAME: name one of the hub.", code="bad-name"
        )
    entries = []
    for name, record in run.tasks.items():
        row = next((row for row in record.shown if row in record.results), None)
        if row is not None:
            entry = record.results[row]
            notes = f"winobench, {row}, 95% interval {entry['low']:.4g} to {entry['high']:.4g}, n {entry['n']:,}"
            entries.append(
                huggingface_hub.EvalResultEntry(dataset, name, entry["value"], date=date or None, notes=notes)
            )
    return huggingface_hub.utils.yaml_dump(huggingface_hub.eval_result_entries_to_yaml(entries), sort_keys=False)


def _of_task(run: Run, task: str) -> list[Any]:
    import huggingface_hub

    from winobench.report.wording import readable
    from winobench.runs.labels import task_label

    return [
        huggingface_hub.EvalResult(
            task_type=_PIPELINE_TAGS[run.is_text],
            dataset_type=f"winobench-{task}",
            dataset_name=task_label(task),
            metric_type=name,
            metric_name=readable(name),
            metric_value=entry["value"],
            metric_args={
                key: entry[key] for key in ("low", "high", "chance", "n", "independent") if entry.get(key) is not None
            },
        )
        for name, entry in run.tasks[task].results.items()
        if "/" not in name
    ]
