"""Images that other programs made, found in a folder: each file with the fields that its path has.

A `Layout` is a pattern of paths. ``{id}``, ``{number}`` (from 0) and ``{prompt}`` name the prompt, and ``{seed}`` one
of its images. ``{model}`` and ``{category}`` are their own names. ``*`` is any part of a name. A pattern without the
ending of an image takes all of `ENDINGS`.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import os
import pathlib
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from winobench.base import files, json_files, options
from winobench.base.errors import InputError
from winobench.prompts.prompt_files import Layout, Prompt
from winobench.runs.image_runs import is_run

ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".avif")
"""Ends of the names of image files."""

FIELDS = ("id", "number", "prompt", "seed", "model", "category")
"""Names that a user's pattern may have in braces, and columns of a table."""

GENEVAL = Layout("GenEval's", "{number}/samples/{seed}")
LAYOUTS = (
    GENEVAL,
    Layout("<id>", "{id}"),
    Layout("<id>_<n>", "{id}_{seed}"),
    Layout("<id>/<n>", "{id}/{seed}"),
    Layout("<prompt>_<n>", "{prompt}_{seed}"),
    Layout("<prompt>", "{prompt}"),
)
"""Layouts of any prompts. A named set has its own before them."""

_FIELD = re.compile(r"\{(\w+)\}|(\*)")
_SHORTEST_PREFIX = 16  # letters of a name that was cut off
_METADATA = "metadata.jsonl"  # GenEval's row of the prompt, in the folder of its number


@dataclasses.dataclass(frozen=True)
class FoundImage:
    """A file of an image, with its known fields."""

    path: pathlib.Path
    file: str  # its path relative to the folder, with /
    where: str  # in words, such as a line of a table
    id: str | None = None
    number: int | None = None
    prompt: str | None = None
    seed: int | None = None
    model: str | None = None
    category: str | None = None


def image_files(folder: pathlib.Path) -> Iterator[tuple[pathlib.Path, str]]:
    """The image files in a folder and its folders, in the order of their names, without hidden ones and other runs.

    Raises:
      InputError: a link leads out of the folder, or a name is not UTF-8.
    """
    root = os.path.realpath(folder)
    for parent, folders, names in os.walk(folder):
        # A run that was made in this folder has copies of its images.
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and not is_run(os.path.join(parent, name))
        )
        for name in [*folders, *sorted(names)]:
            path = pathlib.Path(parent, name)
            is_image = name.lower().endswith(ENDINGS) and not name.startswith(".")
            if path.is_symlink() and (is_image or name in folders):
                check_inside(path, root, os.path.relpath(path, folder))
            if is_image and name not in folders:
                file = path.relative_to(folder).as_posix()
                yield path, files.check_utf8(file, "the name of the image", "rename it")


def check_inside(path: pathlib.Path, root: str, name: str) -> None:
    """Refuses a path that leads out of a folder, which has no links in its own path. ``name``: of the path."""
    if not os.path.realpath(path).startswith(os.path.join(root, "")):
        raise InputError(
            f"{options.quote(name)} leads out of {root}: copy its images there, or name a folder that holds all",
            code="outside-the-folder",
        )


def user_layout(pattern: str) -> Layout:
    """The layout of a user's pattern.

    Raises:
      InputError: it has unknown fields, or none that names the prompt.
    """
    names = [match[1] for match in _FIELD.finditer(pattern) if match[1]]
    said = f"the pattern {options.quote(pattern)}"
    if unknown := [name for name in names if name not in FIELDS]:
        raise InputError(f"{said} has {{{unknown[0]}}}: choose from {{{'}, {'.join(FIELDS)}}}", code="unknown-name")
    if not {"id", "number", "prompt"} & set(names):
        raise InputError(f"{said} does not name the prompt: give {{id}}, {{number}} or {{prompt}}", code="bad-pattern")
    return Layout(pattern, pattern.removeprefix("./"))


def read(found: Sequence[tuple[pathlib.Path, str]], layout: Layout) -> list[FoundImage]:
    """The files whose paths a layout fits, with its fields."""
    pattern, images = _compiled(layout.pattern), []
    for path, file in found:
        is_other = layout.leaves_out and path.stem.endswith(layout.leaves_out)
        if not is_other and (match := pattern.fullmatch(unicodedata.normalize("NFC", file))):
            fields = match.groupdict()
            own = layout.id.format(**fields) if layout.id else fields.get("id")
            known: dict[str, Any] = {name: fields[name] for name in ("prompt", "model", "category") if name in fields}
            known |= {"seed": 0} | {name: int(fields[name]) for name in ("number", "seed") if name in fields}
            images.append(FoundImage(path, file, options.quote(file), own, **known))
    return images


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    seen: set[str] = set()

    def field(match: re.Match[str]) -> str:
        if (name := match[1]) is None:
            return "[^/]*"
        if name in seen:
            return f"(?P={name})"
        seen.add(name)
        return f"(?P<{name}>{'[0-9]{1,18}' if name in ('number', 'seed') else '[^/]+'})"

    literal = re.split(r"(\{\w+\}|\*)", unicodedata.normalize("NFC", pattern))
    text = "".join(field(match) if (match := _FIELD.fullmatch(part)) else re.escape(part) for part in literal)
    ends = "" if pattern.lower().endswith(ENDINGS) else "(?i:" + "|".join(map(re.escape, ENDINGS)) + ")"
    return re.compile(text + ends, re.DOTALL)


