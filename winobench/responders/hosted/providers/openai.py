"""OpenAI's protocol, which many servers speak."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from winobench.base import answer_texts, options
from winobench.responders.hosted import bodies, choices, images
from winobench.responders.hosted.api import (
    LIMITS,
    Api,
    Failure,
    body_text,
    count,
    ended,
    join,
    refuses,
    speaks_of_logprobs,
)
from winobench.runs.requests import (
    Generation,
    ImageOptions,
    ImageStarts,
    ImageText,
    Response,
    Turn,
    conversation,
    images_of,
    text_about,
)

# The most that the API reports (its reference of chat completions, "top_logprobs"). Where a server refuses it without a
# smaller number, the others are tried.
_MOST_LIKELY = 20
_FEWER = (10, 8, 5, 3, 2, 1)
_SMALL_NUMBER = re.compile(r"(?<![\w.:/-])\d{1,2}(?!\w|[.:/-]\d)")
# Models that think before they answer, which report no log-probabilities.
_THINKING = re.compile(r"(o\d|gpt-5)")
IMAGES = images.Limits(("PNG", "JPEG", "WEBP", "GIF"), 20_000_000, None)
"""https://platform.openai.com/docs/guides/images-vision, "Image input requirements" (seen 2026-11-25): PNG, JPEG, WEBP
and GIF that does not move; 20 MB an image in earlier editions of the page, 50 MB a request since. Sides are scaled by
the server."""
# Rounded sums of probabilities may lead above 1.
_MOST_LOGPROB, _MOST_SUM = 0.001, 1.02
# How some tokenizers write white space, and a server that returns ids instead of tokens.
_BLANKS = str.maketrans({"\u0120": " ", "\u2581": " ", "\u010a": "\n"})
_NUMBERED = re.compile(r"token_id:\d+|<?token[_ ]?\d+>?", re.IGNORECASE)
# What servers call thoughts next to an answer.
_THOUGHTS = ("reasoning_content", "reasoning", "thinking", "reasoning_details")


def _other(field: str) -> str:
    return LIMITS[1 - LIMITS.index(field)]


class OpenAI(Api, provider="openai"):
    """OpenAI's protocol: chat completions."""

    description = "OpenAI's API; openai:MODEL@http://HOST:PORT/v1 for any server that speaks its protocol"
    options = frozenset({"seed", "max_tokens_field", "logprobs"})
    own_limit = "max_completion_tokens"
    most_likely = _MOST_LIKELY  # that this server reports
    switched = False  # whether the server has refused the usual field of the limit
    default_url = "https://api.openai.com/v1"
    key_variable, url_variable = "OPENAI_API_KEY", "OPENAI_BASE_URL"
    package, client = "openai", "AsyncOpenAI"

    @classmethod
    def tells_likelihoods(cls, model: str) -> bool:
        return not cls.may_think(model)

    @classmethod
    def may_think(cls, model: str) -> bool:
        return _THINKING.match(model) is not None

    def as_text(self, request: ImageText | ImageOptions | ImageStarts) -> ImageText:
        if isinstance(request, ImageStarts):
            # A token may be a digit of 10.
            length = max(len(start.strip()) if start.strip().isdigit() else 1 for start in request.starts)
            return text_about(request, request.question, max_tokens=length, temperature=1.0)
        if isinstance(request, ImageOptions):
            question, marks = choices.put(request)
            begins = choices.beginning(marks)
            # Servers differ in whether the temperature is in the log-probabilities: at 1 it makes no difference. What
            # all answers begin with must be written first, though, as it is likeliest. A letter is a token at most.
            length, temperature = (1 + len(begins), 0.0) if begins else (1, 1.0)
            return text_about(request, question, max_tokens=length, temperature=temperature)
        return request

    def body(self, request: Generation | ImageText | ImageOptions | ImageStarts) -> dict[str, Any]:
        settings = self._settings
        if isinstance(request, ImageOptions | ImageStarts):
            return {**self.body(self.as_text(request)), "logprobs": True, "top_logprobs": self.most_likely}
        if isinstance(request, ImageText):
            encoded = [images.encode(image, IMAGES) for image in images_of(request)]
            # In the order of the guide's examples.
            system, before = conversation(request)
            first, *turns = (*before, Turn("user", request.question or choices.CAPTION))
            parts = [
                {"type": "text", "text": first.text},
                *(
                    {"type": "image_url", "image_url": {"url": f"data:{media_type};base64,{content}"}}
                    for media_type, content in encoded
                ),
            ]
            messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
            messages.append({"role": "user", "content": parts})
        else:
            messages, turns = [], [*request.turns]
        messages += [{"role": turn.role, "content": turn.text} for turn in turns]
        body: dict[str, Any] = {
            "model": self._model,
            "messages": messages,
            settings["max_tokens_field"]: request.max_tokens,
        }
        if settings["send_temperature"]:
            body["temperature"] = request.temperature
        if settings["seed"] is not None:
            body["seed"] = settings["seed"] + request.sample
        return body

    def advice(self, field: str) -> str:
        if field not in LIMITS or self.may_adapt:
            return super().advice(field)
        return f"set max_tokens_field to {_other(field)} (--api.max_tokens_field={_other(field)})"

    def adapted(self, body: dict[str, Any], room: int = 0) -> dict[str, Any]:
        own = self._settings["max_tokens_field"]
        field = _other(own) if self.switched else own
        if "top_logprobs" in body:
            body = {**body, "top_logprobs": self.most_likely}
        return {field if name == own else name: value for name, value in super().adapted(body, room).items()}

    def adapt(self, sent: dict[str, Any], failure: Failure) -> bool:
        if (given := sent.get("top_logprobs")) and speaks_of_logprobs(failure.message, failure.codes):
            return failure.status in (400, 422) and self._take_fewer(given, failure)
        if not self.may_adapt or failure.status not in (400, 422):
            return False
        own = self._settings["max_tokens_field"]
        field = own if own in sent else _other(own)
        named, other = (re.search(rf"\b{name}\b", failure.message) for name in (field, _other(field)))
        refused = refuses(field, failure.message, failure.codes) or (named and other)
        if not refused and not (other and re.search("required|missing", failure.message, re.IGNORECASE)):
            return False
        if field == own:
            self.switched = True
        # Calls of other threads may have been sent before the switch.
        return field == own

    def _take_fewer(self, given: int, failure: Failure) -> bool:
        """Whether a call that was refused is sent again, with fewer likely tokens."""
        if given == self.most_likely:  # otherwise another call has taken fewer already
            named = [int(number) for number in _SMALL_NUMBER.findall(failure.message)]
            fewer = [number for number in named if 0 < number < given]
            if not fewer and "unsupported_parameter" not in failure.codes:
                fewer = [number for number in _FEWER if number < given]
            self.most_likely = max(fewer, default=given)
        return self.most_likely < given

    async def send(self, client: Any, body: dict[str, Any], call_id: str) -> tuple[int, str, Mapping[str, str]]:
        answer = await client.chat.completions.with_raw_response.create(
            **body, extra_body=self._settings["extra_body"], extra_headers={"Idempotency-Key": call_id}
        )
        return answer.status_code, body_text(answer), answer.headers

    @staticmethod
    def parse(content: dict[str, Any]) -> Response:
        choice, message = _first_choice(content)
        text = message.get("content")
        refusal = message.get("refusal")
        if isinstance(text, list):  # some servers write parts
            parts = [part for part in text if isinstance(part, dict) and part.get("type") == "refusal"]
            refusal = refusal or (parts[0].get("refusal") or "no words" if parts else None)
            text = join(text)
        if text is not None and not isinstance(text, str):
            raise ValueError("the message's content is not text")
        usage = content.get("usage")
        usage = usage if isinstance(usage, dict) else {}
        reason, calls_tool = (
            choice.get("finish_reason"),
            bool(message.get("tool_calls") or message.get("function_call")),
        )
        ending = bodies.ending(reason, text or "", refused=bool(refusal), calls_tool=calls_tool)
        return ended(
            text or (str(refusal) if refusal else ""),
            ending,
            is_told=reason is not None,
            input_tokens=count(usage.get("prompt_tokens")),
            output_tokens=count(usage.get("completion_tokens")),
        )

    def shows_thoughts(self, content: dict[str, Any], response: Response) -> bool:
        usage = content.get("usage")
        details = usage.get("completion_tokens_details") if isinstance(usage, dict) else None
        spent = [part.get("reasoning_tokens") for part in (usage, details) if isinstance(part, dict)]
        has_thoughts = any(map(_first_choice(content)[1].get, _THOUGHTS)) or any(map(count, spent))
        return has_thoughts or super().shows_thoughts(content, response)

    @staticmethod
    def likely_tokens(content: dict[str, Any]) -> list[choices.Place]:
        try:
            listed = content["choices"][0]["logprobs"]["content"]
            tokens: list[choices.Place] = [(_text(token), _likely(token)) for token in listed]
        except (KeyError, IndexError, TypeError, AttributeError):
            tokens = []
        if not tokens:
            raise ValueError("the answer has no log-probabilities")
        message = _first_choice(content)[1]
        answer, first = str(message.get("content") or "").strip(), tokens[0][0].strip()
        has_thoughts = any(map(message.get, _THOUGHTS)) and not (answer and answer.startswith(first))
        if has_thoughts or answer_texts.begins_with_thoughts("".join(token for token, _ in tokens)):
            raise ValueError("the log-probabilities belong to a thought")
        if answer and not answer.startswith(first):
            raise ValueError(f"the answer {answer[:40]!r} does not begin with its token {first[:40]!r}")
        for _, likely in tokens:
            values = [value for _, value in likely]
            if not all(options.is_number(value) and value <= _MOST_LOGPROB for value in values) or (
                math.fsum(map(math.exp, values)) > _MOST_SUM
            ):
                raise ValueError(f"the log-probabilities {values[:5]} cannot be right")
        return tokens


def _likely(token: dict[str, Any]) -> list[tuple[str, float]]:
    """The likeliest tokens at a token with their log-probabilities, and the token itself."""
    listed = [(_text(other), other["logprob"]) for other in token.get("top_logprobs") or ()]
    text = _text(token)
    own = [] if any(text == other for other, _ in listed) else [(text, token["logprob"])]
    return list(dict.fromkeys([*listed, *own]))


def _text(token: dict[str, Any]) -> str:
    """The text of a token, by its bytes where they are there."""
    text, codes = token["token"], token.get("bytes")
    if isinstance(codes, list) and codes and all(options.is_whole(code) and 0 <= code < 256 for code in codes):
        text = bytes(codes).decode("utf-8", "replace")
    if not isinstance(text, str) or _NUMBERED.fullmatch(text):
        raise ValueError(f"the server names tokens by number ({options.quote(text)})")
    return text.translate(_BLANKS)


def _first_choice(content: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    choices = content.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise ValueError("the body has no choices")
    message = choices[0].get("message")
    if not isinstance(message, dict):
        raise ValueError("the body's first choice has no message")
    return choices[0], message
