"""The base class of providers: a client, one attempt, and the meaning of its failure."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import email.utils
import importlib
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from winobench.base import answer_texts, json_files, options
from winobench.base.errors import InputError
from winobench.responders.hosted import bodies, bounded, choices
from winobench.runs.requests import (
    BLOCKED,
    CUT_OFF,
    EMPTY,
    FILTERED,
    FINISHED,
    ImageText,
    Response,
)

_RETRIED = (408, 409, 429)
# A request that one of these refuses would be refused again.
_OF_REQUEST = (400, 413, 415, 422, 451)
_NO_CREDIT = {"insufficient_quota", "billing_hard_limit_reached", "billing_error"}
_SECONDS_TO_CONNECT = 20.0

# Servers' words for a model that takes no images. Complaints about one image sound different.
_TAKES_NO_IMAGES = re.compile(
    r"image_url.{0,40} only supported|(?:do|does) ?n[o']t support (?:image|vision|multimodal)|support image input"
    r"|not a multimodal model|at most 0 image|images? (?:input )?(?:is|are) not supported",
    re.IGNORECASE,
)

# Servers' words for a field that they do not take at all. Complaints about its value sound different.
_NOT_TAKEN = re.compile(
    r"not support|unsupported|deprecated|extra inputs|extra_forbidden|not permitted|properties are not allowed"
    r"|unrecogni[sz]ed|(?:unknown|invalid|unexpected) (?:request )?(?:parameter|field|argument|name|key|property)",
    re.IGNORECASE,
)
WITHOUT_LOGPROBS = "set logprobs to False (--api.logprobs=false)"
# Advice on a field that is not taken.
_ADVICE = {
    "temperature": "set send_temperature to False (--api.send_temperature=false)",
    "logprobs": WITHOUT_LOGPROBS,
    "top_logprobs": WITHOUT_LOGPROBS,
}
# The names that OpenAI's protocol has for the limit of tokens.
LIMITS = ("max_tokens", "max_completion_tokens")
ROOM = 4096
"""Tokens that a model which thinks may write on top of a request's limit, which is for the answer alone."""
APIS: dict[str, type[Api]] = {}
"""Provider, as models' names begin with it -> its class. The only list of providers: classes enter themselves."""
IMAGE_APIS: dict[str, type[Api]] = {}
"""The same for models that make images."""

INCOMPLETE, UNUSABLE = "incomplete", "unusable"
"""Kinds of failures of a call: its answer is not whole, or is of no use and may have been billed."""

# Servers' words for a limit of tokens that is above their own.
_TOO_LONG = re.compile(r"max_(?:completion_)?tokens|context|too (?:large|long|many)", re.IGNORECASE)
# No call has so many. More is a mistake, which must not end in the costs.
_MOST_TOKENS = 10**9


@dataclasses.dataclass(frozen=True)
class Failure:
    """Why an attempt failed. ``passing``: another may succeed. ``fatal``: every call would fail. ``wait``: seconds."""

    kind: str
    message: str
    status: int | None = None
    passing: bool = False
    fatal: InputError | None = None
    wait: float = 0.0
    codes: tuple[str, ...] = ()


