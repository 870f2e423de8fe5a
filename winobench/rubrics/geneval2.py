"""GenEval 2's Soft-TIFA: how probable the right answer to each question about an image is (Kamath et al. 2025).

Compared with facebookresearch/GenEval2 a6e82d2, evaluation.py and soft_tifa_analysis.py. "Answer in one
word." follows each question. Its score is the probability, among all first tokens of an answer, of the right word's
spellings: small, capitalised, both after a blank, and digits for numbers. A judge that chooses among answers gives the
right one's share of all that it answers, so that a refusal is 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from winobench.prompts import geneval2
from winobench.prompts.prompt_files import Prompt
from winobench.rubrics import yes_no
from winobench.rubrics.base import ALL, Rubric, Score, named, scores_of, unread
from winobench.runs.requests import ImageOptions, ImageStarts, InputImage, Request, Response

_WORDING = "{} Answer in one word."
_YES_OR_NO = ("Yes", "No")
AM, GM = "soft_tifa_am", "soft_tifa_gm"

_SKILLS = {
    (AM, group): skill
    for group, skill in (
        ("object", "recognition"),
        ("attribute", "attribute_binding"),
        ("count", "counting"),
        ("position", "spatial"),
        ("verb", "compositional"),
    )
}


def _requests(prompt: Prompt, image: InputImage, kind: str) -> Iterator[Request]:
    for question, answer in prompt.content["vqa_list"]:
        text = _WORDING.replace("{}", question)
        if kind == ImageStarts.kind:
            yield ImageStarts(image, text, spellings(question, answer))
        else:
            yield ImageOptions(image, text, _choices(question))


def spellings(question: str, answer: str) -> tuple[str, ...]:
    """The published code's spellings of the right answer."""
    if not geneval2.asks_number(question):
        return ("Yes", "yes", " yes", " Yes")
    digits = str(geneval2.NUMBERS.index(answer) + 1)
    return (answer, answer.capitalize(), f" {answer}", f" {answer.capitalize()}", digits, f" {digits}")


def _choices(question: str) -> tuple[str, ...]:
    return geneval2.NUMBERS if geneval2.asks_number(question) else _YES_OR_NO


def _scores(prompt: Prompt, responses: Sequence[Response], kind: str, published: bool = True) -> Iterator[Score]:
    questions, skills = prompt.content["vqa_list"], prompt.content["skills"]
    probabilities = []
    for (question, answer), response in zip(questions, responses, strict=True):
        option = 0 if kind == ImageStarts.kind else _choices(question).index(answer)
        probabilities.append(math.exp(min(scores_of(response)[option], 0.0)))  # rounding may lead above
    # As the published code: 0 where one of them is 0.
    geometric = math.exp(math.fsum(map(math.log, probabilities)) / len(probabilities)) if all(probabilities) else 0.0
    yield Score(AM, ALL, math.fsum(probabilities) / len(probabilities))
    yield Score(GM, ALL, geometric)
    for skill, value in zip(skills, probabilities, strict=True):
        yield Score(AM, skill, value)
    yield Score(GM, prompt.category, geometric)
    if kind == ImageOptions.kind:
        yield from unread([yes_no.is_read(response) or None for response in responses], responses)


RUBRICS = (
    Rubric(
        name="geneval2",
        version=2,
        description="GenEval 2's Soft-TIFA, by skill and number of atoms",
        source="Kamath et al. 2025, arXiv:2512.16853, Section 4, code github.com/facebookresearch/GenEval2 a6e82d2",
        judge="Qwen3-VL-8B-Instruct",
        is_published=named("qwen3-vl-8b", "qwen3-vl-8b-instruct"),
        kinds=(ImageStarts.kind, ImageOptions.kind),
        wordings={kind: (_WORDING,) for kind in (ImageStarts.kind, ImageOptions.kind)},
        fits=lambda prompt: geneval2.has_questions(prompt.content),
        requests=_requests,
        scores=_scores,
        skills=_SKILLS,
    ),
)
