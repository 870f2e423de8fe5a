"""A run's folder: its identity, the errors of every scored pair, the examples and the results.

    config.json                              what was asked, what the scores depend on, and how far it got
    errors/part-<process>-<number>.parquet   per-sample errors, written while the run goes on
    examples/<task>.parquet                  one row an example
    gallery/<task>.parquet                   small pictures of some examples
    results.json                             the numbers

The run of a text benchmark has ``responses/part-<process>-<number>.jsonl`` in place of errors and pictures; see
`winobench.evaluation.responses`.

In a program of several processes each writes parts of its own number, into a folder that all have to share. For a
reader it is all one: the next call of the run, with more processes or fewer, goes on from whatever is there. Everything
else is written by the first process, which takes the folder for its program.

Every file appears under its name only when it is whole: it is written under a temporary name in the same folder,
synced to disk and renamed. A run that is killed loses what it had not yet put into a part, and nothing else. A part
that changed on disk is seen (`winobench.parquet_files`), named, kept as ``*.damaged`` and computed again.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import logging
import math
import os
import pathlib
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from winobench import files as whole_files
from winobench import json_files, parquet_files
from winobench.errors import InputError
from winobench.files import digest as digest  # records are named by it, and so their users find it here

SCHEMA_VERSION = 2
"""Raised when a folder's layout or columns change."""

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
_TEMPORARY, _DAMAGED = ".tmp", ".damaged"
_PART = re.compile(r"part-(\d+)-(\d+)\.parquet")

ERRORS, RESPONSES = "errors", "responses"
"""What a run records while it goes on, and the folder that it does so in."""

_EXAMPLES, _GALLERY = "examples", "gallery"
_FOLDERS = {ERRORS: (ERRORS, _EXAMPLES, _GALLERY), RESPONSES: (RESPONSES, _EXAMPLES)}
_REPORT = "report"  # what launch.report makes of the run, in the run's own folder

# (recorded, wanted) kinds of error -> how the one becomes the other.
_CONVERSIONS = {("squared_l2", "l2"): np.sqrt, ("l2", "squared_l2"): np.square}


_log = logging.getLogger(__name__)


class _DamagedPartError(Exception):
    """What is in a part is not what was written."""


@dataclasses.dataclass(frozen=True)
class ScoreSet:
    """Which errors are meant; whatever else two runs differ in, errors of equal sets are the same numbers.

    Attributes:
      digest: ``digest`` of everything that can change an error besides image, text, sample, timestep and kind: weights,
        precision, image size, seed.
      timesteps: the timestep of each sample; (-1,) for a scorer that has no samples.
      kind: ``squared_l2``, ``l2``, or another name; recorded errors of the first two are turned into each other.
    """

    digest: str
    timesteps: tuple[int, ...]
    kind: str = "squared_l2"


def write_json(path: pathlib.Path, value: Any) -> None:
    """Writes a JSON file that is either whole or not there.

    Raises:
      InputError: it cannot be written.
    """
    with _told(path):
        whole_files.write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def write_table(path: pathlib.Path, table: pa.Table) -> None:
    """Writes a Parquet file that is either whole or not there.

    Raises:
      InputError: it cannot be written.
    """
    with _told(path):
        parquet_files.write(path, table)


