"""VQAScore of the prompt: GenAI-Bench's rubric, and one for any other prompts (Lin et al. 2024, Li et al. 2024).

Compared with linzhiqiu/t2v_metrics 6ecb74f, genai_bench/evaluate.py: the mean over the images of a skill, and over the
images of any skill. A local judge reads its family's published question. A hosted one reads the question below, and the
score is its probability of yes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from winobench.base.errors import InputError
from winobench.prompts import genai_bench
from winobench.prompts.prompt_files import Prompt
from winobench.rubrics import yes_no
from winobench.rubrics.base import ALL, Rubric, Score, named, scores_of, unread
from winobench.runs.requests import ImageMatch, ImageOptions, InputImage, Request, Response

_QUESTION = 'Does this figure show "{}"? Please answer yes or no.'
_METRIC = "vqa_score"

_SKILLS = {
    (_METRIC, "attribute"): "attribute_binding",
    (_METRIC, "spatial relation"): "spatial",
    (_METRIC, "action relation"): "compositional",
    (_METRIC, "counting"): "counting",
}


def _fits(prompt: Prompt) -> bool:
    return genai_bench.skills_of(prompt.content) != []


def _requests(prompt: Prompt, image: InputImage, kind: str) -> Iterator[Request]:
    if kind == ImageMatch.kind:
        yield ImageMatch(image, (prompt.text,))
    else:
        yield ImageOptions(image, _QUESTION.replace("{}", prompt.text), ("yes", "no"))


def _scores(prompt: Prompt, responses: Sequence[Response], kind: str, published: bool = True) -> Iterator[Score]:
    (response,) = responses
    (score, *_) = scores_of(response)
    value = score if kind == ImageMatch.kind else math.exp(score)
    if not 0 <= value <= 1:
        raise InputError(
            f"the judge's score is {value:.3g}, but a VQAScore is a probability: name a vision-language model",
            code="wrong-kind-of-model",
        )
    skills = genai_bench.skills_of(prompt.content)
    groups = skills if skills is not None else filter(None, [prompt.category])
    yield from (Score(_METRIC, group, value) for group in (ALL, *groups))
    yield from unread([yes_no.is_read(response) or None], responses)


RUBRICS = (
    Rubric(
        name="vqa_score",
        version=2,
        description="VQAScore of the prompt, by skill (GenAI-Bench) or category",
        source="Li et al. 2024, arXiv:2406.13743, Table 2, code github.com/linzhiqiu/t2v_metrics 6ecb74f",
        judge="CLIP-FlanT5-XXL",
        is_published=named("clip-flant5-xxl"),
        kinds=(ImageMatch.kind, ImageOptions.kind),
        wordings={ImageMatch.kind: ("{}",), ImageOptions.kind: (_QUESTION,)},
        fits=_fits,
        requests=_requests,
        scores=_scores,
        skills=_SKILLS,
        scorers=("vqa_score",),
    ),
)
