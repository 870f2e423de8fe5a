"""Writes the JSON Schemas of a run's ``config.json`` and ``results.json`` into docs/schemas, or checks them.

python docs/write_schemas.py            # write them
python docs/write_schemas.py --check    # only say whether they are up to date
"""

from __future__ import annotations

import json
import pathlib
import sys

from winobench.runs import records, schema

FOLDER = pathlib.Path(__file__).resolve().parent / "schemas"


def main(words: list[str]) -> int:
    """Writes the files, or returns 1 where one is not what it should be."""
    for name, expected in (("config", schema.Config), ("results", schema.Results)):
        title = f"{name}.json of a winobench run, layout {records.SCHEMA_VERSION}"
        text = json.dumps(schema.json_schema(expected, title), indent=2) + "\n"
        path = FOLDER / f"{name}.schema.json"
        if words != ["--check"]:
            FOLDER.mkdir(exist_ok=True)
            path.write_text(text)
        elif not path.is_file() or path.read_text() != text:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
