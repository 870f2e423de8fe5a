"""Images by models behind an API. Each is on disk before the next call begins in its place."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from winobench.base.errors import InputError
from winobench.base.files import digest
from winobench.prompts.prompt_files import Prompt
from winobench.responders.hosted.providers.openai_images import Drawing
from winobench.runs import endings, image_records
from winobench.runs.image_records import FILTERED, ImageRecord, ImageStore, MissingImage
from winobench.runs.requests import BLOCKED, InputImage

if TYPE_CHECKING:
    from winobench.responders.hosted import HostedImages


def described(model: HostedImages) -> dict[str, Any]:
    """The fingerprint and settings of a model."""
    return {"fingerprint": digest(model.fingerprint()), "settings": model.generation_settings()}


def generate_missing(
    model: HostedImages,
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
    # Recorded once another prompt is answered: a row that ends the run speaks of the server, and not of its prompts.
    refused: list[MissingImage] = []
    with contextlib.closing(model.ask_parts(requests)) as incoming:
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


def _source(folder: pathlib.Path, prompt: Prompt) -> InputImage | None:
    """The run's copy of the image that a prompt edits."""
    path, sha256 = image_records.source_path(folder, prompt), prompt.source_sha256
    return None if path is None or sha256 is None else InputImage(str(path), sha256)


def spent(model: HostedImages, records: Iterable[ImageRecord | MissingImage]) -> dict[str, Any]:
    """Number of images, their tokens {"input", "output"}, cost in dollars, and seconds of calls. None where unknown."""
    said = [record.source or {} for record in records if isinstance(record, ImageRecord)]
    read, written = ([source.get(name) for source in said] for name in ("input_tokens", "output_tokens"))
    shown = ["image_tokens" in source for source in said]
    tokens = {"input": _sum(read), "output": _sum(written)}
    return {
        "images": len(said),
        "tokens": None if set(tokens.values()) == {None} else tokens,
        "cost": _sum([model.price(*counts) for counts in zip(read, written, shown, strict=True)]),
        "seconds": sum(source.get("seconds", 0.0) for source in said),
    }


def estimate(model: HostedImages, records: Iterable[ImageRecord | MissingImage], number: int) -> dict[str, Any]:
    """`spent` on so many images: as much for each as on those that are there, or else as their provider states."""
    made = spent(model, records)
    if not (images := made["images"]):
        written = model.usual_tokens()
        cost = model.price(0, written)
        tokens = None if written is None else {"input": None, "output": number * written}
        return {"tokens": tokens, "cost": None if cost is None else number * cost, "seconds": None}
    share = number / images
    tokens = {name: count and round(count * share) for name, count in (made["tokens"] or {}).items()}
    cost, seconds = made["cost"], share * made["seconds"] / model.concurrency
    return {"tokens": tokens or None, "cost": None if cost is None else share * cost, "seconds": seconds}


def _sum(counts: Sequence[Any]) -> Any:
    """A sum with parts missing would look like the whole."""
    return None if None in counts else sum(counts)
