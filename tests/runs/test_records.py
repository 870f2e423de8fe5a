"""A run's folder: whole files, refusals, locks, and what comes back from the parts."""

import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.expectations import names, raises
from winobench.base.errors import InputError
from winobench.runs import error_parts
from winobench.runs.error_parts import ErrorWriter, ScoreSet, pass_over, read_errors
from winobench.runs.records import SCHEMA_VERSION, RunFolder, digest, write_json, write_table

IMAGES, TEXTS = ["image-0", "image-1"], ["text-0", "text-1"]
PAIRS = np.array([[0, 0], [0, 1], [1, 0]], np.int32)
IDENTITY = {"scorer": {"model": "abc"}, "sampling": {"seed": 0}, "limit": None}


def _folder(path, **identity):
    folder = RunFolder(path)
    folder.open({"status": "running", "identity": {**IDENTITY, **identity}})
    return folder


def _scores(name, num, kind="squared_l2"):
    return ScoreSet(name, tuple(range(100, 100 + num)), kind)


def _writer(folder, scores="scores", num=8, kind="squared_l2", **options):
    return ErrorWriter(folder, _scores(scores, num, kind), IMAGES, TEXTS, **options)


def _triples(*rows):
    return np.array(rows, np.int32)


def _write(writer, triples, errors):
    writer.add(_triples(*triples), np.float32(errors))
    writer.flush()


def _read(folder, scores):
    return error_parts.read_own_errors(folder, scores, IMAGES, TEXTS, PAIRS)[0]


@pytest.fixture
def folder(tmp_path):
    return _folder(tmp_path / "run")


def test_errors_come_back_as_written(folder, tmp_path):
    writer = _writer(folder)
    writer.add(_triples([0, 0, 0], [0, 0, 1], [0, 0, 2], [0, 1, 0]), np.float32([0.1, 0.2, 0.3, 0.4]))
    _write(writer, [[0, 1, 1], [1, 0, 2]], [0.5, 0.6])
    errors, seconds = error_parts.read_own_errors(folder, _scores("scores", 3), IMAGES, TEXTS, PAIRS)
    nan = np.nan
    np.testing.assert_array_equal(errors, np.float32([[0.1, 0.2, 0.3], [0.4, 0.5, nan], [nan, nan, 0.6]]))
    assert errors.dtype == np.float32
    assert 0 <= seconds < 60


def test_a_row_is_a_run_of_samples_of_one_pair(folder, tmp_path):
    writer = _writer(folder, note={"winobench": "1.0"})
    writer.add(_triples([0, 0, 0], [0, 0, 1]), np.float32([0.1, 0.2]))
    _write(writer, [[0, 0, 2], [0, 0, 4], [0, 1, 5]], [0.3, 0.4, 0.5])
    path = tmp_path / "run" / "errors" / "part-0-00000.parquet"
    schema = pq.read_schema(path)
    assert schema.metadata[b"winobench.scores"] == b"scores"
    assert json.loads(schema.metadata[b"winobench.versions"]) == {"winobench": "1.0"}
    assert [(field.name, str(field.type)) for field in schema] == [
        *(("image", "string"), ("text", "string"), ("first_sample", "int32")),
        ("errors", "list<element: float not null>"),
    ]
    rows = pq.read_table(path).to_pylist()
    assert [(row["image"], row["text"], row["first_sample"], len(row["errors"])) for row in rows] == [
        ("image-0", "text-0", 0, 3),
        ("image-0", "text-0", 4, 1),
        ("image-0", "text-1", 5, 1),
    ]


