"""The folder of a run of images, which winobench generates or collects from files.

    config.json                                 prompts, models, seeds, settings, and how far it got
    drawn/prompts.jsonl                         a line a prompt. The line's number less 1 is the image's number
    drawn/sources/<sha256>                      the images that prompts edit, as they were in the set
    drawn/part-<process>-<number>.jsonl         a line an image (`ImageRecord`), written once the image is there,
                                                or a `MissingImage` with the reason
    pictures/<model>/<seed>/<number>.png        the images, RGB
    pictures.html, thumbnails/                  the page (`winobench.generation.page`)

Images are written whole or not at all, and their lines after them, synced. Each call appends to its own part. Of two
lines about an image the later one counts. A line that was cut off is skipped, and its image generated again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
import os
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import PIL.Image
from absl import logging

from winobench.base import files, json_files, options
from winobench.base.errors import InputError
from winobench.data import images as image_data
from winobench.prompts.prompt_files import SOURCE_IMAGE, Prompt

GENERATED, IMAGES, THUMBNAILS = "drawn", "pictures", "thumbnails"
"""Folders of records, of images and of smaller copies of them, in a run's folder."""

PROMPTS = "prompts.jsonl"
"""Name of the file of prompts, in the folder ``drawn``."""

SOURCES = "sources"
"""Folder of the images that prompts edit, in the folder ``drawn``."""

_PART = re.compile(r"part-(\d+)-(\d+)\.jsonl")

ABSENT, FILTERED = "absent", "filtered"
"""Kinds of `MissingImage`: no file was there, and a filter let none through."""

Place = tuple[str, int, int]
"""Model's label, seed and number of an image: what tells it from the others of its run."""


@dataclasses.dataclass(frozen=True)
class ImageRecord:
    """An image of a run."""

    prompt: Prompt
    model: str  # its label, and its folder's name
    seed: int  # of the noise, which depends on (seed, number) alone
    number: int  # of its prompt, from 0
    fingerprint: str | None  # of the pipeline with its LoRA, 64 hexadecimal digits. None for an unknown one
    lora: dict[str, Any] | None  # name, sha256, scale
    settings: dict[str, Any]  # num_steps, guidance_scale, sampler, image_size, dtype
    file: str  # path of the PNG file within the run's folder, with /
    sha256: str
    size: int  # in bytes
    source: dict[str, Any] | None = None  # of an image that another program made: its file, sha256, crop

    @property
    def place(self) -> Place:
        """(model, seed, number)."""
        return self.model, self.seed, self.number

    def to_json(self) -> dict[str, Any]:
        """The line of the record: the prompt's fields and the others next to each other. No source without one."""
        values = {name: value for name, value in vars(self).items() if name != "source" or value is not None}
        return {**values.pop("prompt").to_json(), **values}

    @classmethod
    def from_json(cls, value: Any) -> ImageRecord:
        """The inverse of `to_json`."""
        prompt = Prompt.from_json(value)
        kinds: dict[str, Any] = {"model": str, "seed": int, "number": int, "fingerprint": str, "settings": dict}
        kinds |= {"file": str, "sha256": str, "size": int, "lora": dict | None, "source": dict | None}
        if value.get("source") is not None:
            kinds["fingerprint"] = str | None
        values = {name: value.get(name) for name in kinds}
        wrong = [name for name, kind in kinds.items() if not isinstance(values[name], kind)]
        if wrong or not re.fullmatch(r"[0-9a-f]{64}", values["sha256"]):
            raise InputError(f"{options.quote(value)} is not a record of an image: {(wrong or ['sha256'])[0]} is wrong")
        if values["file"] != image_file(values["model"], values["seed"], values["number"]):
            raise InputError(f"{options.quote(value)} is not a record of an image: its file has another place")
        return cls(prompt, **values)