class Api(abc.ABC):
    """A provider and its protocol: how a request is written, sent and read.

    A subclass registers itself: ``class Mistral(OpenAI, provider="mistral")`` in a module of `providers` is enough. One
    with ``makes_images=True`` is for models that make images.

    Attributes:
      package, client: the module of the official client, and its class.
      extra: winobench's extra that installs it.
      options: which of ``seed``, ``max_tokens_field`` and ``logprobs`` the protocol has.
      own_limit: the field of the token limit at the provider's own server. Others take ``max_tokens``.
      largest_answer: bytes of a server's answer: a million tokens of text. A larger one is a failed call, which is not
        tried again: it may have been billed.
      in_row: kinds of failures of which many in a row end the run, besides those that may pass.
    """

    provider: str
    description: str
    default_url: str
    key_variable: str
    url_variable: str
    package: str
    client: str
    extra = "api"
    options: frozenset[str] = frozenset()
    own_limit = "max_tokens"
    largest_answer = 4 * 2**20
    in_row: tuple[str, ...] = (UNUSABLE,)
    may_adapt = True  # whether `adapt` may choose another field
    thinks = False  # whether an answer has shown thoughts. Calls then get more tokens

    def __init_subclass__(cls, provider: str, *, makes_images: bool = False, **options: Any):
        super().__init_subclass__(**options)
        cls.provider = provider
        (IMAGE_APIS if makes_images else APIS)[provider] = cls

    def __init__(self, key: str | None, url: str, model: str, timeout: float, settings: Mapping[str, Any]):
        try:
            self._package = importlib.import_module(self.package)
        except ImportError as error:
            raise InputError(
                f"{self.provider}:{model} needs the package {self.package} ({error}):"
                f" pip install 'winobench[{self.extra}]'.",
                code="missing-package",
            ) from error
        self.timeout = timeout
        self._model, self._settings = model, settings
        extra = settings["extra_body"]
        thinking = extra.get("thinking")
        budget = count(thinking.get("budget_tokens")) if isinstance(thinking, dict) else None
        # The server takes no limit below the budget.
        self.thinks = budget is not None
        self.room = 0 if any(name in extra for name in LIMITS) else max(ROOM, budget or 0)
        self._url, self._key = url, key
        try:
            self.open()
        except Exception as error:  # such as a malformed proxy address in the environment
            raise InputError(
                f"the client of {self.provider}:{model} cannot be set up ({one_line(str(error))}): see to the proxies"
                " and certificates that the environment names.",
                code="cannot-connect",
            ) from error

    def open(self) -> Any:
        """The package's asynchronous client, which retries nothing (`calls`)."""
        package = self._package
        kind = bounded.client_class(package.DefaultAsyncHttpxClient, self.largest_answer)
        self._http = kind(follow_redirects=False)  # a redirection could carry the key to another host
        return getattr(package, self.client)(
            api_key=self._key or "none",  # a local server may need no key, but the client insists on one
            base_url=self._url,
            timeout=package.Timeout(None, connect=min(self.timeout, _SECONDS_TO_CONNECT)),
            max_retries=0,
            http_client=self._http,
        )

    @classmethod
    def tells_likelihoods(cls, model: str) -> bool:
        """Whether answers come with log-probabilities. Only then ``body`` gets `ImageOptions` and `ImageStarts`."""
        return False

    @classmethod
    def may_think(cls, model: str) -> bool:
        """Whether a model thinks before each answer, without being asked to."""
        return False

    def as_text(self, request: Any) -> ImageText:
        """The request for a text that a request about an image is sent as."""
        return request

    @abc.abstractmethod
    def body(self, request: Any) -> dict[str, Any]:
        """The fields of a request. An image's file is read."""

    def adapted(self, body: dict[str, Any], room: int = 0) -> dict[str, Any]:
        """The fields in this server's form, with more tokens for thoughts."""
        if not self.thinks or "logprobs" in body:
            return body
        return {name: value + room if name in LIMITS else value for name, value in body.items()}

    def adapt(self, sent: dict[str, Any], failure: Failure) -> bool:
        """Whether the call that failed is to be sent again as `adapted` makes it from now on."""
        return False

    def needs_room(self, body: Mapping[str, Any], sent: Mapping[str, Any], room: int, text: str) -> bool:
        """Whether thoughts have taken the tokens of an answer that had a lower limit. It is remembered."""
        if limit(sent) - limit(body) >= room or "logprobs" in sent:
            return False
        try:
            content = bodies.parse(text)
            response = cut_at(self.parse(content), limit(sent))
        except (ValueError, AttributeError):
            return False
        written = response.output_tokens
        at_limit = response.ending == EMPTY and (written is None or written >= limit(sent))
        needs = (response.ending == CUT_OFF or at_limit) and self.shows_thoughts(content, response)
        self.thinks |= needs
        return needs

    def shows_thoughts(self, content: dict[str, Any], response: Response) -> bool:
        """Whether an answer has thoughts, or has taken more tokens than its text can have."""
        text = response.text or response.partial or ""
        is_text = bool(text.strip()) and answer_texts.spoken(text) == text
        return not is_text or (response.output_tokens or 0) > len(text.encode("utf-8", "replace"))

    def advice(self, field: str) -> str:
        """Advice on a field that the server refuses in every call."""
        return _ADVICE.get(field, "name another model, or another server")

    @abc.abstractmethod
    async def send(self, client: Any, body: dict[str, Any], call_id: str) -> tuple[int, str, Mapping[str, str]]:
        """Makes one attempt: status, body as text, headers."""

    async def fetched(self, answer: tuple[int, str, Mapping[str, str]]) -> tuple[int, str, Mapping[str, str]]:
        """An answer with all its parts. The call, which may have been billed, is not repeated for them."""
        return answer

    @staticmethod
    @abc.abstractmethod
    def parse(content: dict[str, Any]) -> Response:
        """Reads the body of an answer."""

    @staticmethod
    def likely_tokens(content: dict[str, Any]) -> list[choices.Place]:
        """The tokens of an answer whose log-probabilities were requested. Raises ValueError for odd ones."""
        raise ValueError("the protocol tells no log-probabilities")

    def failure(self, error: Exception, sent: Mapping[str, Any]) -> Failure:
        package = self._package
        reason = error.__cause__ or error
        if isinstance(error, TimeoutError):
            return Failure("timeout", f"no whole answer within {self.timeout:g} s", passing=True)
        if isinstance(reason, bounded.Unusable):
            return Failure(UNUSABLE, f"{reason}. It may have been billed")
        if isinstance(error, package.APITimeoutError):
            return Failure("timeout", "no connection in time", passing=True)
        if not isinstance(error, package.APIStatusError):
            words = one_line(f"{type(reason).__name__}: {reason}")
            # By its name, as the clients bring their own library for this. It is raised before anything is sent.
            if type(reason).__name__ == "LocalProtocolError" or isinstance(reason, UnicodeError):
                advice = f"see to the environment variables of {self.package}."
                fatal = InputError(f"no request can be sent ({words}): {advice}", code="cannot-connect")
                return Failure("client", words, fatal=fatal)
            if isinstance(error, package.APIConnectionError):
                return Failure("connection", words, passing=True)
            return Failure("client", words)
        text = error.response.content.decode("utf-8", "replace")
        try:
            said = bodies.error(bodies.parse(text))
        except ValueError:
            said = None
        said = said or bodies.Error(text if text.strip() else error.response.reason_phrase or "no words", (), None)
        return self._refusal(error.status_code, one_line(said.message), said.codes, error.response.headers, sent)

    def unanswered(self, sent: Mapping[str, Any], text: str, headers: Mapping[str, str]) -> Failure | None:
        """Why a body of status 200 is worth another attempt. None for a whole answer, or where none would help."""
        try:
            content = bodies.parse(text)
            if (error := bodies.error(content)) is not None:
                return self._refusal(error.status, one_line(error.message), error.codes, headers, sent)
            if (reason := bodies.withheld(content)) is not None:
                return Failure(BLOCKED, f"held back by a filter ({one_line(reason)})", status=200)
            response = self.parse(content)
        except (ValueError, AttributeError):  # `read` reports the fault
            return None
        ending = response.ending
        # Tasks of texts count a refusal as a wrong answer. A judge that refuses says nothing about an image.
        if ending == FILTERED and _shows_image(sent):
            words = f": {one_line(response.partial)}" if response.partial else ""
            return Failure(BLOCKED, f"held back by a filter, or refused{words}", status=200)
        if sent.get("logprobs") and ending in (FINISHED, CUT_OFF, EMPTY):
            try:
                self.likely_tokens(content)
            except ValueError as error:
                return Failure(UNUSABLE, f"{error}: {WITHOUT_LOGPROBS}", status=200)
        # The next attempt would end so, too. Log-probabilities may come with a token of white space.
        if ending in (FINISHED, CUT_OFF, FILTERED) or (ending == EMPTY and sent.get("logprobs")):
            return None
        return Failure(INCOMPLETE, ending, status=200, passing=True)

    def _refusal(
        self,
        status: int | None,
        message: str,
        codes: Sequence[str],
        headers: Mapping[str, str],
        sent: Mapping[str, Any],
    ) -> Failure:
        """The meaning of a server's error. One without a status may pass."""
        if status == 401:  # the server's words quote the key, or the part of it that it does not hide
            message = "the key is not accepted"
        known: dict[str, Any] = {
            "message": message,
            "status": status,
            "codes": tuple(codes),
            "wait": requested_wait(headers),
        }
        if self._is_held_back(message, codes, sent) and (status in (None, 403) or status >= 500):
            return Failure(BLOCKED, **known)
        if status is None:
            return Failure("server", passing=True, **known)
        if (fatal := self._fatal(status, message, codes, sent)) is not None:
            return Failure("refused", fatal=fatal, **known)
        passing = (status in _RETRIED or status >= 500) and headers.get("x-should-retry") != "false"
        kind = "rate limit" if status == 429 else "server" if status >= 500 or passing else "refused"
        if status in _OF_REQUEST and not passing:
            kind = BLOCKED
        return Failure(kind, passing=passing, **known)

    def _is_held_back(self, message: str, codes: Sequence[str], sent: Mapping[str, Any]) -> bool:
        """Whether another attempt would end in the same refusal."""
        return bodies.is_held_back(message, codes)

    def _fatal(self, status: int, message: str, codes: Sequence[str], sent: Mapping[str, Any]) -> InputError | None:
        """The error that every call would meet; None for another one."""
        said, url = f"({status}: {message})", self._url
        takes_no_images = status in (400, 404, 422) and _TAKES_NO_IMAGES.search(message)
        # The words differ from model to model. They have in common that the field is refused altogether.
        fields = (*_ADVICE, *LIMITS) if status in (400, 422) else ()
        refused = [field for field in fields if field in sent and refuses(field, message, codes)]
        if status == 401:
            return InputError(
                f"{url} does not accept the key (401): set {self.key_variable} to a valid one.", code="key-refused"
            )
        if status in (402, 403):
            return InputError(
                f"{url} refuses this account {said}: see to its rights and credit.", code="account-refused"
            )
        if status == 404 and not takes_no_images:
            words = f"{url} has no such model or address {said}: correct the model's name or the base URL."
            return InputError(words, code="no-such-model")
        if 300 <= status < 400:
            return InputError(f"{url} has moved ({status}): give the new base URL.", code="server-moved")
        if _NO_CREDIT & set(codes) or (status == 400 and "credit balance" in message):
            return InputError(
                f"the account has no credit left {said}: see to that and give the same command again.", code="no-credit"
            )
        if not refused and fields and sent.get("top_logprobs") == 1 and speaks_of_logprobs(message, codes):
            refused = ["top_logprobs"]
        if refused:
            field = min(refused, key=message.find)
            return InputError(
                f"the model refuses the field {field} {said}: {self.advice(field)}.", code="field-refused"
            )
        if takes_no_images:
            return InputError(
                f"the model takes no images {said}: name a vision-language model.", code="wrong-kind-of-model"
            )
        return None


