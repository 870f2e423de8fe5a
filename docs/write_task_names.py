"""Writes winobench/tasks/names.txt: the names that each module of tasks declares."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

from winobench import tasks


def lines() -> Iterator[str]:
    """A line for each table of a module: the table, the module, and the names."""
    for module in sorted(info.name for info in pkgutil.iter_modules(tasks.__path__)):
        declared = vars(importlib.import_module(f"{tasks.__name__}.{module}"))
        for table in ("TASKS", "TEXT_TASKS", "SOURCES"):
            # Functions of sources are under their names, tasks have theirs.
            if table in declared and declared[table] is not getattr(tasks, table, None):
                yield " ".join([table, module, *(getattr(entry, "name", entry) for entry in declared[table])])


if __name__ == "__main__":
    tasks.NAMES.write_text("\n".join(lines()) + "\n", encoding="utf-8")
