"""Counts the items of a file next to the paper's numbers, and makes the paper's figures of them.

python -m winobench.contrib.people.wscplus_items composition FILE           # WSC+.csv or alike: Tables 2, 5
python -m winobench.contrib.people.wscplus_items composition FILE FOLDER    # ... and Figures 4 and 10 in the folder
"""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Sequence

from absl import app

from winobench.base.errors import InputError
from winobench.base.files import user_path
from winobench.data import published_numbers, wscplus


def main(arguments: Sequence[str]) -> None:
    """Runs one command: the program's name and the words after it."""
    try:
        match list(arguments[1:]):
            case ["composition", path]:
                _print_counts(wscplus.read(path))
            case ["composition", path, folder]:
                items = wscplus.read(path)
                _print_counts(items)
                _draw(items, pathlib.Path(user_path(folder)))
            case _:
                message = "say 'composition FILE' or 'composition FILE FOLDER', the file WSC+.csv or one in its layout"
                raise InputError(message, code="bad-command")
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def _print_counts(items: Sequence[wscplus.Item]) -> None:
    shares = {number.metric: number.printed for number in published_numbers.numbers(paper="wscplus", table="2")}
    counts = {number.metric: number.printed for number in published_numbers.numbers(paper="wscplus", table="5")}
    print(f"{'':<28}{'items':>8}{'%':>8}{'paper (Table 2)':>18}")
    for name, kinds in wscplus.composition(items).items():
        for kind, count in kinds.items():
            share = f"{100 * count / sum(kinds.values()):.1f}"
            print(f"{name + ' ' + kind:<28}{count:>8,}{share:>8}{shares.get(f'share/{kind}', ''):>18}")
    print(f"\n{'without the few-shot items':<28}{'items':>8}{'paper (Table 5)':>26}")
    for kind, count in wscplus.post_filtering(items).items():
        said = "in all, with few-shot items" if kind == "total" else f"type {kind}"
        print(f"{said:<28}{count:>8,}{counts.get(f'items/{kind}', ''):>26}")
    by_generator = wscplus.types_by_generator(items)
    generators = list(next(iter(by_generator.values())))
    print(f"\n{'type by model (Figure 10)':<28}" + "".join(f"{name[:15]:>16}" for name in generators))
    for kind, of_type in by_generator.items():
        print(f"{kind:<28}" + "".join(f"{count:>16,}" for count in of_type.values()))


def _draw(items: Sequence[wscplus.Item], folder: pathlib.Path) -> None:
    # Late: drawing takes a second to load.
    from winobench.contrib.people.wscplus_items import figures

    try:
        folder.mkdir(parents=True, exist_ok=True)
        names = figures.write_composition(items, folder)
    except OSError as error:
        message = f"{folder} cannot be written ({error.strerror or error}): name another folder"
        raise InputError(message, code="cannot-write") from None
    print(f"\nin {folder}: {', '.join(names)}")


if __name__ == "__main__":
    app.run(main)
