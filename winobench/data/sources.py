"""Contents of published files: their distinct images, the questions about them, and the faults of either.

No image is opened here: `winobench.data.preparing` does that.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import stat
from collections.abc import Iterable, Sequence

from winobench.base.errors import InputError
from winobench.data.example import Box, Example, Item


class SourceError(InputError):
    """A fault of the published files, as against the place where the prepared set goes."""


class SourceProblems(SourceError):
    """Images that are missing or cannot be decoded. ``problems`` has a line for each: its name and its fault."""

    def __init__(self, message: str, problems: Sequence[str] = (), *, code: str | None = None):
        super().__init__(message, code=code)
        self.problems = tuple(problems)


@dataclasses.dataclass(frozen=True)
class SourceImage:
    """An image among the published files."""

    path: str
    box: Box | None  # (left, top, right, bottom) in pixels of the part that is meant; None for all
    name: str  # in records and messages, from `name_of`


@dataclasses.dataclass(frozen=True)
class LeftOut:
    """A row of the published files that makes no example. Readers may give it instead of an item."""

    id: str  # of the example
    reason: str  # in a few words


@dataclasses.dataclass(frozen=True)
class Download:
    """A file that may be downloaded: by URL, or from a data set's repository on the Hugging Face hub."""

    to: str  # relative to the folder of the task's sources, with /
    url: str | None = None
    hub_id: str | None = None  # the user's token is used
    filename: str | None = None  # on the hub
    unpack: bool = False  # a zip or tar archive, into the folder where it lies
    sha256: str | None = None
    note: str = ""  # size and licence

    def __post_init__(self) -> None:
        if (self.url is None) == (self.hub_id is None) or (self.hub_id is None) != (self.filename is None):
            raise ValueError("a Download has either a url, or a hub_id with a filename")
        to = pathlib.PurePosixPath(self.to)
        if to.is_absolute() or ".." in to.parts or not to.name:
            raise ValueError(f"a Download goes to a relative path without '..', not to {self.to!r}")


Question = Example[int, str]  # an item whose images are positions in the list of all images


def collect(
    items: Iterable[Item | LeftOut], root: pathlib.Path, task: str
) -> tuple[list[SourceImage], list[Question], dict[str, dict[str, str]]]:
    """The distinct images in order of appearance, the questions about them, and the rows that make none."""
    numbers: dict[tuple[str, Box | None], int] = {}
    questions: list[Question] = []
    rows: dict[str, dict[str, str]] = {}
    ids: set[str] = set()
    try:
        for item in items:
            if isinstance(item, LeftOut):
                rows[item.id] = {"image": "", "reason": item.reason}
                continue
            if item.id in ids:
                raise InputError(
                    f"two examples of task {task!r} have the id {item.id!r}: an annotation file in {root} holds them"
                    " twice or was changed, so get it again",
                    code="repeated-id",
                )
            ids.add(item.id)
            _check_item(item, root, task)
            for image in item.images:
                _check_inside(image.path, item.id, root, task)
            keys = [(os.fspath(image.path), image.box) for image in item.images]
            positions = tuple(numbers.setdefault(key, len(numbers)) for key in keys)
            fields = {name: tuple(getattr(item, name)) for name in ("texts", "groups", "ratings")}
            questions.append(Example(item.id, positions, target=item.target, **fields))
    except OSError as error:
        raise InputError(
            f"{error.filename or root} cannot be read: {error.strerror or error}", code="cannot-read"
        ) from error
    return [SourceImage(path, box, name_of(path, box, root)) for path, box in numbers], questions, rows


def _check_item(item: Item, root: pathlib.Path, task: str) -> None:
    wrong = None
    if not item.images or not item.texts:
        wrong, code = "has no image or no text", "empty-example"
    elif item.target is not None and not 0 <= item.target < max(len(item.images), len(item.texts)):
        wrong = f"has {len(item.images)} images and {len(item.texts)} texts, but the right answer is {item.target}"
        code = "target-not-among-candidates"
    elif item.ratings and len(item.ratings) != len(item.images):
        wrong, code = f"has {len(item.images)} images and {len(item.ratings)} ratings", "wrong-number-of-entries"
    else:
        try:
            "".join((item.id, *item.texts, *item.groups)).encode()
        except (UnicodeEncodeError, TypeError):
            wrong, code = "has a text that is not a Unicode text", "not-a-text"
    if wrong:
        raise InputError(
            f"example {item.id!r} of task {task!r} {wrong}: get the annotation files in {root} again",
            code=code,
        )


