"""Options of a hosted model, and their checks before anything is sent."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any

from winobench.base import json_files, options
from winobench.base.errors import InputError
from winobench.responders.hosted.api import LIMITS, Api
from winobench.responders.hosted.providers import APIS, model_names
from winobench.runs import model_settings

# Fields of the request itself. Other values would send another question than the record has.
_OWN_FIELDS = {"messages", "prompt", "model", "system", "stream", "n", "logprobs", "top_logprobs"}
# Names with an @ that cannot be before a host: ``claude-x@20240229`` and ``@cf/meta/llama-3-8b``.
_PLAIN_WITH_AT = re.compile(r"[^@]+@\d+|@[\w-]+/[\w.-]+/[^@]+")
_AZURE = r"\.azure\.(?:com|us|cn)\Z"
# Shorter ones are stand-ins such as EMPTY, which an answer may well contain.
_SHORTEST_SECRET = 12


_COUNT, _SECONDS = options.whole(1, 1000), options.number(0, 86_400)


@dataclasses.dataclass(frozen=True)
class Connection:
    """Options of all hosted models.

    Attributes:
      timeout: seconds after which a call is given up and tried again, from the request to the last byte of the answer.
        To connect, at most 20 of them.
      first_wait: seconds before the second attempt. Doubled from attempt to attempt up to a minute, less a random part
        of up to a half. Longer where the server requests it.
      sends: False for a model that only estimates, which needs no key.
      longest_wait: seconds. The run ends with an error where the server requests a longer wait.
    """

    base_url: str | None = None
    concurrency: int = options.option(8, _COUNT)
    timeout: float = options.option(300.0, options.number(above=0, high=86_400))
    attempts: int = options.option(8, _COUNT)
    first_wait: float = options.option(1.0, _SECONDS)
    longest_wait: float = options.option(600.0, _SECONDS)
    failures_in_a_row: int = options.option(20, _COUNT)
    seconds_to_finish: float = options.option(15.0, _SECONDS)
    extra_body: Mapping[str, Any] | None = None
    prices: Mapping[str, Sequence[float]] | None = None
    sends: bool = True

    def check(self, name: str, api: type[Api]) -> None:
        """Raises InputError for an option that a model or its protocol cannot have."""
        for option, field in options.declared(self).items():
            field.metadata["range"].check(f"{option} of {name!r}", getattr(self, option), "out-of-range")
        for model, price in (self.prices or {}).items():
            is_pair = isinstance(price, Sequence) and len(price) == 2 and all(map(options.is_number, price))
            if not is_pair or not all(math.isfinite(value) and value >= 0 for value in price):
                raise InputError(
                    f"the price of {model} is {price!r}: give two numbers, US dollars per million tokens read and"
                    " written.",
                    code="out-of-range",
                )


@dataclasses.dataclass(frozen=True)
class Settings(Connection):
    """Options of `HostedModel`.

    Attributes:
      max_tokens_field: ``max_tokens`` or ``max_completion_tokens``. When None, OpenAI's own server gets the latter and
        others the former, until the server refuses that field: then all calls have the other field.
      logprobs: whether options about an image are judged by log-probabilities. When None, the name decides.
    """

    max_tokens_field: str | None = None
    send_temperature: bool = True
    seed: int | None = None
    logprobs: bool | None = None
    votes: int = options.option(5, _COUNT)

    def check(self, name: str, api: type[Api]) -> None:
        """See `Connection`."""
        super().check(name, api)
        if self.max_tokens_field not in (None, *LIMITS):
            raise InputError(
                f"max_tokens_field is {self.max_tokens_field!r}: choose one of {', '.join(LIMITS)}.",
                code="unknown-name",
            )
        given = {"seed": self.seed is not None, "max_tokens_field": self.max_tokens_field, "logprobs": self.logprobs}
        for option, is_given in given.items():
            if is_given and option not in api.options:
                raise InputError(
                    f"{option} is an option of OpenAI's protocol, but {name!r} speaks another: leave it out.",
                    code="option-of-others",
                )


@dataclasses.dataclass(frozen=True)
class ImageSettings(model_settings.ImageCall, Connection):
    """Options of models that make images."""


def split(name: str) -> tuple[str, str, str | None]:
    """Provider, model and base URL in a model's name. Raises InputError for another one."""
    api, _, rest = name.partition(":")
    # Models' names may hold @ and : themselves.
    parts = re.fullmatch(r"(?P<model>.+?)(?:@(?P<url>(?i:https?)://.*))?", rest, re.DOTALL)
    if api not in APIS or parts is None:
        raise InputError(
            f"{name!r} is not the name of a hosted model: write {model_names()}, for another server with"
            " @http://HOST:PORT/v1 behind it.",
            code="unknown-api",
        )
    model, url = parts["model"], parts["url"]
    if "://" in model or (url is None and "@" in model and _PLAIN_WITH_AT.fullmatch(model) is None):
        # Else question and key would go to the provider. What follows is not quoted, as it may hold a password.
        first = model[0] + re.split("@|://", model[1:])[0][:100]
        raise InputError(
            f"the model's name that begins with {api}:{first} may hold a server's address without http:// or https://:"
            f" write {api}:MODEL@http://HOST:PORT/v1. Where an @ is part of the name, add the server:"
            f" {api}:NAME@https://HOST/v1.",
            code="bad-url",
        )
    return api, model, url


