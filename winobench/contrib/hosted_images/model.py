"""The model that makes images. Each is on disk before the next call begins in its place."""

from __future__ import annotations

import base64
import binascii
import contextlib
import dataclasses
import hashlib
import io
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from winobench.base.errors import InputError
from winobench.base.files import digest
from winobench.contrib.hosted_images.openai_images import Drawing, image_of
from winobench.data import images
from winobench.prompts.prompt_files import Prompt
from winobench.responders.hosted import bodies, calls, prices, settings
from winobench.responders.hosted.api import IMAGE_APIS, Api, count
from winobench.responders.hosted.model import Hosted
from winobench.runs import endings, image_records, model_settings
from winobench.runs.image_records import FILTERED, ImageRecord, ImageStore, MissingImage
from winobench.runs.requests import BLOCKED, InputImage, Raw, Response


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

    def described(self) -> dict[str, Any]:
        """The fingerprint and settings, as records have them."""
        return {"fingerprint": digest(self.fingerprint()), "settings": self.generation_settings()}

    def generate_missing(
        self,
        prompts: Sequence[Prompt],
        folder: pathlib.Path,
        places: Sequence[tuple[int, int]],
        fields: Mapping[str, Any],
        store: ImageStore,
        advance: Callable[[int], Any],
    ) -> None:
        """Requests the images of these seeds and numbers, and records each, or why it is missing.

        Raises InputError where calls have failed that may pass another time, once all others are recorded.
        """
        requests = [Drawing(prompts[number].given, seed, _source(folder, prompts[number])) for seed, number in places]
        failed = []
        # Recorded once another prompt is answered: a row that ends the run speaks of the server, not of its prompts.
        refused: list[MissingImage] = []
        with contextlib.closing(self.ask_parts(requests)) as incoming:
            for index, raw in incoming:
                seed, number = places[index]
                place: dict[str, Any] = {"prompt": prompts[number], "seed": seed, "number": number}
                error = raw.get("error")
                if error is None:
                    store.add([raw["image"]], [{**fields, **place, "source": raw["source"]}])
                elif error["kind"] in (FILTERED, BLOCKED):
                    known = {name: fields[name] for name in ("model", "fingerprint")}
                    refused.append(MissingImage(**place, **known, kind=error["kind"], reason=error["message"]))
                else:
                    failed.append(f"{error['kind']}: {error['message']}")
                if refused and (error is None or error["kind"] == FILTERED):
                    store.add_missing(refused)
                    refused = []
                advance(1)
        if refused:
            store.add_missing(refused)
        if failed:
            raise InputError(
                f"{fields['model']}: {len(failed):,} of {len(places):,} images could not be made (first: {failed[0]}):"
                f" {endings.again(1, 0)}",
                code="calls-failed",
            )

    def spent(self, records: Iterable[ImageRecord | MissingImage]) -> dict[str, Any]:
        """Number of images, tokens {"input", "output"}, cost in dollars, and seconds of calls. None where unknown."""
        said = [record.source or {} for record in records if isinstance(record, ImageRecord)]
        read, written = ([source.get(name) for source in said] for name in ("input_tokens", "output_tokens"))
        shown = ["image_tokens" in source for source in said]
        tokens = {"input": _sum(read), "output": _sum(written)}
        return {
            "images": len(said),
            "tokens": None if set(tokens.values()) == {None} else tokens,
            "cost": _sum([self.price(*counts) for counts in zip(read, written, shown, strict=True)]),
            "seconds": sum(source.get("seconds", 0.0) for source in said),
        }

    def estimate(self, records: Iterable[ImageRecord | MissingImage], number: int) -> dict[str, Any]:
        """`spent` on so many images: as much for each as on those that are there, or else as their provider states."""
        made = self.spent(records)
        if not (images := made["images"]):
            written = self.usual_tokens()
            cost = self.price(0, written)
            tokens = None if written is None else {"input": None, "output": number * written}
            return {"tokens": tokens, "cost": None if cost is None else number * cost, "seconds": None}
        share = number / images
        tokens = {name: count and round(count * share) for name, count in (made["tokens"] or {}).items()}
        cost, seconds = made["cost"], share * made["seconds"] / self.concurrency
        return {"tokens": tokens or None, "cost": None if cost is None else share * cost, "seconds": seconds}

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


def _source(folder: pathlib.Path, prompt: Prompt) -> InputImage | None:
    """The run's copy of the image that a prompt edits."""
    path, sha256 = image_records.source_path(folder, prompt), prompt.source_sha256
    return None if path is None or sha256 is None else InputImage(str(path), sha256)


def _sum(counts: Sequence[Any]) -> Any:
    """A sum with parts missing would look like the whole."""
    return None if None in counts else sum(counts)
