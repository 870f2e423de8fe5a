"""Parquet tables of a run, read with the columns that they must have."""

from __future__ import annotations

import pathlib

import pyarrow as pa

from winobench.base import parquet_files
from winobench.base.errors import InputError

STRINGS = pa.list_(pa.string())


def columns(**kinds: pa.DataType) -> pa.Schema:
    """The columns that a table must have, none of which may lack a value. Names that end with _ may."""
    return pa.schema([pa.field(name.rstrip("_"), kind, nullable=name.endswith("_")) for name, kind in kinds.items()])


def read_table(path: pathlib.Path, columns: pa.Schema) -> pa.Table:
    """A table whose columns are of the types that are requested."""
    try:
        table = parquet_files.read(path)
    except (OSError, parquet_files.DamagedError) as error:
        raise InputError(
            f"{path} cannot be read ({error}): restore it, or evaluate again.", code="cannot-read"
        ) from error
    missing = [name for name in columns.names if name not in table.column_names]
    if missing:
        raise InputError(
            f"{path} has no column {missing[0]}: it is not of this version. Evaluate again.", code="another-version"
        )
    for field in columns:
        index = table.column_names.index(field.name)
        try:
            column = table[field.name].cast(field.type)
        except pa.ArrowException as error:
            raise InputError(
                f"{path} has another column {field.name} ({error}): evaluate again.", code="damaged-examples"
            ) from error
        if column.null_count and not field.nullable:
            message = f"{path} lacks values in the column {field.name}: restore it, or evaluate again."
            raise InputError(message, code="damaged-examples")
        table = table.set_column(index, field.name, column)
    return table
