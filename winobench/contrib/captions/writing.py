"""Captions of images, or answers to a question about them, written by a vision-language model.

captions.jsonl   a line per image as soon as its text is there, in the images' order in the end
captions.csv     the same, once all are there
responses/       the answers (`winobench.runs.responses`), with which an interrupted call resumes
"""

from __future__ import annotations

import dataclasses
import glob
import json
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from winobench.base import csv_cells, files, json_files
from winobench.base.errors import InputError
from winobench.base.texts import check_texts
from winobench.data import images as image_files
from winobench.models import snapshots
from winobench.runs import asking, image_runs, records, responses
from winobench.runs.requests import FINISHED, ImageText, InputImage, Responder, Response

CAPTIONS = "captions"
"""The name of the files."""

# What files of images are called in folders.
_ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif", ".ppm", ".pgm")


@dataclasses.dataclass(frozen=True)
class ImageFile:
    """An image to write about."""

    image: InputImage
    known: Mapping[str, Any]  # further fields of its line: prompt, drawn_by and seed of a generated image


def find(places: Sequence[str]) -> list[ImageFile]:
    """The images of folders, runs of ``winobench generate``, patterns and files, each once, in order."""
    if not places:
        raise InputError("no images are named: give a folder, a pattern such as 'photos/*.jpg', or files")
    images = {image.image.path: image for path in places for image in _at(path)}
    return list(images.values())


def write(
    responder: Responder,
    images: Sequence[ImageFile],
    folder: str | os.PathLike,
    *,
    model: str,
    question: str = "",
    max_tokens: int = 30,
    progress: bool = True,
) -> dict[str, Any]:
    """Writes a text about each image.

    Returns "texts": one an image, None where it is missing; "asked": calls made; "failed": {file: why}; "blocked": how
    many of them would fail again; "tokens" and "cost", as `asking.spent`; "path" of the JSONL file.
    """
    if ImageText.kind not in responder.kinds:
        raise InputError(
            f"{model} writes no texts about images: name a vision-language model, such as blip2-flan-t5-xl",
            code="wrong-kind-of-model",
        )
    check_texts([model, question])
    for image in images:
        _check_name(image.image.path)
    responder = snapshots.snapshot(responder)
    fingerprint = responder.fingerprint()
    requests = [ImageText(image.image, question, max_tokens) for image in images]
    keys = [responses.key(fingerprint, request) for request in requests]
    wanted = dict(zip(keys, requests, strict=True))
    about = {"model": model, "question": question}
    _check_folder(pathlib.Path(folder), about)
    with asking.Session(pathlib.Path(folder) / records.RESPONSES, progress=progress) as session:
        answers = session.answers
        lines = _Lines(pathlib.Path(folder) / f"{CAPTIONS}.jsonl", about, images, keys, answers.read)
        with files.writing(lines.path.parent):
            lines.path.touch()  # before anything is paid
        session.ask(responder, wanted, "writing", lines.add)
    lines.end()
    failed = session.missing(wanted, can_be_longer=True)
    return {
        "texts": [answers.read[key].text if key in answers.read and key not in failed else None for key in keys],
        "asked": answers.asked,
        "failed": {wanted[key].image.path: reason for key, reason in failed.items()},
        "blocked": len(answers.blocked),
        "path": lines.path,
        **session.spent(),
    }


def _check_folder(folder: pathlib.Path, about: Mapping[str, str]) -> None:
    """Refuses a folder of another kind of run, or with texts by another model or to another question."""
    files.check_utf8(folder, "--workdir", "choose another name")
    if (folder / "config.json").exists():
        raise InputError(f"{folder} holds another kind of run: choose another --workdir", code="another-run")
    path = folder / f"{CAPTIONS}.jsonl"
    if not path.exists():
        return
    try:
        with open(path, encoding="utf-8") as file:
            first = json_files.parse(file.readline() or "{}")
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({error}): choose another --workdir", code="cannot-read") from error
    for name, wanted in about.items():
        if isinstance(first, dict) and first.get(name, wanted) != wanted:
            difference = f"{path} has texts whose {name} is {first[name]!r}, not {wanted!r}"
            raise InputError(f"{difference}: choose another --workdir", code="another-run")