@dataclasses.dataclass(frozen=True)
class MissingImage:
    """A place of a run that has no image and gets none, and why. An image that comes later replaces it."""

    prompt: Prompt
    model: str  # its label
    seed: int
    number: int  # of its prompt, from 0
    fingerprint: str | None  # as in `ImageRecord`
    kind: str  # one word: ABSENT, FILTERED
    reason: str  # a sentence, such as a server's

    @property
    def place(self) -> Place:
        """(model, seed, number)."""
        return self.model, self.seed, self.number

    def to_json(self) -> dict[str, Any]:
        """The line of the record. It has no file."""
        values = dict(vars(self))
        return {**values.pop("prompt").to_json(), **values}

    @classmethod
    def from_json(cls, value: Any) -> MissingImage:
        """The inverse of `to_json`."""
        kinds = {"model": str, "seed": int, "number": int, "fingerprint": str | None, "kind": str, "reason": str}
        prompt, values = Prompt.from_json(value), {name: value.get(name) for name in kinds}
        if wrong := [name for name, kind in kinds.items() if not isinstance(values[name], kind)]:
            raise InputError(f"{options.quote(value)} is not a record of a missing image: {wrong[0]} is wrong")
        return cls(prompt, **values)


def image_file(model: str, seed: int, number: int) -> str:
    """Path of an image within its run's folder, with ``/``."""
    return f"{IMAGES}/{model}/{seed}/{number:05d}.png"


def png_bytes(image: np.ndarray) -> bytes:
    """An image, uint8 ``[height, width, 3]``, as a PNG file. The same bytes for the same pixels and library."""
    buffer = io.BytesIO()
    PIL.Image.fromarray(image, "RGB").save(buffer, "PNG")
    return buffer.getvalue()


class ImageStore:
    """Writes the images of one process and their records into an open `winobench.runs.records.RunFolder`."""

    _path: pathlib.Path  # of its part, once it is open
    _part: int

    def __init__(self, folder: str | os.PathLike, process: int = 0):
        self._folder = pathlib.Path(folder)
        self._process = process

    def __enter__(self) -> ImageStore:
        with files.writing(self._folder):
            folder = self._folder / GENERATED
            # After all parts of earlier calls, by any process.
            call = max((int(number) for _, number, _ in _parts(folder)), default=-1) + 1
            self._path = folder / f"part-{self._process}-{call:05d}.jsonl"
            self._part = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_EXCL, 0o666)
            files.sync(folder)
        return self

    def __exit__(self, *_: Any) -> None:
        empty = os.fstat(self._part).st_size == 0
        os.close(self._part)
        if empty:
            with contextlib.suppress(OSError):
                self._path.unlink()

    def add(self, images: Sequence[np.ndarray | bytes], records: Sequence[Mapping[str, Any]]) -> list[ImageRecord]:
        """Writes images, then their records. All are on disk when this returns.

        Args:
          images: uint8 ``[height, width, 3]``, or the content of an RGB PNG file, which is written as it is.
          records: the fields of their `ImageRecord`, without file, sha256 and size.
        """
        written = []
        with files.writing(self._folder):
            for image, fields in zip(images, records, strict=True):
                content = image if isinstance(image, bytes) else png_bytes(image)
                file = image_file(fields["model"], fields["seed"], fields["number"])
                path = self._folder / file
                path.parent.mkdir(parents=True, exist_ok=True)
                with files.atomic_path(path) as temporary:
                    pathlib.Path(temporary).write_bytes(content)
                sha256 = hashlib.sha256(content).hexdigest()
                written.append(ImageRecord(**fields, file=file, sha256=sha256, size=len(content)))
            self._write(written)
        return written

    def add_missing(self, records: Sequence[MissingImage]) -> None:
        """Writes records of missing images. They are on disk when this returns."""
        with files.writing(self._folder):
            self._write(records)

    def _write(self, records: Sequence[ImageRecord | MissingImage]) -> None:
        lines = "".join(json.dumps(record.to_json(), separators=(",", ":")) + "\n" for record in records)
        content = lines.encode("ascii")
        while content:
            content = content[os.write(self._part, content) :]
        os.fsync(self._part)


