"""Answers of models that go round in circles: reading them takes no time, and what is not so long is read as it was."""

import time

import pytest

from winobench.base.texts import LONGEST_ANSWER, readable
from winobench.data.wscplus import answers
from winobench.tasks import option_answers

# fmt: off
UNITS = [
    " ", "\n", " \t", "-\n", "- ", ". . ", "\n\n1. ", "$", "\\boxed{", "{", "[", "{}", '"', "“", "a", "a ", "a; ",
    "Option 1 ", "Option 1, ", "not option 1 ", "option 1: x\n", "answer ", "answer: 0\n", "the answer is ",
    "Final answer: ", "majority ", "either option or ", "neither ", "(1) ", "1. ", "Q:\n", "Question:\n", "<think>",
    "</think>", "[a/", "[a/b]", '{"a":', '{"statement":"a"}', "pair 1\n", "Statement: a\n",
    "Sentence 1: x [a/b]\nAnswer: 0\n", "(answer: ", "K=",
]
# fmt: on
READERS = {
    "choice": lambda text: option_answers.read_choice(text, ("It is green.", "It is brown.")),
    "reasoning": lambda text: option_answers.read_choice(text, ("It is green.", "It is brown."), reasoning=True),
    "candidate": lambda text: answers.parse_answer(text, ("the cat", "the dog")),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(("length", "seconds"), [(10_000, 2), pytest.param(1_000_000, 4, marks=pytest.mark.slow)])
def test_a_short_text_again_and_again(reader, length, seconds):
    """Once some of 10,000 letters took a minute. A body of a hosted model has up to four million."""
    check_reader(READERS[reader], length, seconds)


def check_reader(read, length, seconds):
    for unit in UNITS:
        text = unit * (length // len(unit))
        started = time.process_time()
        read(text)
        assert time.process_time() - started < seconds, unit


def test_beginning_and_end_of_long_texts_are_kept():
    assert readable("x y " * 20_000) == "x y " * 20_000
    text = readable("The answer is Option 1. " + "so on and on " * 100_000 + "Final answer: 2")
    assert len(text) <= LONGEST_ANSWER
    assert text.startswith("The answer is Option 1. ")
    assert text.endswith("Final answer: 2")
    assert readable("a" + " " * 5000 + "b" + "=" * 5000) == "a" + " " * 100 + "b" + "=" * 100


def test_a_choice_after_much_thinking_is_read():
    thoughts = "<think>" + "let me see, option 1 or option 2? " * 20_000 + "</think>"
    assert option_answers.read_choice(thoughts + "Option 2", reasoning=True) == 1
    assert answers.parse_answer(thoughts + "1; because", ("the cat", "the dog")) == 1
