"""Checks of a hosted model's options, before anything is sent."""

from __future__ import annotations

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

_COUNTS = ("concurrency", "attempts", "failures_in_a_row", "votes")
_SECONDS = ("first_wait", "longest_wait", "seconds_to_finish")
_NUMBERS = dict.fromkeys(_COUNTS, options.whole(1, 1000)) | dict.fromkeys(_SECONDS, options.number(0, 86_400))
_NUMBERS["timeout"] = options.number(above=0, high=86_400)
# What a request itself says: another value would ask another model, or another question, than is recorded.
_OWN_FIELDS = {"messages", "model", "system", "stream", "n", "logprobs", "top_logprobs"}
# Names with an @ that cannot be before a host: ``claude-x@20240229`` and ``@cf/meta/llama-3-8b``.
_PLAIN_WITH_AT = re.compile(r"[^@]+@\d+|@[\w-]+/[\w.-]+/[^@]+")
_AZURE = r"\.azure\.(?:com|us|cn)\Z"
# Shorter ones are stand-ins such as EMPTY, which an answer may well contain.
_SHORTEST_SECRET = 12


def split(name: str) -> tuple[str, str, str | None]:
    """Provider, model and base URL in a model's name. Raises InputError for another one."""
    api, _, rest = name.partition(":")
    # Models' names may hold @ and : themselves.
    found = re.fullmatch(r"(?P<model>.+?)(?:@(?P<url>(?i:https?)://.*))?", rest, re.DOTALL)
    if api not in APIS or found is None:
        raise InputError(
            f"{name!r} is not the name of a hosted model: write {model_names()}, for another server with"
            " @http://HOST:PORT/v1 behind it.",
            code="unknown-api",
        )
    model, url = found["model"], found["url"]
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


def check_fields(
    name: str, api: type[Api], seed: int | None, max_tokens_field: str | None, logprobs: bool | None
) -> None:
    if max_tokens_field is not None and max_tokens_field not in LIMITS:
        raise InputError(
            f"max_tokens_field is {max_tokens_field!r}: choose one of {', '.join(LIMITS)}.", code="unknown-name"
        )
    given = {"seed": seed is not None, "max_tokens_field": max_tokens_field is not None, "logprobs": bool(logprobs)}
    others = [option for option, is_given in given.items() if is_given and option not in api.options]
    if others:
        raise InputError(
            f"{others[0]} is an option of OpenAI's protocol, but {name!r} speaks another: leave it out.",
            code="option-of-others",
        )


def check_numbers(name: str, **values: Any) -> None:
    for option, value in values.items():
        _NUMBERS[option].check(f"{option} of {name!r}", value, "out-of-range")


def check_prices(prices: Mapping[str, Sequence[float]] | None) -> None:
    for model, price in (prices or {}).items():
        if not (
            isinstance(price, Sequence)
            and len(price) == 2
            and all(isinstance(value, int | float) and math.isfinite(value) and value >= 0 for value in price)
        ):
            raise InputError(
                f"the price of {model} is {price!r}: give two numbers, US dollars per million tokens read and written.",
                code="out-of-range",
            )


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


def checked_url(url: str, where: str) -> str:
    """A base URL, given ``where``, without a slash at its end. Raises InputError for a wrong or a secret one."""
    if not isinstance(url, str) or not url.isascii() or not url.isprintable() or " " in url:
        raise InputError(
            f"the base URL {str(url)[:200]!r} ({where}) holds a character that no URL has: write it like"
            " http://HOST:PORT/v1.",
            code="bad-url",
        )
    try:
        parts = urllib.parse.urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        valid, parts = False, None
    if not valid:
        raise InputError(
            f"the base URL {url[:200]!r} ({where}) must begin with http:// or https:// and name a host: write it like"
            " http://HOST:PORT/v1.",
            code="bad-url",
        )
    if re.search(_AZURE, parts.hostname) and (parts.query or "/deployments/" in parts.path):
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
    marks = ("" if one.isalnum() else r"\\?" for one in key)
    letters = (rf"(?:{mark}{re.escape(one)}|\\u00(?i:{ord(one):02x}))" for mark, one in zip(marks, key, strict=True))
    return re.compile("".join(letters))
