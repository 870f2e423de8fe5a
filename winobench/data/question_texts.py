"""A question and an answer as one text, for scorers that answer questions about images."""

from __future__ import annotations

_BETWEEN = "\n"


def join(question: str, answer: str) -> str:
    """The question, which may have several lines, and the answer in a line of its own.

    Raises:
      ValueError: the answer has several lines, or one of the two is empty.
    """
    if not question.strip() or not answer.strip() or _BETWEEN in answer:
        raise ValueError(f"a question and an answer of one line are needed, got {question!r} and {answer!r}")
    return f"{question}{_BETWEEN}{answer}"


def split(text: str) -> tuple[str, str]:
    """The question and the answer of a text that `join` has made.

    Raises:
      ValueError: it is none.
    """
    question, between, answer = text.rpartition(_BETWEEN)
    if not between:
        raise ValueError(f"{text!r} is no question with an answer")
    return question, answer
