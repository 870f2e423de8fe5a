"""Lists the tables of the papers, and which of them the data here suffice for: winobench reproduce

Other launchers take from here the command that makes a finished run again.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from absl import flags

from winobench.base.errors import InputError

from . import configuration, layout, output, renamed

if TYPE_CHECKING:
    from winobench.runs.run import Run

    from . import documents

USAGE = """
Lists the tables of the papers whose numbers reports show next to yours, and which of their tasks have their data here.

  winobench reproduce                    every table of the papers
  winobench reproduce --paper=gdbench    of one paper, with the data sets that it still needs
  winobench reproduce --json             the same for programs

The papers' models come from the hub when they are first used. docs/reference/paper_tables.md has the command of each
table and figure. A report of your runs shows the papers' numbers next to yours.
"""


def main(_: Sequence[str]) -> None:
    document = tables(flags.FLAGS.paper, flags.FLAGS.data_dir)
    print("\n".join(_lines(document, whole=flags.FLAGS.paper is not None)))
    output.print_json(document)


def tables(paper: str | None, data_dir: str | None) -> documents.PaperTables:
    """The tables of all papers or of one, each with the data sets that it needs."""
    from winobench.data import published_numbers

    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for number in published_numbers.numbers():
        if number.task is not None and paper in (None, number.paper):
            row = rows.setdefault((number.paper, number.place), {"numbers": 0, "tasks": {}})
            row["numbers"] += 1
            if number.task not in row["tasks"]:
                row["tasks"][number.task] = _missing(number.task, data_dir)
    if not rows:
        known = ", ".join(dict.fromkeys(number.paper for number in published_numbers.numbers()))
        raise InputError(f"--paper={paper} is unknown: name one of {known}", code="unknown-name")
    return {
        "tables": [
            {
                "paper": of,
                "place": table,
                "numbers": row["numbers"],
                "tasks": [*row["tasks"]],
                "missing": [task for task, missing in row["tasks"].items() if missing is not None],
                "needs": [*dict.fromkeys(missing for missing in row["tasks"].values() if missing is not None)],
            }
            for (of, table), row in rows.items()
        ]
    }


def _missing(task: str, data_dir: str | None) -> str | None:
    """The data set that a task lacks. Rendered images do not replace the published ones."""
    from winobench import tasks
    from winobench.data import prepared

    known = tasks.TASKS.get(task) or tasks.TEXT_TASKS.get(task)
    if known is None:
        return task
    is_prepared = getattr(known, "source", None) is None or prepared.has_state(prepared.task_folder(task, data_dir))
    if is_prepared and known.ready(data_dir) is None:
        return None
    return next(data_set.name for data_set in tasks.data_sets() if known in data_set.tasks)


def _lines(document: documents.PaperTables, *, whole: bool) -> list[str]:
    shown = []
    for row in document["tables"]:
        ready = f"{len(row['tasks']) - len(row['missing'])} of {len(row['tasks'])}"
        shown.append((row["paper"], row["place"], str(row["numbers"]), ready))
    lines = layout.table(("paper", "place", "numbers", "with data"), shown, right=(2,))
    needs = dict.fromkeys(need for row in document["tables"] for need in row["needs"])
    if whole and needs:
        lines += ["", *layout.wrapped(f"data sets that are not here: {', '.join(needs)}", 0)]
    advice = (
        "winobench prepare --list=NAME says how to get a data set. docs/reference/paper_tables.md has the command of"
        " each table."
    )
    return [*lines, "", *layout.wrapped(advice, 0)]


def eval_command(run: Run) -> str | None:
    """The winobench eval command that makes a run: the fields in which its config differs from its benchmark's."""
    name = "gdbench"
    if run.is_text:
        from winobench.report import published

        name = published.benchmark_of(next(iter(run.tasks), "")) or "winoviz"
    recorded = configuration.flat(run.config.get("config") or {})
    fields = {renamed.field(field): value for field, value in recorded.items()}
    defaults = configuration.flat(configuration.plain(configuration.load(name)))
    if not {"model", "tasks", "limit"} <= fields.keys() <= defaults.keys():
        return None
    changed = [f"--{name}={_word(value)}" for name, value in fields.items() if value != defaults[name]]
    return " \\\n  ".join([f"winobench eval --config={name}", *map(shlex.quote, changed)])


def _word(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


if __name__ == "__main__":
    flags.DEFINE_string("paper", None, "One of the papers, such as gdbench.")
    flags.DEFINE_string("data_dir", None, "Where prepared data are; $WINOBENCH_DATA or ~/winobench_data by default.")
    output.define_json()
    configuration.start_without_config(main, usage=USAGE)
