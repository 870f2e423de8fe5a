"""winobench rate and write_items: their help, and flags of other commands."""

import pytest

from tests import launching
from tests.launch.test_help import check_commands, check_teaches, read_help


@pytest.mark.parametrize(
    ("launcher", "said"),
    [
        ("rate", ["--rater", "--judge", "RUN:MODEL"]),
        ("write_items", ["--annotate", "--finish", "--offensive", "--checks.known", "Tree-of-Experts"]),
    ],
)
def test_help_teaches_by_examples(launcher, said):
    text = read_help(launcher)
    check_teaches(text, launcher, said)
    check_commands([text], 3)


@pytest.mark.parametrize(
    ("launcher", "words", "said"),
    [
        ("rate", ["a", "b"], "--rater=NAME"),
        ("rate", ["a", "b", "--rater=anna", "--finish"], "--finish"),
        ("rate", ["a", "b", "--rater=anna", "--judge=c"], "--judge"),
        ("write_items", ["--processes=auto", "--model=openai:a"], "--processes"),
    ],
)
def test_a_word_of_another_launcher_is_one_sentence(launcher, words, said, tmp_path):
    launching.refuse(f"launch.{launcher}", *words, named=[said], cwd=tmp_path)
    assert not list(tmp_path.iterdir())
