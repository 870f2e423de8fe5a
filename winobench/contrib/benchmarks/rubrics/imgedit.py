"""ImgEdit: three marks from 1 to 5 for each edit, by its type.

Compared with PKU-YuanGroup/ImgEdit 547185d (no licence there), Benchmark/Basic: basic_bench.py, prompts.json,
step1_get_avgscore.py and step2_typescore.py.

- Each type of edit has its own text for the judge, and its own names of three marks.
- An image's score is the mean of the numbers behind ": " at the ends of lines, rounded to two digits. A type's score is
  the mean of its images. The published code rounds it once more. `ALL` is the mean of the types, as papers report it.
- Results here are shares of 5 marks: the published 3.26 is 0.652, or 65.2%.
- An answer without such a number counts nowhere there and here, and ``unread`` is the share of such answers.
- Of the published judge, any number counts, as there. Other judges' answers need the three marks that the text asks
  for, from 1 to 5.
- The judge answers at temperature 0 here, and at the server's own there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from winobench.base import answer_texts, json_files
from winobench.contrib.benchmarks import wordings
from winobench.contrib.benchmarks.prompts import imgedit
from winobench.contrib.benchmarks.prompts.edits import INSTRUCTION
from winobench.prompts.prompt_files import Prompt
from winobench.rubrics.base import ALL, Rubric, Score, unread
from winobench.runs.requests import ImagesText, InputImage, Request, Response

SCORE = "score"

_WORDINGS: dict[str, str] = {
    kind: text.replace("<edit_prompt>", "{}") for kind, text in json_files.parse(wordings.read("imgedit.json")).items()
}
_TOKENS = 1000
_MOST = 5
_NAMES = {
    kind: re.findall(r"^(.+): A number from 1 to 5\.$", text, re.MULTILINE) for kind, text in _WORDINGS.items()
}  # of the three marks, as each text asks for them
_PUBLISHED = re.compile(r"(openai:)?gpt-4o(-\d{4}-\d\d-\d\d)?")


def _requests(prompt: Prompt, images: tuple[InputImage, InputImage], kind: str) -> Iterator[Request]:
    source, result = images
    question = _WORDINGS[prompt.content["imgedit"]].replace("{}", prompt.content[INSTRUCTION])
    yield ImagesText(source, question, max_tokens=_TOKENS, more_images=(result,))


def _scores(prompt: Prompt, responses: Sequence[Response], kind: str, published: bool = True) -> Iterator[Score]:
    kind_of_edit, text = prompt.content["imgedit"], responses[0].text or ""
    marks = _published_marks(text) if published else _marks(text, _NAMES[kind_of_edit])
    yield from unread([marks or None], responses)
    if marks:
        yield Score(SCORE, kind_of_edit, round(sum(marks) / len(marks), 2) / _MOST)


def _published_marks(text: str) -> list[int]:
    """The numbers that are all of a line behind its only ": "."""
    parts = [line.strip().split(": ") for line in text.splitlines()]
    return [int(part[1]) for part in parts if len(part) == 2 and part[1].isdecimal()]


def _marks(text: str, names: Sequence[str]) -> list[int]:
    """The marks of these names in an answer in any form. Empty without all of them."""
    marks = answer_texts.marks(text, names, _MOST) or []
    return [] if 0 in marks else marks


RUBRICS = (
    Rubric(
        name="imgedit",
        version=1,
        description="ImgEdit: marks for single edits, by type",
        source="Ye et al. 2025, arXiv:2505.20275, code github.com/PKU-YuanGroup/ImgEdit 547185d",
        judge="gpt-4o",
        is_published=lambda name: _PUBLISHED.fullmatch(name.lower()) is not None,
        kinds=(ImagesText.kind,),
        wordings={ImagesText.kind: tuple(_WORDINGS.values())},
        fits=imgedit.is_edit,
        requests=_requests,
        scores=_scores,
        macros={(SCORE, ALL): imgedit.TYPES},
        edits=True,
    ),
)
