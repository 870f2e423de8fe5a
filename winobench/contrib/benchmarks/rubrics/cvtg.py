"""CVTG-2K: the share of words between quotation marks that a judge reads in the image, by number of regions; CLIPScore.

Compared with TextCrafter_Eval/unified_metrics_eval.py of NJU-PCALab/TextCrafter, as zlab-princeton/i1 b58a62f has it:

- ``word_accuracy`` is the share of all wanted words that the judge reads, in small letters with their marks. A word
  that is wanted twice need be read once.
- ``ned`` is the mean over all wanted words of 1 - edit distance / (longer length + 1e-5) to the word that difflib finds
  nearest among those that were read. So higher is better, and a right word has 1.
- ``clip_score`` is 2.5 max(cosine, 0) of "A photo depicts " and the prompt.
- Each is also there by the number of regions, and by that and the part (CVTG or CVTG-Style), as published.
- The published judge is an OCR engine. Another judge reads our question, and its answers are read in all forms.
  ``unread`` has the share of answers that are empty or refuse. They count as images without words.
- Images that are missing count nowhere. The published aesthetic score has no rubric. VQAScore
  has one of its own (`winobench.rubrics.vqa_score`).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence

from winobench.base.errors import InputError
from winobench.contrib.benchmarks.prompts import cvtg
from winobench.contrib.benchmarks.rubrics import words
from winobench.prompts.prompt_files import Prompt
from winobench.rubrics.base import ALL, Rubric, Score, named, scores_of, unread
from winobench.runs.requests import ImageMatch, ImageText, InputImage, Request, Response

_MAX_TOKENS = 512
_NEAR_ZERO = 1e-5
_PREFIX, _WEIGHT = "A photo depicts ", 2.5
_SOURCE = "Du et al. 2025, arXiv:2503.23461, code of github.com/NJU-PCALab/TextCrafter in zlab-princeton/i1 b58a62f"


def _groups(prompt: Prompt) -> tuple[str, ...]:
    regions = f"{prompt.content['regions']} regions"
    return ALL, regions, f"{prompt.category}, {regions}"


def _requests(prompt: Prompt, image: InputImage, kind: str) -> Iterator[Request]:
    yield ImageText(image, words.COPY_LINES, max_tokens=_MAX_TOKENS)


def _scores(prompt: Prompt, responses: Sequence[Response], kind: str, published: bool = True) -> Iterator[Score]:
    wanted = prompt.content["words"]
    text, is_answer = words.read(responses[0], " ".join(wanted), published)
    copy = text.lower().split() or [""]
    for group in _groups(prompt):
        for word in wanted:
            yield Score("word_accuracy", group, float(word in copy))
    nearness = [_nearness(word, copy) for word in wanted]
    for group in _groups(prompt):
        for value in nearness:
            yield Score("ned", group, value)
    yield from unread([is_answer or None], responses)


def _nearness(word: str, others: Sequence[str]) -> float:
    (nearest,) = difflib.get_close_matches(word, others, n=1, cutoff=0)
    return 1 - words.edit_distance(word, nearest) / (max(len(word), len(nearest)) + _NEAR_ZERO)


def _ask_match(prompt: Prompt, image: InputImage, kind: str) -> Iterator[Request]:
    yield ImageMatch(image, (f"{_PREFIX}{prompt.text}",))


def _score_match(prompt: Prompt, responses: Sequence[Response], kind: str, published: bool = True) -> Iterator[Score]:
    (cosine,) = scores_of(responses[0])
    if not -1.001 <= cosine <= 1.001:
        raise InputError(
            f"the judge's score is {cosine:.3g}, not the cosine of a CLIP: name a CLIP", code="wrong-kind-of-model"
        )
    for group in _groups(prompt):
        yield Score("clip_score", group, _WEIGHT * max(cosine, 0.0))


RUBRICS = (
    Rubric(
        name="cvtg",
        version=1,
        description="CVTG-2K: words that are read, by number of regions",
        source=_SOURCE,
        judge=words.OCR_ENGINE,
        is_published=named(words.OCR_ENGINE.lower()),
        kinds=(ImageText.kind,),
        wordings={ImageText.kind: (words.COPY_LINES,)},
        fits=lambda prompt: cvtg.has_words(prompt.content),
        requests=_requests,
        scores=_scores,
    ),
    Rubric(
        name="cvtg_clip_score",
        version=1,
        description="CVTG-2K: CLIPScore, by number of regions",
        source=_SOURCE,
        judge="CLIP ViT-L/14",
        is_published=named("clip-vit-l14", "clip-vit-large-patch14", "vit_large_patch14_clip_224.openai"),
        kinds=(ImageMatch.kind,),
        wordings={ImageMatch.kind: (f"{_PREFIX}{{}}",)},
        fits=lambda prompt: cvtg.has_words(prompt.content),
        requests=_ask_match,
        scores=_score_match,
        scorers=("contrastive",),
    ),
)