class RunFolder:
    """The folder of one run.

    Nothing is written before ``open`` is called, and ``open`` writes only ``config.json``.
    """

    def __init__(self, path: str | os.PathLike, kind: str = ERRORS):
        """
        Args:
          path: the folder.
          kind: ``ERRORS`` or ``RESPONSES``.

        Raises:
          InputError: the path is not UTF-8, and could be neither printed nor recorded.
        """
        place = whole_files.user_path(path)
        try:
            os.fsencode(place).decode("utf-8")
        except ValueError:
            raise InputError(f"--workdir {place!a} is not UTF-8: choose another name.") from None
        self.path = pathlib.Path(place)
        self._kind = kind
        self._lock: int | None = None
        self._made = False
        self._replaces = False

    @property
    def config_path(self) -> pathlib.Path:
        """What the run is."""
        return self.path / "config.json"

    @property
    def results_path(self) -> pathlib.Path:
        """The numbers; there once the run has finished."""
        return self.path / "results.json"

    @property
    def records_path(self) -> pathlib.Path:
        """The folder of the parts."""
        return self.path / self._kind

    @property
    def errors_path(self) -> pathlib.Path:
        """The folder of the parts of errors."""
        return self.path / ERRORS

    @property
    def examples_path(self) -> pathlib.Path:
        """The folder with one table a task."""
        return self.path / _EXAMPLES

    @property
    def gallery_path(self) -> pathlib.Path:
        """The folder with pictures, a table a task."""
        return self.path / _GALLERY

    def check(self, identity: Mapping[str, Any]) -> None:
        """Refuses a folder that does not belong to this run.

        Args:
          identity: everything that can change a number of the run, as nested mappings that JSON can hold.

        Raises:
          InputError: the folder holds something else, or the run of another identity; the message names what differs.
        """
        found = self._read_config()
        if found is None:
            return
        if found.get("schema") != SCHEMA_VERSION:
            raise InputError(
                f"{self.path} was written by another version of winobench (layout {found.get('schema')}, this one "
                f"writes {SCHEMA_VERSION}): choose another --workdir, or --overwrite to delete its records."
            )
        differences = list(_differences(found["identity"], json_files.as_json(identity)))
        if differences:
            more = f" and {len(differences) - 3} more" if len(differences) > 3 else ""
            raise InputError(
                f"{self.path} holds another run, which differs in {'; '.join(differences[:3])}{more}: choose another "
                "--workdir, or --overwrite to delete its records and start again."
            )

    def open(self, description: Mapping[str, Any], *, overwrite: bool = False) -> None:
        """Makes the folder, takes it for this process and writes ``config.json``.

        Args:
          description: the content of ``config.json``; its ``identity`` is what ``check`` compares.
          overwrite: delete the records of another run instead of refusing the folder.

        Raises:
          InputError: the folder holds another run or something else, another process is writing into it, or it cannot
            be written.
        """
        identity = description["identity"]
        if overwrite:
            self._read_config(remains=True)  # what is no run is not deleted either
        else:
            self.check(identity)
        try:
            self._made = not self.path.exists()
            for name in _FOLDERS[self._kind]:
                (self.path / name).mkdir(parents=True, exist_ok=True)
            self._take()
            if not overwrite:
                self.check(identity)  # again: another process may have been here before this one took the folder
            for leftover in (*self.path.glob(f"*{_TEMPORARY}"), *self.path.glob(f"*/*{_TEMPORARY}")):
                leftover.unlink()
            self._replaces = overwrite and self.config_path.exists()
            if overwrite:
                # A run without results is one that was stopped, so that this may end anywhere. Where it ends further
                # down, what is left of the old run's errors is told from the new run's by what they depend on.
                self.results_path.unlink(missing_ok=True)
            self.describe(description)
            if overwrite:
                self._delete_records()
        except OSError as error:
            self.close()
            raise InputError(f"--workdir {self.path} cannot be written: {error}.") from error
        except BaseException:
            self.close()
            raise

    def discard(self) -> bool:
        """Takes away what ``open`` has made, unless that replaced another run, or something else lies in the folder.

        Returns:
          Whether the folder is no run any more.
        """
        if self._replaces or self._others():
            return False
        self._delete_records()
        self.results_path.unlink(missing_ok=True)
        self.config_path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # not empty: something else has come to lie there
            for name in _FOLDERS[self._kind]:
                (self.path / name).rmdir()
            if self._made:
                self.path.rmdir()
        return True

    def describe(self, description: Mapping[str, Any]) -> None:
        """Writes ``config.json`` again."""
        write_json(self.config_path, {"schema": SCHEMA_VERSION, **description})

    def write_examples(self, task: str, table: pa.Table) -> None:
        """Writes the table of a task's examples."""
        write_table(self.examples_path / f"{task}.parquet", table)

    def write_gallery(self, task: str, table: pa.Table) -> None:
        """Writes the pictures of some of a task's examples."""
        write_table(self.gallery_path / f"{task}.parquet", table)

    def has_records(self) -> bool:
        """Whether any process has put something down."""
        return any(self.records_path.glob("part-*"))

    def neighbours(self) -> list[pathlib.Path]:
        """The folders of the parts of the other runs beside this one, whose records may be of use here."""
        own = self.records_path.resolve()
        return sorted(path for path in self.path.resolve().parent.glob(f"*/{self._kind}") if path.resolve() != own)

    def close(self) -> None:
        """Lets other processes write into the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def read_errors(
        self, scores: ScoreSet, image_hashes: Sequence[str], text_hashes: Sequence[str], pairs: np.ndarray
    ) -> tuple[np.ndarray, float]:
        """Reads what earlier calls of this run have scored; arguments, result and errors as of ``read_errors``.

        A part that is damaged is set aside, and a warning names it: what it held is computed again.
        """
        return read_errors(self.errors_path, scores, image_hashes, text_hashes, pairs, on_fault=_set_aside)

    def _read_config(self, *, remains: bool = False) -> dict[str, Any] | None:
        """The folder's ``config.json``; None for a folder that can become a run.

        Such a folder holds no file, or a report alone; with ``remains``, also what is left of a run without its config.
        """
        try:
            found = json_files.load(self.config_path)
        except FileNotFoundError:
            records = () if remains else (p for p in self._records() if not p.name.endswith(_TEMPORARY))
            if self._others(_REPORT) or any(True for _ in records):
                raise InputError(
                    f"--workdir {self.path} holds files but no winobench run (no config.json): choose another folder."
                ) from None
            return None
        except NotADirectoryError:
            raise InputError(f"--workdir {self.path} is a file: name a folder.") from None
        except (OSError, ValueError) as error:
            raise InputError(f"{self.config_path} cannot be read ({error}): choose another --workdir.") from error
        if not isinstance(found, dict) or "identity" not in found:
            raise InputError(f"{self.config_path} is not winobench's: choose another --workdir.")
        return found

    def _records(self) -> Iterator[pathlib.Path]:
        """The files of a run of any kind, but for its config."""
        for name in dict.fromkeys(name for names in _FOLDERS.values() for name in names):
            for pattern in ("*.parquet", "*.jsonl", f"*{_DAMAGED}"):
                yield from (self.path / name).glob(pattern)
        if self.results_path.exists():
            yield self.results_path

    def _others(self, *but: str) -> bool:
        """Whether the folder holds files that no run has, outside of these folders in it."""
        own = {self.config_path, *self._records()}
        return any(
            path.is_file()
            and not path.name.endswith(_TEMPORARY)
            and path not in own
            and path.relative_to(self.path).parts[0] not in but
            for path in self.path.rglob("*")
        )

    def _delete_records(self) -> None:
        for path in [path for path in self._records() if path != self.results_path]:
            path.unlink()

    def _take(self) -> None:
        self._lock = os.open(self.examples_path, os.O_RDONLY)  # runs of all kinds have it
        if not whole_files.lock(self._lock):
            self.close()
            raise InputError(f"another process is writing into {self.path}: wait for it, or choose another --workdir.")


def read_errors(
    folder: pathlib.Path,
    scores: ScoreSet,
    image_hashes: Sequence[str],
    text_hashes: Sequence[str],
    pairs: np.ndarray,
    *,
    on_fault: Callable[[pathlib.Path, Exception], None] | None = None,
) -> tuple[np.ndarray, float]:
    """Reads those recorded errors that are wanted.

    A sample is taken where its timestep is the wanted one, so that a run with fewer samples finds what a longer one
    has computed, if their rule for timesteps makes the one a part of the other.

    Args:
      folder: of the parts.
      scores: which errors; parts of others are left aside.
      image_hashes, text_hashes, pairs: the plan's.
      on_fault: called with each part that cannot be used, and why; if it returns, the other parts are read. Such a part
        is an error when None.

    Returns:
      [num_pairs, num_samples] float32 errors, NaN where there is none yet, and the seconds that were spent on them; of
      processes that worked side by side, those of the one that took longest.

    Raises:
      InputError: a part cannot be read.
    """
    on_fault = _refuse if on_fault is None else on_fault
    num = len(scores.timesteps)
    errors = np.full((len(pairs), num), np.nan, np.float32)
    numbers = [{name: number for number, name in enumerate(names)} for names in (image_hashes, text_hashes)]
    keys = pairs[:, 0].astype(np.int64) * max(1, len(text_hashes)) + pairs[:, 1]
    order = np.argsort(keys)
    seconds: dict[int, float] = collections.defaultdict(float)
    for path in sorted(folder.glob("part-*.parquet")):
        try:
            part = _read_part(path, scores)
        except (InputError, _DamagedPartError) as error:
            on_fault(path, error)
            continue
        if part is None:
            continue
        there, kind, spent, table = part
        convert = np.asarray if kind == scores.kind else _CONVERSIONS.get((kind, scores.kind))
        if convert is None:
            continue
        seconds[_numbers(path)[0]] += spent
        common = min(num, len(there))
        usable = np.zeros(num, bool)
        usable[:common] = np.equal(there[:common], scores.timesteps[:common])
        images, texts = (_numbered(table[name], known) for name, known in zip(("image", "text"), numbers, strict=True))
        wanted = np.where((images < 0) | (texts < 0), -1, images * max(1, len(text_hashes)) + texts)
        places = np.minimum(np.searchsorted(keys, wanted, sorter=order), max(0, len(keys) - 1))
        rows = order[places] if len(keys) else places
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


def _numbered(column: pa.ChunkedArray, numbers: Mapping[str, int]) -> np.ndarray:
    """The plan's number of each value of a column, [num_rows] int64; -1 for what is not in the plan."""
    codes_of, codes = parquet_files.encoded(column)
    return np.array([numbers.get(value, -1) for value in codes_of], np.int64)[codes]


