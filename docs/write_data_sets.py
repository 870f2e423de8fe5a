"""Writes the table of data sets into docs/howto/prepare_data.md, or checks it.

python docs/write_data_sets.py            # write it
python docs/write_data_sets.py --check    # only say whether it is up to date
"""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Iterator

from winobench import tasks
from winobench.training import coco_captions

PAGE = pathlib.Path(__file__).resolve().parent / "howto" / "prepare_data.md"
BEGIN = "<!-- docs/write_data_sets.py writes this table from the data sets that winobench prepare --list shows. -->\n"
END = "<!-- end of the table -->\n"


def main(words: list[str]) -> int:
    """Writes the table, or returns 1 where it is out of date."""
    before = PAGE.read_text()
    head, _, rest = before.partition(BEGIN)
    text = head + BEGIN + "\n" + "".join(f"{line}\n" for line in lines()) + "\n" + END + rest.partition(END)[2]
    if words != ["--check"]:
        PAGE.write_text(text)
    return int(words == ["--check"] and text != before)


def lines() -> Iterator[str]:
    """The table, by title."""
    yield "| data set | `--tasks=` | how | winobench downloads | you supply | licence, access | size |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    prepared = [each for each in (*tasks.data_sets(), *coco_captions.DATA_SETS) if each.is_prepared]
    for each in sorted(prepared, key=lambda each: each.title.casefold()):
        cells = (each.downloads, each.supplies, each.licences, each.size)
        word = f"`{each.word}`" if each.has_command else "–"
        yield f"| {each.title} | {word} | {each.way} | {' | '.join(cell or '–' for cell in cells)} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