def _check_inside(path: str | os.PathLike, id: str, root: pathlib.Path, task: str) -> None:
    """Refuses what an annotation file names outside of the source, from / on or by way of ``..``.

    Links inside of the source may lead anywhere: they are the user's own.
    """
    path = pathlib.Path(path)
    if not path.is_relative_to(root) or ".." in path.relative_to(root).parts:
        raise InputError(
            f"example {id!r} of task {task!r} names the image {os.fspath(path)!r}, which is outside of {root}: get the"
            " annotation files again, or put the image there",
            code="outside-of-folder",
        )


def check_count(count: int, num_published: int | None, allow_partial: bool, root: pathlib.Path, task: str) -> None:
    """Refuses other numbers of examples than were published, unless fewer are allowed."""
    if not count:
        raise InputError(f"{root} has no example of task {task!r}: get the annotation files again", code="no-examples")
    if num_published is None or count == num_published or (allow_partial and count < num_published):
        return
    way_out = ", or give --allow_partial to prepare the files that exist" if count < num_published else ""
    raise InputError(
        f"{root} has {count:,} example{'' if count == 1 else 's'} of task {task!r}, but {num_published:,} were"
        f" published: get the annotation files again{way_out}",
        code="wrong-number-of-examples",
    )


def name_of(path: str, box: Box | None, root: pathlib.Path) -> str:
    """The name of an image in records and messages."""
    name = pathlib.Path(path)
    with contextlib.suppress(ValueError):
        name = name.relative_to(root)
    try:
        # Names of files are bytes, which need not be UTF-8.
        text = os.fsencode(name.as_posix()).decode("utf-8", "replace")
    except UnicodeEncodeError:  # no file's name, but an annotation file can hold it
        text = name.as_posix().encode("utf-8", "replace").decode("utf-8")
    return text if box is None else f"{text}[{','.join(map(str, box))}]"


def stamps(images: Sequence[SourceImage]) -> tuple[dict[str, list[int]], dict[str, str]]:
    """Size and time of change of each file, and the images whose files are missing, with the reason."""
    stamps: dict[str, list[int]] = {}
    reasons: dict[str, str] = {}
    for path in dict.fromkeys(image.path for image in images):
        try:
            status = os.stat(path)
        except OSError as error:
            is_missing = isinstance(error, FileNotFoundError | NotADirectoryError)
            reasons[path] = "missing" if is_missing else str(error.strerror)
            continue
        except ValueError as error:  # a NUL, or half of a surrogate pair
            reasons[path] = f"no file can have this name: {error}"
            continue
        if stat.S_ISREG(status.st_mode):
            stamps[path] = [status.st_size, status.st_mtime_ns]
        else:
            reasons[path] = "is not a file"
    return stamps, {image.name: reasons[image.path] for image in images if image.path in reasons}


def keep_whole(
    images: Sequence[SourceImage], questions: Sequence[Question], missing: dict[str, str]
) -> tuple[list[SourceImage], list[Question]]:
    """The questions whose images are all there, and these images."""
    if not missing:
        return list(images), list(questions)
    whole = [q for q in questions if all(images[number].name not in missing for number in q.images)]
    numbers = {number: new for new, number in enumerate(sorted({number for q in whole for number in q.images}))}
    renumbered = [dataclasses.replace(q, images=tuple(numbers[number] for number in q.images)) for q in whole]
    return [images[number] for number in numbers], renumbered


def left_out(
    images: Sequence[SourceImage], questions: Sequence[Question], problems: dict[str, str]
) -> dict[str, dict[str, str]]:
    """Id of each question that loses an image to a problem -> {"image": its name, "reason": the problem}."""
    names = {question.id: [images[number].name for number in question.images] for question in questions}
    first = {id: next((name for name in of_one if name in problems), None) for id, of_one in names.items()}
    return {id: {"image": name, "reason": problems[name]} for id, name in first.items() if name is not None}


def problems_error(
    problems: dict[str, str], num_images: int, root: pathlib.Path, task: str, path: pathlib.Path, allow_partial: bool
) -> SourceProblems:
    """Lists all problems in a file and makes their error."""
    lines = [f"{name}: {reason}" for name, reason in problems.items()]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    name, reason = next(iter(problems.items()))
    num_others = len(problems) - 1
    others = f" and {num_others:,} other{'s' if num_others > 1 else ''}" if num_others else ""
    pronoun = "them" if num_others else "it"
    way_out = f"or give --allow_partial to leave out the examples that need {pronoun}"
    if allow_partial:
        way_out = "as no example has all of its images"
    return SourceProblems(
        f"{len(problems):,} of {num_images:,} images of task {task!r} in {root} cannot be used, {name}"
        f" ({reason}){others}, listed in {path}: add or replace {pronoun}, {way_out}",
        lines,
        code="unusable-images",
    )