def test_samples_of_several_pairs_in_turn_are_one_row_each(folder, tmp_path):
    writer = _writer(folder)
    turns = [(image, text, sample) for image in (1, 0) for sample in range(6) for text in range(2)]
    values = np.arange(24, dtype=np.float32)
    writer.add(_triples(*turns[:9]), values[:9])
    _write(writer, turns[9:], values[9:])
    (path,) = (tmp_path / "run" / "errors").iterdir()
    rows = pq.read_table(path).to_pylist()
    expected = [(image, text, 0) for image in IMAGES for text in TEXTS]
    assert [(row["image"], row["text"], row["first_sample"]) for row in rows] == expected
    assert rows[2]["errors"] == values[0:12:2].tolist()
    assert rows[1]["errors"] == values[13:24:2].tolist()


def test_parts_of_a_continued_run_follow_on(folder, tmp_path):
    for sample in range(2):
        writer = _writer(folder)
        assert len(list(folder.errors_path.iterdir())) == sample
        _write(writer, [[0, 0, sample]], [sample])
        writer.flush()  # nothing is waiting: no part
    names = ["part-0-00000.parquet", "part-0-00001.parquet"]
    assert sorted(path.name for path in folder.errors_path.iterdir()) == names


def test_parts_are_written_while_the_run_goes_on(folder, tmp_path):
    writer = _writer(folder, seconds_between_parts=0.0)
    for sample in range(3):
        writer.add(_triples([0, 0, sample]), np.float32([sample]))
    _writer(folder, seconds_between_parts=1000.0).add(_triples([0, 1, 0]), np.float32([1]))
    assert len(list(folder.errors_path.iterdir())) == 3


def test_only_what_the_plan_asks_for_of_the_same_identity_comes_back(folder, tmp_path):
    _write(_writer(folder), [[1, 1, 0], [0, 0, 0], [0, 0, 1], [0, 0, 2], [1, 0, 7]], [9, 1, 2, 3, 9])
    _write(_writer(folder, "other"), [[0, 0, 0]], [5])
    errors = _read(folder, _scores("scores", 2))
    assert errors[0].tolist() == [1, 2]
    assert np.isnan(errors[1:]).all()
    assert _read(folder, _scores("other", 1))[0, 0] == 5
    assert np.isnan(_read(folder, _scores("third", 1))).all()


def test_samples_are_taken_by_their_timesteps(folder, tmp_path):
    _write(_writer(folder, num=4), [[0, 0, sample] for sample in range(4)], [1, 2, 3, 4])  # timesteps 100 to 103
    for wanted, expected in (
        (ScoreSet("scores", (100, 7, 102)), [1, np.nan, 3]),
        (_scores("scores", 6), [1, 2, 3, 4, np.nan, np.nan]),
    ):
        np.testing.assert_array_equal(_read(folder, wanted)[0], np.float32(expected))


def test_distances_and_their_squares_are_turned_into_each_other(folder, tmp_path):
    for pair, (kind, value) in zip(((0, 0), (0, 1)), (("squared_l2", 9.0), ("l2", 4.0)), strict=True):
        _write(_writer(folder, num=1, kind=kind), [[*pair, 0]], [value])
    _write(_writer(folder, num=1, kind="minus_score"), [[1, 0, 0]], [5])
    nan = np.nan
    for kind, expected in (("squared_l2", [9, 16, nan]), ("l2", [3, 4, nan]), ("minus_score", [nan, nan, 5])):
        np.testing.assert_array_equal(_read(folder, _scores("scores", 1, kind))[:, 0], np.float32(expected))


def test_a_damaged_part_is_named_and_set_aside(folder, tmp_path, caplog):
    writer = _writer(folder, num=1)
    for pair, value in zip(PAIRS, (1.0, 2.0, 3.0), strict=True):
        _write(writer, [[*pair, 0]], [value])
    part = folder.errors_path / "part-0-00001.parquet"
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(content)
    errors = _read(folder, _scores("scores", 1))
    np.testing.assert_array_equal(errors[:, 0], np.float32([1, np.nan, 3]))
    (message,) = caplog.messages
    assert f"{part} is damaged (its SHA-256" in message
    assert "kept as part-0-00001.parquet.damaged" in message
    assert (folder.errors_path / "part-0-00001.parquet.damaged").read_bytes() == content
    # It is told once, and its number is not taken again: a neighbour may have seen it.
    error_parts.read_own_errors(folder, _scores("scores", 1), IMAGES, TEXTS, PAIRS)
    assert len(caplog.messages) == 1
    folder.close()
    again = RunFolder(tmp_path / "run")
    again.open({"status": "running", "identity": IDENTITY}, overwrite=True)
    assert not list(again.errors_path.iterdir())


