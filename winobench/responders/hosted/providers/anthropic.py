"""Anthropic's protocol."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from winobench.base.errors import InputError
from winobench.responders.hosted import bodies, choices, images
from winobench.responders.hosted.api import Api, body_text, count, ended, join
from winobench.runs.requests import INTERRUPTED, Generation, ImageText, Response, Turn, conversation, images_of

IMAGES = images.Limits(("JPEG", "PNG", "GIF", "WEBP"), 3_750_000, 8000)
"""https://platform.claude.com/docs/en/build-with-claude/vision (seen 2026-11-25): JPEG, PNG, GIF and WebP; 8000 x 8000
pixels. The smallest of the file sizes that the platforms state: 5 MB in base64."""


class Anthropic(Api, provider="anthropic"):
    """Anthropic's protocol: messages, with the system's text apart."""

    description = "Anthropic's API"
    default_url = "https://api.anthropic.com"
    key_variable, url_variable = "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"
    package, client = "anthropic", "AsyncAnthropic"

    def body(self, request: Generation | ImageText) -> dict[str, Any]:
        if isinstance(request, ImageText):
            encoded = [images.encode(image, IMAGES) for image in images_of(request)]
            # The guide says that images before texts are understood best.
            system, before = conversation(request)
            first, *turns = (*before, Turn("user", request.question or choices.CAPTION))
            blocks = [
                *(
                    {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": content}}
                    for media_type, content in encoded
                ),
                {"type": "text", "text": first.text},
            ]
            messages = [{"role": "user", "content": blocks}]
        else:
            system, turns = _without_system(request.turns)
            messages = []
        messages += [{"role": turn.role, "content": turn.text} for turn in turns]
        body: dict[str, Any] = {
            "model": self._model,
            "messages": messages,
            "max_tokens": request.max_tokens,
        }
        if system:
            body["system"] = system
        if self._settings["send_temperature"]:
            body["temperature"] = request.temperature
        return body

    async def send(self, client: Any, body: dict[str, Any], call_id: str) -> tuple[int, str, Mapping[str, str]]:
        # Newer releases of the client have no argument for the temperature, which older models still take.
        known = {name: value for name, value in body.items() if name != "temperature"}
        extra = {name: value for name, value in body.items() if name == "temperature"}
        fields = {**extra, **self._settings["extra_body"]}
        answer = await client.messages.with_raw_response.create(
            **known, extra_body=fields, extra_headers={"Idempotency-Key": call_id}
        )
        return answer.status_code, body_text(answer), answer.headers

    @staticmethod
    def parse(content: dict[str, Any]) -> Response:
        blocks = content.get("content")
        if not isinstance(blocks, list):
            raise ValueError("the body has no content")
        reason = content.get("stop_reason")
        usage = content.get("usage")
        usage = usage if isinstance(usage, dict) else {}
        read = [
            count(usage.get(name))
            for name in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        ]
        text = join(blocks)
        calls_tool = any(block.get("type") == "tool_use" for block in blocks)
        return ended(
            text,
            # The protocol says that a whole answer always has a reason.
            INTERRUPTED if reason is None else bodies.ending(reason, text, calls_tool=calls_tool),
            input_tokens=None if read[0] is None else sum(count or 0 for count in read),
            output_tokens=count(usage.get("output_tokens")),
        )

    def shows_thoughts(self, content: dict[str, Any], response: Response) -> bool:
        kinds = {block.get("type") for block in content["content"]}
        return bool(kinds & {"thinking", "redacted_thinking"}) or super().shows_thoughts(content, response)


def _without_system(turns: Sequence[Turn]) -> tuple[str, list[Turn]]:
    rest = list(itertools.dropwhile(lambda turn: turn.role == "system", turns))
    if any(turn.role == "system" for turn in rest):
        raise InputError(
            "a system turn comes after another one, which Anthropic's API cannot express: put it first.",
            code="system-turn-not-first",
        )
    return "\n\n".join(turn.text for turn in turns[: len(turns) - len(rest)]), rest
