"""The page of the papers' tables and figures: current, complete, and without an empty cell."""

import pathlib
import re
import runpy
import types

import pytest

from winobench.data import published_numbers

ROOT = pathlib.Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "docs" / "write_papers.py"))
papers = types.SimpleNamespace(**runpy.run_path(str(ROOT / "docs" / "papers.py")))


def test_the_page_is_current():
    assert SCRIPT["main"](["--check"]) == 0, "run python docs/write_papers.py"


@pytest.mark.parametrize("paper", papers.PAPERS, ids=lambda paper: paper.name)
def test_every_table_and_figure_is_there(paper):
    """As many as each paper has. Parts have a letter."""
    named = {re.fullmatch(r"(Table|Figure) (\d+)[ab]?", spot).groups() for one in paper.elements for spot in one.places}
    numbers = {kind: sorted(int(number) for found, number in named if found == kind) for kind in ("Table", "Figure")}
    assert numbers == {"Table": list(range(1, paper.tables + 1)), "Figure": list(range(1, paper.figures + 1))}


@pytest.mark.parametrize("paper", papers.PAPERS, ids=lambda paper: paper.name)
def test_tables_whose_numbers_are_quoted_are_listed(paper):
    places = {place for one in paper.elements for place in one.places}
    printed = {number.table for number in published_numbers.numbers(paper=paper.name) if number.table[0].isdigit()}
    assert {f"Table {table}" for table in printed} <= places


def test_no_cell_is_empty():
    rows = [line for line in SCRIPT["page"]().splitlines() if line.startswith("|")]
    elements = sum(len(paper.elements) for paper in papers.PAPERS)
    assert len(rows) == 2 + len(papers.STATES) + elements + 2 * len(papers.PAPERS)
    for row in rows:
        assert all(cell.strip() for cell in row.strip("|").split("|")), row
        assert "the paper's 0 numbers" not in row


@pytest.mark.parametrize("paper", papers.PAPERS, ids=lambda paper: paper.name)
def test_states_are_known_and_claims_name_a_test(paper):
    for one in paper.elements:
        assert one.states
        assert set(one.states) <= set(papers.STATES)
        if {papers.EXACT, papers.DIFFERS, papers.COUNTED} & set(one.states):
            (path,) = re.findall(r"`(tests/[\w/]+\.py)`", one.value)
            assert (ROOT / path).is_file()
        if papers.NOT_AVAILABLE in one.states:
            assert one.value
