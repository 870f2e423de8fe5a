"""OneIG-Bench's reasoning, style and diversity, by encoders of images. Its other two dimensions ask questions.

Compared with OneIG-Bench/OneIG-Benchmark 41b4983, scripts/reasoning, scripts/style and scripts/diversity. Each value is
a mean over prompts of the mean over a prompt's images (for diversity, over its pairs of images):

- ``oneig_reasoning``: the cosine of an image and the right answer as a text. Published with LLM2CLIP, which reads 512
  tokens. A CLIP reads 77.
- ``oneig_style``: published are the largest cosine of an image and three reference images of its style, at least 0, in
  the mean of two encoders (CSD, OneIG-StyleEncoder). Of the references, only vectors of these encoders are published.
  Here it is the cosine of an image and the style's name, at least 0.
- ``oneig_diversity``: one minus the cosine of each two images of a prompt, over all categories. A prompt with one image
  is left out. Published with DreamSim.

None of the published encoders comes with winobench. Packages can plug them in under the names below. The results of any
other judge are marked as such. The published code writes each image as a JPEG before it is encoded. Here images are
encoded as they are. Black images mean missing ones there, and are left out, as in runs of `winobench collect`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from winobench.base.errors import InputError
from winobench.contrib.benchmarks.prompts import oneig
from winobench.contrib.benchmarks.rubrics.oneig import JOINT
from winobench.prompts.prompt_files import Prompt
from winobench.rubrics.base import ALL, Rubric, Score, named, scores_of
from winobench.runs.requests import ImageMatch, ImageSimilarity, InputImage, Request, Response

_SOURCE = "Chang et al. 2025, arXiv:2506.07977, code github.com/OneIG-Bench/OneIG-Benchmark 41b4983"


def _ask_matches(field: str) -> Callable[[Prompt, Any, str], Iterator[Request]]:
    """Requests for the match of each image with a text of the prompt's content."""

    def requests(prompt: Prompt, images: Sequence[InputImage], kind: str) -> Iterator[Request]:
        for image in images:
            yield ImageMatch(image, (prompt.content[field],))

    return requests


def _cosines(responses: Sequence[Response]) -> list[float]:
    cosines = [cosine for response in responses for cosine in scores_of(response)]
    for cosine in cosines:
        if not -1.001 <= cosine <= 1.001:
            raise InputError(
                f"the judge's score is {cosine:.3g}, not a cosine: name a CLIP", code="wrong-kind-of-model"
            )
    return cosines


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _reasoning(prompt: Prompt, responses: Sequence[Response], kind: str, published: bool = True) -> Iterator[Score]:
    for group in (ALL, prompt.content["subject"]):
        yield Score("reasoning", group, _mean(_cosines(responses)))


def _style(prompt: Prompt, responses: Sequence[Response], kind: str, published: bool = True) -> Iterator[Score]:
    for group in (ALL, prompt.content["style"].lower().replace(" ", "_")):
        yield Score("style", group, _mean([max(cosine, 0.0) for cosine in _cosines(responses)]))


def _ask_similarity(prompt: Prompt, images: Sequence[InputImage], kind: str) -> Iterator[Request]:
    if len(images) > 1:
        yield ImageSimilarity(tuple(images))


def _diversity(prompt: Prompt, responses: Sequence[Response], kind: str, published: bool = True) -> Iterator[Score]:
    for group in (ALL, prompt.category, *oneig.labels(prompt.content)):
        yield Score("diversity", group, _mean([1 - cosine for cosine in _cosines(responses)]))


RUBRICS = (
    Rubric(
        name="oneig_reasoning",
        version=1,
        description="OneIG-Bench's reasoning: image and right answer, by subject",
        source=_SOURCE,
        judge="LLM2CLIP-Openai-L-14-336",
        is_published=named("llm2clip-openai-l-14-336"),
        kinds=(ImageMatch.kind,),
        wordings={ImageMatch.kind: ("{}",)},
        fits=lambda prompt: oneig.has_text(prompt.content, "answer"),
        requests=_ask_matches("answer"),
        scores=_reasoning,
        together=True,
        joint=JOINT,
        scorers=("contrastive",),
    ),
    Rubric(
        name="oneig_style",
        version=1,
        description="OneIG-Bench's style: image and the style's name, by style",
        source=_SOURCE,
        judge="CSD and OneIG-StyleEncoder",
        is_published=named("csd-oneig-styleencoder"),
        kinds=(ImageMatch.kind,),
        wordings={ImageMatch.kind: ("{}",)},
        fits=lambda prompt: oneig.has_text(prompt.content, "style"),
        requests=_ask_matches("style"),
        scores=_style,
        together=True,
        joint=JOINT,
        scorers=("contrastive",),
    ),
    Rubric(
        name="oneig_diversity",
        version=1,
        description="OneIG-Bench's diversity: distance of a prompt's images",
        source=_SOURCE,
        judge="DreamSim",
        is_published=named("dreamsim"),
        kinds=(ImageSimilarity.kind,),
        wordings={ImageSimilarity.kind: ()},
        fits=lambda prompt: oneig.is_one(prompt.content),
        requests=_ask_similarity,
        scores=_diversity,
        together=True,
        joint=JOINT,
    ),
)
