"""Images by OpenAI's protocol, ``/images/generations`` and ``/images/edits``, which many servers speak."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import json
import re
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any

from winobench.base.errors import InputError
from winobench.responders.hosted import bodies, bounded, images
from winobench.responders.hosted.api import UNUSABLE, Failure, body_text, one_line, refuses
from winobench.responders.hosted.providers.openai import OpenAI
from winobench.runs.requests import BLOCKED, FILTERED, InputImage

# Their answers are in base64 alone. They refuse the field response_format.
_WITHOUT_FORMAT = re.compile(r"(?:chat)?gpt-image")
_DOWNLOADS, _SECONDS_BETWEEN, _MOST_REDIRECTS = 3, 1.0, 5
# A filter may answer with one of these. Others speak of the key, the account, the model or a limit of calls.
_OF_CONTENT = (None, 400, 403, 413, 415, 422, 451)
_OF_PROMPT = ("prompt", "image", "n")
_EDITED = images.Limits(("PNG", "JPEG", "WEBP"), 20_000_000, None)  # the reference of "Create image edit": below 50 MB


@dataclasses.dataclass(frozen=True)
class Drawing:
    """Asks for an image of a text, or for an image that is edited as the text says."""

    text: str
    seed: int
    image: InputImage | None = None


class OpenAIImages(OpenAI, provider="openai", makes_images=True):
    """OpenAI's protocol: one image a call."""

    largest_answer = 2**26
    in_row = (UNUSABLE, BLOCKED)

    def __init__(self, key: str | None, url: str, model: str, timeout: float, settings: Mapping[str, Any]):
        super().__init__(key, url, model, timeout, settings)
        self.names_format = _WITHOUT_FORMAT.match(model) is None

    def body(self, request: Any) -> dict[str, Any]:
        seed = {"seed": request.seed} if self._settings["send_seed"] else {}
        body = {"model": self._model, "prompt": request.text, "n": 1, **self._settings["fields"], **seed}
        if request.image is not None:
            media_type, content = images.encode(request.image, _EDITED)
            body["image"] = (f"image.{media_type.partition('/')[2]}", base64.b64decode(content), media_type)
        return body

    def adapted(self, body: dict[str, Any], room: int = 0) -> dict[str, Any]:
        return {**body, "response_format": "b64_json"} if self.names_format else body

    def adapt(self, sent: dict[str, Any], failure: Failure) -> bool:
        if "response_format" not in sent or failure.status not in (400, 422):
            return False
        if not refuses("response_format", failure.message, failure.codes):
            return False
        self.names_format = False
        return True

    def needs_room(self, body: Mapping[str, Any], sent: Mapping[str, Any], room: int, text: str) -> bool:
        return False

    async def send(self, client: Any, body: dict[str, Any], call_id: str) -> tuple[int, str, Mapping[str, str]]:
        known = {name: body[name] for name in ("model", "prompt", "image") if name in body}
        extra = {name: value for name, value in body.items() if name not in known}
        calls = client.images.with_raw_response
        answer = await (calls.edit if "image" in body else calls.generate)(
            **known, extra_body={**extra, **self._settings["extra_body"]}, extra_headers={"Idempotency-Key": call_id}
        )
        return answer.status_code, body_text(answer), answer.headers

    async def fetched(self, answer: tuple[int, str, Mapping[str, str]]) -> tuple[int, str, Mapping[str, str]]:
        """See `Api`: an image that has an address is downloaded. Its address, which may hold a key, is dropped."""
        status, text, headers = answer
        try:
            content = bodies.parse(text)
            item = image_of(content)
        except ValueError:
            return answer
        url = item.pop("url", None)
        if item.get("b64_json") or not isinstance(url, str) or not url:
            return answer
        try:
            url = urllib.parse.urljoin(f"{self._url}/", url)
            scheme = urllib.parse.urlsplit(url).scheme
        except ValueError:
            raise bounded.Unusable("the image is at an address that is not a URL") from None
        # `HostedImages.read` takes a data URL as it is.
        item["b64_json"] = url if scheme == "data" else base64.b64encode(await self._download(url)).decode()
        return status, json.dumps(content), headers

    async def _download(self, url: str) -> bytes:
        for number in range(_DOWNLOADS):
            await asyncio.sleep(number * _SECONDS_BETWEEN)
            try:
                async with asyncio.timeout(self.timeout):
                    return await self._got(url)
            except bounded.Unusable:
                raise
            except Exception as error:  # of the client or the server
                reason = "no whole image in time" if isinstance(error, TimeoutError) else f"{error}"
        host = urllib.parse.urlsplit(url).hostname
        raise bounded.Unusable(f"the image at {host} cannot be downloaded ({one_line(reason) or 'no words'})")

    async def _got(self, url: str) -> bytes:
        for _ in range(1 + _MOST_REDIRECTS):
            scheme = urllib.parse.urlsplit(url).scheme
            if scheme not in ("http", "https"):
                raise bounded.Unusable(f"the image is at an address of {scheme[:20]!r}, and not of http or https")
            answer = await self._http.get(url)  # without the key, which the client of the API adds
            if not 300 <= answer.status_code < 400 or "location" not in answer.headers:
                break
            url = urllib.parse.urljoin(url, answer.headers["location"])
        if answer.status_code != 200:
            raise OSError(f"status {answer.status_code}")
        return answer.content

    def unanswered(self, sent: Mapping[str, Any], text: str, headers: Mapping[str, str]) -> Failure | None:
        try:
            content = bodies.parse(text)
            item = image_of(content)
        except ValueError:  # `HostedImages.read` reports the fault
            return None
        if item.get("b64_json"):
            return None
        if (error := bodies.error(content) or bodies.error(item)) is not None:
            return self._refusal(error.status, one_line(error.message), error.codes, headers, sent)
        # xAI answers so where it holds an image back.
        return Failure(FILTERED, "the answer has no image", status=200)

    def _refusal(
        self,
        status: int | None,
        message: str,
        codes: Sequence[str],
        headers: Mapping[str, str],
        sent: Mapping[str, Any],
    ) -> Failure:
        fields = [name for name in {**sent, **self._settings["extra_body"]} if name not in _OF_PROMPT]
        quoted = {name: rf"""['"`]{re.escape(name)}['"`]""" for name in fields}
        # A field's name, such as ``moderation``, does not speak of a filter.
        words = re.sub("|".join(quoted.values()), "", message)
        others = [code for code in codes if code not in fields]
        if (status in _OF_CONTENT or status >= 500) and bodies.is_filtered(words, others):
            return Failure(FILTERED, message, status, codes=tuple(codes))
        failure = super()._refusal(status, message, codes, headers, sent)
        named = [name for name in fields if name in codes or re.search(quoted[name], message)]
        if failure.kind == BLOCKED and named:
            words = f"the server refuses the field {named[0]} ({status}: {message}): give it another value, or none"
            return dataclasses.replace(failure, fatal=InputError(words, code="field-refused"))
        return failure

    def _is_held_back(self, message: str, codes: Sequence[str], sent: Mapping[str, Any]) -> bool:
        """Where no image was sent, words about a bad one speak of the server's own work."""
        return "image" in sent and super()._is_held_back(message, codes, sent)


def image_of(content: Any) -> dict[str, Any]:
    """The part of an answer with its image, which may lack it. Raises ValueError for a body of another form."""
    if not isinstance(content, dict):
        raise ValueError("the body is not a JSON object")
    listed = content.get("data") or [{}]
    if not isinstance(listed, list) or not isinstance(listed[0], dict):
        raise ValueError("the body's data is not a list of images")
    return listed[0]
