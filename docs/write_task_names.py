"""Writes the names that each module of tasks declares, into names.txt of each package of tasks."""

from __future__ import annotations

import importlib
import pathlib
import pkgutil
from collections.abc import Iterator

from winobench import tasks


def tables() -> Iterator[tuple[pathlib.Path, str]]:
    """The path and the content of each package's table. A line has the attribute, the module, and the names."""
    for name in tasks.packages():
        package, lines = importlib.import_module(name), []
        for module in sorted(info.name for info in pkgutil.iter_modules(package.__path__)):
            declared = vars(importlib.import_module(f"{name}.{module}"))
            for attribute in ("TASKS", "TEXT_TASKS", "DATA_SETS", "SOURCES"):
                # Functions of sources are under their names, tasks have theirs.
                if attribute in declared and declared[attribute] is not getattr(tasks, attribute, None):
                    names = (getattr(entry, "name", entry) for entry in declared[attribute])
                    lines.append(" ".join([attribute, module, *names]))
        yield pathlib.Path(package.__file__).parent / tasks.NAMES, "\n".join(lines) + "\n"


if __name__ == "__main__":
    for path, content in tables():
        path.write_text(content, encoding="utf-8")
