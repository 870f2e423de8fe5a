"""Captions of images, or answers to a question about them, written by a vision-language model.

    captions.jsonl   a line an image: file, sha256, model, question, text, and of images that were drawn their prompt
    captions.csv     the same, once all are there
    responses/       what came in (`winobench.runs.responses`), by which a call that was interrupted continues

A line is there as soon as its text is. In the end the lines are in the images' order.
"""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import hashlib
import json
import os
import pathlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from winobench.base import csv_cells, files, json_files
from winobench.base import progress as progress_bars
from winobench.base.errors import InputError
from winobench.base.texts import check_texts
from winobench.data import images
from winobench.evaluation import endings
from winobench.models import holding
from winobench.runs import asking, image_runs, records, responses
from winobench.runs.requests import FINISHED, Picture, PictureText, Request, Responder, Response

CAPTIONS = "captions"
"""The name of the files."""

# What files of images are called in folders.
_ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif", ".ppm", ".pgm")
_SECONDS_BETWEEN_SYNCS = 2.0


@dataclasses.dataclass(frozen=True)
class Shown:
    """An image that a text is wanted about.

    Attributes:
      image: its file.
      known: what is known of it, for its line: ``prompt``, ``drawn_by`` and ``seed`` of one that was drawn.
    """

    picture: Picture
    known: Mapping[str, Any]


def find(places: Sequence[str]) -> list[Shown]:
    """The images that are meant, each once, in the order of the places and, within one, of the names.

    Args:
      places: folders, of which the images right in them are taken. Runs of ``launch.draw --config=pictures``.
        Patterns such as ``photos/**/*.jpg``. Files.

    Raises:
      InputError: nothing is named, there is no such file or folder, it has no images, or a name is not UTF-8, so that
        no line could hold it.
    """
    if not places:
        raise InputError("no pictures are named: give a folder, a pattern such as 'photos/*.jpg', or files")
    found = {shown.picture.path: shown for place in places for shown in _at(place)}
    return list(found.values())


def write(
    responder: Responder,
    shown: Sequence[Shown],
    folder: str | os.PathLike,
    *,
    model: str,
    question: str = "",
    max_tokens: int = 30,
    progress: bool = True,
) -> dict[str, Any]:
    """Writes a text about each image.

    Args:
      responder: answers `PictureText`.
      shown: the images. Those of the same content are asked about once.
      folder: where everything goes. A call with the same arguments continues where an earlier one was interrupted, and
        further images may be added.
      model: what lines call it.
      question: what is asked. A caption is asked for when empty.
      max_tokens: of the longest text.
      progress: show images, images a second and the time left.

    Returns:
      "texts": one an image, None where there is none; "asked": calls made; "failed": {file: why}, incomplete answers
      among them; "tokens" (read, written) and "cost" in dollars of all answers, None where not known; "path" of the
      JSONL file.

    Raises:
      InputError: the model writes no texts about images, every call would fail, or the folder cannot be written, or
        holds something else.
    """
    if PictureText.kind not in responder.kinds:
        raise InputError(
            f"{model} writes no texts about pictures: name a model that sees, such as blip2-flan-t5-xl",
            code="wrong-kind-of-model",
        )
    check_texts([model, question])
    for one in shown:
        _check_name(one.picture.path)
    paid = hasattr(responder, "cost")
    responder = holding.hold(responder)
    fingerprint = responder.fingerprint()
    requests = [PictureText(one.picture, question, max_tokens) for one in shown]
    keys = [responses.key(fingerprint, request) for request in requests]
    wanted = dict(zip(keys, requests, strict=True))
    _check_folder(pathlib.Path(folder), {"model": model, "question": question})
    lines = _Lines(pathlib.Path(folder) / f"{CAPTIONS}.jsonl", model, question, shown, keys)
    store = responses.ResponseStore(
        pathlib.Path(folder) / records.RESPONSES, seconds_between_syncs=0.0 if paid else _SECONDS_BETWEEN_SYNCS
    )
    read: dict[str, Response] = {}
    incomplete: list[Response] = []
    with store:
        if hasattr(responder, "log_attempts"):
            responder.log_attempts(store.folder / "attempts.jsonl")
        store.share(store.neighbours(), wanted)
        for key, request in wanted.items():
            stored = store.get(key)
            if stored is not None:
                with contextlib.suppress(ValueError):  # which is asked for again, as an incomplete one is
                    response = asking.read(responder, request, stored.raw)
                    if response.ending == FINISHED:
                        read[key] = response
        lines.begin(read)
        missing = [key for key in wanted if key not in read]
        bar = progress_bars.counting(
            len(wanted), len(read), label="writing", unit="pictures", enabled=progress and bool(missing)
        )
        failed: dict[str, str] = {}
        with bar as advance:
            for key, response in _asked(responder, store, {key: wanted[key] for key in missing}, failed):
                if why := endings.why_incomplete(wanted[key], response, can_be_longer=True):
                    failed[key] = why
                    incomplete.append(response)
                else:
                    read[key] = response
                    lines.add(key, response)
                advance(1)
    lines.end(read)
    return {
        "texts": [read[key].text if key in read else None for key in keys],
        "asked": len(missing),
        "failed": {wanted[key].picture.path: reason for key, reason in failed.items()},
        "path": lines.path,
        **_spent(responder, [*read.values(), *incomplete]),
    }


