"""Images of texts: in a run that has generated them, or in a table of a user's own files."""

from __future__ import annotations

import hashlib
import os
import pathlib
from collections.abc import Iterator, Sequence

from winobench.base import files, json_files, options
from winobench.base.errors import InputError
from winobench.prompts.prompt_files import make_prompt, table_rows
from winobench.runs import image_records, image_runs
from winobench.runs.requests import InputImage

TABLES = (".csv", ".jsonl")
"""Ends of the names of tables of images."""

_TEXT, _FILE = "premise", "file"


def find_images(
    source: str | os.PathLike, texts: Sequence[str], *, most: int, model: str | None = None, how: str = ""
) -> dict[str, tuple[InputImage, ...]]:
    """Text -> its images, of a run of images in the order of the seeds, or of a ``.csv`` or ``.jsonl`` table.

    Each file is read once, and checked to be the generated one. Tables name them relative to their folder.
    """
    path = pathlib.Path(files.check_utf8(files.user_path(source), "the name of the source", "rename it"))
    if path.suffix.lower() in TABLES:
        return _of_table(path, texts, most)
    return _of_run(path, texts, most, model, how)


def _of_run(
    folder: pathlib.Path, texts: Sequence[str], most: int, model: str | None, how: str
) -> dict[str, tuple[InputImage, ...]]:
    run = image_runs.read_images(folder, complete=False)
    advice = f"generate it{f' with {how}' if how else ''}"
    label = _label(run, model)
    numbers = {prompt.text: number for number, prompt in enumerate(run.prompts)}
    images = {}
    for text in texts:
        number = numbers.get(prompt_text(text))
        if number is None:
            raise InputError(f"{folder} has no image of the premise {text!r}: {advice}", code="no-picture")
        if len(run.seeds) < most:
            raise InputError(
                f"{folder} has {len(run.seeds)} images of the premise {text!r}, but {most} are needed: name as"
                " many (--images_per_premise), or generate more",
                code="too-few-pictures",
            )
        images[text] = tuple(_drawn(run, label, seed, number, text, advice) for seed in run.seeds[:most])
    return images


def _drawn(run: image_runs.Images, label: str, seed: int, number: int, text: str, advice: str) -> InputImage:
    record = run.by_place.get((label, seed, number))
    file = run.folder / image_records.image_file(label, seed, number)
    if record is None:
        raise InputError(f"{file}, an image of the premise {text!r}, is missing: {advice}", code="no-picture")
    if not image_records.is_whole(run.folder, record):
        raise InputError(
            f"{file}, an image of the premise {text!r}, is not the one that was generated (its SHA-256 is another):"
            f" {advice}",
            code="file-changed",
        )
    return InputImage(str(file), record.sha256)


def _label(run: image_runs.Images, model: str | None) -> str:
    """The label of the model whose images are meant."""
    if len(run.models) == 1:
        return run.models[0].label
    meant = [known.label for known in run.models if model in (known.name, known.label)]
    if len(meant) != 1:
        names = ", ".join(known.name for known in run.models)
        raise InputError(
            f"{run.folder} has images by {names}: say whose are meant (--generator={run.models[0].name})",
            code="unknown-name",
        )
    return meant[0]


def prompt_text(text: str) -> str:
    """A text as the prompt of its images: without blanks at the ends, and with single ones for line breaks."""
    return make_prompt(f"the premise {options.quote(text)}", text, id="1").text


def _of_table(path: pathlib.Path, texts: Sequence[str], most: int) -> dict[str, tuple[InputImage, ...]]:
    images: dict[str, tuple[InputImage, ...]] = dict.fromkeys(texts, ())
    for line, text, file in _rows(path):
        if text in images and len(images[text]) < most:
            images[text] += (_image(path, line, file),)
    for text in texts:
        if not images[text]:
            raise InputError(
                f"{path} has no image of the premise {text!r}: write a row with it and a file", code="no-picture"
            )
    return images


def _image(path: pathlib.Path, line: int, file: str) -> InputImage:
    image = path.parent / files.user_path(file)
    try:
        files.check_regular(image)
        return InputImage(str(image), hashlib.sha256(image.read_bytes()).hexdigest())
    except OSError as error:
        raise InputError(
            f"line {line} of {path} names the image {image}, which cannot be read ({error.strerror or error}): put it"
            " there, or take the line away",
            code="cannot-read",
        ) from None


def _rows(path: pathlib.Path) -> Iterator[tuple[int, str, str]]:
    """(number of the line, text, file) of each row of a table."""
    if path.suffix.lower() == ".csv":
        for line, row in table_rows(path, [(_TEXT,), (_FILE,)], delimiter=","):
            yield line, row[_TEXT], row[_FILE]
        return
    for line, value in json_files.read_lines(path, "name a table of images"):
        if not isinstance(value, dict) or not all(isinstance(value.get(name), str) for name in (_TEXT, _FILE)):
            raise InputError(
                f"line {line} of {path} is not an object with the texts {_TEXT} and {_FILE}: mend it", code="wrong-type"
            )
        yield line, value[_TEXT], value[_FILE]