def write_prompts(folder: str | os.PathLike, prompts: Sequence[Prompt]) -> None:
    """Writes the prompts of a run, whole or not at all, after the images that they edit.

    Raises:
      InputError: an image to edit cannot be read, or has changed since the prompts were read.
    """
    for prompt in prompts:
        _write_source(folder, prompt)
    lines = "".join(json.dumps(prompt.to_json(), ensure_ascii=False) + "\n" for prompt in prompts)
    with files.writing(folder):
        files.write_text(pathlib.Path(folder) / GENERATED / PROMPTS, lines)


def source_path(folder: str | os.PathLike, prompt: Prompt) -> pathlib.Path | None:
    """Where a run has the image that a prompt edits, whether or not it is there. None for a prompt without one."""
    sha256 = prompt.source_sha256
    return None if sha256 is None else pathlib.Path(folder) / GENERATED / SOURCES / sha256


def has_source(folder: str | os.PathLike, prompt: Prompt) -> bool:
    """Whether the image that a prompt edits is there as it was. True for a prompt that edits none."""
    path = source_path(folder, prompt)
    return path is None or (path.is_file() and image_data.file_sha256(path) == prompt.source_sha256)


def _write_source(folder: str | os.PathLike, prompt: Prompt) -> None:
    path = source_path(folder, prompt)
    if path is None or has_source(folder, prompt):
        return
    content, problem = b"", "is not there"
    if prompt.source is not None:
        with contextlib.suppress(OSError, ValueError):
            content, problem = prompt.source(), "has changed since its prompt was read"
    if hashlib.sha256(content).hexdigest() != prompt.source_sha256:
        raise InputError(
            f"the image {prompt.content.get(SOURCE_IMAGE)} that prompt {prompt.id} edits {problem}: read the prompts"
            " again, from the folder of their set",
            code="no-source-image",
        )
    with files.writing(folder):
        path.parent.mkdir(parents=True, exist_ok=True)
        with files.atomic_path(path) as temporary:
            pathlib.Path(temporary).write_bytes(content)


def read_records(folder: str | os.PathLike) -> dict[Place, ImageRecord | MissingImage]:
    """The last record of each place, whether or not the image is there. Unreadable ones give a warning."""
    records: dict[Place, ImageRecord | MissingImage] = {}
    for _, _, path in _parts(pathlib.Path(folder) / GENERATED):
        for number, line in _lines(path):
            try:
                value = json_files.parse(line)
                record = MissingImage.from_json(value) if _says_missing(value) else ImageRecord.from_json(value)
            except InputError as error:
                if line.endswith(b"\n"):
                    logging.warning("line %d of %s is left aside: %s", number, path, error)
                continue
            records[record.place] = record
    return records


def _says_missing(value: Any) -> bool:
    return isinstance(value, Mapping) and "file" not in value and "reason" in value


def is_whole(folder: str | os.PathLike, record: ImageRecord) -> bool:
    """Whether an image is there, with the content of its record. Raises InputError where it may not be read."""
    path = pathlib.Path(folder) / record.file
    try:
        files.check_regular(path)
        return hashlib.sha256(path.read_bytes()).hexdigest() == record.sha256
    except PermissionError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): see to its rights", code="cannot-read") from error
    except OSError:
        return False


def _parts(folder: pathlib.Path) -> list[tuple[str, str, pathlib.Path]]:
    """(process, number, path) of each part, in the order of calls: the later one of a process counts."""
    parts = [(match[1], match[2], path) for path in folder.glob("part-*") if (match := _PART.fullmatch(path.name))]
    return sorted(parts, key=lambda part: (int(part[1]), int(part[0])))


def _lines(path: pathlib.Path) -> Iterator[tuple[int, bytes]]:
    try:
        files.check_regular(path)
        with open(path, "rb") as file:
            yield from enumerate(iter(lambda: file.readline(json_files.LARGEST), b""), 1)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or error}): see to its rights") from error