class PromptIndex:
    """Finds the prompts that images are of."""

    def __init__(self, prompts: Sequence[Prompt]):
        self._prompts = prompts
        self._by: dict[str, dict[str, list[int]]] = {name: collections.defaultdict(list) for name in _KEYS}
        for number, prompt in enumerate(prompts):
            for name, (field, key) in _KEYS.items():
                self._by[name][key(getattr(prompt, field))].append(number)

    def numbers(self, image: FoundImage) -> list[int]:
        """The numbers of the prompts that an image may be of: several of one text, none where it is unknown."""
        if image.number is None and image.id is None:
            text = _text(image.prompt or "")
            numbers = self._by["text"].get(text) or self._of_one_text(self._by["given"].get(text, []))
            return self._of_category(image, numbers or self._alike(text))
        numbers = [image.number] if image.number is not None and image.number < len(self._prompts) else []
        if image.id is not None:
            of_id = self._by["id"].get(_text(image.id)) or self._by["digits"].get(_digits(image.id), [])
            of_id = of_id if len(of_id) == 1 else []
            numbers = of_id if image.number is None or of_id == numbers else []
        if image.prompt is not None:
            prompts = [(number, self._prompts[number]) for number in numbers]
            numbers = [number for number, it in prompts if _text(image.prompt) in (_text(it.text), _text(it.given))]
        return self._of_category(image, numbers)

    def _of_category(self, image: FoundImage, numbers: list[int]) -> list[int]:
        if image.category is not None:
            of_category = _letters(image.category)
            numbers = [number for number in numbers if _letters(self._prompts[number].category) == of_category]
        return numbers

    def is_exact(self, image: FoundImage) -> bool:
        """Whether an image that names its prompt by the text has it letter by letter."""
        return image.prompt is None or any(_text(image.prompt) in self._by[name] for name in ("text", "given"))

    def _alike(self, name: str) -> list[int]:
        """The prompts of the one text that a file's name has with other signs, or cut off."""
        letters = _letters(name)
        numbers = self._by["letters"].get(letters, []) if letters else []
        if not numbers and len(letters) >= _SHORTEST_PREFIX:
            numbers = [n for text, those in self._by["letters"].items() if text.startswith(letters) for n in those]
        return self._of_one_text(numbers)

    def _of_one_text(self, numbers: list[int]) -> list[int]:
        return numbers if len({_text(self._prompts[number].text) for number in numbers}) == 1 else []


def _text(text: str) -> str:
    """A text in one unicode form and with single blanks."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def _digits(text: str) -> str:
    """A number without zeros ahead of it. Another text as it is."""
    return str(int(text)) if re.fullmatch("[0-9]{1,18}", text) else text


def _letters(text: str) -> str:
    """A text without all signs that file systems or people replace in names."""
    return re.sub(r"[\W_]+", "", unicodedata.normalize("NFKC", text)).casefold()


_KEYS = {
    "id": ("id", _text),
    "digits": ("id", _digits),
    "text": ("text", _text),
    "given": ("given", _text),
    "letters": ("text", _letters),
}


def recognise(
    found: Sequence[tuple[pathlib.Path, str]], layouts: Sequence[Layout], index: PromptIndex
) -> tuple[Layout, list[FoundImage]]:
    """The layout in which most files have a known prompt, the first of several, and its images."""
    readings = [(layout, read(found, layout)) for layout in layouts]
    # Where no file has a known prompt, the error is about the layout that most files have.
    return max(readings, key=lambda pair: (sum(bool(index.numbers(image)) for image in pair[1]), len(pair[1])))


def check_metadata(
    folder: pathlib.Path, images: Sequence[FoundImage], prompts: Mapping[str, Prompt], *, is_recognised: bool
) -> None:
    """Refuses images of GenEval's layout whose ``metadata.jsonl`` has another prompt. ``prompts``: by the file.

    Without these files, nobody knows of folders from 1 on whether the first one or 0 is missing. Such folders of a
    layout that was recognised, not named, are refused.
    """
    checked = {folder.parent}  # out of the folder
    for image in images:
        path = image.path.parent.parent / _METADATA
        if path.parent in checked or not path.is_file():
            continue
        checked.add(path.parent)
        row, prompt = json_files.read(path, "restore it, or take it away"), prompts[image.file]
        text = row.get("prompt") if isinstance(row, dict) else None
        if not isinstance(text, str) or _text(text) != _text(prompt.text):
            raise InputError(
                f"{path.relative_to(folder)} has the prompt {options.quote(text)}, but --prompts has"
                f" {options.quote(prompt.text)} there: name the prompts that the images were generated from",
                code="contradicting-rows",
            )
    first = min(image.number or 0 for image in images)
    if is_recognised and first > 0 and checked == {folder.parent}:
        raise InputError(
            f"the folders in {folder} begin with number {first}, and none has a {_METADATA}, so the first prompt may be"
            " number 0 or 1: number them from 0 and give --pattern='{number}/samples/{seed}', or add these files",
            code="unclear-numbers",
        )
