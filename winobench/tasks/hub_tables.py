"""Published data in Parquet files of the Hugging Face hub, with images in their cells.

Images are written into the folder ``unpacked`` next to the tables when they are first read, as `launch.prepare` takes
files.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterator, Sequence

from winobench.base.errors import InputError
from winobench.data.example import ImageFile, Item
from winobench.tasks.annotations import Entry

_BATCH = 64  # rows that are in memory at once, with their images
_SUFFIXES = {b"\x89PNG": ".png", b"\xff\xd8\xff": ".jpg", b"RIFF": ".webp"}


@dataclasses.dataclass(frozen=True)
class PairTable:
    """Where a table has two images and the two texts that belong to them.

    Attributes:
      split: what the names of its files begin with, as in ``<split>-00000-of-00003.parquet``.
      images: columns of the images.
      texts: columns of the texts.
      groups: columns whose values, joined, are the group.
      only: (column, value) of the rows that are meant; None for all.
    """

    split: str
    images: tuple[str, str]
    texts: tuple[str, str]
    groups: tuple[str, ...] = ()
    only: tuple[str, str] | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """All that are read."""
        return (*self.images, *self.texts, *self.groups, *(self.only or ())[:1])


def read_pairs(folder: pathlib.Path, table: PairTable) -> Iterator[Item]:
    """Two images and two texts a row. The diagonal is right. Rows are named by their number in all files together."""
    for number, row in read_rows(folder, table.split, table.columns):
        if table.only is not None and row[table.only[0]].text() != table.only[1]:
            continue
        name = f"row-{number:05d}"
        images = tuple(unpack(row[column], folder, f"{name}-{side}") for side, column in enumerate(table.images))
        texts = tuple(row[column].text() for column in table.texts)
        groups = (" ".join(row[column].text() for column in table.groups),) if table.groups else ()
        yield Item(name, images, texts, None, groups)


def read_rows(folder: pathlib.Path, split: str, columns: Sequence[str]) -> Iterator[tuple[int, Entry]]:
    """The rows of a split's files, in the order of their names, with their number in all of them from 0 on."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    paths = sorted(folder.rglob(f"{split}-*.parquet"))
    if not paths:
        raise InputError(
            f"the task needs {split}-*.parquet in {folder}, which does not exist: get it as it was published",
            code="no-such-file",
        )
    number = 0
    for path in paths:
        try:
            with pq.ParquetFile(path) as file:
                for column in columns:
                    if column not in file.schema_arrow.names:
                        raise InputError(
                            f"{path} has no column {column!r}: restore it as it was published", code="missing-column"
                        )
                start = number
                for batch in file.iter_batches(batch_size=_BATCH, columns=list(columns)):
                    for row in batch.to_pylist():
                        yield number, Entry(row, f"row {number - start + 1} of {path}")
                        number += 1
        except (pa.ArrowException, OSError) as error:
            raise InputError(
                f"{path} is damaged ({type(error).__name__}): get the file again", code="damaged-file"
            ) from None


def unpack(entry: Entry, folder: pathlib.Path, name: str) -> ImageFile:
    """The image of a cell, as a file.

    Args:
      entry: {"bytes": the content of an image file}.
    """
    content = entry["bytes"].value
    if not isinstance(content, bytes) or not content:
        raise entry.wrong("holds no image", "missing-images")
    suffix = next((found for start, found in _SUFFIXES.items() if content.startswith(start)), ".image")
    return write(content, folder, name + suffix)


def write(content: bytes, folder: pathlib.Path, name: str) -> ImageFile:
    """An image among the unpacked ones. Nothing is done where it is there already."""
    path = folder / "unpacked" / name
    try:
        if not path.is_file() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    except OSError as error:
        raise InputError(
            f"{path} cannot be written ({error.strerror or error}): the images of the tables go there, so make the"
            " folder writable or copy it",
            code="cannot-write",
        ) from error
    return ImageFile(path)
