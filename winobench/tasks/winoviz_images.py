"""WinoViz with images: what the images that a model has generated of a premise say about the hypotheses.

The paper generates five images of each premise. The option that most images are for is the answer
(`winobench.tasks.votes.majority`).

- ``image_match``: which hypothesis an image matches better, with CLIP by the cosine. Any other scorer of images
  and texts, such as a diffusion model by its denoising errors, is ours.
- ``captions``: a language model answers the question with a caption of the image before it. Each caption has its own
  question, as "majority voting" is reported for all three ways.
- ``vqa``: a vision-language model chooses the option. The image takes the sentence's place.

The prompts are ours. Source: see `winobench.tasks.winoviz`, the workshop version, appendix A.3 and Table 6.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from winobench.runs.requests import (
    ANSWERED,
    FAILED,
    UNPARSABLE,
    Generation,
    ImageMatch,
    ImageOptions,
    ImageText,
    Options,
    Request,
    Response,
)
from winobench.tasks.option_answers import read_choice
from winobench.tasks.questions import Answer, Protocol, TextQuestion
from winobench.tasks.votes import best, majority
from winobench.tasks.winoviz_prompts import asked_of_image, captioned, prompts

_ANSWER_TOKENS = 128
_Read = Callable[[Response, TextQuestion], Answer]


def _said(response: Response, question: TextQuestion) -> Answer:
    choice = read_choice(response.text, question.options)
    return Answer(UNPARSABLE) if choice is None else Answer(ANSWERED, choice)


def _scored(response: Response, question: TextQuestion) -> Answer:
    del question
    return best(response)


def _numbers() -> tuple[str, ...]:
    return tuple(prompts()["answer"]["text"].format(number=number) for number in (1, 2))


def _turns(question: TextQuestion, caption: str) -> tuple:
    return (captioned(caption, question.texts["premise"], question.options),)


# Name -> description, kind, the request about an image or its caption, and how its answer is read.
_PROTOCOLS: dict[str, tuple[str, str, Callable[[TextQuestion, Any], Request], _Read]] = {
    "vqa": (
        "each image of the premise is asked which option is true. Majority (appendix A.3, the prompt is ours)",
        "picture_text",
        lambda asked, image: ImageText(image, asked_of_image(asked.options), max_tokens=_ANSWER_TOKENS),
        _said,
    ),
    "vqa_options": (
        "the same; 'Option 1' and 'Option 2' are scored",
        "picture_options",
        lambda asked, image: ImageOptions(image, asked_of_image(asked.options), _numbers()),
        _scored,
    ),
    "picture_match": (
        "which hypothesis each image of the premise matches better. Majority (appendix A.3)",
        "picture_match",
        lambda asked, image: ImageMatch(image, asked.options),
        _scored,
    ),
    "captions": (
        "the question with a caption of each image of the premise. Majority (appendix A.3, the prompt is ours)",
        "generation",
        lambda asked, caption: Generation(_turns(asked, caption), max_tokens=_ANSWER_TOKENS),
        _said,
    ),
    "captions_options": (
        "the same; 'Option 1' and 'Option 2' are scored",
        "options",
        lambda asked, caption: Options(_turns(asked, caption), _numbers()),
        _scored,
    ),
}


def _protocol(name: str) -> Protocol:
    description, kind, request, read = _PROTOCOLS[name]
    needs: Literal["images", "captions"] = "captions" if name.startswith("captions") else "images"

    def requests(question: TextQuestion) -> Sequence[Request]:
        return [request(question, content) for content in getattr(question, needs)]

    def read_all(question: TextQuestion, responses: Sequence[Response | None]) -> Answer:
        return majority([Answer(FAILED) if response is None else read(response, question) for response in responses])

    return Protocol(name, description, kind, requests, read_all, needs)


PROTOCOLS: Mapping[str, Protocol] = {name: _protocol(name) for name in _PROTOCOLS}
"""The protocols that are about images of the premises."""
