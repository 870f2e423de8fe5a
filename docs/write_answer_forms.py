"""Writes docs/reference/answer_forms.md: how each rubric reads each form of an answer. Or checks it.

python docs/write_answer_forms.py            # write it
python docs/write_answer_forms.py --check    # only say whether it is up to date
"""

from __future__ import annotations

import math
import pathlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from winobench.prompts.prompt_files import Prompt
from winobench.responders.hosted import choices
from winobench.rubrics.base import ALL, UNREAD
from winobench.rubrics.named_rubrics import RUBRICS
from winobench.runs import asking
from winobench.runs.requests import ImageText, InputImage, Raw, Request, Response

PAGE = pathlib.Path(__file__).resolve().parent / "reference" / "answer_forms.md"
READ, UNREAD_CELL, WRONG = "read", "unread", "wrong"

_HEAD = """# Forms of answers

<!-- Made by docs/write_answer_forms.py. Run that instead of editing this page. -->

A judge that writes may put its answer in many forms. All rubrics read them by the same rules
(`winobench.base.answer_texts`).

1. Thoughts are cut: `<think>` and similar tags, also a closing tag alone, and the channels of harmony.
2. The answer is what the text sets apart: in `<answer>` tags, in `\\boxed{}`, in JSON, or behind "Answer:". If nothing
   is set apart, it is the whole text. Two different answers are unread.
3. Yes or no is the first word, a word that is a clause of its own, or the last word. A sentence of the opposite, a
   refusal or a doubt makes the answer unread. 30 languages have words for yes and no.
4. A number may have digits or words below one hundred. "no dogs" is 0, and "No, two dogs" is 2. Numbers of lists,
   ordinals, percentages and bounds such as "at least 3" do not count. Several different numbers are unread, unless the
   first or the last is the sum of the others: "two dogs, one left and one right" is 2.
5. A score is each number behind the word score. An answer needs one score for each question.
6. Words in an image are the whole text, or the text in `<answer>` tags, code blocks or JSON. List marks, bold type,
   quotation marks around a line, and a sentence such as "Here is the text:" in front do not count. "No text recognized"
   in any form means no words. A refusal is unread, unless most of its words are wanted in the image.
7. A mark is the number behind its name, such as `Realism: 1/2`. An answer needs each mark once, within its bounds.
8. A list of scores is in brackets behind the word score, or in `<score>` tags. It needs a score for each question. Of
   GEdit-Bench's, the lowest counts, and a number alone is a list, too.

`unread` in the results is the share of answers that no rule reads. The command ends with a warning above 5%, and with
exit status 2 above 50%. An unread answer is not yes, and a number that is not right. TIIF-Bench leaves such images out
of the accuracy. WISE, T2I-ReasonBench, UniGenBench++, GEdit-Bench and ImgEdit leave them out, too. The published judges
of these five, of OneIG-Bench, TIIF-Bench, LongText-Bench, CVTG-2K and `mllm` are read letter by letter, as the
published code reads them.

The table shows how each rubric reads the right answer in each form: *read*, *unread*, or *wrong* (counted as another
answer).
"""


class Form(NamedTuple):
    """A form of an answer."""

    name: str
    text: str  # with {} for the answer
    is_answer: bool = True  # whether an answer is in it


FORMS = (
    Form("alone", "{}"),
    Form("full stop", "{}."),
    Form("small letters", "{small}"),
    Form("capitals", "{capitals}"),
    Form("full width", "{wide}"),
    Form("quotation marks", '"{}"'),
    Form("bold", "**{}**"),
    Form("code", "`{}`"),
    Form("code block", "```\n{}\n```"),
    Form("item of a list", "- {}"),
    Form("numbered", "1. {}"),
    Form("label", "Answer: {}"),
    Form("bold label", "**Final answer:** {}"),
    Form("sentence", "The answer is {}."),
    Form("behind a sentence", "I looked at the image.\nAnswer: {}"),
    Form("JSON", '{{"answer": {json}}}'),
    Form("JSON in a code block", '```json\n{{"answer": {json}}}\n```'),
    Form("boxed", "\\boxed{{{}}}"),
    Form("tags", "<answer>{}</answer>"),
    Form("HTML", "<b>{}</b>"),
    Form("thoughts", "<think>{other}</think>\n\n{}"),
    Form("closing tag alone", "{other}\n</think>\n{}"),
    Form(
        "harmony",
        "<|channel|>analysis<|message|>{other}<|end|><|start|>assistant<|channel|>final<|message|>{}<|return|>",
    ),
    Form("end of turn", "{}<|im_end|>"),
    Form("another language", "{foreign}"),
    Form("with a reason", "{}\n\nI can see this in the image."),
    Form("thoughts alone", "<think>{}", False),
    Form("both", "Answer: {}\nAnswer: {other}", False),
    Form("refusal", "I'm sorry, but I can't help with identifying that.", False),
    Form("refusal with no", "No, I cannot assist with that request.", False),
    Form("doubt", "I cannot tell.", False),
    Form("another word", "yesterday", False),
    Form("empty", "", False),
)


