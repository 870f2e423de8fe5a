"""Checks files of WinoViz items, and builds multi-hop items.

python -m winobench.data.winoviz check FILE            # lists what breaks an annotation rule
python -m winobench.data.winoviz multi_hop FILE NEW    # writes the multi-hop items of a file's single-hop items
"""

from __future__ import annotations

import collections
import sys
from collections.abc import Sequence

from absl import app

from winobench.base.errors import InputError
from winobench.data.winoviz.files import read_items, write_items
from winobench.data.winoviz.items import VERSIONS
from winobench.data.winoviz.multi_hop import build_multi_hop
from winobench.data.winoviz.rules import check_items


def main(arguments: Sequence[str]) -> None:
    """Runs one command: the program's name and the words after it."""
    try:
        match list(arguments[1:]):
            case ["check", path]:
                items = read_items(path)
                problems = check_items(items)
                for problem in problems:
                    print(f"{problem.item}: {problem.rule}: {problem.message}")
                counts = collections.Counter(item.version for item in items)
                print(", ".join(f"{counts[version]} {version}" for version in VERSIONS), "items;", end=" ")
                print(f"{len(problems)} breaks of the annotation rules")
                sys.exit(1 if problems else 0)
            case ["multi_hop", path, new]:
                built = build_multi_hop(read_items(path))
                for name, reason in built.left_out:
                    print(f"{name}: left out: {reason}")
                # With their sources, so that the file can be read by itself.
                sources = {item.source for item in built.items}
                write_items(new, [*(item for item in read_items(path) if item.id in sources), *built.items])
                print(f"{new}: {len(built.items)} multi-hop items, with the single-hop items that they are made of")
            case _:
                raise InputError(
                    "say 'check FILE' or 'multi_hop FILE NEW_FILE', each file .jsonl or .csv", code="bad-command"
                )
    except InputError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    app.run(main)
