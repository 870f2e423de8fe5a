"""OneIG-Bench's text dimension: edit distance, share of whole texts and share of words, and one score of the three.

Compared with OneIG-Bench/OneIG-Benchmark 41b4983, scripts/text/text_score.py and text_utils.py (no licence there):

- The wanted text is the table's cell as it stands, a list in Python's notation. Marks go, so that "\\n" leaves an n.
- A text with a Chinese character has no blanks, and its characters count as words. Capitals differ from small letters.
- For the whole set, the edit distance and the share of whole texts are means over images, and the share of words is
  one of all words. By length, as in fine_grained_analysis.py, the latter is a mean over images, too.
- text_score is 1 - min(D, 100) (1 - C) (1 - W) / 100 of the three means, with 50 for 100 in Chinese.
- Of the published judge, "addCriterion" and "No text recognized." are removed. Other judges' answers are read in all
  forms. ``unread`` has the share of answers that are empty or refuse. They count as images without words.
- The published code leaves out images that are missing or all black. Here black ones count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from winobench.contrib.benchmarks.prompts import oneig
from winobench.contrib.benchmarks.rubrics import words
from winobench.contrib.benchmarks.rubrics.oneig import JOINT
from winobench.prompts.prompt_files import Prompt
from winobench.rubrics.base import ALL, Rubric, Score, named, unread
from winobench.runs.requests import ImageText, InputImage, Request, Response

DISTANCE, COMPLETE, WORDS, TEXT = "edit_distance", "completion_rate", "word_accuracy", "text_score"

_MOST = {"en": 100, "zh": 50}  # letters of an edit distance
_NOTHING = ("addCriterion", "No text recognized.")
_MANY_WORDS, _TOKENS, _MORE_TOKENS = 60, 128, 256


def _cleaned(text: str) -> str:
    parts = words.letters(text).split()
    return ("" if any(map(words.has_chinese, parts)) else " ").join(parts)


def _words(text: str, wanted: str) -> Sequence[str]:
    return text if words.has_chinese(wanted) else text.split()


def _requests(prompt: Prompt, image: InputImage, kind: str) -> Iterator[Request]:
    is_long = len(prompt.content["text"].split()) > _MANY_WORDS
    yield ImageText(image, words.COPY, max_tokens=_MORE_TOKENS if is_long else _TOKENS)


def _scores(prompt: Prompt, responses: Sequence[Response], kind: str, published: bool = True) -> Iterator[Score]:
    content, wanted = prompt.content, _cleaned(prompt.content["text"])
    text, is_answer = words.read(responses[0], content["text"], published)
    copy = _cleaned(words.without(text, _NOTHING))
    distance, number = words.edit_distance(copy, wanted), len(_words(wanted, wanted))
    right = words.shared(_words(wanted, wanted), _words(copy, wanted))
    length = content.get("prompt_length")
    for group in filter(None, (ALL, length)):
        yield Score(DISTANCE, group, float(distance))
        yield Score(COMPLETE, group, float(distance == 0))
    yield from words.shares(WORDS, [ALL], right, number)
    if length:
        yield Score(WORDS, length, right / number)
    yield from unread([is_answer or None], responses)


def _text_score(most: int) -> Callable[[Mapping[str, float]], float]:
    def score(means: Mapping[str, float]) -> float:
        return 1 - min(most, means[DISTANCE]) * (1 - means[COMPLETE]) * (1 - means[WORDS]) / most

    return score


def _fits(language: str) -> Callable[[Prompt], bool]:
    def fits(prompt: Prompt) -> bool:
        return oneig.text_language(prompt.content) == language and bool(_cleaned(prompt.content["text"]))

    return fits


RUBRICS = tuple(
    Rubric(
        name=name,
        version=1,
        description=f"OneIG-Bench's text in {language}: edit distance and words",
        source="Chang et al. 2025, arXiv:2506.07977, code github.com/OneIG-Bench/OneIG-Benchmark 41b4983",
        judge="Qwen2.5-VL-7B-Instruct",
        is_published=named("qwen2.5-vl-7b", "qwen2.5-vl-7b-instruct"),
        kinds=(ImageText.kind,),
        wordings={ImageText.kind: (words.COPY,)},
        fits=_fits(code),
        requests=_requests,
        scores=_scores,
        combined={TEXT: _text_score(_MOST[code])},
        counts=frozenset({DISTANCE}),
        joint=JOINT,
    )
    for name, code, language in (("oneig_text", "en", "English"), ("oneig_text_zh", "zh", "Chinese"))
)
