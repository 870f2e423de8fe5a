"""GenEval by a vision-language model: each object, number, colour and place that a prompt asks for is a question.

GenEval's published judge is Mask2Former with CLIP for colours (Ghosh et al. 2023, arXiv:2310.11513). The questions here
and their wording are ours. The rule is the published one (djghosh13/geneval af4902f, evaluation/evaluate_images.py): an
image is correct if all that it must include is there, and nothing that it must exclude. With an answer that cannot be
read it is not, and ``unread`` has the share of such answers. The overall value is the plain
mean over tags (evaluation/summary_scores.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from winobench.base import answer_texts
from winobench.prompts.geneval import SKILLS
from winobench.prompts.prompt_files import Prompt
from winobench.rubrics.base import ALL, Rubric, Score, unread
from winobench.runs.requests import ImageText, InputImage, Request, Response

_IS_THERE = "Is there {} in this image? Answer yes or no."
_HOW_MANY = "How many objects of this kind are in this image: {}? Answer with a number."
_WHERE = "Is the {} {} the {} in this image? Answer yes or no."
_PLACES = {"left of": "to the left of", "right of": "to the right of", "above": "above", "below": "below"}


class Question(NamedTuple):
    """A question, and which answers are right: yes, or a number of at least ``least`` and below ``limit``."""

    text: str
    least: int | None = None
    limit: float = float("inf")


_SKILLS = {
    ("accuracy", "single_object"): "recognition",
    ("accuracy", "two_object"): "compositional",
    ("accuracy", "counting"): "counting",
    ("accuracy", "colors"): "attribute_binding",
    ("accuracy", "position"): "spatial",
    ("accuracy", "color_attr"): "attribute_binding",
}


def questions(content: Mapping[str, Any]) -> list[Question]:
    """The questions about the image of a row of ``evaluation_metadata.jsonl``."""
    include, exclude = content["include"], content.get("exclude", [])
    limits: dict[str, int] = {}
    for row in exclude:
        limits[row["class"]] = min(row["count"], limits.get(row["class"], row["count"]))
    result = []
    for row in include:
        name = f"{row['color']} {row['class']}" if "color" in row else row["class"]
        if row["count"] > 1 or (row["class"] in limits and "color" not in row):
            limit = float("inf") if "color" in row else limits.pop(row["class"], float("inf"))
            result.append(Question(_put(_HOW_MANY, name), row["count"], limit))
        else:
            result.append(Question(_put(_IS_THERE, f"{'an' if name[0] in 'aeiou' else 'a'} {name}")))
    result += [Question(_put(_HOW_MANY, name), 0, limit) for name, limit in limits.items()]
    for row in include:
        if "position" in row:
            relation, target = row["position"]
            result.append(Question(_put(_WHERE, row["class"], _PLACES[relation], include[target]["class"])))
    return result


def _put(wording: str, *parts: str) -> str:
    for part in parts:
        wording = wording.replace("{}", part, 1)
    return wording


def _fits(prompt: Prompt) -> bool:
    content = prompt.content
    if not isinstance(content, Mapping) or not isinstance(content.get("include"), list) or not content["include"]:
        return False
    exclude = content.get("exclude", [])
    return isinstance(exclude, list) and all(
        isinstance(row, Mapping)
        and isinstance(row.get("class"), str)
        and row["class"]
        and type(row.get("count")) is int
        and row["count"] > 0
        and isinstance(row.get("color", ""), str)
        and ("position" not in row or _is_place(row["position"], len(content["include"])))
        for row in [*content["include"], *exclude]
    )


def _is_place(position: Any, count: int) -> bool:
    return (
        isinstance(position, Sequence)
        and len(position) == 2
        and isinstance(position[0], str)
        and position[0] in _PLACES
        and type(position[1]) is int
        and 0 <= position[1] < count
    )


def _requests(prompt: Prompt, image: InputImage, kind: str) -> Iterator[Request]:
    for question in questions(prompt.content):
        yield ImageText(image, question.text)


def _scores(prompt: Prompt, responses: Sequence[Response], kind: str, published: bool = True) -> Iterator[Score]:
    correct = True
    read: list[bool | int | None] = []
    for question, response in zip(questions(prompt.content), responses, strict=True):
        if question.least is None:
            read.append(answer_texts.yes_no(response.text))
            correct &= read[-1] is True
        else:
            read.append(answer_texts.number(response.text))
            correct &= read[-1] is not None and question.least <= read[-1] < question.limit
    for group in (ALL, *filter(None, [prompt.category])):
        yield Score("accuracy", group, float(correct))
    yield from unread(read, responses)
    yield Score("answers_read", ALL, sum(answer is not None for answer in read) / len(read))


RUBRICS = (
    Rubric(
        name="geneval_questions",
        version=2,
        description="GenEval's prompts as questions in our words, by tag",
        source="Ghosh et al. 2023, arXiv:2310.11513, Section 3, code github.com/djghosh13/geneval af4902f",
        judge="Mask2Former and CLIP",
        is_published=lambda name: False,
        kinds=(ImageText.kind,),
        wordings={ImageText.kind: (_IS_THERE, _HOW_MANY, _WHERE)},
        fits=_fits,
        requests=_requests,
        scores=_scores,
        skills=_SKILLS,
        macros={("accuracy", "mean of tags"): tuple(SKILLS)},
    ),
)
