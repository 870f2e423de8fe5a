"""The wording of WinoViz's questions."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from winobench.base import json_files
from winobench.data import winoviz as data
from winobench.runs.requests import Turn


@functools.cache
def prompts() -> Mapping[str, Any]:
    """The content of ``assets/winoviz/prompts.json``, which states of each text where it is from."""
    return json_files.read(data.ASSETS / "prompts.json")


def question_text(premise: str, options: Sequence[str]) -> str:
    """The sentence and the two options, as they follow the instruction."""
    return prompts()["question"]["text"].format(premise=premise, option_1=options[0], option_2=options[1])


def conversation(premise: str, options: Sequence[str], *, shots: bool = False, reasoning: bool = False) -> list[Turn]:
    """The turns that put a question. The instruction stands at the head of the first one."""
    questions, answers = [], []
    for example in prompts()["examples"]["items"] if shots else ():
        questions.append(question_text(example["premise"], example["options"]))
        template = prompts()["chain_of_thought_answer" if reasoning else "answer"]["text"]
        answers.append(template.format(reasoning=example["reasoning"], number=example["answer"] + 1))
    questions.append(question_text(premise, options))
    questions[0] = prompts()["instruction"]["text"] + "\n\n" + questions[0]
    turns = [Turn("user", questions[0])]
    for answer, question in zip(answers, questions[1:], strict=True):
        turns += [Turn("assistant", answer), Turn("user", question)]
    return turns


def captioned(caption: str, premise: str, options: Sequence[str]) -> Turn:
    """The turn that puts a question, with what an image of its sentence shows said before it."""
    template = prompts()["captioned_question"]["text"]
    question = template.format(caption=caption, question=question_text(premise, options))
    return Turn("user", prompts()["instruction"]["text"] + "\n\n" + question)


def asked_of_image(options: Sequence[str]) -> str:
    """The two options as a question about an image, which takes the sentence's place."""
    return prompts()["picture_question"]["text"].format(option_1=options[0], option_2=options[1])
