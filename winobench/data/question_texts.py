"""A question and an answer as one text, for scorers that answer questions about images."""

from __future__ import annotations

_BETWEEN = "\nAnswer: "


def join(question: str, answer: str) -> str:
    """The question, which may have several lines, and the answer in its own line."""
    if not question.strip() or not answer.strip() or "\n" in answer:
        raise ValueError(f"a question and an answer of one line are needed, got {question!r} and {answer!r}")
    return f"{question}{_BETWEEN}{answer}"


def split(text: str) -> tuple[str, str]:
    question, answer = parts(text)
    if answer is None:
        raise ValueError(f"{text!r} is not a question with an answer")
    return question, answer


def parts(text: str) -> tuple[str, str | None]:
    """The question and the answer of a text that `join` has made. Any other text as it is, and None."""
    question, between, answer = text.rpartition(_BETWEEN)
    return (question, answer) if between and "\n" not in answer else (text, None)
