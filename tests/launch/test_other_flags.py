"""Flags of another command are refused in one sentence."""

import pytest

from tests import launching


@pytest.mark.parametrize(
    ("launcher", "words", "said"),
    [
        ("draw", ["--rater=a"], "--rater"),
        ("caption", ["a.png", "--rater=a"], "--rater"),
        ("caption", ["a.png", "--max_tokens=0"], "--max_tokens=0"),
        ("caption", ["a.png", "--dtype=float8"], "--dtype=float8"),
    ],
)
def test_a_word_of_another_launcher_is_one_sentence(launcher, words, said, tmp_path):
    launching.refuse(f"launch.{launcher}", *words, named=[said], cwd=tmp_path)
    assert not list(tmp_path.iterdir())
