"""What the protocols of hosted models have in common: a client, one attempt, and what its failure means."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import datetime
import email.utils
import importlib
import json
import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from winobench.base import json_files
from winobench.base.errors import InputError
from winobench.responders import bounded_http
from winobench.responders.hosted import bodies
from winobench.runs.requests import CUT_OFF, EMPTY, FINISHED, Generation, PictureOptions, PictureText, Response

_RETRIED = (408, 409, 429)
_SECONDS_TO_CONNECT = 20.0
LARGEST_ANSWER = 4 * 2**20
"""Bytes of a server's answer: a million tokens. A larger one is a failed call, which is not tried again: it may have
been billed."""

# How servers say that a model takes no images. What is wrong with one image sounds different.
_WITHOUT_EYES = re.compile(
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
# What can be done about a field that is not taken.
_ADVICE = {
    "temperature": "set send_temperature to False (--config.api.send_temperature=false)",
    "logprobs": "set logprobs to False (--config.api.logprobs=false)",
    "top_logprobs": "set logprobs to False (--config.api.logprobs=false)",
}
# The names that OpenAI's protocol has for the limit of tokens.
LIMITS = ("max_tokens", "max_completion_tokens")
INCOMPLETE = "incomplete"
"""The kind of failure of a call that brought an answer which is not whole."""

# No call has so many. More is a mistake, which must not end in the costs.
_MOST_TOKENS = 10**9


@dataclasses.dataclass(frozen=True)
class Failure:
    """Why an attempt failed.

    Attributes:
      kind: ``rate limit``, ``server``, ``timeout``, ``connection``, ``unusable``,
        ``client``, ``refused`` or ``incomplete``.
      message: the server's words.
      passing: whether it is worth another attempt.
      fatal: what every call would fail of alike, and how to mend it.
      wait: seconds that the server asks for.
      codes: the server's names for the error.
    """

    kind: str
    message: str
    status: int | None = None
    passing: bool = False
    fatal: InputError | None = None
    wait: float | None = None
    request_id: str | None = None
    codes: tuple[str, ...] = ()


class Api(abc.ABC):
    """A protocol: how a request is written, sent and read."""

    default_url: str
    key_variable: str
    url_variable: str
    package: str
    client: str
    base_error: str
    may_adapt = True  # whether `adapt` may choose another field

    def __init__(self, key: str | None, url: str, model: str, timeout: float, settings: Mapping[str, Any]):
        try:
            self._package = importlib.import_module(self.package)
        except ImportError as error:
            raise InputError(
                f"{self.package}:{model} needs the package {self.package} ({error}): pip install 'winobench[api]'.",
                code="missing-package",
            ) from error
        self._model, self._settings = model, settings
        self._url, self._key = url, key
        timeouts = self._package.Timeout(timeout, connect=min(timeout, _SECONDS_TO_CONNECT))
        kind = bounded_http.client_class(self._package.DefaultHttpxClient, seconds=timeout, largest=LARGEST_ANSWER)
        # A redirection could carry the key to another host.
        try:
            self._clients = bounded_http.Pool(lambda: self._open(key, url, timeouts, kind(follow_redirects=False)))
        except Exception as error:  # such as a proxy's address in the environment that is none
            raise InputError(
                f"the client of {self.package}:{model} cannot be set up ({one_line(str(error))}): see to the proxies"
                " and certificates that the environment names.",
                code="cannot-connect",
            ) from error

    @classmethod
    def tells_likelihoods(cls, model: str) -> bool:
        """Whether a model's answers come with log-probabilities; only then is ``body`` given `PictureOptions`."""
        return False

    @abc.abstractmethod
    def body(self, request: Generation | PictureText | PictureOptions) -> dict[str, Any]:
        """The fields of a request. An image's file is read.

        Raises:
          InputError: the protocol cannot express it, or the image cannot be read.
        """

    def adapted(self, body: dict[str, Any]) -> dict[str, Any]:
        """The fields in this server's form."""
        return body

    def adapt(self, sent: dict[str, Any], failure: Failure) -> bool:
        """Whether the call that failed is to be sent again as `adapted` makes it from now on. Any thread may ask."""
        return False

    def advice(self, field: str) -> str:
        """What can be done about a field that every call would be refused for."""
        return _ADVICE.get(field, "name another model, or another server")

    @abc.abstractmethod
    def send(self, body: dict[str, Any], call_id: str) -> tuple[int, str, Mapping[str, str]]:
        """Makes one attempt: status, body as text, headers."""

    @staticmethod
    @abc.abstractmethod
    def parse(content: dict[str, Any]) -> Response:
        """Reads the body of an answer.

        Raises:
          ValueError: it is not what the protocol says.
        """

    @staticmethod
    def likely_tokens(content: dict[str, Any]) -> list[tuple[str, list[tuple[str, float]]]]:
        """The tokens of an answer to `PictureOptions`, each with the likeliest ones there and their log-probabilities.

        Raises:
          ValueError: they are not in the body.
        """
        raise ValueError("the protocol tells no log-probabilities")

    def _open(self, key: str | None, url: str, timeout: Any, http_client: Any) -> Any:
        """The package's client, which tries nothing again by itself."""
        # A server of one's own may need no key, but the client insists on one.
        return getattr(self._package, self.client)(
            api_key=key or "none", base_url=url, timeout=timeout, max_retries=0, http_client=http_client
        )

    def failure(self, error: Exception, sent: Mapping[str, Any]) -> Failure:
        """What an exception of the client means for a call of these fields."""
        package = self._package
        reason = error.__cause__ or error
        for one in (error, reason):
            if isinstance(one, bounded_http.TooLate):
                return Failure("timeout", str(one), passing=True)
            if isinstance(one, bounded_http.BrokenOff):
                return Failure("unusable", f"{one}; it may have been billed")
        if isinstance(error, package.APITimeoutError):
            return Failure("timeout", "no answer in time", passing=True)
        if not isinstance(error, package.APIStatusError):
            words = one_line(f"{type(reason).__name__}: {reason}")
            # By its name, as the clients bring their own library for this. It is raised before anything is sent.
            if type(reason).__name__ == "LocalProtocolError" or isinstance(reason, UnicodeError):
                advice = f"see to the environment variables of {self.package}."
                fatal = InputError(f"no request can be sent ({words}): {advice}", code="cannot-connect")
                return Failure("client", words, fatal=fatal)
            if isinstance(error, getattr(package, self.base_error)):
                return Failure("connection", words, passing=True)
            return Failure("client", words)
        status, headers = error.status_code, error.response.headers
        message, codes = _said(error)
        return self._refusal(status, message, codes, headers, sent)

    def unanswered(self, sent: Mapping[str, Any], text: str, headers: Mapping[str, str]) -> Failure | None:
        """Why a body of status 200 is worth another attempt; None for a whole answer, and for what nothing mends.

        Args:
          sent: the request's fields.
          text: the answer's body.
          headers: the answer's.
        """
        try:
            content = json_files.parse(text, foreign=True)
            if (error := bodies.error(content)) is not None:
                return self._refusal(error.status, one_line(error.message), error.codes, headers, sent)
            ending = self.parse(content).ending
        except (ValueError, AttributeError):  # `read` reports the fault
            return None
        # At the limit, the next attempt would end there, too. Log-probabilities may come with a token of white space.
        if ending in (FINISHED, CUT_OFF) or (ending == EMPTY and sent.get("logprobs")):
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
        """What an error that the server speaks of means. One without a status may pass."""
        if status == 401:  # the server's words quote the key, or the part of it that it does not hide
            message = "the key is not accepted"
        known = {
            "message": message,
            "status": status,
            "codes": tuple(codes),
            "request_id": headers.get("x-request-id") or headers.get("request-id"),
        }
        if status is None:
            return Failure("server", passing=True, wait=requested_wait(headers, 0), **known)
        fatal = self._fatal(status, message, codes, sent)
        if fatal is not None:
            return Failure("refused", fatal=fatal, **known)
        passing = status in _RETRIED or status >= 500
        if headers.get("x-should-retry") == "false":
            passing = False
        kind = "rate limit" if status == 429 else "server" if status >= 500 or passing else "refused"
        return Failure(kind, passing=passing, wait=requested_wait(headers, status), **known)

    def _fatal(self, status: int, message: str, codes: Sequence[str], sent: Mapping[str, Any]) -> InputError | None:
        """What an error is, if every call would meet it."""
        if status == 401:
            advice = f"set {self.key_variable} to a valid one."
            return InputError(f"{self._url} does not accept the key (401): {advice}", code="key-refused")
        if status in (402, 403):
            advice = "see to its rights and credit."
            return InputError(
                f"{self._url} refuses this account ({status}: {message}): {advice}", code="account-refused"
            )
        if status == 404 and not _WITHOUT_EYES.search(message):
            return InputError(
                f"{self._url} has no such model or address (404: {message}): correct the model's name or the base URL.",
                code="no-such-model",
            )
        if 300 <= status < 400:
            return InputError(f"{self._url} has moved ({status}): give the new base URL.", code="server-moved")
        if {"insufficient_quota", "billing_hard_limit_reached", "billing_error"} & set(codes) or (
            status == 400 and "credit balance" in message
        ):
            return InputError(
                f"the account has no credit left ({status}: {message}): see to that and give the same command again.",
                code="no-credit",
            )
        if status in (400, 422):
            # The words differ from model to model. That a field is not wanted at all is common to them.
            refused = [field for field in (*_ADVICE, *LIMITS) if field in sent and refuses(field, message, codes)]
            if refused:
                field = min(refused, key=message.index)
                return InputError(
                    f"the model refuses the field {field} ({status}: {message}): {self.advice(field)}.",
                    code="field-refused",
                )
        if status in (400, 404, 422) and _WITHOUT_EYES.search(message):
            return InputError(
                f"the model is a language model without eyes ({status}: {message}): name one that sees.",
                code="wrong-kind-of-model",
            )
        return None


