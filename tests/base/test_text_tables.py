"""Tables in every format: what stands in a cell stays what it is."""

import re

from tests.expectations import raises
from winobench.base import text_tables

HOSTILE = r"a|b *c* _d_ `e` <f> [g](h) \ & % $ # { } ~ ^" + "\n\t\x1b[31m"
COLUMNS = ["name", "100%"]


def written(format, rows, columns=COLUMNS, **options):
    return text_tables.write_table(format, columns, rows, **options)


def test_text_is_aligned_and_obeyed_by_no_terminal():
    assert written("text", [["Heading"], ["one", "1.0"], ["日本", "-12.0"]]).splitlines() == [
        "name   100%",
        "----  -----",
        "Heading",
        "one     1.0",
        "日本  -12.0",
    ]
    assert "\x1b" not in written("text", [[HOSTILE, "1"]])


def test_markdown_cells_hold_no_markup():
    lines = written("markdown", [["A heading"], [HOSTILE, "1"]]).splitlines()
    assert lines[:3] == ["| name | 100% |", "| --- | ---: |", "| **A heading** |  |"]
    assert len(re.findall(r"(?<!\\)\|", lines[3])) == 3
    assert r"a\|b \*c\* \_d\_ \`e\` \<f\> \[g\](h) \\ \& % \$ \#" in lines[3]


def test_latex_is_a_booktabs_table_with_escaped_cells():
    rows = [["A_heading"], ["[x]", "-1.5"], [r"\%_{}~^<>|$&#", "+2.0 ● ‡"], ["a-1 − 日", "-1 to -0.5"]]
    assert written("latex", rows).splitlines() == [
        r"\begin{tabular}{lr}",
        r"\toprule",
        r"name & 100\% \\",
        r"\midrule",
        r"\multicolumn{2}{l}{\textbf{A\_heading}} \\",
        r"{}[x] & $-$1.5 \\",
        r"\textbackslash{}\%\_\{\}\textasciitilde{}\textasciicircum{}\textless{}\textgreater{}\textbar{}\$\&\#"
        r" & +2.0 $\bullet$ \ddag{} \\",
        r"a-1 $-$ 日 & $-$1 to $-$0.5 \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_html_is_escaped():
    found = written("html", [["<b>"], ["<script>&\"'", "1"]])
    assert "<script>" not in found
    assert "<b>" not in found
    assert "&lt;script&gt;&amp;&quot;&#x27;" in found


def test_csv_has_no_formulas():
    assert text_tables.write_csv([{"a": "=A", "b": 0.5}, {"a": "-1", "b": None}], ["a", "b"]) == ("a,b\n'=A,0.5\n-1,\n")


def test_percentages():
    assert text_tables.percent(0.1234) == "12.3"
    assert text_tables.percent(-0.00001, sign=True) == "0.0"
    assert text_tables.percent(1, sign=True) == "+100.0"


def test_titles_are_comments_in_latex():
    assert text_tables.comment("latex", "a\nb") == "% a b\n"
    assert text_tables.comment("markdown", "a_b") == "a\\_b\n\n"
    assert text_tables.comment("latex", "") == ""


def test_an_unknown_format_is_refused():
    with raises("unknown-name", "'excel'", "markdown", "latex"):
        text_tables.check_format("excel")
