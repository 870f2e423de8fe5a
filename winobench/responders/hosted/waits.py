"""The waits that a server requests in the headers of its answers."""

from __future__ import annotations

import contextlib
import datetime
import email.utils
import math
import re
import time
from collections.abc import Iterator, Mapping


def requested_wait(headers: Mapping[str, str], status: int) -> float | None:
    """The seconds that a server requests before the next attempt, or None."""
    with contextlib.suppress(KeyError, ValueError):
        return _positive(float(headers["retry-after-ms"]) / 1000)
    if (value := headers.get("retry-after")) is not None:
        with contextlib.suppress(ValueError):
            return _positive(float(value))
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    if status != 429:
        return None
    # Only limits that are reached, or may be, matter.
    waits = [wait for remaining, wait in _limits(headers) if remaining in (None, 0)]
    return max(waits, default=None)


def exhausted(headers: Mapping[str, str]) -> float:
    """The seconds from a success until the next call is allowed. 0 for now."""
    return max((wait for remaining, wait in _limits(headers) if remaining == 0), default=0.0)


def _limits(headers: Mapping[str, str]) -> Iterator[tuple[int | None, float]]:
    """The rest of each limit, or None, and the seconds until the limit is full again.

    OpenAI writes ``x-ratelimit-reset-requests: 6m0s``, Anthropic ``anthropic-ratelimit-requests-reset`` with a date,
    others ``x-ratelimit-reset`` with seconds, or with seconds or milliseconds of Unix time.
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
