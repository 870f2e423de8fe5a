"""Bodies of status 200 without a whole answer: they hold an error, or an incomplete answer."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from typing import Any

from winobench.base import answer_texts, json_files
from winobench.runs.requests import CUT_OFF, EMPTY, FILTERED, FINISHED, INTERRUPTED, TOOL_CALL

ERROR = "error"
"""The reason of a choice that is an error."""

# The reasons that servers give, in lower case with underscores. One that is not listed counts as an interruption.
_REASONS = {
    FINISHED: "stop end_turn stop_sequence eos eos_token eos_found complete completed finished null none",
    CUT_OFF: "length max_tokens max_output_tokens model_length model_context_window_exceeded context_length_exceeded",
    FILTERED: "content_filter content_filtered content_policy content_policy_violation refusal safety image_safety"
    " recitation image_recitation blocklist blocked prohibited_content image_prohibited_content spii sensitive"
    " moderation moderation_blocked guardrail guardrails guardrail_intervened policy_violation flagged censored"
    " error_toxic",
    TOOL_CALL: "tool_calls tool_call tool_use function_call malformed_function_call unexpected_tool_call",
}
_ENDINGS = {reason: ending for ending, reasons in _REASONS.items() for reason in reasons.split()}

# Servers' names and words for a question, an answer or an image that they hold back. Complaints about an account or a
# field sound different.
_HELD_BACK = re.compile(
    r"content.{0,3}(?:filter|polic|moderation|management|violat|risk|exists.risk)|responsible.{0,2}ai|moderation"
    r"|data.?inspection|guardrail|prohibited.content|block.?reason|blocklist|recitation|nsfw|unsafe|inappropriate"
    r"|copyright|model.?armor|敏感|不安全|违规"
    r"|\bsafety\b(?!.?(?:identifier|settings?))|sensitive (?:content|word|information|material)|high risk"
    r"|flagged (?:as|for)|violat.{0,80}(?:polic|guideline|terms|rules)|(?:usage|acceptable use) (?:polic|guideline)",
    re.IGNORECASE | re.DOTALL,
)
_OF_ACCOUNT = re.compile(
    r"\b(?:account|organi[sz]ation|subscription|api.?key|billing|suspended|deactivated|temporarily blocked)\b", re.I
)
_BAD_IMAGE = re.compile(
    r"cannot identify image|image file is truncated|broken data stream|image_parse_error|could not process image"
    r"|(?:invalid|corrupt\w*|broken|empty|unsupported)[\s_](?:base64[\s_])?image"
    r"|(?:failed|unable|not able) to (?:decode|load|open|parse|process|read) (?:\w+ ){0,2}image",
    re.IGNORECASE,
)

# The first line of server-sent events.
_STREAMED = re.compile(r"\s*(?:data:|event:|id:|retry:|: )")

# The status of each name of an error (Anthropic's and OpenAI's references of errors).
_STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "model_not_found": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "api_error": 500,
    "server_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}


# The fields of an error that hold a name or a number.
_CODES = ("code", "type", "status_code", "status", "error_code", "param")


@dataclasses.dataclass(frozen=True)
class Error:
    """An error in a body: the server's words, its names and numbers, and the status that they mean, or None."""

    message: str
    codes: tuple[str, ...]
    status: int | None


def parse(text: str) -> Any:
    """The JSON of a body. One that was streamed is put together. Raises ValueError for another one."""
    text = text.removeprefix("\ufeff")
    if _STREAMED.match(text) is None:
        return json_files.parse(text, foreign=True)
    events = [line.removeprefix("data:").strip() for line in re.split(r"[\r\n]+", text) if line.startswith("data:")]
    chunks = [json_files.parse(event, foreign=True) for event in events if event not in ("", "[DONE]")]
    if not chunks or not all(isinstance(chunk, dict) for chunk in chunks):
        raise ValueError("it is a stream of events without an answer, which was not asked for")
    return next((chunk for chunk in chunks if error(chunk) is not None), None) or _joined(chunks)


