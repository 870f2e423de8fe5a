"""UniGenBench++'s accuracy: the judge says of each point of a prompt whether the image has it.

Compared with CodeGoat24/UniGenBench 49d0bce, eval/src/eval_common.py (data: CC BY 4.0):

- The judge reads the prompt, its points with their explanations and descriptions, and writes an analysis and a score of
  1 or 0 for each. The accuracy of a dimension is its share of points with 1, over all images.
- `ALL` is the plain mean of the ten primary dimensions, as in the published tables. It needs all ten.
- Chinese points count under their English names.
- Of the published judges, an answer counts if analysis and scores are Python lists with one entry for each point. Of
  other judges, the list of scores is enough, in any form.
- The published code asks again up to ten times where an answer cannot be read, and then leaves the image out. Here it
  is left out at once, and ``unread`` is the share of such images. The published code ends where an image is missing.
"""

from __future__ import annotations

import ast
import json
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from winobench.base import answer_texts
from winobench.contrib.benchmarks import wordings
from winobench.contrib.benchmarks.prompts import unigenbench
from winobench.prompts.prompt_files import Prompt
from winobench.rubrics.base import ALL, Rubric, Score, named, unread
from winobench.runs.requests import ImageText, InputImage, Request, Response

ACCURACY = "accuracy"
_WORDINGS = {language: wordings.read(f"unigenbench_{language}.txt") for language in unigenbench.EXPLANATIONS}
_HEADS = {"en": ("Checkpoints Defination", "Checkpoints Description"), "zh": ("考点说明", "考点描述说明")}
_PARTS = ("analysis", "score")
_MAX_TOKENS = 4096
_PRIMARY = tuple(dict.fromkeys(name.partition(" - ")[0] for name in unigenbench.EXPLANATIONS["en"]))


def _requests(prompt: Prompt, image: InputImage, kind: str) -> Iterator[Request]:
    language, points = prompt.content["unigenbench"], prompt.content["points"]
    explanations = [unigenbench.EXPLANATIONS[language][point] for point in points]
    parts = [
        f"{head}:「" + "".join(f"\n{point}: {text}" for point, text in zip(points, texts, strict=True)) + "\n」"
        for head, texts in zip(_HEADS[language], (explanations, prompt.content["descriptions"]), strict=True)
    ]
    names = {"prompt": prompt.text, "testpoint": points, "explanation": parts[0], "test_explanation": parts[1]}
    yield ImageText(image, _WORDINGS[language].format(**names), max_tokens=_MAX_TOKENS)


def _scores(prompt: Prompt, responses: Sequence[Response], kind: str, published: bool = True) -> Iterator[Score]:
    text, points = responses[0].text or "", prompt.content["points"]
    marks = _published_marks(text, len(points))
    if marks is None and not published:
        marks = _marks(text, len(points))
    yield from unread([marks], responses)
    for point, mark in zip(points, marks or (), strict=False):
        name = unigenbench.NAMES[point]
        for group in dict.fromkeys((name.partition(" - ")[0], name)):
            yield Score(ACCURACY, group, float(mark == 1))


def _published_marks(text: str, number: int) -> Sequence[Any] | None:
    """The scores. As published, all lists must be equal in JSON and in Python, so that true and None are unread."""
    found = [text.partition(f"<{name}>")[2].partition(f"</{name}>") for name in _PARTS]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of backslashes in texts
            lists = [ast.literal_eval(part.strip()) for part, end, _ in found if end]
        if len(lists) != len(_PARTS) or any(len(entries) != number for entries in lists):
            return None
        marks = ast.literal_eval(json.dumps(lists))[-1]
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return marks if isinstance(marks, list) else None


def _marks(text: str, number: int) -> Sequence[float] | None:
    """The only list of scores in an answer in any form."""
    lists = answer_texts.score_lists(text)
    is_read = lists and lists.count(lists[0]) == len(lists) and len(lists[0]) == number and {*lists[0]} <= {0, 1}
    return lists[0] if is_read else None


RUBRICS = (
    Rubric(
        name="unigenbench",
        version=1,
        description="UniGenBench++: accuracy of points, by dimension",
        source="Wang et al. 2025, arXiv:2510.18701, code github.com/CodeGoat24/UniGenBench 49d0bce",
        judge="gemini-2.5-pro",
        is_published=named(
            "gemini-2.5-pro",
            "openai:gemini-2.5-pro",
            "unigenbench-evalmodel-qwen-72b-v1",
            "unigenbench-evalmodel-qwen3vl-32b-v1",
        ),
        kinds=(ImageText.kind,),
        wordings={ImageText.kind: tuple(_WORDINGS.values())},
        fits=lambda prompt: unigenbench.has_points(prompt.content),
        requests=_requests,
        scores=_scores,
        macros={(ACCURACY, ALL): dict.fromkeys(_PRIMARY, 1 / len(_PRIMARY))},
        skills={
            (ACCURACY, "Entity Layout"): "spatial",
            (ACCURACY, "Attribute - Quantity"): "counting",
            (ACCURACY, "Compound - Feature Matching"): "attribute_binding",
        },
    ),
)
