"""GEdit-Bench: marks from 0 to 10 for how well an instruction was followed, and for the quality of the result.

Compared with stepfun-ai/Step1X-Edit 570eba6 (Apache-2.0), GEdit-Bench: test_gedit_score.py, calculate_statistics.py and
viescore, whose texts come from VIEScore (Ku et al. 2024, arXiv:2312.14867):

- Each of two questions gets a list of marks, of which the lowest counts. ``overall`` is the root of their product.
- Results here are shares of 10 marks: the published 7.33 is 0.733, or 73.3%.
- Each language has the mean of the 11 types' means, for the full set and for the rows of Intersection_exist. `ALL` has
  no value. The published code takes the languages en and zh, but its data set says cn.
- The published code asks once more where an answer cannot be read, and then takes a mark at random. Here the image
  counts nowhere, and ``unread`` is the share of such answers.
- The published code shows the result in the size of the source, both as JPEG. Here each has its own size. The
  temperature is 0 here, and the server's own there.
- Of the published judge, marks beyond 10 count as they do there. Other judges' marks are from 0 to 10.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from winobench.base import answer_texts, json_files
from winobench.contrib.benchmarks import wordings
from winobench.contrib.benchmarks.prompts import gedit
from winobench.contrib.benchmarks.prompts.edits import INSTRUCTION
from winobench.prompts.prompt_files import Prompt
from winobench.rubrics.base import Rubric, Score, named, unread
from winobench.runs.requests import ImagesText, ImageText, InputImage, Request, Response

CONSISTENCY, QUALITY, OVERALL = METRICS = ("semantic_consistency", "perceptual_quality", "overall")

_CONSISTENCY_WORDING, _QUALITY_WORDING = (wordings.read(f"gedit_{name}.txt") for name in ("consistency", "quality"))
_TOKENS = 1400
_MOST, _LARGEST = 10, 1e9
_SIGN = "||V^=^V||"  # that the texts for other judges ask for around an answer
_TWO_MARKS = re.compile(r"\[\d+, ?\d+\]")
_KEY = re.compile(r"(\w+):")
_PAIR = re.compile(r'(".*?"):(.*?)(,|})')
_NUMBER, _LITERAL = re.compile(r"-?\d+(\.\d+)?"), re.compile("true|false|null", re.IGNORECASE)


def _requests(prompt: Prompt, images: tuple[InputImage, InputImage], kind: str) -> Iterator[Request]:
    source, result = images
    question = _CONSISTENCY_WORDING.replace("{}", prompt.content[INSTRUCTION])
    yield ImagesText(source, question, max_tokens=_TOKENS, more_images=(result,))
    yield ImageText(result, _QUALITY_WORDING, max_tokens=_TOKENS)


def _scores(prompt: Prompt, responses: Sequence[Response], kind: str, published: bool = True) -> Iterator[Score]:
    read = _published_mark if published else _mark
    marks = [read(response.text or "") for response in responses]
    if None not in marks and math.prod(mark for mark in marks if mark is not None) < 0:
        marks = [None for _ in marks]  # the published code has no root of it
    yield from unread(marks, responses)
    consistency, quality = marks
    if consistency is None or quality is None:
        return
    content = prompt.content
    group = f"{content['gedit']}-{content['language']}"
    values = (consistency, quality, math.sqrt(consistency * quality))
    for metric, value in zip(METRICS, values, strict=True):
        yield Score(metric, group, value / _MOST)
        if content["intersection"]:
            yield Score(metric, f"{group}-intersection", value / _MOST)


def _published_mark(text: str) -> float | None:
    """The lowest mark in an answer, as mllm_output_to_dict reads it. None where the published code fails."""
    marks = _marks(text)
    return min(marks) if marks and abs(min(marks)) < _LARGEST else None


def _mark(text: str) -> float | None:
    """The lowest mark in an answer in any form, if all are from 0 to 10."""
    lists = answer_texts.score_lists(text) or [_marks(answer_texts.spoken(text)) or []]
    is_one = all(each == lists[0] for each in lists)
    return min(lists[0]) if lists[0] and is_one and all(0 <= mark <= _MOST for mark in lists[0]) else None


def _marks(text: str) -> list[float] | None:
    part = _answer(text)
    return None if part is None else _listed(part.strip().replace("\n", ""))


def _answer(text: str) -> str | None:
    """The part of an answer that should be an object with a score."""
    if text.count(_SIGN) == 2:
        return text.split(_SIGN)[1]
    first, end = text.find("{"), text.rfind("}") + 1
    if first >= 0 and end > 0:
        return text[first:end]
    marks = text[text.find("[") : text.rfind("]") + 1]
    if _TWO_MARKS.fullmatch(marks):
        return f'{{"score": {marks}}}'
    try:
        mark = int(text)
    except ValueError:
        return None
    return f'{{"score": [{mark}]}}' if 0 <= mark <= _MOST else None


def _listed(part: str) -> list[float] | None:
    """The marks of an object, or of one that is repaired as the published code repairs it."""
    if not part.startswith("{") or not part.endswith("}"):  # spares the repair of endless answers
        return None
    try:
        value = json_files.parse(part, foreign=True)
        marks = value["score"]
        marks = marks if isinstance(marks, list) else [marks]
    except (json_files.NotJSON, TypeError, KeyError):
        try:
            value = json_files.parse(_PAIR.sub(_repaired, _KEY.sub(r'"\1":', part)), foreign=True)
            marks = value["score"]
        except (json_files.NotJSON, TypeError, KeyError):
            return None
    return marks if isinstance(marks, list) and all(type(mark) in (int, float) for mark in marks) else None


def _repaired(pair: re.Match[str]) -> str:
    """A key and its value as JSON: numbers in lists, and other values in quotes."""
    key, value, end = pair[1], pair[2].strip(), pair[3]
    if _NUMBER.fullmatch(value):
        value = f"[{value}]"
    elif not _LITERAL.fullmatch(value):
        value = f'"{value}"'
    return f"{key}: {value}{end}"


def _macros() -> Iterator[tuple[tuple[str, str], Mapping[str, float]]]:
    for metric in METRICS:
        for language in gedit.LANGUAGES:
            for part in ("", "-intersection"):
                weights = {f"{kind}-{language}{part}": 1 / len(gedit.TYPES) for kind in gedit.TYPES}
                yield (metric, f"{language}{part}"), weights


RUBRICS = (
    Rubric(
        name="gedit",
        version=1,
        description="GEdit-Bench: marks for edits, by type and language",
        source="Liu et al. 2025, arXiv:2504.17761, code github.com/stepfun-ai/Step1X-Edit 570eba6",
        judge="gpt-4.1",
        is_published=named("gpt-4.1", "gpt-4.1-2025-04-14", "openai:gpt-4.1", "openai:gpt-4.1-2025-04-14"),
        kinds=(ImagesText.kind,),
        wordings={ImagesText.kind: (_CONSISTENCY_WORDING, _QUALITY_WORDING)},
        fits=gedit.is_edit,
        requests=_requests,
        scores=_scores,
        macros=dict(_macros()),
        edits=True,
    ),
)
