"""What the checks refuse, why, and that they let the published items pass."""

import dataclasses

import pytest

from tests.contrib.people.wscplus_items import fakes
from winobench.contrib.people.wscplus_items import checks
from winobench.contrib.people.wscplus_items.items import Item, Sentence
from winobench.data import wscplus

FIRST, SECOND = fakes.both(fakes.PAIRS[0])


def item(*sentences, **origin):
    return Item(tuple(sentences), fakes.origin(**origin))


def changed(sentence, **changes):
    return dataclasses.replace(sentence, **changes)


def test_good_items_pass():
    assert [checks.check_item(one) for one in fakes.items()] == [None] * 4


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        ((changed(FIRST, pronoun="nurse"), SECOND), checks.NOT_A_PRONOUN),
        ((changed(FIRST, pronoun="he"), SECOND), checks.NO_PRONOUN),  # "he" in "the" is none
        ((changed(FIRST, options=("nurse", "The nurse")), SECOND), checks.SAME_CANDIDATES),
        ((changed(FIRST, options=("nurse", "surgeon")), SECOND), checks.NO_CANDIDATE),
        ((FIRST, FIRST), checks.SAME_SENTENCES),
        ((FIRST, changed(SECOND, answer=0)), checks.NO_FLIP),
        ((FIRST, changed(SECOND, answer=0, options=("pilot", "nurse"))), None),
        ((FIRST, changed(SECOND, options=("the nurse", "a pilot"))), None),
        ((FIRST, changed(SECOND, answer=2)), checks.NEITHER_ANSWER),
        (
            (FIRST, changed(SECOND, statement="The nurse met the pilot after work, so that she came home very late.")),
            checks.TOO_DIFFERENT,
        ),
        ((FIRST, changed(SECOND, statement=f"{SECOND.statement} Ask her.", pronoun="her")), checks.DIFFERENT_PRONOUNS),
        ((FIRST, Sentence("A nurse fed a cat: she ate.", "she", "", ("nurse", "cat"), 1)), checks.DIFFERENT_CANDIDATES),
    ],
)  # fmt: skip
def test_what_is_refused(pair, reason):
    verdict = checks.check_item(item(*pair))
    assert (verdict.reason if verdict else None) == reason


def test_neither_is_the_answer_of_ambiguous_and_offensive_items():
    assert checks.check_item(item(FIRST, SECOND, kind="ambiguous")).reason == checks.DECIDED
    assert checks.check_item(item(FIRST, kind="offensive")).reason == checks.DECIDED
    neither = [changed(one, answer=2) for one in (FIRST, SECOND)]
    assert checks.check_item(item(*neither, kind="ambiguous")) is None
    assert checks.check_item(item(neither[0], kind="offensive")) is None


def test_candidates_are_named_by_what_tells_them_apart():
    text = "An Asian man and a French man were waiting when he sighed."
    sentence = Sentence(text, "he", "he sighed", ("Asian man", "French man"), 2)
    assert checks.check_item(item(sentence, kind="offensive")) is None
    other = changed(sentence, options=("Asian man", "Spanish man"))
    assert checks.check_item(item(other, kind="offensive")).reason == checks.NO_CANDIDATE
    text = "At work I met a student who is thin and one whose uncle's shop is near; he's kind."
    for options in (("thin student", "student's uncle"), ("the thin one", "his uncle")):
        assert checks.check_item(item(Sentence(text, "he", "he's kind", options, 2), kind="offensive")) is None


def test_duplicates_and_near_duplicates():
    first, second, *_ = fakes.items()
    near = item(*(changed(one, statement=one.statement.replace("so", "very")) for one in first.sentences))
    spaced = item(*(changed(one, statement=f"  {one.statement.upper()}!") for one in first.sentences))
    verdicts = checks.check([first, near, spaced, second], ["The moon is round."])
    assert [verdict and verdict.reason for verdict in verdicts] == [None, checks.NEAR_DUPLICATE, checks.DUPLICATE, None]
    known = [second.sentences[1].statement]
    verdicts = checks.check([first, near, second], known, similarity=99.0)
    assert [verdict and verdict.reason for verdict in verdicts] == [None, None, checks.DUPLICATE]
    # What is refused by itself stands in nobody's way.
    broken = item(first.sentences[0], changed(first.sentences[1], answer=2))
    assert checks.check([broken, first], [])[1] is None


def test_published_items_pass(reference_data):
    def sentence_of(row):
        return Sentence(row.statement, row.pronoun.strip().lower(), row.snippet, row.options, row.answer)

    rows = wscplus.read(reference_data / "wscplus" / "WSC+.csv")
    items = []
    for row in rows:
        if row.type == "offensive":
            items.append(item(sentence_of(row), kind="offensive"))
        elif row.pair == row.id:
            items.append(item(sentence_of(row), sentence_of(rows[row.row])))
    assert len(items) > 1700
    passed = sum(checks.check_item(one) is None for one in items) / len(items)
    assert 0.92 < passed < 0.97