def _numbers(path: pathlib.Path) -> tuple[int, int]:
    """The process that has written a part, and which of its parts it is.

    Raises:
      InputError: the part has another name.
    """
    found = _PART.fullmatch(path.name)
    if found is None:
        raise InputError(
            f"{path} is not a name that winobench gives (part-<process>-<number>.parquet): move it out of the folder."
        )
    return int(found[1]), int(found[2])


def _read_part(path: pathlib.Path, scores: ScoreSet) -> tuple[list[int], str, float, pa.Table] | None:
    """A part's timesteps, kind of error, seconds and table; None where it holds other scores than these.

    Raises:
      InputError: it cannot be read, or is not a part of a run.
      _DamagedPartError: it is not what was written.
    """
    _numbers(path)
    try:
        table = parquet_files.read(path)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error
    except parquet_files.DamagedError as error:
        raise _DamagedPartError(str(error)) from error
    metadata = table.schema.metadata or {}
    if b"winobench.scores" not in metadata:
        raise InputError(f"{path} is not a part of a run: move it out of the folder.")
    for field in _ERRORS_SCHEMA:
        column = table.schema.get_field_index(field.name)  # below 0 also for a name that occurs twice
        found = None if column < 0 else table.schema.field(column).type
        is_list = found is not None and pa.types.is_list(found) and pa.types.is_list(field.type)
        if found != field.type and not (is_list and found.value_type == field.type.value_type):
            raise InputError(
                f"{path} has no column {field.name!r} of {field.type}: it is not of this version, move it out of the"
                " folder."
            )
    try:
        if metadata[b"winobench.scores"].decode() != scores.digest:
            return None
        timesteps = json_files.parse(metadata[b"winobench.timesteps"])
        if not isinstance(timesteps, list) or any(type(timestep) is not int for timestep in timesteps):
            raise ValueError("its timesteps are not a list of whole numbers")
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
        raise _DamagedPartError(f"its metadata are wrong: {error}") from error
    return timesteps, kind, spent, table