class Answer(NamedTuple):
    """What the forms are filled in with: a right answer and another one."""

    right: str
    other: str
    json: str
    foreign: str


class Column(NamedTuple):
    """How a rubric reads texts."""

    title: str
    answer: Answer
    read: Callable[[str], str]


_YES = Answer("Yes", "No", '"Yes"', "是")
_TWO = Answer("2", "3", "2", "二")
_LINES = Answer("Yes\nNo", "No\nNo", '["Yes", "No"]', "是\n否")
_MARKS = Answer(
    "Consistency: 2\nRealism: 2\nAesthetic Quality: 2",
    "Consistency: 0\nRealism: 0\nAesthetic Quality: 0",
    '{"consistency": 2, "realism": 2, "aesthetic_quality": 2}',
    "2\n2\n2",
)
_VERDICT = Answer("Score: 1", "Score: 0", '{"score": 1}', "1")
_EDIT = Answer(
    "Prompt Compliance: 5\nVisual Naturalness: 5\nPhysical & Detail Coherence: 5",
    "Prompt Compliance: 1\nVisual Naturalness: 1\nPhysical & Detail Coherence: 1",
    '{"prompt_compliance": 5, "visual_naturalness": 5, "physical & detail coherence": 5}',
    "Prompt Compliance - 5/5\nVisual Naturalness - 5/5\nPhysical & Detail Coherence - 5/5",
)
_LIST = Answer("score: [1, 1]", "score: [0, 0]", '{"score": [1, 1]}', "<score>1, 1</score>")
_SCORE = Answer('{"score": 80, "explanation": "x"}', '{"score": 20, "explanation": "x"}', '{"score": 80}', "score: 80")


def _question(number: int, text: str) -> dict[str, object]:
    return {"id": number, "question": text, "dependency": [0], "tuple": "entity - whole (cat)"}


_PROMPTS = {
    "dpg_bench": Prompt("0", "a cat", "", {"questions": [_question(1, "Is there a cat?")]}),
    "oneig": Prompt(
        "0",
        "a cat",
        "Portrait",
        {"type": "NP", "prompt_length": "short", "questions": [_question(1, "Is there a cat?")]},
    ),
    "geneval_questions": Prompt("0", "a dog", "single_object", {"include": [{"class": "dog", "count": 1}]}),
    "numbers": Prompt(
        "0",
        "two dogs",
        "counting",
        {"include": [{"class": "dog", "count": 2}], "exclude": [{"class": "dog", "count": 3}]},
    ),
    "tiif": Prompt(
        "0",
        "a child",
        "",
        {"type": "action+2d", "length": "short", "questions": ["A child?", "A cat?"], "answers": ["yes", "no"]},
    ),
    "mllm": Prompt("0", "a bee on the left of a key", "spatial", None),
    "wise": Prompt("1", "a moon cake", "culture", {"wise": "legacy", "explanation": "round"}),
    "wise_verified": Prompt("1", "a moon cake", "culture", {"wise": "verified", "explanation": "round"}),
    "imgedit": Prompt("1", "a hat", "add", {"imgedit": "add", "instruction": "Add a hat."}),
    "unigenbench": Prompt(
        "0", "two cats", "", {"unigenbench": "en", "points": ["Style", "World Knowledge"], "descriptions": ["a", "b"]}
    ),
}
_IMAGE = InputImage("image.png", "0" * 64)
_VALUES = {
    "wise": "wiscore",
    "wise_verified": "wiscore",
    "unigenbench": "accuracy",
    "imgedit": "score",
    "dpg_bench": "score",
    "oneig": "alignment",
    "geneval_questions": "accuracy",
    "tiif": "accuracy",
}


