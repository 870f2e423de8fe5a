"""Compares two finished runs, question by question: winobench compare RUN RUN"""

from __future__ import annotations

import os
from typing import cast

from absl import flags

from winobench.base import text_tables
from winobench.base.errors import InputError
from winobench.base.files import user_path

from . import configuration, output

USAGE = """
Compares two finished runs of winobench eval, question by question: both values, their difference with its 95% interval,
and p-values. Difficulty that both runs share cancels. Both runs need the same questions. It reads what the runs have
recorded, without a model or a device.

  winobench compare runs/a runs/b                             all tasks that both runs have
  winobench compare runs/a runs/b --tasks=colorswap,clevr     two of them
  winobench compare runs/a runs/b --groups                    with the rows of sub-tasks
  winobench compare runs/a runs/b --format=latex              a table for the package booktabs
  winobench compare runs/a runs/b --format=csv > a-b.csv      numbers in full precision

A difference is the second run less the first. docs/explanation/intervals.md has the method. winobench report compares
more than two runs, and lists the questions on which they differ.
"""

_TASKS = flags.DEFINE_list("tasks", None, "Tasks to compare, with commas. By default all that both runs have.")
_GROUPS = flags.DEFINE_bool("groups", False, "With the rows of sub-tasks, such as spatial/accuracy.")
_FORMAT = flags.DEFINE_enum("format", "text", list(text_tables.SUFFIXES), "Of the table.")


def main(words: list[str]) -> None:
    if len(words) != 2:
        raise InputError(
            f"two runs are compared, but {len(words):,} are named: winobench compare RUN RUN.", code="nothing-named"
        )
    if os.path.realpath(user_path(words[0])) == os.path.realpath(user_path(words[1])):
        raise InputError(f"run {words[0]} is named twice: name two runs.", code="named-twice")
    # Late, so that --help answers at once.
    from winobench.report import comparison, table

    compared = comparison.compare(*words, tasks=_TASKS.value)
    if _FORMAT.value == "text":
        table.print_differences(compared, groups=_GROUPS.value)
    else:
        print(compared.table(cast(text_tables.TableFormat, _FORMAT.value), groups=_GROUPS.value), end="")
    output.print_json({"differences": compared.records(groups=_GROUPS.value), "notes": list(compared.notes)})


if __name__ == "__main__":
    output.define_json()
    configuration.start_without_config(main, usage=USAGE, takes_words=True)
