"""Writes the results of runs for other programs: winobench export RUN [RUN ...] --format=latex"""

from __future__ import annotations

from absl import flags

from winobench.base.errors import InputError
from winobench.report import exports

from . import configuration, output, reproduce

USAGE = """
Writes the results of finished runs of winobench eval for papers, model cards and other programs. It reads what the runs
have recorded, without a model or a device. Texts go to the terminal where no --out is named.

  winobench export runs/a                                     the table as CSV
  winobench export runs/a runs/b --format=latex --out=t.tex   two runs side by side, for the package booktabs
  winobench export runs/a --format=markdown --groups          with the rows of sub-tasks
  winobench export runs/a runs/b --format=parquet --out=t.parquet
  winobench export runs/a --format=model-card                 a part of a model card: numbers, command, citations
  winobench export runs/a --format=eval-results               metadata for a model card on the Hugging Face hub
  winobench export runs/a --format=inspect --out=logs         a log a task for inspect_ai: inspect view --log-dir=logs
  winobench export runs --format=every_eval_ever --out=shared       results and answers in a shared format

The words are folders of runs, or folders that hold runs. Of several runs, those that are not finished evaluations are
skipped with a line each.

docs/howto/share_results.md describes each format. winobench report makes pages and figures.
"""

_FORMAT = flags.DEFINE_enum("format", exports.FORMATS[0], exports.FORMATS, "What to write.")
_OUT = flags.DEFINE_string(
    "out", None, "File to write to, or a folder for logs and shared formats, which need it. So does Parquet."
)
_GROUPS = flags.DEFINE_bool("groups", False, "Tables with the rows of sub-tasks, such as spatial/accuracy.")
_DATASET = flags.DEFINE_string(
    "dataset",
    None,
    "With --format=eval-results: a benchmark on the hub, OWNER/NAME, that has the tasks.",
)


def main(words: list[str]) -> None:
    if not words:
        raise InputError("no run is named: winobench export RUN [RUN ...].", code="nothing-named")
    # Late, so that --help answers at once.
    from winobench.runs import reading, run_tables

    runs = reading.read_runs(words, configuration.print_skipped, mixed=True)
    text = exports.export(
        runs,
        _FORMAT.value,
        _OUT.value,
        groups=_GROUPS.value,
        dataset=_DATASET.value,
        reproduce=reproduce.eval_command,
    )
    print(_OUT.value) if text is None else print(text, end="")
    output.print_json({"rows": run_tables.records_of(runs, _GROUPS.value)[0]})


if __name__ == "__main__":
    output.define_json()
    configuration.start_without_config(main, usage=USAGE, takes_words=True)
