"""OneIG-Bench's alignment: yes/no questions, each wrong where one that it depends on got another answer than Yes.

Compared with OneIG-Bench/OneIG-Benchmark 41b4983, scripts/alignment/alignment_score.py (no licence there, see
`winobench.contrib.benchmarks.prompts.oneig`):

- Of the published judge, only the answer "Yes" counts, letter by letter: "Yes." is wrong. Answers of other judges are
  read in all forms of yes. ``unread`` has the share of answers without yes or no, which are wrong.
- The question keeps its mark before the full stop.
- Dependencies are looked up in the original answers. A question that was made wrong makes no other one wrong.
- Groups are the categories and, in English, the lengths and types that fine_grained_analysis.py takes.
- The Chinese set has the same question around questions in Chinese, and multilingualism as a fourth category.
- The published code leaves out images that are all black. `winobench.collect_images` records them as missing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from winobench.contrib.benchmarks.prompts import oneig, question_graphs
from winobench.prompts.prompt_files import Prompt
from winobench.rubrics import yes_no
from winobench.rubrics.base import ALL, Rubric, Score, named, unread
from winobench.runs.requests import ImageOptions, ImageText, InputImage, Request, Response

ALIGNMENT = "alignment"
_YES, _NO = "Yes", "No"
_WORDING = f"{{}}. Please answer '{_YES}' or '{_NO}' only."
_MAX_TOKENS = 128


def _requests(prompt: Prompt, image: InputImage, kind: str) -> Iterator[Request]:
    for question in prompt.content["questions"]:
        text = _WORDING.replace("{}", question["question"])
        if kind == ImageText.kind:
            yield ImageText(image, text, max_tokens=_MAX_TOKENS)
        else:
            yield ImageOptions(image, text, (_YES, _NO))


def _scores(prompt: Prompt, responses: Sequence[Response], kind: str, published: bool = True) -> Iterator[Score]:
    content, read = prompt.content, [yes_no.read(response) for response in responses]
    letter_by_letter = published and kind == ImageText.kind
    answers = {
        question["id"]: response.text == _YES if letter_by_letter else answer is True
        for question, response, answer in zip(content["questions"], responses, read, strict=True)
    }
    counted = yes_no.with_parents(answers, question_graphs.parents(content["questions"]), cascading=False)
    for group in (ALL, prompt.category, *oneig.labels(content)):
        yield Score(ALIGNMENT, group, math.fsum(counted.values()) / len(counted))
    yield from unread(read, responses)


JOINT = {
    "oneig": ALIGNMENT,
    "oneig_text": "text_score",
    "oneig_text_zh": "text_score",
    "oneig_reasoning": "reasoning",
    "oneig_style": "style",
    "oneig_diversity": "diversity",
}
"""Rubric -> metric of the five dimensions, the mean of which is the published overall value."""

RUBRICS = (
    Rubric(
        name="oneig",
        version=2,
        description="OneIG-Bench's alignment, by category, length and type",
        source="Chang et al. 2025, arXiv:2506.07977, code github.com/OneIG-Bench/OneIG-Benchmark 41b4983",
        judge="Qwen2.5-VL-7B-Instruct",
        is_published=named("qwen2.5-vl-7b", "qwen2.5-vl-7b-instruct"),
        kinds=(ImageText.kind, ImageOptions.kind),
        wordings={kind: (_WORDING,) for kind in (ImageText.kind, ImageOptions.kind)},
        fits=lambda prompt: oneig.has_questions(prompt.content),
        requests=_requests,
        scores=_scores,
        joint=JOINT,
    ),
)
