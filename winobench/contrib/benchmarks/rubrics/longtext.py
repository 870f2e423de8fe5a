"""LongText-Bench: the share of the wanted words that a judge reads in the image. In Chinese, of characters.

Compared with X-Omni-Team/X-Omni 2b8237b, textbench/evaluate_text_reward.py and summary_scores.py (Apache-2.0):

- The shares are of all words of all images, so that long texts weigh more. Words are in small letters and may have any
  order. A word that is wanted twice must be read twice. Words that nobody wanted cost nothing.
- Of the published judge, "No text recognized." is removed, but "addCriterion" is not: the published loop keeps the
  result of its last phrase alone. Other judges' answers are read in all forms.
- ``unread`` has the share of answers that are empty or refuse. They count as images without words.
- Images that are missing count nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from winobench.contrib.benchmarks.prompts import longtext
from winobench.contrib.benchmarks.rubrics import words
from winobench.prompts.prompt_files import Prompt
from winobench.rubrics.base import ALL, Rubric, Score, named, unread
from winobench.runs.requests import ImageText, InputImage, Request, Response

_METRICS = {"en": "word_accuracy", "zh": "character_accuracy"}
_MAX_TOKENS = 1024
_NOTHING = ("No text recognized.",)


def _parts(text: str, language: str) -> Sequence[str]:
    """The words of an English text, the characters of a Chinese one."""
    parts = words.letters(text).split()
    return "".join(parts) if language == "zh" else [part.lower() for part in parts]


def _wanted(prompt: Prompt) -> Sequence[str]:
    return _parts(" ".join(prompt.content["text"]), prompt.content["language"])


def _requests(prompt: Prompt, image: InputImage, kind: str) -> Iterator[Request]:
    yield ImageText(image, words.COPY, max_tokens=_MAX_TOKENS)


def _scores(prompt: Prompt, responses: Sequence[Response], kind: str, published: bool = True) -> Iterator[Score]:
    content, wanted = prompt.content, _wanted(prompt)
    text, is_answer = words.read(responses[0], " ".join(content["text"]), published)
    right = words.shared(wanted, _parts(words.without(text, _NOTHING), content["language"]))
    groups = dict.fromkeys((ALL, prompt.category, content["length"]))
    yield from words.shares(_METRICS[content["language"]], [*filter(None, groups)], right, len(wanted))
    yield from unread([is_answer or None], responses)


RUBRICS = (
    Rubric(
        name="longtext",
        version=1,
        description="LongText-Bench: words or characters, by category, length",
        source="Geng et al. 2025, arXiv:2507.22058, code github.com/X-Omni-Team/X-Omni 2b8237b",
        judge="Qwen2.5-VL-7B-Instruct",
        is_published=named("qwen2.5-vl-7b", "qwen2.5-vl-7b-instruct"),
        kinds=(ImageText.kind,),
        wordings={ImageText.kind: (words.COPY,)},
        fits=lambda prompt: longtext.has_text(prompt.content) and bool(_wanted(prompt)),
        requests=_requests,
        scores=_scores,
    ),
)
