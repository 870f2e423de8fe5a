"""OpenAI's protocol, which many servers speak."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from winobench.responders.hosted.api import Api, body_text, count, join
from winobench.responders.language import Generation, Response


class OpenAI(Api):
    """OpenAI's protocol: chat completions."""

    default_url = "https://api.openai.com/v1"
    key_variable, url_variable = "OPENAI_API_KEY", "OPENAI_BASE_URL"
    package, client, base_error = "openai", "OpenAI", "OpenAIError"

    def body(self, request: Generation) -> dict[str, Any]:
        """As of `Api.body`."""
        settings = self._settings
        body: dict[str, Any] = {
            "model": self._model,
            "messages": [{"role": turn.role, "content": turn.text} for turn in request.turns],
            settings["max_tokens_field"]: request.max_tokens,
        }
        if settings["send_temperature"]:
            body["temperature"] = request.temperature
        if settings["seed"] is not None:
            body["seed"] = settings["seed"] + request.sample
        return body

    def send(self, body: dict[str, Any], call_id: str) -> tuple[int, str, Mapping[str, str]]:
        """As of `Api.send`."""
        with self._clients.client() as client:
            answer = client.chat.completions.with_raw_response.create(
                **body, extra_body=self._settings["extra_body"], extra_headers={"Idempotency-Key": call_id}
            )
        return answer.status_code, body_text(answer), answer.headers

    @staticmethod
    def parse(content: dict[str, Any]) -> Response:
        """As of `Api.parse`."""
        choices = content.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            raise ValueError("the body has no choices")
        message = choices[0].get("message")
        if not isinstance(message, dict):
            raise ValueError("the body's first choice has no message")
        text = message.get("content")
        if isinstance(text, list):  # some servers write parts
            text = join(text)
        if text is not None and not isinstance(text, str):
            raise ValueError("the message's content is no text")
        usage = content.get("usage")
        usage = usage if isinstance(usage, dict) else {}
        return Response(
            text=text or None,
            input_tokens=count(usage.get("prompt_tokens")),
            output_tokens=count(usage.get("completion_tokens")),
            finish={"stop": "stop", "length": "length"}.get(str(choices[0].get("finish_reason"))),
        )
