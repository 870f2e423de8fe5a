"""DPG-Bench's score: yes/no questions in a graph, where a wrong one makes those wrong that depend on it.

Compared with TencentQQGYLab/ELLA 3c228f1, dpg_bench/compute_dpg_bench.py (Apache-2.0), for its rules see
`winobench.contrib.benchmarks.prompts.dpg_bench` and here:

- Only yes counts. ``unread`` has the share of answers without yes or no, which are wrong.
- Questions are made wrong in their order, and those that were made wrong count as such for later ones.
- Categories use the answers before that. Level 2 is a tuple's text up to the bracket, level 1 up to the hyphen.
- Given four images of a prompt in a grid, the published code takes only the last one's answers for categories. Here all
  images count. Its judge reads a question alone. Here the question also requests yes or no.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from winobench.contrib.benchmarks.prompts import dpg_bench, question_graphs
from winobench.prompts.prompt_files import Prompt
from winobench.rubrics import yes_no
from winobench.rubrics.base import ALL, Rubric, Score, named, unread
from winobench.runs.requests import ImageOptions, ImageText, InputImage, Request, Response

SCORE, LEVEL_1, LEVEL_2 = "score", "level_1", "level_2"
_OPTIONS = ("yes", "no")

_SKILLS = {
    (LEVEL_1, "entity"): "recognition",
    (LEVEL_1, "attribute"): "attribute_binding",
    (LEVEL_2, "relation - spatial"): "spatial",
    (LEVEL_2, "relation - non-spatial"): "compositional",
    (LEVEL_2, "other - count"): "counting",
}


def _requests(prompt: Prompt, image: InputImage, kind: str) -> Iterator[Request]:
    for question in prompt.content["questions"]:
        text = yes_no.WORDING.replace("{}", question["question"].strip())
        yield ImageText(image, text) if kind == ImageText.kind else ImageOptions(image, text, _OPTIONS)


def _scores(prompt: Prompt, responses: Sequence[Response], kind: str, published: bool = True) -> Iterator[Score]:
    questions = prompt.content["questions"]
    read = [yes_no.read(response) for response in responses]
    answers = {question["id"]: answer is True for question, answer in zip(questions, read, strict=True)}
    counted = yes_no.with_parents(answers, question_graphs.parents(questions), cascading=True)
    yield Score(SCORE, ALL, math.fsum(counted.values()) / len(counted))
    yield from unread(read, responses)
    for question in questions:
        category = question["tuple"].split("(")[0].strip()
        yield Score(LEVEL_1, category.split("-")[0].strip(), float(answers[question["id"]]))
        yield Score(LEVEL_2, category, float(answers[question["id"]]))


RUBRICS = (
    Rubric(
        name="dpg_bench",
        version=2,
        description="DPG-Bench: yes/no questions in a graph, by category",
        source="Hu et al. 2024, arXiv:2403.05135, Section 4, code github.com/TencentQQGYLab/ELLA 3c228f1",
        judge="mPLUG large (mplug_visual-question-answering_coco_large_en)",
        is_published=named("mplug_visual-question-answering_coco_large_en"),
        kinds=(ImageText.kind, ImageOptions.kind),
        wordings={kind: (yes_no.WORDING,) for kind in (ImageText.kind, ImageOptions.kind)},
        fits=lambda prompt: dpg_bench.has_questions(prompt.content),
        requests=_requests,
        scores=_scores,
        skills=_SKILLS,
    ),
)