def refuses(field: str, message: str, codes: Sequence[str]) -> bool:
    """Whether a server's words say that it does not take a field."""
    if not re.search(rf"\b{field}\b", message):
        return False
    return bool({"unsupported_parameter", "unsupported_value"} & set(codes) or _NOT_TAKEN.search(message))


def ended(text: str, ending: str, *, is_told: bool = True, **tokens: int | None) -> Response:
    """An answer by how it ended, as far as the server has told it: what an incomplete one says is not its text."""
    finish = {FINISHED: "stop", CUT_OFF: "length"}.get(ending) if is_told else None
    said = {"text": text} if ending == FINISHED else {"partial": text or None}
    return Response(**said, **tokens, finish=finish, ending=ending)


def join(parts: Sequence[Any]) -> str:
    """The text of a list of blocks; blocks of other kinds are left out."""
    texts = []
    for part in parts:
        if not isinstance(part, dict):
            raise ValueError("the content holds something that is no block")
        if part.get("type") == "text":
            if not isinstance(part.get("text"), str):
                raise ValueError("a block of text has no text")
            texts.append(part["text"])
    return "".join(texts)


def count(value: Any) -> int | None:
    """A number of tokens; None where it cannot be one."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_TOKENS else None


def body_text(answer: Any) -> str:
    """The body: JSON is in UTF-8, whatever a header says."""
    return answer.http_response.content.decode("utf-8", "replace")


def _said(error: Any) -> tuple[str, list[str]]:
    """The server's words on an error in one line, and the codes in it."""
    text = error.response.content.decode("utf-8", "replace")
    try:
        body = json_files.parse(text, foreign=True)
    except ValueError:
        body = None
    inner = body.get("error", body) if isinstance(body, dict) else None
    if not isinstance(inner, dict):
        text = inner if isinstance(inner, str) else text
        return one_line(text) or error.response.reason_phrase or "no words", []
    codes = [str(inner[name])[:100] for name in ("code", "type") if inner.get(name) is not None]
    return one_line(str(inner.get("message") or json.dumps(inner))), codes


