"""The model that makes images. See the package's words."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import hashlib
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from winobench.base.errors import InputError
from winobench.data import images
from winobench.responders.hosted import bodies, calls, prices, settings
from winobench.responders.hosted.api import Api, count
from winobench.responders.hosted.model import Hosted
from winobench.responders.hosted.providers import IMAGE_APIS
from winobench.responders.hosted.providers.openai_images import Drawing, image_of
from winobench.runs import model_settings
from winobench.runs.requests import Raw, Response


class HostedImages(Hosted[settings.ImageSettings]):
    """An image model behind an API."""

    def __init__(self, name: str, **options: Any):
        """Sets up the client. Nothing is sent before ``ask_parts``. The options are `settings.ImageSettings`."""
        super().__init__(name, settings.ImageSettings(**options), IMAGE_APIS)

    def fields(self, api: type[Api]) -> dict[str, Any]:
        """See `Hosted`."""
        given = {
            field.name: getattr(self._settings, field.name) for field in dataclasses.fields(model_settings.ImageFields)
        }
        fields = {name: value for name, value in given.items() if value is not None}
        extra = settings.checked_fields(self._settings.extra_body)
        if both := sorted(fields.keys() & extra):
            raise InputError(f"extra_body and the options both give {both[0]}: give it once", code="reserved-field")
        return {"fields": fields, "send_seed": self._settings.send_seed, "extra_body": extra}

    def generation_settings(self) -> dict[str, Any]:
        """The options that decide images, as records have them."""
        return {**self._fields["fields"], **self._fields["extra_body"], "base_url": self.base_url}

    def _checked(self, outcome: calls.Outcome) -> calls.Outcome:
        """An answer as ``{"image", "source"}`` of `read`. Many in a row that cannot be read end the run."""
        if outcome.raw is None or "error" in outcome.raw:
            return outcome
        try:
            image, source = self.read(outcome.raw)
        except ValueError as error:
            words = f"{error}. It was answered, so it may have been billed"
            return dataclasses.replace(outcome, raw={"error": {"kind": "malformed", "message": words}}, in_row=True)
        return dataclasses.replace(outcome, raw={"image": image, "source": source})

    def read(self, raw: Raw) -> tuple[np.ndarray, dict[str, Any]]:
        """An image, uint8 ``[height, width, 3]``, with the server's notes. Raises ValueError for bad bodies."""
        content = bodies.parse(raw["body"])
        item = image_of(content)
        try:
            # Some servers write a data URL, or lines.
            data = base64.b64decode("".join(str(item.get("b64_json")).rpartition(",")[2].split()), validate=True)
        except binascii.Error as error:
            raise ValueError(f"the image is not base64 ({error})") from None
        with images.opened(io.BytesIO(data)) as opened:
            pixels = np.asarray(images.upright(images.to_rgb(opened), images.orientation(opened)))
        usage = content.get("usage")
        usage = usage if isinstance(usage, dict) else {}
        said: dict[str, Any] = {name: count(usage.get(name)) for name in ("input_tokens", "output_tokens")}
        details = usage.get("input_tokens_details")
        said["image_tokens"] = (count(details.get("image_tokens")) or None) if isinstance(details, dict) else None
        words = item.get("revised_prompt")
        said |= {"revised_prompt": self._blank(words) if isinstance(words, str) else None}
        known = {name: value for name, value in said.items() if value is not None}
        return pixels, {"sha256": hashlib.sha256(data).hexdigest(), "seconds": raw["seconds"], **known}

    def price(self, input_tokens: int | None, output_tokens: int | None, read_images: bool = False) -> float | None:
        """US dollars of an image; None where unknown, as the known prices are where images are among the input."""
        if self._settings.image_price is not None:
            return self._settings.image_price
        if read_images and self.model not in (self._settings.prices or {}):
            return None
        return self.cost(Response(input_tokens=input_tokens, output_tokens=output_tokens))

    def usual_tokens(self) -> int | None:
        """The tokens of each image that this model writes, where its provider states them."""
        fields = self._fields["fields"]
        return prices.image_tokens(self.model, fields.get("quality"), fields.get("size")) if self._is_own else None

    def _bodies(self, requests: Sequence[Drawing]) -> list[Any]:
        return list(requests)  # an image is read, and encoded, when its call begins