def _shows_image(sent: Mapping[str, Any]) -> bool:
    return isinstance(sent["messages"][-1]["content"], list)


def requested_wait(headers: Mapping[str, str]) -> float:
    """Seconds that a server requests before the next attempt. 0 without a request."""
    for name, seconds in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        with contextlib.suppress(KeyError, ValueError):
            return max(0.0, float(headers[name]) * seconds)
    with contextlib.suppress(KeyError, TypeError, ValueError, OverflowError):
        return max(0.0, email.utils.parsedate_to_datetime(headers["retry-after"]).timestamp() - time.time())
    return 0.0


def refuses(field: str, message: str, codes: Sequence[str]) -> bool:
    """Whether a server's words say that it does not take a field."""
    if not re.search(rf"\b{field}\b", message):
        return False
    return bool({"unsupported_parameter", "unsupported_value"} & set(codes) or _NOT_TAKEN.search(message))


def speaks_of_logprobs(message: str, codes: Sequence[str]) -> bool:
    return re.search("log.?prob", " ".join((message, *codes)), re.IGNORECASE) is not None


def limit(body: Mapping[str, Any]) -> int:
    """The limit of tokens in a request's fields. 0 without one."""
    return next((body[name] for name in LIMITS if name in body), 0)


def is_too_long(failure: Failure) -> bool:
    """Whether a server may take the request with a lower limit of tokens."""
    return failure.status in (400, 422) and _TOO_LONG.search(failure.message) is not None


