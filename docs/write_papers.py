"""Writes docs/reference/paper_tables.md from docs/papers.py, or checks it.

python docs/write_papers.py            # write it
python docs/write_papers.py --check    # only say whether it is up to date
"""

from __future__ import annotations

import pathlib
import sys
import textwrap
from collections.abc import Iterator, Sequence

from winobench.data import published_numbers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from papers import PAPERS, STATES, Element, Paper

PAGE = pathlib.Path(__file__).resolve().parent / "reference" / "paper_tables.md"

_HEAD = """# Tables and figures of the papers

<!-- Made by docs/write_papers.py from docs/papers.py. Run that instead of editing this page. -->

This page lists every table and figure of three papers, with the command that makes it and its state. `RUN` is a folder
that `winobench eval` printed, `FOLDER` and `FILE` are yours, and `NAME` is a model or a person.

Our numbers on this page come from tests. A report shows the printed numbers next to yours, with 95% intervals
([intervals](../explanation/intervals.md)).
"""


def main(words: Sequence[str]) -> int:
    """Writes the page, or returns 1 where it is not what it should be."""
    text = page()
    if list(words) != ["--check"]:
        PAGE.write_text(text)
        return 0
    return 0 if PAGE.is_file() and PAGE.read_text() == text else 1


def page() -> str:
    return "\n".join([_HEAD, *_states(), *(line for paper in PAPERS for line in _paper(paper))]).rstrip() + "\n"


def _states() -> Iterator[str]:
    yield from ("| state | meaning |", "| --- | --- |")
    yield from (f"| {name} | {meaning} |" for name, meaning in STATES.items())
    yield ""


def _paper(paper: Paper) -> Iterator[str]:
    source = published_numbers.source(paper.name)
    named = f'{source["authors"]}, "{source["title"]}" ({source["short"]}).'
    yield from (f"## {paper.title}", "", *textwrap.wrap(f"{named} {paper.about}", 120, break_on_hyphens=False), "")
    yield from ("| paper | content | command | needs | state | value |", "| --- | --- | --- | --- | --- | --- |")
    for element in paper.elements:
        cells = (
            ", ".join(element.places),
            element.content,
            element.command,
            element.needs,
            ", ".join(element.states),
            element.value or _quoted(paper, element),
        )
        yield f"| {' | '.join(cells)} |"
    yield ""


def _quoted(paper: Paper, element: Element) -> str:
    """How many printed numbers of the places a report can show."""
    found = published_numbers.numbers(paper=paper.name)
    names = tuple(place.removeprefix("Table ") for place in element.places)
    count = sum(number.table.partition(",")[0] in names for number in found)
    return f"not run. A report quotes the paper's {count} numbers of {' and '.join(element.places)}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
