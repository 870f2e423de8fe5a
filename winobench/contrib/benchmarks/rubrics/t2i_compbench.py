"""T2I-CompBench++'s judges that need no detector (Huang et al. 2023, arXiv:2307.06350, and 2025).

Compared with Karine-Huang/T2I-CompBench 1b70949:

- ``blip_vqa`` for color, shape and texture (BLIPvqa_eval): the product over noun phrases of P(yes) to the question
  "<phrase>?", where no is the only other answer. The published code rounds each number to four digits.
- ``clip_score`` for non_spatial (CLIPScore_eval): the cosine of image and prompt.
- ``mllm`` for every category (MLLM_eval/gpt4v_eval.py): a vision-language model gives scores from 0 to 100. Their mean
  counts, and 0 where it gives none. Of the published judge only ``"score": 80,`` is read, of others all forms. An
  answer without one score for each question is ``unread``.

Left out: UniDet for spatial, 3d_spatial and numeracy, the 3-in-1 for complex, which needs it, and ShareGPT4V's chain of
two questions. Noun phrases: see `winobench.contrib.benchmarks.prompts.t2i_compbench`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence

from winobench.base import answer_texts
from winobench.base.errors import InputError
from winobench.contrib.benchmarks.prompts.t2i_compbench import ATTRIBUTES, phrases
from winobench.prompts.prompt_files import Prompt
from winobench.rubrics import yes_no
from winobench.rubrics.base import ALL, Rubric, Score, named, scores_of, unread
from winobench.runs.requests import ImageMatch, ImageOptions, ImageText, InputImage, Request, Response

# gpt4v_eval.py, verbatim with its blanks. It fills in {prompt} for complex only here, and asks all categories but
# attributes the question of spatial, since its condition is always true. Here each category has its own.
_OF_ATTRIBUTE = """You are my assistant to identify any objects and their {category} in the image. \
                    According to the image, evaluate if there is a {phrase} in the image. \
                    Give a score from 0 to 100, according the criteria:\n\
                    4: there is {noun}, and {category} is {adjective}.\n\
                    3: there is {noun}, {category} is mostly {adjective}.\n\
                    2: there is {noun}, but it is not {adjective}.\n\
                    1: no {noun} in the image.\n\
                    Provide your analysis and explanation in JSON format with the following keys: score (e.g., 1), \
                    explanation (within 20 words)."""
_OF_PLACES = """You are my assistant to identify objects and their spatial layout in the image. \
                According to the image, evaluate if the text \"{prompt}\" is correctly portrayed in the image. \
                Give a score from 0 to 100, according the criteria: \n\
                    5: correct spatial layout in the image for all objects mentioned in the text. \
                    4: basically, spatial layout of objects matches the text. \
                    3: spatial layout not aligned properly with the text. \
                    2: image not aligned properly with the text. \
                    1: image almost irrelevant to the text. \
                    Provide your analysis and explanation in JSON format with the following keys: score (e.g., 2), \
                    explanation (within 20 words)."""
_OF_ACTIONS = """You are my assistant to identify the actions, events, objects and their relationships in the image. \
            According to the image, evaluate if the text \"{prompt}\" is correctly portrayed in the image. \
            Give a score from 0 to 100, according the criteria: \n\
                5: the image accurately portrayed the actions, events and relationships between objects described in\
 the text. \
                4: the image portrayed most of the actions, events and relationships but with minor discrepancies. \
                3: the image depicted some elements, but action relationships between objects are not correct. \
                2: the image failed to convey the full scope of the text. \
                1: the image did not depict any actions or events that match the text. \
                Provide your analysis and explanation in JSON format with the following keys: score (e.g., 2), \
                explanation (within 20 words)."""
_OF_NUMBERS = """You are my assistant to identify objects and their quantities in the image. \
            According to the image and your previous answer, evaluate how well the image aligns with the text prompt:\
 \"{prompt}\" \
            Give a score from 0 to 100, according the criteria: \n\
                5: correct numerical content in the image for all objects mentioned in the text \
                4: basically, numerical content of objects matches the text \
                3: numerical content not aligned properly with the text \
                2: image not aligned properly with the text \
                1: image almost irrelevant to the text \
                Provide your analysis and explanation in JSON format with the following keys: score (e.g., 2),\
 explanation (within 20 words)."""
_OF_ALL = """You are my assistant to evaluate the correspondence of the image to a given text prompt. \
                focus on the objects in the image and their attributes (such as color, shape, texture), spatial layout\
 and action relationships. \
                According to the image and your previous answer, evaluate how well the image aligns with the text\
 prompt: \"{prompt}\"  \
                        Give a score from 0 to 100, according the criteria: \n\
                        5: the image perfectly matches the content of the text prompt, with no discrepancies. \
                        4: the image portrayed most of the actions, events and relationships but with minor\
 discrepancies. \
                        3: the image depicted some elements in the text prompt, but ignored some key parts or details. \
                        2: the image did not depict any actions or events that match the text. \
                        1: the image failed to convey the full scope in the text prompt. \
                        Provide your analysis and explanation in JSON format with the following keys: score (e.g., 2),\
 explanation (within 20 words)."""
_QUESTIONS = {
    **dict.fromkeys(ATTRIBUTES, _OF_ATTRIBUTE),
    "spatial": _OF_PLACES,
    "3d_spatial": _OF_PLACES,
    "non_spatial": _OF_ACTIONS,
    "numeracy": _OF_NUMBERS,
    "complex": _OF_ALL,
}
_SCORE = re.compile(r'"score": (\d+),')
_MOST = 100
_MAX_TOKENS = 300

