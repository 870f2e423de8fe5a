"""Published data in Parquet files of the Hugging Face hub, with images in their cells.

Images are written into the folder ``unpacked`` next to the tables when they are first read.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np

from winobench.base.errors import InputError
from winobench.data.example import ImageFile, Item
from winobench.tasks.annotations import Entry, no_such_file, not_as_published
from winobench.tasks.base import Task
from winobench.tasks.published import published_task

_BATCH = 64  # rows that are in memory at once, with their images
_SUFFIXES = {b"\x89PNG": ".png", b"\xff\xd8\xff": ".jpg", b"RIFF": ".webp"}


@dataclasses.dataclass(frozen=True)
class PairTable:
    """The columns of two images, of the two texts that belong to them, and of values which, joined, are the group."""

    images: tuple[str, str]
    texts: tuple[str, str]
    groups: tuple[str, ...] = ()
    only: tuple[str, str] | None = None  # (column, value) of the rows that are meant


def hub_folder(url: str, licence: str | None, first: str = "") -> str:
    """The page of a data set of the hub and how to get its files, as a part of `PublishedData.how_to_get`."""
    command = f"`hf download {url.split('datasets/')[1]} --repo-type=dataset --local-dir=DIR`"
    return f"{url} ({first}{command}; {f'{licence} licence' if licence else 'its page has the licence'})"


def pair_task(
    name: str, description: str, table: PairTable, num_examples: int, *, url: str, first: str = "", **fields
) -> Task:
    """A task in Winoground's form on the split ``test`` of a data set of the hub. ``first``: before the download."""
    return published_task(
        name=name,
        description=description,
        metric="winoground",
        shape=(2, 2),
        read=functools.partial(read_pairs, table=table),
        how_to_get=f"the Parquet files of {hub_folder(url, fields.get('licence'), first)}",
        num_examples=num_examples,
        url=url,
        **fields,
    )


def read_pairs(folder: pathlib.Path, table: PairTable) -> Iterator[Item]:
    """Two images and two texts a row. The diagonal is right. Rows are named by their number in all files together."""
    columns = (*table.images, *table.texts, *table.groups, *(table.only or ())[:1])
    for number, row in read_rows(folder, "test", columns):
        if table.only is not None and row[table.only[0]].text() != table.only[1]:
            continue
        name = f"row-{number:05d}"
        images = tuple(unpack(row[column], folder, f"{name}-{side}") for side, column in enumerate(table.images))
        texts = tuple(row[column].text() for column in table.texts)
        groups = (" ".join(row[column].text() for column in table.groups),) if table.groups else ()
        yield Item(name, images, texts, None, groups)


def read_rows(folder: pathlib.Path, split: str, columns: Sequence[str]) -> Iterator[tuple[int, Entry]]:
    """The rows of ``<split>-*.parquet``, in the order of the files' names, with their number from 0 on."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from winobench.base import parquet_files

    paths = sorted(folder.rglob(f"{split}-*.parquet"))
    if not paths:
        raise no_such_file(f"{split}-*.parquet in {folder}")
    number = 0
    for path in paths:
        try:
            with pq.ParquetFile(path) as file:
                parquet_files.check_sizes(file, path.stat().st_size, columns)
                for column in columns:
                    if column not in file.schema_arrow.names:
                        raise not_as_published(path, f"has no column {column!r}", "missing-column")
                start = number
                for batch in file.iter_batches(batch_size=_BATCH, columns=list(columns)):
                    for row in batch.to_pylist():
                        yield number, Entry(row, f"row {number - start + 1} of {path}")
                        number += 1
        except (pa.ArrowException, parquet_files.DamagedError, OSError) as error:
            raise InputError(
                f"{path} is damaged ({type(error).__name__}): get the file again", code="damaged-file"
            ) from None


def unpack(entry: Entry, folder: pathlib.Path, name: str) -> ImageFile:
    """The image of a cell, whose ``bytes`` are an image file's, as a file."""
    content = entry["bytes"].value
    if not isinstance(content, bytes) or not content:
        raise entry.wrong("holds no image", "missing-images")
    suffix = next((ending for start, ending in _SUFFIXES.items() if content.startswith(start)), ".image")
    return write(content, folder, name + suffix)


def write(content: bytes, folder: pathlib.Path, name: str) -> ImageFile:
    """An image among the unpacked ones, written where it is not there already."""
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


def write_png(pixels: np.ndarray, folder: pathlib.Path, name: str) -> ImageFile:
    """The same of pixels, [height, width, 3] uint8."""
    import PIL.Image

    content = io.BytesIO()
    PIL.Image.fromarray(np.ascontiguousarray(pixels)).save(content, "png")
    return write(content.getvalue(), folder, name)