def cut_at(response: Response, limit: int | None) -> Response:
    """An answer, which is cut off where it has all tokens of its limit and the server does not say how it ended."""
    written = response.output_tokens or 0
    if response.ending != FINISHED or response.finish is not None or limit is None or written < limit:
        return response
    return ended(response.text or "", CUT_OFF, input_tokens=response.input_tokens, output_tokens=written)


def ended(
    text: str,
    ending: str,
    *,
    is_told: bool = True,
    input_tokens: int | None = None,
    output_tokens: int | None = None,
) -> Response:
    """An answer by how it ended. The text of an incomplete one is only ``partial``."""
    finish = {FINISHED: "stop", CUT_OFF: "length"}.get(ending) if is_told else None
    whole, partial = (text, None) if ending == FINISHED else (None, text or None)
    return Response(whole, None, None, input_tokens, output_tokens, finish, ending, partial)


def join(parts: Sequence[Any]) -> str:
    """The text of a list of blocks. Blocks of other kinds are left out."""
    texts = []
    for part in parts:
        if not isinstance(part, dict):
            raise ValueError("the content holds an item that is not a block")
        if part.get("type") == "text":
            if not isinstance(part.get("text"), str):
                raise ValueError("a block of text has no text")
            texts.append(part["text"])
    return "".join(texts)


def count(value: Any) -> int | None:
    """A number of tokens; None where it cannot be one."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if options.is_whole(value) and 0 <= value <= _MOST_TOKENS else None


def body_text(answer: Any) -> str:
    """The body. JSON is in UTF-8, even where a header differs."""
    return answer.http_response.content.decode("utf-8", "replace")


def one_line(text: str) -> str:
    """The beginning of a text, without what a terminal would obey."""
    text = " ".join(json_files.well_formed(text[:10_000]).split())
    text = "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
    return text if len(text) <= 300 else f"{text[:297]}..."
