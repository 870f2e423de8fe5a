"""OpenAI's protocol, which many servers speak."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from winobench.base import answer_texts
from winobench.responders.hosted import bodies, choices, images
from winobench.responders.hosted.api import LIMITS, Api, Failure, body_text, count, ended, join, refuses
from winobench.runs.requests import Generation, PictureOptions, PictureText, Response

# The most that the API reports (its reference of chat completions, "top_logprobs").
_MOST_LIKELY = 20
# Models that think before they answer, which report no log-probabilities.
_THINKING = re.compile(r"(o\d|gpt-5)")
IMAGES = images.Limits(("PNG", "JPEG", "WEBP", "GIF"), 20_000_000, None)
"""https://platform.openai.com/docs/guides/images-vision, "Image input requirements" (seen 2026-11-25): PNG, JPEG, WEBP
and GIF that does not move; 20 MB an image in earlier editions of the page, 50 MB a request since. Sides are scaled by
the server."""
# What servers call thoughts next to an answer.
_THOUGHTS = ("reasoning_content", "reasoning", "thinking", "reasoning_details")


def _other(field: str) -> str:
    return LIMITS[1 - LIMITS.index(field)]


class OpenAI(Api, provider="openai"):
    """OpenAI's protocol: chat completions."""

    description = "OpenAI's API; openai:MODEL@http://HOST:PORT/v1 for any server that speaks its protocol"
    requirement = "openai>=3.54,<4"
    options = frozenset({"seed", "max_tokens_field", "logprobs"})
    own_limit = "max_completion_tokens"
    switched = False  # whether the server has refused the usual field of the limit
    default_url = "https://api.openai.com/v1"
    key_variable, url_variable = "OPENAI_API_KEY", "OPENAI_BASE_URL"
    package, client, base_error = "openai", "AsyncOpenAI", "OpenAIError"

    @classmethod
    def tells_likelihoods(cls, model: str) -> bool:
        return _THINKING.match(model) is None

    def body(self, request: Generation | PictureText | PictureOptions) -> dict[str, Any]:
        settings = self._settings
        if isinstance(request, PictureOptions):
            question, marks = choices.put(request)
            begins = choices.beginning(marks)
            # Servers differ in whether the temperature is in the log-probabilities: at 1 it makes no difference. What
            # all answers begin with must be written first, though, as it is likeliest. A letter is a token at most.
            length, temperature = (1 + len(begins), 0.0) if begins else (1, 1.0)
            asked = PictureText(request.picture, question, max_tokens=length, temperature=temperature)
            return {**self.body(asked), "logprobs": True, "top_logprobs": _MOST_LIKELY}
        if isinstance(request, PictureText):
            media_type, content = images.encode(request.picture, IMAGES)
            # In the order of the guide's examples.
            parts = [
                {"type": "text", "text": request.question or choices.CAPTION},
                {"type": "image_url", "image_url": {"url": f"data:{media_type};base64,{content}"}},
            ]
            messages = [{"role": "user", "content": parts}]
        else:
            messages = [{"role": turn.role, "content": turn.text} for turn in request.turns]
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
        return f"set max_tokens_field to {_other(field)} (--config.api.max_tokens_field={_other(field)})"

    def adapted(self, body: dict[str, Any]) -> dict[str, Any]:
        own = self._settings["max_tokens_field"]
        field = _other(own) if self.switched else own
        return {field if name == own else name: value for name, value in body.items()}

    def adapt(self, sent: dict[str, Any], failure: Failure) -> bool:
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

    async def send(self, client: Any, body: dict[str, Any], call_id: str) -> tuple[int, str, Mapping[str, str]]:
        answer = await client.chat.completions.with_raw_response.create(
            **body, extra_body=self._settings["extra_body"], extra_headers={"Idempotency-Key": call_id}
        )
        return answer.status_code, body_text(answer), answer.headers

    @staticmethod
    def parse(content: dict[str, Any]) -> Response:
        choice, message = _first_choice(content)
        text = message.get("content")
        refused = bool(message.get("refusal"))
        if isinstance(text, list):  # some servers write parts
            refused |= any(isinstance(part, dict) and part.get("type") == "refusal" for part in text)
            text = join(text)
        if text is not None and not isinstance(text, str):
            raise ValueError("the message's content is not text")
        usage = content.get("usage")
        usage = usage if isinstance(usage, dict) else {}
        reason, calls_tool = (
            choice.get("finish_reason"),
            bool(message.get("tool_calls") or message.get("function_call")),
        )
        return ended(
            text or "",
            bodies.ending(reason, text or "", refused=refused, calls_tool=calls_tool),
            is_told=reason is not None,
            input_tokens=count(usage.get("prompt_tokens")),
            output_tokens=count(usage.get("completion_tokens")),
        )

    @staticmethod
    def likely_tokens(content: dict[str, Any]) -> list[tuple[str, list[tuple[str, float]]]]:
        try:
            found = [
                (str(place["token"]), [(str(one["token"]), float(one["logprob"])) for one in place["top_logprobs"]])
                for place in content["choices"][0]["logprobs"]["content"]
            ]
        except (KeyError, IndexError, TypeError, ValueError):
            found = []
        if not found or not all(likely and all(math.isfinite(value) for _, value in likely) for _, likely in found):
            raise ValueError("the answer has no log-probabilities: set logprobs to False")
        message = _first_choice(content)[1]
        is_answer = str(message.get("content")).startswith(found[0][0])
        has_thoughts = any(message.get(name) for name in _THOUGHTS) and not is_answer
        if has_thoughts or answer_texts.begins_with_thoughts("".join(token for token, _ in found)):
            raise ValueError("the log-probabilities belong to a thought: set logprobs to False")
        return found


def _first_choice(content: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    choices = content.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise ValueError("the body has no choices")
    message = choices[0].get("message")
    if not isinstance(message, dict):
        raise ValueError("the body's first choice has no message")
    return choices[0], message
