"""WISE's WiScore: whether an image shows what its prompt implies by knowledge of the world, by category.

Compared with PKU-YuanGroup/WISE eb51174 (no licence there):

- ``wise``, the edition of 2025 (WISE_legacy/gpt_eval.py, Calculate.py): the judge gives consistency C, realism R and
  aesthetic quality A from 0 to 2. WiScore = (0.7 C + 0.2 R + 0.1 A) / 2.
- ``wise_verified``, the edition of 2026 (vllm_eval.py, calculate_verified.py): the judge gives 0 or 1.
- `ALL` is the published sum of the six categories with weights. It needs all of them.
- Of the published judge, marks are read as the published code reads them: in ``wise`` the first digit, also above 2,
  and the last of several marks of one name. Of other judges, all forms are read, and two different marks are not.
- The published code asks again where it reads no mark, and then leaves the image out. It also leaves out missing
  images, and then gives no overall score. Here an unread image has no WiScore, and ``unread`` is their share.
- The published code sends a system prompt (`_SYSTEMS`). A judge that reads no system turns is asked without it, and
  its results are not the published ones. Version 1 never sent it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from winobench.base import answer_texts
from winobench.contrib.benchmarks import wordings
from winobench.contrib.benchmarks.prompts import wise
from winobench.prompts.prompt_files import Prompt
from winobench.rubrics.base import ALL, Rubric, Score, named, unread
from winobench.runs.requests import ImageText, ImageTurn, InputImage, Request, Response, Turn

WISCORE = "wiscore"
_WEIGHTS = {"consistency": 0.7, "realism": 0.2, "aesthetic quality": 0.1}
_MOST = 2  # of a mark
_WORDINGS = {
    edition: wordings.read(f"{name}.txt") for edition, name in (("legacy", "wise"), ("verified", "wise_verified"))
}
_SYSTEMS = {
    "legacy": "You are a professional Vincennes image quality audit expert, please evaluate the image quality strictly"
    " according to the protocol.",
    "verified": "You are a professional text-to-image quality auditor. Evaluate the image strictly according to the"
    " protocol.",
}
_MAX_TOKENS = {"legacy": 2000, "verified": 500}
_OF_CATEGORIES: Mapping[str, Mapping[str, float]] = {
    "legacy": {"culture": 0.4, "time": 0.167, "space": 0.133, "biology": 0.1, "physics": 0.1, "chemistry": 0.1},
    "verified": {"culture": 0.4, **dict.fromkeys(("time", "space", "biology", "physics", "chemistry"), 0.12)},
}

_MARK = re.compile(rf"\*{{0,2}}({'|'.join(_WEIGHTS)})\*{{0,2}}\s*+:?\s*+(\d)", re.IGNORECASE)
_VERDICT = re.compile(r"\*{0,2}Score\*{0,2}\s*+:?\s*+([01])\b", re.IGNORECASE)
_THOUGHTS = re.compile(r"<think>.*?</think>\s*|</think>\s*", re.DOTALL)


def _requests(prompt: Prompt, image: InputImage, kind: str) -> Iterator[Request]:
    edition = prompt.content["wise"]
    text = _WORDINGS[edition].format(prompt=prompt.text, explanation=prompt.content["explanation"])
    if kind == ImageTurn.kind:
        yield ImageTurn(image, text, max_tokens=_MAX_TOKENS[edition], before=(Turn("system", _SYSTEMS[edition]),))
    else:
        yield ImageText(image, text, max_tokens=_MAX_TOKENS[edition])


def _scores(prompt: Prompt, responses: Sequence[Response], kind: str, published: bool = True) -> Iterator[Score]:
    marks = _published_marks(responses[0].text or "") if published else _marks(responses[0].text)
    yield from unread([marks], responses)
    if marks is None:
        return
    for name, mark in zip(_WEIGHTS, marks, strict=True):
        yield Score(name.replace(" ", "_"), ALL, mark / _MOST)
    total = math.fsum(weight * mark for weight, mark in zip(_WEIGHTS.values(), marks, strict=True))
    yield Score(WISCORE, prompt.category, total / _MOST)


def _alone(text: str, most: int) -> list[int]:
    """The digits from 0 to ``most`` that are alone in their lines."""
    return [int(line) for line in map(str.strip, text.split("\n")) if line in [*map(str, range(most + 1))]]


def _published_marks(text: str) -> list[int] | None:
    marks = {name.lower(): int(digit) for name, digit in _MARK.findall(text)}
    if not marks and len(alone := _alone(text, _MOST)) >= len(_WEIGHTS):
        return alone[: len(_WEIGHTS)]
    return [marks[name] for name in _WEIGHTS] if len(marks) == len(_WEIGHTS) else None


def _marks(text: str | None) -> list[int] | None:
    """The marks in an answer in any form: behind their names, or three numbers alone."""
    marks = answer_texts.marks(text, [*_WEIGHTS], _MOST)
    alone = _alone(answer_texts.spoken(text or ""), _MOST)
    return marks or (alone if len(alone) == len(_WEIGHTS) else None)


def _score_verdict(prompt: Prompt, responses: Sequence[Response], kind: str, published: bool = True) -> Iterator[Score]:
    verdict = _published_verdict(responses[0].text or "") if published else _verdict(responses[0].text)
    yield from unread([verdict], responses)
    if verdict is not None:
        yield Score(WISCORE, prompt.category, float(verdict))


def _published_verdict(text: str) -> int | None:
    text = _THOUGHTS.sub("", text)
    if match := _VERDICT.search(text):
        return int(match[1])
    alone = _alone(text, 1)
    return alone[0] if len(alone) == 1 else None


def _verdict(text: str | None) -> int | None:
    """0 or 1 in an answer in any form: behind the word score, or alone."""
    marks = answer_texts.marks(text, ["score"], 1)
    return marks[0] if marks else answer_texts.mark(text, ["0", "1"])


def _rubric(edition: str, **fields: Any) -> Rubric:
    return Rubric(
        version=2,
        source="Niu et al. 2025, arXiv:2503.07265, code github.com/PKU-YuanGroup/WISE eb51174",
        kinds=(ImageTurn.kind, ImageText.kind),
        wordings={
            ImageTurn.kind: (_SYSTEMS[edition], _WORDINGS[edition]),
            ImageText.kind: (_WORDINGS[edition],),
        },
        fits=lambda prompt: wise.edition(prompt) == edition,
        requests=_requests,
        macros={(WISCORE, ALL): _OF_CATEGORIES[edition]},
        **fields,
    )


RUBRICS = (
    _rubric(
        "legacy",
        name="wise",
        description="WISE: WiScore of three marks, by category",
        judge="gpt-4o-2024-05-13",
        is_published=named("gpt-4o-2024-05-13", "openai:gpt-4o-2024-05-13"),
        scores=_scores,
    ),
    _rubric(
        "verified",
        name="wise_verified",
        description="WISE_Verified: WiScore of 0 or 1, by category",
        judge="Qwen3.5-35B-A3B",
        is_published=named("qwen3.5-35b-a3b"),
        scores=_score_verdict,
    ),
)
