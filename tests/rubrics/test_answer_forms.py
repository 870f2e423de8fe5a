"""Every rubric reads every form of an answer, or counts it as unread. docs/reference/answer_forms.md is that table."""

import pathlib
import runpy

import pytest

SCRIPT = runpy.run_path(str(pathlib.Path(__file__).parents[2] / "docs" / "write_answer_forms.py"))
COLUMNS, FORMS, filled = (SCRIPT[name] for name in ("COLUMNS", "FORMS", "filled"))
# Several lines that begin with yes or no are TIIF-Bench's published form.
PAIRS = [
    (column, form)
    for column in COLUMNS
    for form in FORMS
    if "published" not in column.title and (column.title, form.name) != ("`tiif`", "both")
]


@pytest.mark.parametrize(("column", "form"), PAIRS, ids=[f"{column.title}-{form.name}" for column, form in PAIRS])
def test_a_form_is_read_or_unread(column, form):
    assert column.read(filled(form, column.answer)) == ("read" if form.is_answer else "unread")
    if form.is_answer:
        other = column.answer._replace(right=column.answer.other, other=column.answer.right)
        others = filled(form, other) if form.name not in ("JSON", "JSON in a code block", "another language") else ""
        assert column.read(others) == ("wrong" if others else "unread")


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_published_judges_are_read_letter_by_letter(form):
    """Thoughts and the marks of turns are cut before. Of all else, only the published form is read as the answer."""
    is_bare = form.name in ("alone", "thoughts", "closing tag alone", "harmony", "end of turn")
    (oneig,) = (column for column in COLUMNS if column.title == "`oneig`, published judge")
    assert (oneig.read(filled(form, oneig.answer)) == "read") == is_bare


def test_the_page_is_up_to_date():
    assert SCRIPT["main"](["--check"]) == 0, "run python docs/write_answer_forms.py"
