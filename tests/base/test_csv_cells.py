"""Cells of CSV files that no spreadsheet computes, and that come back as they were."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from winobench.base import csv_cells
from winobench.data import winoviz, wscplus

FORMULAS = ("=1+1", "+1+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1", "'=1", "''-x", "=")


@pytest.mark.parametrize("text", FORMULAS)
def test_formulas_begin_with_an_apostrophe(text):
    assert csv_cells.escape_formula(text) == f"'{text}"
    assert csv_cells.unescape_formula(csv_cells.escape_formula(text)) == text


@pytest.mark.parametrize("value", [-1.5, 3, None, True, "-1.5", "+3", "-1e-05", "", "a=b", "'quote'", "'", "−1", "1-2"])
def test_numbers_and_other_texts_stay(value):
    assert csv_cells.escape_formula(value) == value


@given(st.lists(st.text(alphabet=st.sampled_from("'=+-@\t\r\n,\"1a."), max_size=6), min_size=1, max_size=4))
def test_every_text_comes_back_and_none_is_computed(texts):
    columns = [f"c{number}" for number in range(len(texts))]
    written = csv_cells.write_rows(columns, [dict(zip(columns, texts, strict=True))])
    _, cells = csv.reader(io.StringIO(written, newline=""))
    assert list(map(csv_cells.unescape_formula, cells)) == texts
    for cell in cells:
        assert not cell.startswith(("=", "@", "\t", "\r", "\n"))
        if cell.startswith(("+", "-")):
            float(cell)


def test_items_of_winoviz_come_back(tmp_path):
    premises, hypotheses = ("=1+1 is a tomato", "@b"), ("-a tomato", "+b")
    item = winoviz.Item("i1", "tomato", winoviz.VERSIONS[0], premises, hypotheses, ("=x", "y"))
    winoviz.write_items(tmp_path / "items.csv", [item])
    assert ",=1+1" not in (tmp_path / "items.csv").read_text()
    assert winoviz.read_items(tmp_path / "items.csv") == [item]


def test_items_of_wscplus_come_back(tmp_path):
    item = wscplus.Item("x", "=1+1, he said", "-he", "@s", ("a", "b's"), 2, "=cmd", "some-model", "ambiguous")
    wscplus.write(tmp_path / "items.csv", [item])
    assert "'=1+1" in (tmp_path / "items.csv").read_text()
    (read,) = wscplus.read(tmp_path / "items.csv")
    assert (read.statement, read.pronoun, read.snippet, read.reason) == ("=1+1, he said", "-he", "@s", "=cmd")
