"""Errors on disk: Parquet parts that a run writes while it continues, and reads when it is resumed."""

from __future__ import annotations

import collections
import dataclasses
import json
import logging
import math
import os
import pathlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from winobench.base import json_files, parquet_files
from winobench.base.errors import InputError
from winobench.runs.records import DAMAGED, SCHEMA_VERSION, RunFolder, write_table

# A part is written when this much time has passed since the last one, or, in long runs, this share of the time so far,
# which keeps the number of files small (it grows with the logarithm of the run's length) and the loss below 1%.
_SECONDS_BETWEEN_PARTS = 2.0
_SHARE_BETWEEN_PARTS = 0.01

_ERRORS_SCHEMA = pa.schema(
    [
        pa.field("image", pa.string(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("first_sample", pa.int32(), nullable=False),
        pa.field("errors", pa.list_(pa.field("element", pa.float32(), nullable=False)), nullable=False),
    ]
)
_PART = re.compile(r"part-(\d+)-(\d+)\.parquet")

# (recorded, wanted) kinds of error -> how the one becomes the other.
_CONVERSIONS = {("squared_l2", "l2"): np.sqrt, ("l2", "squared_l2"): np.square}

_log = logging.getLogger(__name__)


class DamagedPartError(Exception):
    """The content of a part differs from the content that was written."""


@dataclasses.dataclass(frozen=True)
class ScoreSet:
    """A set of errors. Errors of equal sets are the same numbers in all runs."""

    digest: str  # of all that changes an error besides image, text, sample, timestep and kind
    timesteps: tuple[float, ...]  # the timestep or noise level of each sample; (-1,) for a scorer without samples
    kind: str = "squared_l2"  # squared_l2 and l2 are turned into each other


def read_own_errors(
    folder: RunFolder, scores: ScoreSet, image_hashes: Sequence[str], text_hashes: Sequence[str], pairs: np.ndarray
) -> tuple[np.ndarray, float]:
    """`read_errors` of a run's own parts. A damaged part is set aside with a warning and computed again."""
    return read_errors(folder.errors_path, scores, image_hashes, text_hashes, pairs, on_fault=_set_aside)


def read_errors(
    folder: pathlib.Path,
    scores: ScoreSet,
    image_hashes: Sequence[str],
    text_hashes: Sequence[str],
    pairs: np.ndarray,
    *,
    on_fault: Callable[[pathlib.Path, Exception], None] | None = None,
) -> tuple[np.ndarray, float]:
    """Reads the recorded errors of these pairs whose timestep is the wanted one.

    So a run with fewer samples finds the errors of a longer one. ``on_fault`` is called with each part that cannot be
    used, and why. If it returns, the other parts are read. Returns [num_pairs, num_samples] float32 errors, NaN where
    not computed yet, and the seconds that the slowest process spent on them.
    """
    on_fault = refuse if on_fault is None else on_fault
    num = len(scores.timesteps)
    errors = np.full((len(pairs), num), np.nan, np.float32)
    paths = sorted(folder.glob("part-*.parquet"))
    if not paths:
        return errors, 0.0
    numbers = [{name: number for number, name in enumerate(names)} for names in (image_hashes, text_hashes)]
    keys = pairs[:, 0].astype(np.int64) * max(1, len(text_hashes)) + pairs[:, 1]
    order = np.argsort(keys)
    seconds: dict[int, float] = collections.defaultdict(float)
    for path in paths:
        try:
            table = read_part(path)
            if table.schema.metadata[b"winobench.scores"] != scores.digest.encode():
                continue
            timesteps, kind, spent = _described(table)
        except (InputError, DamagedPartError) as error:
            on_fault(path, error)
            continue
        convert = np.asarray if kind == scores.kind else _CONVERSIONS.get((kind, scores.kind))
        if convert is None:
            continue
        seconds[_numbers(path)[0]] += spent
        common = min(num, len(timesteps))
        usable = np.zeros(num, bool)
        usable[:common] = np.equal(timesteps[:common], scores.timesteps[:common])
        images, texts = (_numbered(table[name], known) for name, known in zip(("image", "text"), numbers, strict=True))
        wanted = np.where((images < 0) | (texts < 0), -1, images * max(1, len(text_hashes)) + texts)
        flat_indices = np.minimum(np.searchsorted(keys, wanted, sorter=order), max(0, len(keys) - 1))
        rows = order[flat_indices] if len(keys) else flat_indices
        values = table["errors"].combine_chunks()
        offsets, first = values.offsets.to_numpy().astype(np.int64), table["first_sample"].to_numpy().astype(np.int64)
        kept = np.minimum(first + np.diff(offsets), num) - first
        of_plan = (wanted >= 0) & (kept > 0)
        of_plan[of_plan] = keys[rows[of_plan]] == wanted[of_plan]
        into = parquet_files.ranges(rows[of_plan] * num + first[of_plan], kept[of_plan])
        out_of = parquet_files.ranges(offsets[:-1][of_plan], kept[of_plan])
        are_wanted = usable[into % num]
        flat = convert(values.values.to_numpy(zero_copy_only=False))
        errors.reshape(-1)[into[are_wanted]] = flat[out_of[are_wanted]]
    return errors, max(seconds.values(), default=0.0)


def num_recorded(folder: pathlib.Path) -> int:
    """How many errors a run's parts hold. Raises DamagedError where one has changed on disk."""
    count = 0
    for path in folder.glob("part-*.parquet"):
        part = parquet_files.metadata(path)
        errors = part.num_columns - 1
        count += sum(part.row_group(group).column(errors).num_values for group in range(part.num_row_groups))
    return count


def _numbered(column: pa.ChunkedArray, numbers: Mapping[str, int]) -> np.ndarray:
    """The plan's number of each value of a column, [num_rows] int64; -1 for values outside the plan."""
    codes_of, codes = parquet_files.encoded(column)
    return np.array([numbers.get(value, -1) for value in codes_of], np.int64)[codes]


def _numbers(path: pathlib.Path) -> tuple[int, int]:
    """The process that has written a part, and which of its parts it is."""
    match = _PART.fullmatch(path.name)
    if match is None:
        raise InputError(
            f"{path} is not a name that winobench gives (part-<process>-<number>.parquet): move it out of the folder.",
            code="foreign-file",
        )
    return int(match[1]), int(match[2])


def read_part(path: pathlib.Path) -> pa.Table:
    """A part's table, whose metadata have at least the digest of its `ScoreSet`."""
    _numbers(path)
    try:
        table = parquet_files.read(path)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.", code="cannot-read") from error
    except parquet_files.DamagedError as error:
        raise DamagedPartError(str(error)) from error
    if b"winobench.scores" not in (table.schema.metadata or {}):
        raise InputError(f"{path} is not a part of a run: move it out of the folder.", code="foreign-file")
    for field in _ERRORS_SCHEMA:
        column = table.schema.get_field_index(field.name)  # below 0 also for a name that occurs twice
        kind = None if column < 0 else table.schema.field(column).type
        is_same = kind == field.type
        if kind is not None and pa.types.is_list(kind) and pa.types.is_list(field.type):
            is_same = kind.value_type == field.type.value_type  # values may be called otherwise
        if not is_same:
            raise InputError(
                f"{path} has no column {field.name!r} of {field.type}: it is not of this version, move it out of the"
                " folder.",
                code="another-version",
            )
    return table


def _described(table: pa.Table) -> tuple[list[int], str, float]:
    """A part's timesteps, kind of error and seconds."""
    metadata = table.schema.metadata
    try:
        timesteps = json_files.parse(metadata[b"winobench.timesteps"])
        if not isinstance(timesteps, list) or any(type(timestep) not in (int, float) for timestep in timesteps):
            raise ValueError("its timesteps are not a list of numbers")
        kind, spent = metadata[b"winobench.error"].decode(), float(metadata[b"winobench.seconds"])
        lengths = table["errors"].combine_chunks().value_lengths().to_numpy()
        first = table["first_sample"].to_numpy()
        if not 0 <= spent < math.inf:
            raise ValueError(f"it took {spent} seconds")
        values = table["errors"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
        if not np.isfinite(values).all() or (kind in ("squared_l2", "l2") and (values < 0).any()):
            raise ValueError("it has errors that no scorer can have given")
        if (first < 0).any() or (first + lengths > len(timesteps)).any():
            raise ValueError(f"it has errors of more than {len(timesteps)} samples")
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise DamagedPartError(f"its metadata are wrong: {error}") from error
    return timesteps, kind, spent


def pass_over(path: pathlib.Path, error: Exception) -> None:
    """For `read_errors`: an unusable part is left to its writer."""


def refuse(path: pathlib.Path, error: Exception) -> NoReturn:
    """For `read_errors`: raises InputError."""
    if isinstance(error, InputError):
        raise error
    raise InputError(
        f"{path} cannot be read ({error}): delete it, and its scores are computed again.", code="cannot-read"
    ) from error


def _set_aside(path: pathlib.Path, error: Exception) -> None:
    """For `read_errors`: renames a damaged part, so that it is not read again. Anything else is an error."""
    if not isinstance(error, DamagedPartError):
        raise error
    aside = path.with_name(path.name + DAMAGED)
    try:
        os.replace(path, aside)
    except FileNotFoundError:  # another process was faster
        return
    except OSError as failure:
        raise InputError(
            f"{path} is damaged ({error}), and cannot be renamed: {failure.strerror or failure}.", code="damaged-file"
        ) from failure
    _log.warning("%s is damaged (%s): it is kept as %s, and its errors are computed again", path, error, aside.name)


class ErrorWriter:
    """Collects batches of one process's errors and writes them as parts, every few seconds and at the end.

    A batch is never split over two parts. An error depends on the whole plan, not on the missing part
    (`winobench.engine.sharing`), nor on the other rows of a batch: on CPUs, a killed run resumes to the same bits.
    Other devices, batch sizes or numbers of processes in a race may change the last bits.
    """

    def __init__(
        self,
        folder: RunFolder,
        scores: ScoreSet,
        image_hashes: Sequence[str],
        text_hashes: Sequence[str],
        *,
        process: int = 0,
        note: Mapping[str, Any] | None = None,
        seconds_between_parts: float | None = None,
        check: Callable[[], None] = lambda: None,
    ):
        self._folder = folder
        self._metadata = {
            "winobench.schema": str(SCHEMA_VERSION),
            "winobench.scores": scores.digest,
            "winobench.timesteps": json.dumps(list(scores.timesteps)),
            "winobench.error": scores.kind,
            "winobench.versions": json.dumps(note),
        }
        self._image_hashes = np.asarray(image_hashes, object)
        self._text_hashes = np.asarray(text_hashes, object)
        self._process = process
        self._seconds_between_parts = _SECONDS_BETWEEN_PARTS if seconds_between_parts is None else seconds_between_parts
        taken = [_numbers(path)[1] for path in folder.errors_path.glob(f"part-{process}-*.parquet")]
        self._next = max(taken, default=-1) + 1
        self.written: list[str] = []
        self._waiting: list[tuple[np.ndarray, np.ndarray]] = []
        self._check = check  # raises an error where the waiting rows must not be written
        self._started = self._last = time.monotonic()

    def add(self, triples: np.ndarray, errors: np.ndarray) -> None:
        """Takes a finished batch: [n, 3] (image, text, sample) and its [n] float32 errors."""
        self._waiting.append((np.asarray(triples), np.asarray(errors, np.float32)))
        now = time.monotonic()
        if now - self._last >= max(self._seconds_between_parts, _SHARE_BETWEEN_PARTS * (now - self._started)):
            self.flush()

    def flush(self) -> None:
        """Writes the waiting rows, if any."""
        if not self._waiting:
            return
        now, waiting, self._waiting = time.monotonic(), self._waiting, []
        self._check()
        triples = np.concatenate([batch for batch, _ in waiting])
        errors = np.concatenate([values for _, values in waiting])
        # A row is a run of consecutive samples of one pair, which may alternate with samples of other pairs.
        places = triples[:, 0].astype(np.int64)
        for column in (1, 2):
            places *= int(triples[:, column].max()) + 1
            places += triples[:, column]
        order = np.argsort(places, kind="stable")
        del waiting, places
        errors = errors[order]
        images, texts, samples = triples[order].T
        joined = (np.diff(images) == 0) & (np.diff(texts) == 0) & (np.diff(samples) == 1)
        starts = np.concatenate([[0], np.flatnonzero(~joined) + 1])
        offsets = np.concatenate([starts, [len(errors)]]).astype(np.int32)
        metadata = {**self._metadata, "winobench.seconds": f"{now - self._last:.6f}"}
        columns = [
            pa.array(self._image_hashes[images[starts]], pa.string()),
            pa.array(self._text_hashes[texts[starts]], pa.string()),
            pa.array(samples[starts].astype(np.int32)),
            pa.ListArray.from_arrays(offsets, pa.array(errors), type=_ERRORS_SCHEMA.field("errors").type),
        ]
        table = pa.Table.from_arrays(columns, schema=_ERRORS_SCHEMA.with_metadata(metadata))
        name = f"part-{self._process}-{self._next:05d}.parquet"
        write_table(self._folder.errors_path / name, table)
        self._next += 1
        self.written.append(name)
        self._last = now
