"""Requests to language models and their answers: the types that models, tasks and the evaluation share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

from winobench.base import texts
from winobench.base.errors import InputError

Raw = dict[str, Any]
"""An answer as it came in, as JSON values; ``{"error": {...}}`` for a call that failed."""

_TEXT_KINDS = ("generation", "options", "entailment", "similarity")
_IMAGE_KINDS = ("picture_text", "picture_turn", "picture_options", "picture_starts", "picture_match")
_SEVERAL_KINDS = ("pictures_text", "pictures_options", "picture_similarity")
KINDS = (*_TEXT_KINDS, *_IMAGE_KINDS, *_SEVERAL_KINDS)
"""Kinds of requests. A model states in ``kinds`` which of them it can do."""

ENDINGS = ("finished", "cut_off", "empty", "filtered", "tool_call", "interrupted")
FINISHED, CUT_OFF, EMPTY, FILTERED, TOOL_CALL, INTERRUPTED = ENDINGS
"""How an answer ended. All but the first are incomplete answers of hosted models: cut off by the limit of tokens.
Without text, or with thoughts alone. Held back by a filter. A tool call. Ended in another way. A model on this machine
may write until the limit, as the published protocols do: its answers are finished."""

BLOCKED = "blocked"
"""The kind of error of a call that the same request would meet again: a content filter, an invalid image."""

ANSWERED, UNPARSABLE, FAILED = "answered", "unparsable", "failed"
"""The status of a question: a choice was made. No choice can be read from the responses. Or a call failed for good, and
the question counts nowhere."""


@dataclasses.dataclass(frozen=True)
class Turn:
    role: Literal["system", "user", "assistant"]
    text: str


@dataclasses.dataclass(frozen=True)
class Generation:
    """Asks for a text, as the next turn of a conversation whose last turn is the user's."""

    turns: tuple[Turn, ...]
    max_tokens: int = 512
    temperature: float = 0.0  # 0 for the most likely answer
    sample: int = 0  # tells requests apart that are otherwise equal
    prefix_turns: int = 0  # first turns that other requests share (few-shot examples), computed once

    kind = "generation"


@dataclasses.dataclass(frozen=True)
class Options:
    """Asks how likely each of at least two continuations of a conversation is."""

    turns: tuple[Turn, ...]
    options: tuple[str, ...]
    prefix_turns: int = 0

    kind = "options"


@dataclasses.dataclass(frozen=True)
class Entailment:
    """Asks how probable it is that a premise entails each of some hypotheses."""

    premise: str
    hypotheses: tuple[str, ...]

    kind = "entailment"


@dataclasses.dataclass(frozen=True)
class Similarity:
    """Asks how similar a text is to each of some others."""

    text: str
    others: tuple[str, ...]

    kind = "similarity"


@dataclasses.dataclass(frozen=True)
class InputImage:
    """An image of a request. It is the same one wherever its file lies."""

    path: str
    sha256: str  # of the file's content, in hexadecimal


@dataclasses.dataclass(frozen=True)
class ImageText:
    """Asks for a text about an image. The empty question asks for a caption."""

    image: InputImage
    question: str = ""
    max_tokens: int = 30
    temperature: float = 0.0
    sample: int = 0

    kind = "picture_text"


@dataclasses.dataclass(frozen=True)
class ImageTurn(ImageText):
    """`ImageText` as the next turn of a conversation. The user's first turn shows the image."""

    before: tuple[Turn, ...] = ()  # the system's turn, if any, then the user's and the assistant's by turns

    kind = "picture_turn"


@dataclasses.dataclass(frozen=True)
class ImageOptions:
    """Asks how likely each of at least two answers to a question about an image is."""

    image: InputImage
    question: str
    options: tuple[str, ...]

    kind = "picture_options"


@dataclasses.dataclass(frozen=True)
class ImagesText(ImageText):
    """`ImageText` about several images, in an order: ``image``, and then these."""

    more_images: tuple[InputImage, ...] = ()

    kind = "pictures_text"


@dataclasses.dataclass(frozen=True)
class ImagesOptions(ImageOptions):
    """`ImageOptions` about several images, in an order: ``image``, and then these."""

    more_images: tuple[InputImage, ...] = ()

    kind = "pictures_options"


SEVERAL = frozenset({ImagesText.kind, ImagesOptions.kind})
"""Kinds of requests about several images, for models that read more than one at once."""


@dataclasses.dataclass(frozen=True)
class ImageStarts:
    """Asks how likely it is that an answer to a question about an image starts like one of some spellings.

    Only the first token of each counts. The score is the log of the sum of their probabilities. Spellings of which a
    tokenizer makes the same tokens count once.
    """

    image: InputImage
    question: str
    starts: tuple[str, ...]

    kind = "picture_starts"


@dataclasses.dataclass(frozen=True)
class ImageMatch:
    """Asks how well each of some texts fits an image."""

    image: InputImage
    texts: tuple[str, ...]

    kind = "picture_match"


@dataclasses.dataclass(frozen=True)
class ImageSimilarity:
    """Asks how similar each two of at least two images are: the cosines of (0, 1), (0, 2), ..., (1, 2) and so on."""

    images: tuple[InputImage, ...]

    kind = "picture_similarity"


ImageRequest = ImageText | ImageOptions | ImageStarts | ImageMatch | ImageSimilarity
Request = Generation | Options | Entailment | Similarity | ImageRequest


