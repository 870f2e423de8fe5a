"""The command that makes a finished run again."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from . import configuration

if TYPE_CHECKING:
    from winobench.runs.run import Run


def eval_command(run: Run) -> str | None:
    """The winobench eval command that makes a run: the fields in which its config differs from its benchmark's."""
    name = "gdbench"
    if run.is_text:
        from winobench.report import published

        name = published.benchmark_of(next(iter(run.tasks), "")) or "winoviz"
    fields = configuration.flat(run.config.get("config") or {})
    defaults = configuration.flat(configuration.plain(configuration.load(name)))
    if not {"model", "tasks", "limit"} <= fields.keys() <= defaults.keys():
        return None
    changed = [f"--{name}={_word(value)}" for name, value in fields.items() if value != defaults[name]]
    return " \\\n  ".join([f"winobench eval --config={name}", *map(shlex.quote, changed)])


def _word(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
