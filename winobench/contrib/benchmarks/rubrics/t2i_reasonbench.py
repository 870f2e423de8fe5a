"""T2I-ReasonBench's accuracy and quality: questions with criteria, each scored 1, 0.5 or 0, after a description.

Compared with KaiyueSun98/T2I-ReasonBench efc1d20, evaluation/Qwen2.5-VL/eval_*.py (no licence there):

- The judge describes the image. In the same conversation it then reads each part of a prompt's questions and criteria,
  and answers as JSON with a list of scores. A part's value is the mean of its list.
- Accuracy is the first part's value, or 0.7 of it and 0.3 of the part about other details. Quality is the last part's.
- `ALL` is the plain mean of the four groups of 200 prompts. It needs all four. The published code gives one group's
  mean, in percent with two digits.
- Of the published judge, the first object in braces is read, and its list as it is: any number of any size. Of other
  judges, the list may have any form, with one of the three scores for each question.
- The published code ends where an answer cannot be read. Here the image counts in neither value, and ``unread`` is the
  share of unread answers. The published code lists the images that are there, so that missing ones are left out.
- In eval_entity.py, the published code ends at a name that it does not define. It is read like eval_scientific.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from winobench.base import answer_texts, json_files
from winobench.contrib.benchmarks.prompts import t2i_reasonbench
from winobench.contrib.benchmarks.prompts.t2i_reasonbench import PARTS, QUALITY
from winobench.prompts.prompt_files import Prompt
from winobench.rubrics.base import ALL, Rubric, Score, named, unread
from winobench.runs.requests import ImageText, ImageTurn, InputImage, Request, Response, Turn

ACCURACY, _QUALITY = "accuracy", "quality"
_DESCRIBE = "Describe this image."
_WORDING = """\
Based on the image and your previous description, answer the following questions: q1, q2, ...
For each question, assign a score of 1, 0.5 or 0 according to the corresponding scoring criteria: c1, c2, ...
Here are the questions and criteria: {}
Carefully consider the image and each question before responding, then provide your answer in json format:
{"reason": [your detailed reasoning], "score": [s1,s2, ...]"}"""
_MAX_TOKENS = 1000
_QUESTION = re.compile(r"q\d+")
_POSSIBLE = {0, 0.5, 1}


def _requests(prompt: Prompt, image: InputImage, kind: str) -> Iterator[Request]:
    yield ImageText(image, _DESCRIBE, max_tokens=_MAX_TOKENS)


def _follow_ups(prompt: Prompt, image: InputImage, kind: str, responses: Sequence[Response]) -> Iterator[Request]:
    before = (Turn("user", _DESCRIBE), Turn("assistant", responses[0].text or ""))
    for part in _parts(prompt):
        question = _WORDING.replace("{}", str(prompt.content[part]))
        yield ImageTurn(image, question, max_tokens=_MAX_TOKENS, before=before)


def _parts(prompt: Prompt) -> tuple[str, ...]:
    return (*PARTS[prompt.content["t2i_reasonbench"]][1], QUALITY)


def _scores(prompt: Prompt, responses: Sequence[Response], kind: str, published: bool = True) -> Iterator[Score]:
    parts, group = _parts(prompt), prompt.content["t2i_reasonbench"]
    values = {}
    for part, response in zip(parts, responses[1:], strict=True):
        marks = _published_marks(response.text or "") if published else _marks(response.text, prompt.content[part])
        values[part] = sum(marks) / len(marks) if marks else None
    yield from unread([*values.values()], responses[1:])
    read = {part: value for part, value in values.items() if value is not None}
    if len(read) == len(parts):
        yield Score(ACCURACY, group, sum(weight * read[part] for part, weight in PARTS[group][1].items()))
        yield Score(_QUALITY, group, read[QUALITY])


def _published_marks(text: str) -> list[float] | None:
    """The scores of the first object in a text. None where the published code ends."""
    start = text.find("{")
    try:
        marks = [
            float(mark) for mark in json_files.parse(text[start : text.find("}", start) + 1], foreign=True)["score"]
        ]
    except (json_files.NotJSON, KeyError, TypeError, ValueError):
        return None
    return marks if all(map(math.isfinite, marks)) else None


def _marks(text: str | None, questions: Mapping[str, Any]) -> list[float] | None:
    """The only list of scores in an answer in any form, if it fits the questions."""
    lists = answer_texts.score_lists(text)
    number = sum(_QUESTION.search(name) is not None for name in questions)
    is_read = lists and lists.count(lists[0]) == len(lists) and len(lists[0]) == number and {*lists[0]} <= _POSSIBLE
    return lists[0] if is_read else None


RUBRICS = (
    Rubric(
        name="t2i_reasonbench",
        version=1,
        description="T2I-ReasonBench: accuracy and quality, by group",
        source="Sun et al. 2025, arXiv:2508.17472, code github.com/KaiyueSun98/T2I-ReasonBench efc1d20",
        judge="Qwen2.5-VL-72B-Instruct",
        is_published=named("qwen2.5-vl-72b", "qwen2.5-vl-72b-instruct"),
        kinds=(ImageTurn.kind,),
        wordings={ImageTurn.kind: (_DESCRIBE, _WORDING)},
        fits=lambda prompt: t2i_reasonbench.has_questions(prompt.content),
        requests=_requests,
        follow_ups=_follow_ups,
        scores=_scores,
        macros={(metric, ALL): dict.fromkeys(PARTS, 1 / len(PARTS)) for metric in (ACCURACY, _QUALITY)},
    ),
)
