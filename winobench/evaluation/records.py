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
synced to disk and renamed. A run that is killed loses what it had not yet put into a part, and nothing else.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import os
import pathlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from winobench import files as whole_files
from winobench import json_files
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
_TEMPORARY = ".tmp"

ERRORS, RESPONSES = "errors", "responses"
"""What a run records while it goes on, and the folder that it does so in."""

_EXAMPLES, _GALLERY = "examples", "gallery"
_FOLDERS = {ERRORS: (ERRORS, _EXAMPLES, _GALLERY), RESPONSES: (RESPONSES, _EXAMPLES)}

# (recorded, wanted) kinds of error -> how the one becomes the other.
_CONVERSIONS = {("squared_l2", "l2"): np.sqrt, ("l2", "squared_l2"): np.square}


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
    with _whole(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def write_table(path: pathlib.Path, table: pa.Table) -> None:
    """Writes a Parquet file that is either whole or not there.

    Raises:
      InputError: it cannot be written.
    """
    with _whole(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")


class RunFolder:
    """The folder of one run.

    Nothing is written before ``open`` is called, and ``open`` writes only ``config.json``.
    """

    def __init__(self, path: str | os.PathLike, kind: str = ERRORS):
        """
        Args:
          path: the folder.
          kind: ``ERRORS`` or ``RESPONSES``.
        """
        self.path = pathlib.Path(whole_files.user_path(path))
        self._kind = kind
        self._lock: int | None = None
        self._made = False

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
                "--workdir, or --overwrite to delete its records and start anew."
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
            self._read_config()  # what is no run is not deleted either
        else:
            self.check(identity)
        try:
            self._made = not self.path.exists()
            for name in _FOLDERS[self._kind]:
                (self.path / name).mkdir(parents=True, exist_ok=True)
            self._take()
            if overwrite:
                self._delete_records()
            else:
                self.check(identity)  # again: another process may have been here before this one took the folder
            for leftover in (*self.path.glob(f"*{_TEMPORARY}"), *self.path.glob(f"*/*{_TEMPORARY}")):
                leftover.unlink()
            self.describe(description)
        except OSError as error:
            self.close()
            raise InputError(f"--workdir {self.path} cannot be written: {error}.") from error
        except InputError:
            self.close()
            raise

    def discard(self) -> None:
        """Takes away what ``open`` has made."""
        self._delete_records()
        with contextlib.suppress(OSError):  # not empty: something else has come to lie there
            for name in _FOLDERS[self._kind]:
                (self.path / name).rmdir()
            if self._made:
                self.path.rmdir()

    def describe(self, description: Mapping[str, Any]) -> None:
        """Writes ``config.json`` anew."""
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
        """Reads what earlier calls of this run have scored; arguments, result and errors as of ``read_errors``."""
        return read_errors(self.errors_path, scores, image_hashes, text_hashes, pairs)

    def _read_config(self) -> dict[str, Any] | None:
        """The folder's ``config.json``; None for a folder that holds no file and can become a run."""
        try:
            found = json_files.load(self.config_path)
        except FileNotFoundError:
            if any(path.is_file() and not path.name.endswith(_TEMPORARY) for path in self.path.rglob("*")):
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

    def _delete_records(self) -> None:
        for name in {name for names in _FOLDERS.values() for name in names}:  # the other run may be of another kind
            for path in (*(self.path / name).glob("*.parquet"), *(self.path / name).glob("*.jsonl")):
                path.unlink()
        self.results_path.unlink(missing_ok=True)
        # Last, so that a half-deleted run is still known as one.
        self.config_path.unlink(missing_ok=True)

    def _take(self) -> None:
        try:
            import fcntl
        except ImportError:  # no advisory locks on this system
            return
        # Held on the folder itself, so that nothing is left behind and the lock dies with the process.
        self._lock = os.open(self.examples_path, os.O_RDONLY)  # runs of all kinds have it
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise InputError(
                f"another process is writing into {self.path}: wait for it, or choose another --workdir."
            ) from None
        except OSError:  # nor on some file systems that machines share
            self.close()


def read_errors(
    folder: pathlib.Path,
    scores: ScoreSet,
    image_hashes: Sequence[str],
    text_hashes: Sequence[str],
    pairs: np.ndarray,
) -> tuple[np.ndarray, float]:
    """Reads those recorded errors that are wanted.

    A sample is taken where its timestep is the wanted one, so that a run with fewer samples finds what a longer one
    has computed, if their rule for timesteps makes the one a part of the other.

    Args:
      folder: of the parts.
      scores: which errors; parts of others are left aside.
      image_hashes, text_hashes, pairs: the plan's.

    Returns:
      [num_pairs, num_samples] float32 errors, NaN where there is none yet, and the seconds that were spent on them; of
      processes that worked side by side, those of the one that took longest.

    Raises:
      InputError: a part cannot be read.
    """
    num = len(scores.timesteps)
    errors = np.full((len(pairs), num), np.nan, np.float32)
    rows = {(image_hashes[image], text_hashes[text]): index for index, (image, text) in enumerate(pairs.tolist())}
    seconds: dict[str, float] = collections.defaultdict(float)
    for path in sorted(folder.glob("part-*.parquet")):
        try:
            with pq.ParquetFile(path) as file:
                metadata = file.schema_arrow.metadata or {}
                if metadata.get(b"winobench.scores", b"").decode() != scores.digest:
                    continue
                there = json_files.parse(metadata[b"winobench.timesteps"])
                kind = metadata[b"winobench.error"].decode()
                table = file.read()
            spent = float(metadata[b"winobench.seconds"])
        except (OSError, pa.ArrowException, ValueError, KeyError) as error:
            raise InputError(
                f"{path} cannot be read ({error}): delete it, and its scores are computed anew."
            ) from error
        convert = np.asarray if kind == scores.kind else _CONVERSIONS.get((kind, scores.kind))
        if convert is None:
            continue
        seconds[path.stem.split("-")[1]] += spent
        common = min(num, len(there))
        usable = np.zeros(num, bool)
        usable[:common] = np.equal(there[:common], scores.timesteps[:common])
        columns = [table[name].to_pylist() for name in ("image", "text", "first_sample")]
        values = table["errors"].combine_chunks()
        offsets = values.offsets.to_numpy()
        flat = convert(values.values.to_numpy(zero_copy_only=False))
        for number, (image, text, first) in enumerate(zip(*columns, strict=True)):
            row = rows.get((image, text))
            if row is not None:
                part = flat[offsets[number] : offsets[number + 1]][: max(0, num - first)]
                wanted = usable[first : first + len(part)]
                errors[row, first : first + len(part)][wanted] = part[wanted]
    return errors, max(seconds.values(), default=0.0)


class ErrorWriter:
    """Collects batches of one process's errors and writes them as parts, every few seconds and at the end.

    It numbers its parts on from those that this process, or one of its number in an earlier call, has written.

    A batch is never split over two parts: what is left to do after a kill is a number of whole batches, so a scorer
    that cuts its work into batches of one size meets the same batches again.
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
        taken = [int(path.stem.rsplit("-", 1)[1]) for path in folder.errors_path.glob(f"part-{process}-*.parquet")]
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
def _whole(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Hands out a temporary name beside ``path`` for a file that is renamed to it, if all went well."""
    try:
        with whole_files.atomic_path(path) as temporary:
            yield pathlib.Path(temporary)
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
