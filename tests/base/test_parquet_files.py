"""Parquet files: any changed bit is seen or changes nothing, and files of other writers are read."""

import collections

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from winobench.base import parquet_files


def make_table(rows=40):
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "image": [f"{number % 7:064x}" for number in range(rows)],
            "text": [None if number == 3 else f"text {number}" for number in range(rows)],
            "first_sample": pa.array(np.arange(rows), pa.int32()),
            "errors": pa.array([rng.random(number % 5).tolist() for number in range(rows)], pa.list_(pa.float32())),
            "scores": pa.array([[[1.0, float(number)]] for number in range(rows)]),
            "jpeg": pa.array([rng.bytes(number % 40) for number in range(rows)], pa.binary()),
        }
    ).replace_schema_metadata({"winobench.scores": "abc", "winobench.timesteps": "[1, 2]"})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "table.parquet"


def test_a_table_comes_back_here_and_with_other_readers(path):
    table = make_table()
    parquet_files.write(path, table)
    result = parquet_files.read(path)
    assert result.to_pylist() == table.to_pylist()
    assert result.schema.metadata == table.schema.metadata
    assert pq.read_table(path).equals(result, check_metadata=True)
    assert pq.ParquetFile(path, page_checksum_verification=True).read().equals(result, check_metadata=True)
    assert parquet_files.read(path, ["text", "image"]).column_names == ["text", "image"]
    with pytest.raises(KeyError, match="nothing"):
        parquet_files.read(path, ["nothing"])
    empty = table.slice(0, 0)
    parquet_files.write(path, empty)
    assert parquet_files.read(path).equals(pq.read_table(path), check_metadata=True)


def test_tables_are_read_by_ranges(path):
    """Groups of rows and an index of pages; the same bytes each time; dictionaries where values repeat."""
    table = make_table(25_000)
    contents = []
    for _ in range(2):
        parquet_files.write(path, table, ["image"])
        contents.append(path.read_bytes())
    assert contents[0] == contents[1]
    assert parquet_files.read(path).to_pylist() == table.to_pylist()
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
        assert file.read_row_group(1, ["text"])["text"].to_pylist() == table["text"].to_pylist()[10_000:20_000]
    assert [group.num_rows for group in groups] == [10_000, 10_000, 5_000]
    columns = [group.column(number) for group in groups for number in range(group.num_columns)]
    assert all(column.has_offset_index for column in columns)
    assert {column.path_in_schema for column in columns if column.has_dictionary_page} == {"image"}


def test_tables_of_other_writers_are_read(path):
    pq.write_table(make_table(), path)
    assert parquet_files.read(path).equals(pq.read_table(path), check_metadata=True)


@pytest.mark.parametrize("repeating", [None, ("image",)])
def test_no_changed_bit_is_read_as_something_else(path, repeating):
    """Every byte of a file, one bit each; as the mark is no part of the data, it may change."""
    parquet_files.write(path, make_table(), repeating)
    table = parquet_files.read(path)
    content, outcomes = path.read_bytes(), collections.Counter()
    for kept in (0.1, 0.5, 0.99):
        with pytest.raises(parquet_files.DamagedError):
            parquet_files.parse(content[: int(kept * len(content))])
    bits = np.random.default_rng(1).integers(0, 8, len(content))
    for index, bit in enumerate(bits):
        changed = bytearray(content)
        changed[index] ^= 1 << int(bit)
        try:
            same = parquet_files.parse(bytes(changed)).equals(table, check_metadata=True)
            outcomes["as written" if same else "another table"] += 1
        except parquet_files.DamagedError:
            outcomes["seen"] += 1
    assert outcomes["another table"] == 0
    assert outcomes["as written"] <= len(b"winobench.sha256")
    assert outcomes["seen"] >= len(content) - len(b"winobench.sha256")


def test_pages_without_a_digest_are_checked(path):
    pq.write_table(make_table(), path, compression="none", write_page_checksum=True)
    content = bytearray(path.read_bytes())
    place = content.rfind(b"text 17")
    content[place + 5] ^= 1
    path.write_bytes(content)
    with pytest.raises(parquet_files.DamagedError, match=r"CRC|checksum"):
        parquet_files.read(path)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1 cut short", b"\0" * 100, b"PAR1" + b"\xff" * 40 + b"PAR1"])
def test_files_that_are_no_tables(path, content):
    path.write_bytes(content)
    with pytest.raises(parquet_files.DamagedError):
        parquet_files.read(path)


@pytest.mark.parametrize("column", [["x" * 2**12] * 20_000, pa.array(np.zeros(10**7, np.int8))])
def test_a_small_file_cannot_fill_the_memory(path, column, monkeypatch):
    monkeypatch.setattr(parquet_files, "_LARGEST_COLUMN", 2**25)
    with pq.ParquetWriter(path, pa.schema([("a", pa.array(column[:1]).type)]), compression="zstd") as writer:
        for start in range(0, len(column), len(column) // 4):
            writer.write_table(pa.table({"a": pa.array(column[start : start + len(column) // 4])}))
    assert path.stat().st_size < 10**5
    with pytest.raises(parquet_files.DamagedError, match="the column a would need more than"):
        parquet_files.read(path)


def test_long_texts_that_repeat_are_read(path):
    """The bound of what a dictionary can hold is far above what it holds here."""
    column = ["x" * 2**20, *["y"] * 20_000]
    pq.write_table(pa.table({"a": column}), path)
    assert parquet_files.read(path)["a"].to_pylist() == column