class _Lines:
    """The files of captions: a JSONL file that grows, and both in their order in the end."""

    _COLUMNS = ("file", "sha256", "model", "question", "text", "prompt", "drawn_by", "seed")

    def __init__(
        self,
        path: pathlib.Path,
        about: Mapping[str, str],
        images: Sequence[ImageFile],
        keys: Sequence[str],
        read: Mapping[str, Response],
    ):
        self.path = path
        self._about, self._read, self._is_begun = about, read, False
        self._order = list(zip(images, keys, strict=True))
        self._images: dict[str, list[ImageFile]] = {}
        for image, key in self._order:
            self._images.setdefault(key, []).append(image)

    def add(self, key: str, response: Response) -> None:
        """Writes one more text, about each of its images. Before the first one, all that were known."""
        if not self._is_begun:
            self._begin()
        elif response.ending == FINISHED:
            with files.writing(self.path.parent), open(self.path, "a", encoding="utf-8") as file:
                file.write("".join(_line(self._entry(image, key)) for image in self._images[key]))

    def end(self) -> None:
        """Writes all of them in their order, and the table."""
        entries = self._begin()
        with files.writing(self.path.parent):
            files.write_text(self.path.with_suffix(".csv"), csv_cells.write_rows(self._COLUMNS, entries))

    def _begin(self) -> list[dict[str, Any]]:
        self._is_begun = True
        done = {key for key, response in self._read.items() if response.ending == FINISHED}
        entries = [self._entry(image, key) for image, key in self._order if key in done]
        with files.writing(self.path.parent):
            files.write_text(self.path, "".join(map(_line, entries)))
        return entries

    def _entry(self, image: ImageFile, key: str) -> dict[str, Any]:
        about = {"file": image.image.path, "sha256": image.image.sha256, **self._about}
        return {**about, "text": self._read[key].text, **image.known}


def _line(entry: Mapping[str, Any]) -> str:
    return json.dumps(entry, ensure_ascii=False) + "\n"


def _at(place: str) -> Iterator[ImageFile]:
    """The images of a place."""
    path = pathlib.Path(files.user_path(place))
    if os.path.isdir(path):
        if _is_run(path):
            run = image_runs.read_images(path)
            for record in run.records:
                known = {"prompt": record.prompt.text, "drawn_by": record.model, "seed": record.seed}
                yield ImageFile(InputImage(str(run.path(record)), record.sha256), known)
            return
        names = sorted(name for name in os.listdir(path) if name.lower().endswith(_ENDINGS))
        if not names:
            raise InputError(
                f"the folder {place} has no images right in it: name another, or a pattern such as"
                f" '{place.rstrip('/')}/**/*.png'",
                code="no-pictures",
            )
        yield from (_file(path / name) for name in names)
        return
    if os.path.exists(path) or not glob.has_magic(place):
        yield _file(path)
        return
    matches = sorted(glob.glob(os.fspath(path), recursive=True))
    names = [match for match in matches if match.lower().endswith(_ENDINGS) and os.path.isfile(match)]
    if not names:
        raise InputError(f"the pattern {place} matches no images: correct it", code="no-pictures")
    yield from map(_file, names)


def _is_run(folder: pathlib.Path) -> bool:
    """Whether ``winobench generate --config=images`` has made it."""
    try:
        return json_files.load(folder / "config.json").get("kind") == image_runs.KIND
    except (OSError, ValueError, AttributeError):
        return False


def _check_name(path: str | os.PathLike) -> None:
    """Refuses a name that no line can hold: while answers come in, it would stop a paid run."""
    files.check_utf8(path, "the name of the image", "rename it, and give the same command again")


def _file(path: str | os.PathLike) -> ImageFile:
    _check_name(path)
    return ImageFile(InputImage(os.fspath(path), image_files.file_sha256(path)), {})
