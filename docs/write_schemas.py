"""Writes JSON Schemas into docs/schemas, or checks them: of a run's files, and of what commands print with ``--json``.

python docs/write_schemas.py            # write them
python docs/write_schemas.py --check    # only say whether they are up to date
"""

from __future__ import annotations

import importlib
import json
import pathlib
import sys
from typing import Any

from winobench import __main__ as command_line
from winobench.runs import records, schema

FOLDER = pathlib.Path(__file__).resolve().parent / "schemas"


def main(words: list[str]) -> int:
    """Writes the files, or returns 1 where one is not what it should be."""
    of_runs = {"config": schema.Config, "results": schema.Results}
    printed = importlib.import_module(f"{command_line.launchers()}.documents").DOCUMENTS
    for name, expected in {**of_runs, **printed}.items():
        title = f"{name}.json of a winobench run, layout {records.SCHEMA_VERSION}"
        if name in printed:
            title = f"What commands of winobench print with --json: {name}"
        text = _lines(schema.json_schema(expected, title)) + "\n"
        path = FOLDER / f"{name}.schema.json"
        if words != ["--check"]:
            FOLDER.mkdir(exist_ok=True)
            path.write_text(text)
        elif not path.is_file() or path.read_text() != text:
            return 1
    return 0


def _lines(value: Any, indent: str = "") -> str:
    """JSON with one line per value that holds no lists or objects."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if not any(isinstance(one, dict | list) for one in inner):
        return json.dumps(value)
    deeper = f"{indent} "
    names = [f"{json.dumps(name)}: " for name in value] if isinstance(value, dict) else [""] * len(value)
    entries = (f"{deeper}{name}{_lines(one, deeper)}" for name, one in zip(names, inner, strict=True))
    begin, end = "{}" if isinstance(value, dict) else "[]"
    return f"{begin}\n" + ",\n".join(entries) + f"\n{indent}{end}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