def checked_fields(fields: Mapping[str, Any] | None) -> dict[str, Any]:
    """Further fields of a request as JSON values that can be sent and written down."""
    if own := sorted(_OWN_FIELDS & set(fields or {})):
        raise InputError(
            f"extra_body must not hold {own[0]!r}, which winobench sets itself: leave it out.", code="reserved-field"
        )
    try:
        return json_files.parse(json.dumps(dict(fields or {})))
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"extra_body must be an object of JSON values, but {str(error)[:200]}: correct it.", code="not-json"
        ) from None


def base_url(name: str, api: type[Api], option: str | None, named: str | None) -> str:
    """The URL of the server, by the option, the model's name, the environment, or the provider's default."""
    if option is not None and named is not None and option != named:
        raise InputError(f"{name!r} names a server, but base_url is {option!r}: give one of them.", code="bad-url")
    variable = (os.environ.get(api.url_variable) or "").strip() or None
    given = {"base_url": option, "in the model's name": named, api.url_variable: variable, "default": api.default_url}
    return _checked_url(*next((url, where) for where, url in given.items() if url is not None))


def _checked_url(url: str, where: str) -> str:
    """A base URL, given ``where``, without a slash at its end. Raises InputError for a wrong or a secret URL."""
    if not isinstance(url, str) or not url.isascii() or not url.isprintable() or " " in url:
        raise InputError(
            f"the base URL {str(url)[:200]!r} ({where}) holds a character that no URL has: write it like"
            " http://HOST:PORT/v1.",
            code="bad-url",
        )
    try:
        parts = urllib.parse.urlsplit(url)
        host = parts.hostname if parts.scheme in ("http", "https") and (parts.port or 1) > 0 else None
    except ValueError:
        host = None
    if not host:
        raise InputError(
            f"the base URL {url[:200]!r} ({where}) must begin with http:// or https:// and name a host: write it like"
            " http://HOST:PORT/v1.",
            code="bad-url",
        )
    if re.search(_AZURE, host) and (parts.query or "/deployments/" in parts.path):
        raise InputError(
            f"the base URL at {parts.hostname} ({where}) is Azure's address of one deployment or of an api-version:"
            f" write the deployment as the model, and https://{parts.hostname}/openai/v1 as the address.",
            code="bad-url",
        )
    if parts.username or parts.password or parts.query:
        # Not quoted: it would land in a log.
        raise InputError(
            f"the base URL at {parts.hostname} holds a name, a password or a query, which would be written into the"
            " run's folder: leave it out and set the key in the environment. Where the server needs a query such as"
            " api-version, name an address of it that needs none.",
            code="bad-url",
        )
    return url.rstrip("/")


def read_key(kind: type[Api], needed: bool) -> str | None:
    """The key in the environment. Raises InputError if a needed one is missing, or it is malformed."""
    key = (os.environ.get(kind.key_variable) or "").strip()
    if not key and needed:
        raise InputError(
            f"the environment variable {kind.key_variable} is not set: set it to your key for {kind.default_url}.",
            code="no-key",
        )
    if not all(0x20 < ord(letter) < 0x7F for letter in key):
        raise InputError(f"{kind.key_variable} holds a character that no key has: copy the key again.", code="bad-key")
    return key or None


def secret(key: str | None) -> re.Pattern[str] | None:
    """Finds a key, also where JSON writes some of its letters as escapes. None without a key to hide."""
    if key is None or len(key) < _SHORTEST_SECRET:
        return None
    marks = ("" if letter.isalnum() else r"\\?" for letter in key)
    return re.compile(
        "".join(rf"(?:{mark}{re.escape(a)}|\\u00(?i:{ord(a):02x}))" for mark, a in zip(marks, key, strict=True))
    )