def test_no_flipped_bit_changes_an_error(folder, tmp_path):
    """In the run's own folder and from the next one."""
    writer, rng = _writer(folder, num=8), np.random.default_rng(0)
    triples = np.array([(*pair, sample) for pair in PAIRS for sample in range(8)], np.int32)
    values = rng.random(len(triples), np.float32)
    _write(writer, triples, values)
    (part,) = folder.errors_path.iterdir()
    content, expected = part.read_bytes(), values.reshape(len(PAIRS), 8)
    for _ in range(100):
        changed = bytearray(content)
        changed[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
        part.write_bytes(changed)
        for read in (
            lambda *table: read_errors(*table, on_fault=pass_over),
            lambda _, *table: error_parts.read_own_errors(folder, *table),
        ):
            errors, _ = read(folder.errors_path, _scores("scores", 8), IMAGES, TEXTS, PAIRS)
            assert np.isnan(errors).all() or np.array_equal(errors, expected)


def _odd_parts():
    scores = {"winobench.scores": "scores", "winobench.timesteps": "[100]", "winobench.error": "squared_l2"}
    table = pa.table({"image": ["image-0"], "text": ["text-0"], "first_sample": pa.array([0], pa.int32())})
    table = table.replace_schema_metadata(scores)
    whole = table.append_column("errors", pa.array([[1.0]], pa.list_(pa.float32())))
    odd = whole.set_column(3, "errors", pa.array([["much"]]))
    return {
        "part-0-abc.parquet": (whole, ("foreign-file",)),
        "part-1.parquet": (whole, ("foreign-file",)),
        "part-1-00000.parquet": (whole.replace_schema_metadata({}), ("foreign-file",)),
        "part-1-00001.parquet": (table, ("another-version", "'errors'")),
        "part-1-00002.parquet": (odd, ("another-version", "'errors'", "list")),
    }


@pytest.mark.parametrize("name", _odd_parts())
def test_odd_parts_are_one_sentence(folder, tmp_path, name):
    _write(_writer(folder, num=1), [[0, 0, 0]], [7])
    table, message = _odd_parts()[name]
    write_table(folder.errors_path / name, table)
    with raises(*message, name):
        error_parts.read_own_errors(folder, _scores("scores", 1), IMAGES, TEXTS, PAIRS)
    # Whoever takes errors from beside goes past it.
    errors, _ = read_errors(folder.errors_path, _scores("scores", 1), IMAGES, TEXTS, PAIRS, on_fault=pass_over)
    assert errors[0, 0] == 7


@pytest.mark.parametrize(
    ("value", "metadata"),
    [
        *((1.0, {b"winobench.timesteps": text}) for text in ('"many"', "[]", "[" * 100_000)),
        (1.0, {b"winobench.seconds": "-1"}),
        *((value, {}) for value in (np.inf, np.nan, -0.5)),
    ],
)
def test_what_nobody_has_written_is_damage(folder, tmp_path, value, metadata, caplog):
    """By hand, or by a program with a fault: its checksums are right."""
    table, _ = _odd_parts()["part-1.parquet"]
    table = table.set_column(3, "errors", pa.array([[value]], pa.list_(pa.float32())))
    metadata = {**table.schema.metadata, b"winobench.seconds": "1", **metadata}
    write_table(folder.errors_path / "part-0-00000.parquet", table.replace_schema_metadata(metadata))
    assert np.isnan(_read(folder, _scores("scores", 1))).all()
    assert "part-0-00000.parquet is damaged" in caplog.text


def test_parts_without_checksums_are_read(folder, tmp_path):
    """As runs of earlier versions have them."""
    _write(_writer(folder, num=1), [[0, 0, 0]], [7])
    (part,) = folder.errors_path.iterdir()
    pq.write_table(pq.read_table(part), part, compression="zstd")
    assert _read(folder, _scores("scores", 1))[0, 0] == 7


def test_the_same_run_may_go_on_and_leftovers_go(folder, tmp_path):
    folder.close()
    leftover = folder.errors_path / ".part-0-00003.parquet.tmp"
    leftover.write_bytes(b"half")
    again = _folder(tmp_path / "run")
    assert not leftover.exists()
    assert json.loads(again.config_path.read_text())["schema"] == SCHEMA_VERSION


def test_another_run_is_refused_by_what_differs(tmp_path):
    _folder(tmp_path / "run").close()
    before = (tmp_path / "run" / "config.json").read_text()
    with pytest.raises(InputError) as caught:
        _folder(tmp_path / "run", scorer={"model": "xyz"}, limit=5)
    assert 'scorer.model ("abc" there, "xyz" here); limit (null there, 5 here)' in str(caught.value)
    assert "--overwrite" in str(caught.value)
    assert (tmp_path / "run" / "config.json").read_text() == before
    _folder(tmp_path / "run").close()  # the refusal keeps no lock


def test_overwrite_deletes_records_and_nothing_else(folder, tmp_path):
    _write(_writer(folder), [[0, 0, 0]], [1])
    folder.close()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    other = RunFolder(tmp_path / "run")
    other.open({"identity": {**IDENTITY, "limit": 5}}, overwrite=True)
    assert list(other.errors_path.iterdir()) == []
    assert (tmp_path / "run" / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_that_is_no_run_is_left_alone(tmp_path, overwrite):
    for folder, name, content in (("thesis", "chapter.txt", "words"), ("other", "config.json", "{}")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(content)
        with raises("not-a-run"):
            RunFolder(tmp_path / folder).open({"identity": IDENTITY}, overwrite=overwrite)
        assert [path.name for path in (tmp_path / folder).iterdir()] == [name]
    (tmp_path / "file").write_text("x")
    with raises("is-a-file"):
        RunFolder(tmp_path / "file").open({"identity": IDENTITY}, overwrite=overwrite)


def test_another_layout_is_refused(tmp_path):
    _folder(tmp_path / "run").close()
    path = tmp_path / "run" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 99}))
    with raises("another-version", "99"):
        _folder(tmp_path / "run")


