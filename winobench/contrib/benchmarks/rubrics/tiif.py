"""TIIF-Bench's accuracy: yes/no questions whose right answer is given, by type of prompt and its length.

Compared with A113N-W3I/TIIF-Bench 3aae750 (no licence there), eval/eval_with_vlm.py and eval/summary_*.py:

- A judge that writes answers all questions about an image at once, a line each. Lines that begin with neither yes nor
  no are passed over. The published code takes one of three wordings at random, at temperature 1, after a system prompt.
  Here it is always the first wording, at temperature 0, without a system prompt.
- If there are more or fewer answers than questions, the published code asks again until the numbers agree. Here the
  image counts in no accuracy, and ``unread`` is the share of such images. Of judges other than the published one,
  lists, JSON and words between commas are read, too.
- A judge that does not write answers each question by itself, with the likelier one of yes and no.
- Each type and length has the share of right answers. All other rows are means of them, and the two rows ``overall``
  of nine such means. `ALL` is the published Mean_Accuracy. The published code rounds the shares to four digits first.
- Questions about written words count like the others. GNED and recall are
  in `winobench.contrib.benchmarks.rubrics.tiif_text`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from winobench.base import answer_texts
from winobench.contrib.benchmarks.prompts import tiif
from winobench.prompts.prompt_files import Prompt
from winobench.rubrics import yes_no
from winobench.rubrics.base import ALL, Rubric, Score, unread
from winobench.runs.requests import ImageOptions, ImageText, InputImage, Request, Response

ACCURACY = "accuracy"

_WORDING = """
You are tasked with conducting a careful examination of the provided image. Based on the content of the image, please \
answer the following yes or no questions:

Questions:
{}

Note that:
1. Each answer should be on a separate line, starting with "yes" or "no", followed by the reason.
2. The order of answers must correspond exactly to the order of the questions.
3. Each question must have only one answer.
4. Directly return the answers to each question, without any additional content.
5. Each answer must be on its own line!
6. Make sure the number of output answers equal to the number of questions!
"""

_TOKENS_PER_ANSWER = 100  # published answers of gpt-4o have at most 272 characters
_ANSWER = re.compile(r"\s*(yes|no)\b", re.IGNORECASE)
_OPTIONS = ("yes", "no")

_BASIC: Mapping[str, tuple[str, ...]] = {
    "Attribute": ("shape+color", "color+texture", "texture+color", "shape+texture"),
    "Relation": ("2d_spatial_relation", "3d_spatial_relation", "action+2d", "action+3d"),
    "Reasoning": ("numeracy", "negation", "differentiation", "comparison"),
}
_ATTRIBUTES, _PLACES, _REASONING = ("color", "texture"), ("2d", "3d"), _BASIC["Reasoning"]
_ADVANCED: Mapping[str, tuple[str, ...]] = {
    "Attribute+Relation": (
        *(f"action+{one}" for one in _ATTRIBUTES),
        *(f"{one}+{place}" for one in ("color", "shape", "texture") for place in _PLACES),
    ),
    "Attribute+Reasoning": tuple(f"{one}+{other}" for one in _REASONING for other in _ATTRIBUTES),
    "Relation+Reasoning": tuple(f"{one}+{place}" for one in _REASONING for place in _PLACES),
    "Text Generation": ("text",),
    "Style Control": ("style",),
}
_FOLLOWING: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "Basic": _BASIC,
    "Advanced": _ADVANCED,
    "Real": {"Complex": ("real_world",)},
}


def _macros() -> Iterator[tuple[tuple[str, str], tuple[str, ...]]]:
    for length in tiif.LENGTHS:
        groups = {f"{name}_{sub}": types for name, subs in _FOLLOWING.items() for sub, types in subs.items()}
        wholes = {f"{name}_Overall": sum(subs.values(), ()) for name, subs in _FOLLOWING.items()}
        for row, types in {**groups, **wholes}.items():
            yield (ACCURACY, f"{row}-{length}"), tuple(f"{kind}-{length}" for kind in types)
        yield (ACCURACY, f"overall-{length}"), tuple(f"{row}-{length}" for row in groups)
    every = [kind for subs in _FOLLOWING.values() for types in subs.values() for kind in types]
    yield (ACCURACY, ALL), tuple(f"{kind}-{length}" for kind in every for length in tiif.LENGTHS)


def _requests(prompt: Prompt, image: InputImage, kind: str) -> Iterator[Request]:
    questions = [question.strip() for question in prompt.content["questions"]]
    if kind == ImageText.kind:
        text = _WORDING.replace("{}", "\n".join(questions))
        yield ImageText(image, text, max_tokens=_TOKENS_PER_ANSWER * len(questions))
    else:
        for question in questions:
            yield ImageOptions(image, yes_no.WORDING.replace("{}", question), _OPTIONS)


def _scores(prompt: Prompt, responses: Sequence[Response], kind: str, published: bool = True) -> Iterator[Score]:
    read_answers: Sequence[bool | None]
    right = [answer.strip().lower() == "yes" for answer in prompt.content["answers"]]
    if kind == ImageText.kind:
        lines = map(_ANSWER.match, (responses[0].text or "").split("\n"))
        read_answers = [line[1].lower() == "yes" for line in lines if line]
        if not published:  # a line may hold more than an answer, and more than lines may hold answers
            others = answer_texts.lines(responses[0].text)
            read_answers = read_answers if len(others) <= len(read_answers) == len(right) else others
        is_read = len(read_answers) == len(right)
        yield from unread([is_read or None], responses)
        if not is_read:
            return
    else:
        read_answers = [yes_no.read(response) for response in responses]
        yield from unread(read_answers, responses)
    group = f"{prompt.content['type']}-{prompt.content['length']}"
    for answer, truth in zip(read_answers, right, strict=True):
        yield Score(ACCURACY, group, float(answer == truth))


RUBRICS = (
    Rubric(
        name="tiif",
        version=2,
        description="TIIF-Bench: accuracy of yes/no questions, by type and length",
        source="Wei et al. 2025, arXiv:2506.02161, code github.com/A113N-W3I/TIIF-Bench 3aae750",
        judge="gpt-4o",
        is_published=lambda name: re.fullmatch(r"(openai:)?gpt-4o(-\d{4}-\d\d-\d\d)?", name.lower()) is not None,
        kinds=(ImageText.kind, ImageOptions.kind),
        wordings={ImageText.kind: (_WORDING,), ImageOptions.kind: (yes_no.WORDING,)},
        fits=lambda prompt: tiif.has_questions(prompt.content),
        requests=_requests,
        scores=_scores,
        skills={
            (ACCURACY, f"{kind}-{length}"): skill
            for length in tiif.LENGTHS
            for kind, skill in (
                ("2d_spatial_relation", "spatial"),
                ("3d_spatial_relation", "spatial"),
                ("numeracy", "counting"),
                ("color+texture", "attribute_binding"),
            )
        },
        macros=dict(_macros()),
    ),
)
