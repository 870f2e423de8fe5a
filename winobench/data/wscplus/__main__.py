"""Counts the items of a file next to the paper's table.

python -m winobench.data.wscplus composition FILE    # FILE is WSC+.csv, or another one in its layout
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from absl import app

from winobench.base.errors import InputError
from winobench.data import published_numbers
from winobench.data.wscplus.files import read
from winobench.data.wscplus.items import composition


def main(arguments: Sequence[str]) -> None:
    """Runs one command: the program's name and the words after it."""
    try:
        if len(arguments) != 3 or arguments[1] != "composition":
            raise InputError("say 'composition FILE', the file WSC+.csv or one in its layout", code="bad-command")
        shares = {number.metric: number.printed for number in published_numbers.numbers(paper="wscplus", table="2")}
        found = composition(read(arguments[2]))
        print(f"{'':<24}{'items':>8}{'%':>8}{'paper (Table 2)':>18}")
        for name, counts in found.items():
            for kind, count in counts.items():
                share = f"{100 * count / sum(counts.values()):.1f}"
                print(f"{name + ' ' + kind:<24}{count:>8,}{share:>8}{shares.get(f'share/{kind}', ''):>18}")
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    app.run(main)