def _joined(chunks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A chat completion from its chunks."""
    whole: dict[str, Any] = {name: value for chunk in chunks for name, value in chunk.items() if value is not None}
    message: dict[str, Any] = {}
    choice: dict[str, Any] = {"message": message, "finish_reason": None}
    tokens: list[Any] = []
    for chunk in chunks:
        listed = chunk.get("choices")
        part = listed[0] if isinstance(listed, list) and listed and isinstance(listed[0], dict) else {}
        delta = part.get("delta") or part.get("message")
        for name, value in delta.items() if isinstance(delta, dict) else ():
            both = isinstance(value, str) and isinstance(message.get(name), str) and name != "role"
            message[name] = message[name] + value if both else value if value is not None else message.get(name)
        choice["finish_reason"] = part.get("finish_reason") or choice["finish_reason"]
        logprobs = part.get("logprobs")
        content = logprobs.get("content") if isinstance(logprobs, dict) else None
        tokens += content if isinstance(content, list) else []
    if not message and "choices" not in whole:
        raise ValueError("it is a stream of another protocol's events, which was not asked for")
    # A stream that was cut off has no reason.
    choice["finish_reason"] = choice["finish_reason"] or INTERRUPTED
    return {**whole, "choices": [{**choice, "logprobs": {"content": tokens} if tokens else None}]}


def ending(reason: Any, text: str, *, refused: bool = False, calls_tool: bool = False) -> str:
    """How an answer ended, one of `winobench.runs.requests.ENDINGS`."""
    # Some servers write two names, such as ``content_filter: SAFETY`` or ``FinishReason.SAFETY``.
    named = str("none" if reason in (None, "") else reason).strip().lower().removeprefix("finish_reason_")
    words = re.split(r"[^a-z0-9]*[:./][^a-z0-9]*", named)
    named_endings = [_ENDINGS.get(re.sub(r"[\s-]+", "_", word)) for word in words]
    known = next(filter(None, named_endings), INTERRUPTED)
    if known != FINISHED:
        return known
    if calls_tool:
        return TOOL_CALL
    if any(letter.isprintable() and not letter.isspace() for letter in answer_texts.spoken(text)):
        return FINISHED
    return FILTERED if refused else EMPTY


def error(content: Any) -> Error | None:
    """The error in a body; None where it speaks of none."""
    part = _error_part(content)
    if part is None:
        return None
    if not isinstance(part, dict):
        return Error(part if isinstance(part, str) else json.dumps(content), (), None)
    # Azure names the fault inside.
    inner: dict[str, Any] = next(
        (part[name] for name in ("innererror", "inner_error") if isinstance(part.get(name), dict)), {}
    )
    codes = tuple(
        str(fields[name])[:100] for fields in (part, inner) for name in _CODES if fields.get(name) is not None
    )
    return Error(_words(part), codes, _status(codes))


def is_filtered(message: str, codes: Sequence[str]) -> bool:
    """Whether an error's words speak of a filter."""
    return _HELD_BACK.search(" ".join((message, *codes))) is not None and not _OF_ACCOUNT.search(message)


def is_held_back(message: str, codes: Sequence[str]) -> bool:
    """Whether an error's words speak of a filter, or of an image that cannot be read."""
    return is_filtered(message, codes) or _BAD_IMAGE.search(" ".join((message, *codes))) is not None


def withheld(content: Any) -> str | None:
    """Why a body in Gemini's own form, which gateways pass on, holds no answer. None for another body."""
    if not isinstance(content, dict) or content.get("choices"):
        return None
    prompt = content.get("promptFeedback") or content.get("prompt_feedback")
    candidates = content.get("candidates")
    answer = candidates[0] if isinstance(candidates, list) and candidates else None
    if isinstance(prompt, dict) and (reason := prompt.get("blockReason") or prompt.get("block_reason")):
        return str(reason)
    reason = (answer.get("finishReason") or answer.get("finish_reason")) if isinstance(answer, dict) else None
    return str(reason) if ending(reason, "x") == FILTERED else None


def _error_part(content: Any) -> Any:
    """The part of a body that speaks of an error. Google's errors are in a list."""
    content = content[0] if isinstance(content, list) and content else content
    if not isinstance(content, dict):
        return None
    for name in ("error", "errors"):
        if given := content.get(name):
            return _as_part(given, content)
    base = content.get("base_resp")
    if isinstance(base, dict) and str(base.get("status_code") or 0) != "0":
        return base
    if content.get("type") == ERROR or content.get("stop_reason") == ERROR:
        return content
    choices = content.get("choices")
    if isinstance(choices, list) and choices:
        first = choices[0] if isinstance(choices[0], dict) else {}
        ended = str(first.get("finish_reason")).strip().lower() == ERROR
        return (
            _as_part(first["error"], first) if first.get("error") else "the answer ended in an error" if ended else None
        )
    has_words = any(content.get(name) for name in ("detail", "msg")) or isinstance(content.get("message"), str)
    return content if has_words and not isinstance(content.get("content"), list) else None


def _as_part(given: Any, around: Any) -> Any:
    """An error in words or fields: the first of several, or its wrapping."""
    given = given[0] if isinstance(given, list) and given else given
    return given if isinstance(given, dict | str) else around


def _words(part: dict[str, Any]) -> str:
    for name in ("message", "msg", "status_msg", "detail", "error"):
        if isinstance(words := part.get(name), str) and words:
            return words
    return json.dumps(part)


def _status(codes: Sequence[str]) -> int | None:
    for code in codes:
        if re.fullmatch(r"[45]\d\d", code):
            return int(code)
    return next((_STATUSES[code.lower()] for code in codes if code.lower() in _STATUSES), None)
