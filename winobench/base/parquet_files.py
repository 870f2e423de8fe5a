"""Parquet files in which a changed bit is detected.

Every page has a checksum. A SHA-256 of all other bytes, footer included, is ahead of the footer, where other readers
skip it. Files without it are read as well.

Tables that other programs read by ranges have groups of rows, small pages and an index of them.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import os
import struct
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from winobench.base import files

_MARK = b"winobench.sha256"
_TAIL = 8  # bytes behind the footer: its length, and the format's name
# Tables that are read by ranges: rows of a group, and bytes of a page. The writer looks at the size of a page after so
# many bytes of rows, and at most so many rows.
_GROUP, _PAGE, _BATCH, _MOST_ROWS = 10_000, 16 * 2**10, 64 * 2**10, 1024
# Most memory of a column: these bytes, or so many times the file's size. Then the bytes of a number.
_LARGEST_COLUMN, _MOST_TIMES, _NUMBER = 4 * 2**30, 100, 8


class DamagedError(Exception):
    """A file that differs from the one that was written. The message states the evidence."""


def write(path: str | os.PathLike, table: pa.Table, repeating: Collection[str] | None = None) -> None:
    """Writes a table as a file that is either whole or not there.

    With ``repeating``, single rows and columns can be read by ranges, and these leaf columns alone have dictionaries.
    """
    with files.atomic_path(path) as temporary, open(temporary, "wb") as file:
        file.write(content(table, repeating))


def content(table: pa.Table, repeating: Collection[str] | None = None) -> bytes:
    """Makes the content that `write` writes."""
    buffer = io.BytesIO()
    options = {} if repeating is None else _by_ranges(table, repeating)
    pq.write_table(table, buffer, compression="zstd", write_page_checksum=True, **options)
    found = buffer.getbuffer()
    footer = _footer(found)
    return b"".join([found[:footer], _MARK, hashlib.sha256(found).digest(), found[footer:]])


def _by_ranges(table: pa.Table, repeating: Collection[str]) -> dict[str, Any]:
    a_row = table.nbytes // max(1, table.num_rows)
    return {
        "row_group_size": _GROUP,
        "data_page_size": _PAGE,
        "write_batch_size": min(_MOST_ROWS, max(1, _BATCH // max(1, a_row))),
        "write_page_index": True,
        "use_dictionary": list(repeating),
    }


def read(path: str | os.PathLike, columns: Sequence[str] | None = None) -> pa.Table:
    """Reads a table, with the schema's metadata."""
    files.check_regular(path)
    with open(path, "rb") as file:
        return parse(file.read(), columns)


def metadata(path: str | os.PathLike) -> pq.FileMetaData:
    """Metadata in the footer of a file whose bytes are unchanged."""
    files.check_regular(path)
    with open(path, "rb") as file:
        content = file.read()
    _check_digest(content)
    try:
        return pq.read_metadata(pa.BufferReader(content))
    except (OSError, pa.ArrowException, ValueError) as error:
        raise DamagedError(str(error)) from error


def parse(content: bytes, columns: Sequence[str] | None = None) -> pa.Table:
    _check_digest(content)
    try:
        with pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True) as file:
            if missing := [name for name in columns or () if name not in file.schema_arrow.names]:
                raise KeyError(missing[0])
            check_sizes(file, len(content), columns)
            table = file.read(columns=None if columns is None else list(columns))
        table.validate(full=True)  # such as texts that are not UTF-8
    # What the library raises for bytes that it cannot make sense of depends on the place.
    except (OSError, pa.ArrowException, ValueError, MemoryError) as error:
        raise DamagedError(" ".join(str(error).split())[:200] or type(error).__name__) from error
    return table


def check_sizes(file: pq.ParquetFile, size: int, columns: Collection[str] | None = None) -> None:
    """Raises DamagedError for a file of ``size`` bytes whose columns would fill the memory.

    A repeated number costs no bytes, and a long text is stored once for all rows that have it.
    """
    most, meta = max(_LARGEST_COLUMN, _MOST_TIMES * size), file.metadata
    for number in range(meta.num_columns):
        groups = [meta.row_group(group).column(number) for group in range(meta.num_row_groups)]
        path = meta.schema.column(number).path
        if columns is not None and path.partition(".")[0] not in columns:
            continue
        values = sum(group.num_values for group in groups)
        stored = [group.total_uncompressed_size for group in groups]
        is_text = meta.schema.column(number).physical_type == "BYTE_ARRAY"
        too_large = max(_NUMBER * values, sum(stored)) > most
        if not too_large and is_text and any(group.has_dictionary_page for group in groups):
            longest = max(stored)  # no text of the dictionary is longer
            if values * longest > most:
                batches = file.iter_batches(max(1, _LARGEST_COLUMN // (8 * longest)), columns=[path])
                too_large = any(total > most for total in itertools.accumulate(batch.nbytes for batch in batches))
        if too_large:
            raise DamagedError(f"the column {path} would need more than {files.size_in_words(most)} of memory")


def _footer(content: bytes | memoryview) -> int:
    """Start of the footer. Below 0 if a damaged file states so."""
    (length,) = struct.unpack("<i", content[-_TAIL : -_TAIL + 4])
    return len(content) - _TAIL - length


def _check_digest(content: bytes) -> None:
    """Raises DamagedError for a wrong digest. A missing one is right."""
    mark = content.rfind(_MARK)
    if mark < 0:
        return
    begin = mark + len(_MARK)
    end = begin + hashlib.sha256().digest_size
    digest = hashlib.sha256(memoryview(content)[:mark])
    digest.update(memoryview(content)[end:])
    if digest.digest() != content[begin:end]:
        raise DamagedError("its SHA-256 is another one than when it was written")


def encoded(column: pa.ChunkedArray) -> tuple[dict[str, int], np.ndarray]:
    """Value -> number, and the numbers of a column [num_rows] int64."""
    found = pc.dictionary_encode(column.combine_chunks())
    codes = found.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return {value: code for code, value in enumerate(found.dictionary.to_pylist())}, codes


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The whole numbers start, start + 1, ... of each range, one range after the other."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))