def test_two_processes_cannot_write_into_one_folder(folder, tmp_path):
    with raises("in-use"):
        _folder(tmp_path / "run")
    folder.close()
    _folder(tmp_path / "run").close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    tmp_path.chmod(0o500)
    with raises("cannot-write"):
        _folder(tmp_path / "run")


def test_a_full_disk_is_said_in_one_sentence(tmp_path, monkeypatch):
    def full(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(InputError, match=names("results.json")):
        write_json(tmp_path / "results.json", {})
    assert list(tmp_path.iterdir()) == []


def test_digest_depends_on_every_value_and_on_no_order():
    assert digest({"a": 1, "b": [2, None]}) == digest({"b": [2, None], "a": 1})
    assert len({digest(value) for value in ({"a": 1}, {"a": 1.5}, {"a": "1"}, {"b": 1}, {"a": [1]}, {})}) == 6


@pytest.mark.parametrize("name", [b"bad\xff/run", "bad\ud83d"])
def test_a_path_that_is_not_utf_8_is_refused_at_once(name):
    with pytest.raises(InputError, match=names("--workdir", "UTF-8")) as caught:
        RunFolder(name)
    str(caught.value).encode("utf-8")


def test_a_pipe_among_the_parts_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "part-0-00000.parquet")
    with raises("cannot-read"):
        error_parts.read_errors(tmp_path, _scores("scores", 1), IMAGES, TEXTS, PAIRS)