def images_of(request: ImageRequest) -> tuple[InputImage, ...]:
    """The images of a request about images, in their order."""
    if isinstance(request, ImageSimilarity):
        return request.images
    return (request.image, *getattr(request, "more_images", ()))


def conversation(request: ImageRequest) -> tuple[str, tuple[Turn, ...]]:
    """The system's text, empty without one, and the turns between it and the question."""
    before: tuple[Turn, ...] = getattr(request, "before", ())
    return (before[0].text, before[1:]) if before and before[0].role == "system" else ("", before)


def text_about(request: ImageOptions | ImageStarts, question: str, **how: Any) -> ImageText:
    """Asks for a text about the images of another request. ``how`` are fields of `ImageText`."""
    image, *more = images_of(request)
    return ImagesText(image, question, more_images=tuple(more), **how) if more else ImageText(image, question, **how)


def check_request(request: Request) -> None:
    """Makes sure that a request can be sent, tokenized and written down."""
    match request:
        case Generation() | Options():
            read = [turn.text for turn in request.turns] + list(getattr(request, "options", ()))
        case Entailment():
            read = [request.premise, *request.hypotheses]
        case Similarity():
            read = [request.text, *request.others]
        case ImageText():
            system, turns = conversation(request)
            read = [request.question, system, *(turn.text for turn in turns)]
            roles = [turn.role for turn in turns]
            if roles != ["user", "assistant"] * (len(roles) // 2):
                raise InputError(
                    f"the turns before a question about an image are by {', '.join(roles)}: give a system turn at most,"
                    " then the user's and the assistant's by turns",
                    code="conversation-refused",
                )
        case ImageOptions():
            read = [request.question, *request.options]
        case ImageStarts():
            read = [request.question, *request.starts]
        case ImageMatch():
            read = list(request.texts)
        case ImageSimilarity():
            read = []
            if len(request.images) < 2:
                raise InputError(
                    f"a request compares {len(request.images)} images: give at least two", code="empty-list"
                )
        case _:
            raise InputError(
                f"a request is a {type(request).__name__}: make it one of {', '.join(KINDS)}", code="wrong-type"
            )
    texts.check_texts(read, longest=texts.LONGEST_PROMPT, together=True)
    if isinstance(request, ImagesText | ImagesOptions) and not request.more_images:
        usual = "ImageText" if isinstance(request, ImagesText) else "ImageOptions"
        raise InputError(
            f"a request for {request.kind} has one image: give more_images, or make it an {usual}", code="wrong-length"
        )


@dataclasses.dataclass(frozen=True)
class Response:
    """An answer, read. An incomplete one chooses nothing, and the same command asks for it again."""

    text: str | None = None  # of a `Generation` or a `ImageText`
    scores: tuple[float, ...] | None = None  # of other kinds, one a candidate, higher = better
    num_tokens: tuple[int, ...] | None = None  # of each candidate of `Options`, for scores per token
    input_tokens: int | None = None
    output_tokens: int | None = None
    finish: str | None = None  # why a text ended: "stop" or "length"
    ending: str = FINISHED  # one of ENDINGS
    partial: str | None = None  # of an incomplete answer, for people to look at
    # Set where the scores are shares of all that a model may answer: here the share of unknown ones.
    unlisted: float | None = None


@dataclasses.dataclass(frozen=True)
class LazyResponder:
    """A responder that is loaded when it is needed, which a finished run does not."""

    kinds: frozenset[str]
    files: str | None  # `winobench.checkpoints.sources.Source.state` of the model; None where unknown
    load: Callable[[], Responder]  # the same responder at each call


@runtime_checkable
class Responder(Protocol):
    """Anything that answers requests.

    A responder may also have

    - ``cost(response)``: US dollars, or None where the price is not known.
    - ``parts(request)``, the requests that make up one, and ``combine(request, responses)``, the answer to it.
    - ``bind(questions)`` gets (id, requests) of all questions of the tasks, for answers that are recorded.

    Attributes:
      kinds: which of ``KINDS`` it can answer.
    """

    kinds: frozenset[str]

    def fingerprint(self) -> Mapping[str, Any]:
        """Everything about it that can change an answer, as JSON values. Nothing secret."""

    def ask(self, requests: Sequence[Any]) -> Iterator[tuple[int, Raw]]:
        """Yields (index of the request, raw answer) as answers come in, in any order, each index once.

        The requests are a ``Request`` each, of its ``kinds``.
        A call that failed for good is yielded as ``{"error": {"kind": str, "message": str, "attempts": int}}``.
        """

    def read(self, request: Any, raw: Raw) -> Response:
        """The answer in a raw response. Pure.

        Raises:
          ValueError: the raw answer is malformed, which counts as a failed call.
        """


def ability(responder: Responder | LazyResponder, name: str) -> Callable[..., Any] | None:
    """A method that a responder may have. None for one that lacks it."""
    return getattr(responder, name, None)


def check_responder(responder: Any) -> None:
    """Raises InputError for an object that answers no requests."""
    names = ("kinds", "fingerprint", "ask", "read", *(("combine",) if hasattr(responder, "parts") else ()))
    lacking = next((name for name in names if not hasattr(responder, name)), None)
    if lacking is not None:
        raise InputError(
            f"the responder is a {type(responder).__name__}, which has no {lacking}: give a model that answers, such as"
            " winobench.load_responder makes",
            code="wrong-type",
        )