_PAPER = "Huang et al. 2023, arXiv:2307.06350, Section 4"
_CODE = "github.com/Karine-Huang/T2I-CompBench 1b70949"
_CLIP = ("clip-vit-b32", "vit_base_patch32_clip_224.openai", "clip-vit-base-patch32")


def _has_phrases(prompt: Prompt) -> bool:
    return prompt.category in ATTRIBUTES and bool(phrases(prompt.content, prompt.text))


def _ask_phrases(prompt: Prompt, image: InputImage, kind: str) -> Iterator[Request]:
    for phrase in phrases(prompt.content, prompt.text):
        yield ImageOptions(image, f"{phrase}?", ("yes", "no"))


def _score_phrases(prompt: Prompt, responses: Sequence[Response], kind: str, published: bool = True) -> Iterator[Score]:
    yield Score("blip_vqa", prompt.category, math.prod(map(yes_no.share_of_yes, responses)))
    yield from unread([yes_no.is_read(response) or None for response in responses], responses)


def _ask_match(prompt: Prompt, image: InputImage, kind: str) -> Iterator[Request]:
    yield ImageMatch(image, (prompt.text,))


def _score_match(prompt: Prompt, responses: Sequence[Response], kind: str, published: bool = True) -> Iterator[Score]:
    (cosine,) = scores_of(responses[0])
    if not -1.001 <= cosine <= 1.001:
        raise InputError(
            f"the judge's score is {cosine:.3g}, not the cosine of a CLIP: name a CLIP", code="wrong-kind-of-model"
        )
    yield Score("clip_score", prompt.category, cosine)


def _asks_model(prompt: Prompt) -> bool:
    return _has_phrases(prompt) if prompt.category in ATTRIBUTES else prompt.category in _QUESTIONS


def _ask_model(prompt: Prompt, image: InputImage, kind: str) -> Iterator[Request]:
    text = "\n".join(_questions(prompt))
    yield ImageText(image, text, max_tokens=_MAX_TOKENS)


def _questions(prompt: Prompt) -> Iterator[str]:
    question = _QUESTIONS[prompt.category]
    if prompt.category not in ATTRIBUTES:
        yield question.format(prompt=prompt.text)
        return
    for phrase in phrases(prompt.content, prompt.text):
        noun = phrase.split()[-1]
        # The published code takes articles away in this way, also at the end of another word.
        adjective = phrase.replace(f" {noun}", "").replace("the ", "").replace("a ", "").replace("an ", "")
        yield question.format(category=prompt.category, phrase=phrase, noun=noun, adjective=adjective)


def _score_model(prompt: Prompt, responses: Sequence[Response], kind: str, published: bool = True) -> Iterator[Score]:
    text, wanted = responses[0].text or "", len([*_questions(prompt)])
    ratings = _possible(int(digits[:4]) for digits in _SCORE.findall(text))
    if len(ratings) != wanted and not published:
        others = _possible(answer_texts.scores(text))
        ratings = others if len(others) == wanted else ratings
    yield Score("mllm", prompt.category, sum(ratings) / len(ratings) / _MOST if ratings else 0.0)
    yield from unread([len(ratings) == wanted or None], responses)
    yield Score("answers_read", ALL, float(len(ratings) == wanted))


def _possible(numbers: Iterable[float]) -> list[float]:
    """The numbers that are scores."""
    return [number for number in numbers if number <= _MOST]


RUBRICS = (
    Rubric(
        name="blip_vqa",
        version=2,
        description="T2I-CompBench++: P(yes) of noun phrases (ours, or a file's)",
        source=f"{_PAPER}, code {_CODE}, BLIPvqa_eval",
        judge="BLIP-VQA (base)",
        is_published=named("blip-vqa-capfilt-large"),
        kinds=(ImageOptions.kind,),
        wordings={ImageOptions.kind: ("{}?",)},
        fits=_has_phrases,
        requests=_ask_phrases,
        scores=_score_phrases,
        skills={("blip_vqa", category): "attribute_binding" for category in ATTRIBUTES},
    ),
    Rubric(
        name="clip_score",
        version=1,
        description="T2I-CompBench++: CLIP's cosine for non_spatial",
        source=f"{_PAPER}, code {_CODE}, CLIPScore_eval",
        judge="CLIP ViT-B/32",
        is_published=named(*_CLIP),
        kinds=(ImageMatch.kind,),
        wordings={ImageMatch.kind: ("{}",)},
        fits=lambda prompt: prompt.category == "non_spatial",
        requests=_ask_match,
        scores=_score_match,
        scorers=("contrastive",),
    ),
    Rubric(
        name="mllm",
        version=2,
        description="T2I-CompBench++: scores by a vision-language model",
        source=f"{_PAPER}, code {_CODE}, MLLM_eval/gpt4v_eval.py",
        judge="gpt-4-vision-preview",
        is_published=named("gpt-4-vision-preview"),
        kinds=(ImageText.kind,),
        wordings={ImageText.kind: tuple(dict.fromkeys(_QUESTIONS.values()))},
        fits=_asks_model,
        requests=_ask_model,
        scores=_score_model,
        skills={
            **{("mllm", category): "attribute_binding" for category in ATTRIBUTES},
            ("mllm", "spatial"): "spatial",
            ("mllm", "3d_spatial"): "spatial",
            ("mllm", "non_spatial"): "compositional",
            ("mllm", "numeracy"): "counting",
        },
    ),
)