class _Judge:
    """A judge whose answers are there already."""

    kinds = frozenset({ImageText.kind})

    def fingerprint(self) -> dict[str, str]:
        return {}

    def ask(self, requests: Sequence[Request]) -> Iterator[tuple[int, Raw]]:
        return iter([(number, {"text": ""}) for number in range(len(requests))])

    def read(self, request: Request, raw: Raw) -> Response:
        return Response(text=raw["text"])


def _by_text(rubric: str, prompt: str, right: float = 1.0, *, published: bool = False) -> Callable[[str], str]:
    """How a rubric reads a text about the only image."""

    def read(text: str) -> str:
        response = asking.read(_Judge(), ImageText(_IMAGE), {"text": text})
        scores = [*RUBRICS[rubric].scores(_PROMPTS[prompt], [response], ImageText.kind, published)]
        values = [score.value for score in scores if score.metric == _VALUES.get(rubric, rubric)]
        (unread,) = (score.value for score in scores if (score.metric, score.group) == (UNREAD, ALL))
        if unread:
            return UNREAD_CELL
        return READ if math.fsum(values) == right * len(values) else WRONG

    return read


def _by_votes(options: tuple[str, ...], right: int) -> Callable[[str], str]:
    """How a text counts as a vote for one of some options."""

    def read(text: str) -> str:
        shares = [math.exp(value) for value in choices.from_votes([text], options)]
        return UNREAD_CELL if max(shares) < 0.5 else READ if shares[right] > 0.5 else WRONG

    return read


COLUMNS = (
    Column("`dpg_bench`", _YES, _by_text("dpg_bench", "dpg_bench")),
    Column("`oneig`", _YES, _by_text("oneig", "oneig")),
    Column("`oneig`, published judge", _YES, _by_text("oneig", "oneig", published=True)),
    Column("`geneval_questions`, yes or no", _YES, _by_text("geneval_questions", "geneval_questions")),
    Column("`geneval_questions`, number", _TWO, _by_text("geneval_questions", "numbers")),
    Column("`tiif`", _LINES, _by_text("tiif", "tiif")),
    Column("`tiif`, published judge", _LINES, _by_text("tiif", "tiif", published=True)),
    Column("`mllm`", _SCORE, _by_text("mllm", "mllm", 0.8)),
    Column("`mllm`, published judge", _SCORE, _by_text("mllm", "mllm", 0.8, published=True)),
    Column("`wise`", _MARKS, _by_text("wise", "wise")),
    Column("`wise_verified`", _VERDICT, _by_text("wise_verified", "wise_verified")),
    Column("`unigenbench`", _LIST, _by_text("unigenbench", "unigenbench")),
    Column("`imgedit`", _EDIT, _by_text("imgedit", "imgedit")),
    Column("votes on yes or no", _YES, _by_votes(("Yes", "No"), 0)),
    Column("votes on numbers", _TWO, _by_votes(("one", "two", "three"), 1)),
)
"""Hosted judges without log-probabilities vote on options: geneval2, vqa_score, blip_vqa, and others."""


def filled(form: Form, answer: Answer) -> str:
    """The text of a form with an answer in it."""
    wide = "".join(chr(ord(letter) + 0xFEE0) if "!" <= letter <= "~" else letter for letter in answer.right)
    return form.text.format(
        answer.right,
        small=answer.right.lower(),
        capitals=answer.right.upper(),
        wide=wide,
        json=answer.json,
        other=answer.other,
        foreign=answer.foreign,
    )


def main(words: Sequence[str]) -> int:
    """Writes the page, or returns 1 where the page is out of date."""
    text = page()
    if list(words) != ["--check"]:
        PAGE.write_text(text)
        return 0
    return 0 if PAGE.is_file() and PAGE.read_text() == text else 1


def page() -> str:
    return "\n".join([_HEAD, *_table()]) + "\n"


def _table() -> Iterator[str]:
    titles = ("form", "yes", *(column.title for column in COLUMNS))
    yield f"| {' | '.join(titles)} |"
    yield f"|{' --- |' * len(titles)}"
    for form in FORMS:
        example = filled(form, _YES).replace("\n", "⏎").replace("|", "\\|")
        cells = (form.name, f"`` {example} ``" if example else "", *(c.read(filled(form, c.answer)) for c in COLUMNS))
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