def pass_over(path: pathlib.Path, error: Exception) -> None:
    """For `read_errors`: a part that cannot be used is left to whoever has written it."""


def _refuse(path: pathlib.Path, error: Exception) -> None:
    """For `read_errors`: raises InputError."""
    if isinstance(error, InputError):
        raise error
    raise InputError(f"{path} cannot be read ({error}): delete it, and its scores are computed again.") from error


def _set_aside(path: pathlib.Path, error: Exception) -> None:
    """For `read_errors`: renames a damaged part, so that it is not read again; anything else is an error.

    Raises:
      InputError: the part is not damaged but another thing, or cannot be renamed.
    """
    if not isinstance(error, _DamagedPartError):
        raise error
    aside = path.with_name(path.name + _DAMAGED)
    try:
        os.replace(path, aside)
    except FileNotFoundError:  # another process was faster
        return
    except OSError as failure:
        raise InputError(
            f"{path} is damaged ({error}), and cannot be renamed: {failure.strerror or failure}."
        ) from failure
    _log.warning("%s is damaged (%s): it is kept as %s, and its errors are computed again", path, error, aside.name)


class ErrorWriter:
    """Collects batches of one process's errors and writes them as parts, every few seconds and at the end.

    It numbers its parts on from those that this process, or one of its number in an earlier call, has written.

    A batch is never split over two parts. What is left to do after a kill is scored to the same bits as it would have
    been: how an error is computed depends on the whole plan, not on what is missing (`winobench.engine.sharing`), and
    a row of a batch not on the others. Tests show that on CPUs; devices of another kind, another batch size, other
    numbers of processes in a race, and errors that a neighbouring run has recorded may differ in the last bits.
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
        self._started = self._last = time.monotonic()

    def add(self, triples: np.ndarray, errors: np.ndarray) -> None:
        """Takes a finished batch: [n, 3] (image, text, sample) and its [n] float32 errors."""
        self._waiting.append((np.asarray(triples), np.asarray(errors, np.float32)))
        now = time.monotonic()
        if now - self._last >= max(self._seconds_between_parts, _SHARE_BETWEEN_PARTS * (now - self._started)):
            self.flush()

    def flush(self) -> None:
        """Writes what is waiting, if anything is.

        Raises:
          InputError: the part cannot be written.
        """
        if not self._waiting:
            return
        now = time.monotonic()
        triples = np.concatenate([batch for batch, _ in self._waiting])
        errors = np.concatenate([values for _, values in self._waiting])
        # A row is a run of consecutive samples of one pair, with which those of other pairs may have taken turns.
        order = np.lexsort((triples[:, 2], triples[:, 1], triples[:, 0]))
        errors = errors[order]
        images, texts, samples = triples[order].T
        joined = (np.diff(images) == 0) & (np.diff(texts) == 0) & (np.diff(samples) == 1)
        starts = np.concatenate([[0], np.flatnonzero(~joined) + 1])
        offsets = np.concatenate([starts, [len(errors)]]).astype(np.int32)
        metadata = {**self._metadata, "winobench.seconds": f"{now - self._last:.6f}"}
        table = pa.Table.from_arrays(
            [
                pa.array(self._image_hashes[images[starts]], pa.string()),
                pa.array(self._text_hashes[texts[starts]], pa.string()),
                pa.array(samples[starts].astype(np.int32)),
                pa.ListArray.from_arrays(offsets, pa.array(errors), type=_ERRORS_SCHEMA.field("errors").type),
            ],
            schema=_ERRORS_SCHEMA.with_metadata(metadata),
        )
        name = f"part-{self._process}-{self._next:05d}.parquet"
        write_table(self._folder.errors_path / name, table)
        self._next += 1
        self.written.append(name)
        self._waiting = []
        self._last = now


@contextlib.contextmanager
def _told(path: pathlib.Path) -> Iterator[None]:
    """Turns an error of the system while ``path`` is written into an InputError."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}.") from error


def _differences(there: Any, here: Any, name: str = "") -> Iterator[str]:
    """Names the leaves in which two nested mappings differ."""
    if isinstance(there, dict) and isinstance(here, dict):
        for key in dict.fromkeys((*there, *here)):
            yield from _differences(there.get(key), here.get(key), f"{name}.{key}" if name else str(key))
    elif there != here:
        yield f"{name} ({_short(there)} there, {_short(here)} here)"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