def _check_folder(folder: pathlib.Path, about: Mapping[str, str]) -> None:
    """Raises InputError for a folder of another kind of run, or with texts by another model or to another question."""
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
            raise InputError(
                f"{path} has texts whose {name} is {first[name]!r}, not {wanted!r}: choose another --workdir",
                code="another-run",
            )


def _asked(
    responder: Responder, store: responses.ResponseStore, wanted: Mapping[str, Request], failed: dict[str, str]
) -> Iterator[tuple[str, Response]]:
    """Asks, stores and reads: yields (key, answer) as answers come in; why there is none ends up in ``failed``."""
    keys, last = list(wanted), time.monotonic()
    if not keys:
        return
    with contextlib.closing(responder.ask(list(wanted.values()))) as incoming:
        for index, raw in incoming:
            seconds, last = time.monotonic() - last, time.monotonic()
            key = keys[index]
            if "error" in raw:
                store.fail(key, wanted[key], raw["error"], seconds)
                failed[key] = f"{raw['error'].get('kind')}: {raw['error'].get('message')}"
                continue
            store.add(key, wanted[key], raw, seconds)
            try:
                response = asking.read(responder, wanted[key], raw)
            except ValueError as malformed:
                store.reject(key, str(malformed))
                failed[key] = f"malformed: {malformed}"
            else:
                yield key, response


class _Lines:
    """The files of captions: a JSONL file that grows, and both in their order in the end."""

    _COLUMNS = ("file", "sha256", "model", "question", "text", "prompt", "drawn_by", "seed")

    def __init__(self, path: pathlib.Path, model: str, question: str, shown: Sequence[Shown], keys: Sequence[str]):
        self.path = path
        self._about = {"model": model, "question": question}
        self._shown: dict[str, list[Shown]] = {}
        for one, key in zip(shown, keys, strict=True):
            self._shown.setdefault(key, []).append(one)
        self._order = list(zip(shown, keys, strict=True))

    def begin(self, read: Mapping[str, Response]) -> None:
        """Writes those that are known."""
        with files.writing(self.path.parent):
            files.write_text(self.path, "".join(map(_line, self._all(read))))

    def add(self, key: str, response: Response) -> None:
        """Writes one more text, about each of its pictures."""
        with files.writing(self.path.parent), open(self.path, "a", encoding="utf-8") as file:
            file.write("".join(_line(self._entry(one, response)) for one in self._shown[key]))

    def end(self, read: Mapping[str, Response]) -> None:
        """Writes all of them in their order, and the table."""
        self.begin(read)
        with files.writing(self.path.parent):
            files.write_text(self.path.with_suffix(".csv"), csv_cells.write_rows(self._COLUMNS, self._all(read)))

    def _all(self, read: Mapping[str, Response]) -> list[dict[str, Any]]:
        return [self._entry(one, read[key]) for one, key in self._order if key in read]

    def _entry(self, one: Shown, response: Response) -> dict[str, Any]:
        picture = {"file": one.picture.path, "sha256": one.picture.sha256}
        return {**picture, **self._about, "text": response.text, **one.known}


def _line(entry: Mapping[str, Any]) -> str:
    return json.dumps(entry, ensure_ascii=False) + "\n"


def _spent(responder: Responder, answers: Sequence[Response]) -> dict[str, Any]:
    counts = [[getattr(answer, name) for answer in answers] for name in ("input_tokens", "output_tokens")]
    tokens = None if any(None in some for some in counts) else tuple(map(sum, counts))
    costs = [responder.cost(answer) for answer in answers] if hasattr(responder, "cost") else [None]
    return {"tokens": tokens, "cost": None if None in costs else sum(costs)}


def _at(place: str) -> Iterator[Shown]:
    """The pictures of a place."""
    path = pathlib.Path(files.user_path(place))
    if os.path.isdir(path):
        if _is_run(path):
            run = image_runs.read_pictures(path)
            for record in run.records:
                known = {"prompt": record.prompt.text, "drawn_by": record.model, "seed": record.seed}
                yield Shown(Picture(str(run.path(record)), record.sha256), known)
            return
        names = sorted(name for name in os.listdir(path) if name.lower().endswith(_ENDINGS))
        if not names:
            raise InputError(
                f"the folder {place} has no pictures right in it: name another, or a pattern such as"
                f" '{place.rstrip('/')}/**/*.png'",
                code="no-pictures",
            )
        yield from (_file(path / name) for name in names)
        return
    if os.path.exists(path) or not glob.has_magic(place):
        yield _file(path)
        return
    matches = sorted(glob.glob(os.fspath(path), recursive=True))
    pictures = [match for match in matches if match.lower().endswith(_ENDINGS) and os.path.isfile(match)]
    if not pictures:
        raise InputError(f"no picture is called {place}: correct the pattern", code="no-pictures")
    yield from map(_file, pictures)


def _is_run(folder: pathlib.Path) -> bool:
    """Whether ``launch.draw --config=pictures`` has made it."""
    try:
        return json_files.load(folder / "config.json").get("kind") == image_runs.KIND
    except (OSError, ValueError, AttributeError):
        return False


def _check_name(path: str | os.PathLike) -> None:
    """Raises InputError for a name that no line can hold: found while answers come in, it would stop a paid run."""
    files.check_utf8(path, "the name of the image", "rename it, and give the same command again")


def _file(path: str | os.PathLike) -> Shown:
    _check_name(path)
    try:
        with images.regular_file(path) as file:
            return Shown(Picture(os.fspath(path), hashlib.file_digest(file, "sha256").hexdigest()), {})
    except (OSError, ValueError):
        images.open_image(path)  # says what is wrong with it
        raise