def one_line(text: str) -> str:
    """The beginning of a text, without what a terminal would obey."""
    text = " ".join(json_files.well_formed(text[:10_000]).split())
    text = "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
    return text if len(text) <= 300 else f"{text[:297]}..."


def requested_wait(headers: Mapping[str, str], status: int) -> float | None:
    """The seconds that a server asks for before the next attempt; None if it does not say."""
    with contextlib.suppress(KeyError, ValueError):
        return _positive(float(headers["retry-after-ms"]) / 1000)
    if (value := headers.get("retry-after")) is not None:
        with contextlib.suppress(ValueError):
            return _positive(float(value))
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    if status != 429:
        return None
    # The limits that are reached, or may be. What is left of a limit that is not reached does not matter.
    waits = [wait for remaining, wait in _limits(headers) if remaining in (None, 0)]
    return max(waits, default=None)


def exhausted(headers: Mapping[str, str]) -> float:
    """After a success: the seconds until there may be another call; 0 if there may be one now."""
    return max((wait for remaining, wait in _limits(headers) if remaining == 0), default=0.0)


def _limits(headers: Mapping[str, str]) -> Iterator[tuple[int | None, float]]:
    """What is left of each limit, None where it is not said, and the seconds until all of it is there again.

    OpenAI's servers write ``x-ratelimit-reset-requests: 6m0s``, Anthropic's ``anthropic-ratelimit-requests-reset`` with
    a date, others ``x-ratelimit-reset`` with seconds, or with seconds or milliseconds of Unix time.
    """
    for name, value in headers.items():
        name = name.lower()
        if "ratelimit" not in name or "reset" not in name:
            continue
        wait = _duration(value)
        if wait is None:
            continue
        remaining = headers.get(name.replace("reset", "remaining"))
        try:
            yield (None if remaining is None else int(float(remaining))), wait
        except (ValueError, OverflowError):
            yield None, wait


def _duration(text: str) -> float | None:
    """Seconds from now that a rate-limit header means."""
    text = text.strip()
    with contextlib.suppress(ValueError):
        number = float(text)
        if number >= 1e12:
            number /= 1000
        return _positive(number - time.time() if number >= 1e9 else number)
    parts = re.fullmatch(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:([\d.]+)s)?(?:([\d.]+)ms)?", text)
    if parts is not None and text:
        scales = (86400, 3600, 60, 1, 0.001)
        with contextlib.suppress(ValueError):
            return sum(float(part) * scale for part, scale in zip(parts.groups(), scales, strict=True) if part)
    with contextlib.suppress(ValueError, OverflowError):
        moment = datetime.datetime.fromisoformat(text)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
        return max(0.0, moment.timestamp() - time.time())
    return None


def _positive(number: float) -> float:
    if math.isnan(number):
        raise ValueError("not a number")
    return max(0.0, number)
