"""WinoViz with images: what the images that a model has generated of a premise say about the hypotheses.

The paper generates five images of each premise and uses them in three ways. The option that most images are for is the
answer (`winobench.tasks.votes.majority`, which also says what becomes of ties).

- ``picture_match``: which hypothesis an image matches better, with CLIP by the cosine. With any other scorer of images
  and texts, such as a diffusion model by its denoising errors, which is ours.
- ``captions``: a caption of the image is said before the question, which a language model answers.
- ``vqa``: a vision-language model is asked for the option. The image takes the sentence's place.

The paper prints no prompts for these and does not say whether its language model saw the captions one by one. Here each
image's caption is asked about by itself, as "majority voting" is reported for all three ways.

Source: see `winobench.tasks.winoviz`, the workshop version, appendix A.3 and Table 6.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from winobench.runs.requests import (
    ANSWERED,
    FAILED,
    UNPARSABLE,
    Generation,
    Options,
    PictureMatch,
    PictureOptions,
    PictureText,
    Request,
    Response,
)
from winobench.tasks.option_answers import read_choice
from winobench.tasks.questions import Answer, Protocol, TextQuestion
from winobench.tasks.votes import best, majority
from winobench.tasks.winoviz_prompts import asked_of_picture, captioned, prompts

_ANSWER_TOKENS = 128


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


def _protocol(
    name: str,
    description: str,
    kind: str,
    requests: Callable[[TextQuestion], Sequence[Request]],
    read: Callable[[Response, TextQuestion], Answer],
    needs: str = "pictures",
) -> Protocol:
    def read_all(question: TextQuestion, responses: Sequence[Response | None]) -> Answer:
        return majority([Answer(FAILED) if response is None else read(response, question) for response in responses])

    return Protocol(name, description, kind, requests, read_all, needs)


PROTOCOLS: Mapping[str, Protocol] = {
    protocol.name: protocol
    for protocol in (
        _protocol(
            "vqa",
            "each image of the premise is asked which option is true. Majority (appendix A.3; the prompt is ours)",
            "picture_text",
            lambda question: [
                PictureText(picture, asked_of_picture(question.options), max_tokens=_ANSWER_TOKENS)
                for picture in question.pictures
            ],
            _said,
        ),
        _protocol(
            "vqa_options",
            "the same; 'Option 1' and 'Option 2' are scored",
            "picture_options",
            lambda question: [
                PictureOptions(picture, asked_of_picture(question.options), _numbers()) for picture in question.pictures
            ],
            _scored,
        ),
        _protocol(
            "picture_match",
            "which hypothesis each image of the premise matches better. Majority (appendix A.3)",
            "picture_match",
            lambda question: [PictureMatch(picture, question.options) for picture in question.pictures],
            _scored,
        ),
        _protocol(
            "captions",
            "the question with a caption of each image of the premise. Majority (appendix A.3; the prompt is ours)",
            "generation",
            lambda question: [
                Generation(_turns(question, caption), max_tokens=_ANSWER_TOKENS) for caption in question.captions
            ],
            _said,
            needs="captions",
        ),
        _protocol(
            "captions_options",
            "the same; 'Option 1' and 'Option 2' are scored",
            "options",
            lambda question: [Options(_turns(question, caption), _numbers()) for caption in question.captions],
            _scored,
            needs="captions",
        ),
    )
}
"""The protocols that are about images of the premises."""
