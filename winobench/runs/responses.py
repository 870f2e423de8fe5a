"""The raw responses of a run, on disk before anything reads them.

    part-<process>-<number>.jsonl   a line a response: key, request, raw, seconds; or a mark: key, rejected (why)
    failures-<process>.jsonl        a line a call that failed for good: key, request, error, seconds, time

Lines are only appended, each in one piece and synced before ``add`` returns. Each call writes its own part, which it
holds locked. A line that a kill has cut off is taken away when its process opens the folder again. Other lines that
cannot be read are left aside with a warning, and rejected responses count as absent: both are requested again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import pathlib
import re
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from absl import logging

from winobench.base import files, json_files
from winobench.base.errors import InputError
from winobench.runs.records import digest
from winobench.runs.requests import Raw, Request

_LARGEST_LINE = json_files.LARGEST
_FIELDS = {"image": "picture"}  # fields whose names in files are older
_NAME = re.compile(r"part-(\d+)-(\d+)\.jsonl")
# The beginning of a line as ``_line`` writes it: enough to tell whose it is without reading the rest.
_BEGINNING = re.compile(rb'\{"key":"([0-9a-f]{64})","(request|rejected)":')


def request_json(request: Request) -> dict[str, Any]:
    """A request as JSON values, with its kind."""
    fields = {_FIELDS.get(name, name): value for name, value in dataclasses.asdict(request).items()}
    return json_files.as_json({"kind": request.kind, **fields})


def key(fingerprint: Mapping[str, Any], request: Request) -> str:
    """SHA-256, in hexadecimal, of responder and request, but for ``prefix_turns`` and the places of images."""
    return _key(fingerprint, request_json(request))


def _key(fingerprint: Mapping[str, Any], request: Mapping[str, Any]) -> str:
    content = dict(request)
    content.pop("prefix_turns", None)
    if "picture" in content:
        content["picture"] = content["picture"]["sha256"]
    for several in ("images", "more_images"):
        if several in content:
            content[several] = [image["sha256"] for image in content[several]]
    if "temperature" in content:
        content["temperature"] = float(content["temperature"])  # 0 and 0.0 are written differently
    return digest({"responder": fingerprint, "request": content})


@dataclasses.dataclass(frozen=True)
class Stored:
    """A response of a store."""

    key: str
    request: dict[str, Any]
    raw: Raw
    seconds: float
    origin: str | None = None  # the run that had asked for it, where that was another one


class _Place(NamedTuple):
    path: pathlib.Path
    offset: int
    length: int


@dataclasses.dataclass
class _Part:
    """The part that a store appends to."""

    path: pathlib.Path
    file: int
    size: int = 0  # in bytes
    is_own: bool = False  # no other process writes into it


class ResponseStore:
    """The responses of one run, of all its processes when it is opened. Threads may share it.

    Nothing is written before ``open`` is called, which the store as a context manager does.
    """

    def __init__(self, folder: str | os.PathLike, process: int = 0, *, seconds_between_syncs: float = 0.0):
        """0 seconds between syncs keeps every response in a crash of the machine, for responses that cost money."""
        self.folder = pathlib.Path(folder)
        self._process = process
        self.seconds_between_syncs = seconds_between_syncs
        self._places: dict[str, _Place] = {}
        self._rejected: set[str] = set()
        self._part: _Part | None = None
        self._synced = time.monotonic()
        self._unsynced = False
        self._lock = threading.RLock()

    def __enter__(self) -> ResponseStore:
        self.open()
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def open(self) -> None:
        """Makes the folder, takes it for this process, mends a line that was cut off, and reads its lines."""
        with self._lock, files.writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            own = [(number, path) for process, number, path in _parts(self.folder) if process == self._process]
            empty = [path for _, path in own if _mend(path) == 0]
            number, path = own[-1] if own else (-1, None)
            how = 0
            if path is None or path not in empty:
                path, how = self.folder / f"part-{self._process}-{number + 1:05d}.jsonl", os.O_EXCL
            try:
                part = _Part(path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | how, 0o666))
            except FileExistsError:
                raise _taken(self.folder) from None
            self._part = part
            try:
                state = os.fstat(part.file)
                if not files.lock(part.file) or state.st_size or not os.path.samestat(state, os.stat(path)):
                    raise _taken(self.folder)
                part.is_own = True
                for left in set(empty) - {path}:  # kills of older versions have left one each
                    left.unlink(missing_ok=True)
                files.sync(self.folder)
                self._places, self._rejected = _index(self.folder)
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Syncs the written lines and lets another process take the folder. Does nothing where it is not open."""
        with self._lock:
            part = self._part
            if part is None:
                return
            try:
                self.sync()
            finally:
                if part.is_own and not part.size:  # nothing was asked
                    with contextlib.suppress(OSError):
                        os.unlink(part.path)
                os.close(part.file)
                self._part = None

    def sync(self) -> None:
        """Waits until everything that was added is on disk."""
        with self._lock, files.writing(self.folder):
            if self._unsynced and self._part is not None:
                os.fsync(self._part.file)
                self._unsynced = False
            self._synced = time.monotonic()

    def add(self, key: str, request: Request, raw: Raw, seconds: float) -> None:
        """Stores a response. It is on disk when this returns, unless syncs are to be rarer."""
        self._add(key, {"request": request_json(request), "raw": raw, "seconds": round(float(seconds), 6)})

    def reject(self, key: str, reason: str) -> None:
        """Marks a stored response as malformed: it counts as absent, here and for the runs next to this one."""
        with self._lock:
            self._write(_line(key, {"rejected": reason}))
            self._places.pop(key, None)
            self._rejected.add(key)

    def fail(self, key: str, request: Request, error: Mapping[str, Any], seconds: float) -> None:
        """Notes a call that failed for good in the failures' file. It is not a response."""
        note = {"request": request_json(request), "error": dict(error), "seconds": round(float(seconds), 6)}
        line = _line(key, {**note, "time": round(time.time(), 3)})
        path = self.folder / f"failures-{self._process}.jsonl"
        with self._lock, files.writing(self.folder):
            if path.exists():
                files.check_regular(path)
            with open(path, "ab") as file:
                file.write(line)

    def get(self, key: str) -> Stored | None:
        with self._lock:
            position = self._places.get(key)
        return None if position is None else _read(position)

    def keys(self) -> Iterator[str]:
        return iter(list(self._places))

    def neighbours(self) -> list[pathlib.Path]:
        """The folders of the same name of the runs next to this one, whose responses may be of use here."""
        own = self.folder.resolve()
        return sorted(path for path in own.parent.parent.glob(f"*/{own.name}") if path != own and path.is_dir())

    def share(self, folders: Iterable[pathlib.Path], keys: Iterable[str]) -> dict[str, str]:
        """Copies missing responses of other runs. Damaged parts are left aside with a warning.

        Returns key -> name of the run that asked, for each response that was copied.
        """
        # A malformed line here is malformed elsewhere too.
        missing = {key for key in keys if key not in self._places and key not in self._rejected}
        copied: dict[str, str] = {}
        for folder in folders:
            if not missing:
                break
            for name, response in _of_another(folder, missing).items():
                # The first run that asked, however often its responses have been copied.
                origin = response.origin or pathlib.Path(folder).resolve().parent.name
                content = {"request": response.request, "raw": response.raw, "seconds": response.seconds}
                self._add(name, {**content, "origin": origin})
                missing.discard(name)
                copied[name] = origin
        return copied

    def _add(self, key: str, content: Mapping[str, Any]) -> None:
        line = _line(key, content)
        with self._lock:
            self._places[key] = self._write(line)

    def _write(self, line: bytes) -> _Place:
        """Appends a line, syncs it if it is time, and returns where it lies. Called with the lock held."""
        part = self._part
        if part is None:
            raise RuntimeError("the store is not open")
        position = _Place(part.path, part.size, len(line))
        with files.writing(self.folder):
            try:
                done = 0
                while done < len(line):
                    done += os.write(part.file, line[done:])
            except OSError:
                # What the disk took of the line would spoil the next one.
                with contextlib.suppress(OSError):
                    os.ftruncate(part.file, part.size)
                raise
            part.size += len(line)
            self._unsynced = True
            if time.monotonic() - self._synced >= self.seconds_between_syncs:
                self.sync()
        return position


@contextlib.contextmanager
def _reading(path: pathlib.Path) -> Iterator[None]:
    """Turns an error of the system into one that names the file."""
    try:
        yield
    except OSError as error:
        reason = f"{path} cannot be read ({error.strerror or error}): see to its rights, or delete it."
        raise InputError(reason, code="cannot-read") from error


def _line(key: str, content: Mapping[str, Any]) -> bytes:
    text = json.dumps({"key": key, **content}, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii") + b"\n"


def _parts(folder: pathlib.Path) -> list[tuple[int, int, pathlib.Path]]:
    """(process, number, path) of a folder's parts. A process's parts are in the order of writing."""
    parts = []
    for path in pathlib.Path(folder).glob("part-*.jsonl"):
        if not (match := _NAME.fullmatch(path.name)):
            continue
        parts.append((int(match[1]), int(match[2]), path))
        with _reading(path):
            try:
                files.check_regular(path)
            except FileNotFoundError:
                if path.is_symlink():
                    reason = f"{path} is a link to a file that is gone: delete it."
                    raise InputError(reason, code="dangling-link") from None
    return sorted(parts)


def _index(folder: pathlib.Path, only: set[str] | None = None) -> tuple[dict[str, _Place], set[str]]:
    """Where the responses of a folder lie, and the keys that were ever rejected. A key's last line counts."""
    places: dict[str, _Place] = {}
    rejected: set[str] = set()
    for _, _, path in _parts(folder):
        for number, start, line in _lines(path):
            begins = _BEGINNING.match(line)
            if begins and only is not None and begins[1].decode() not in only:
                continue
            entry = _entry(line)
            if entry is None:
                if line.endswith(b"\n"):  # else it was cut off, or another process is about to write the rest
                    logging.warning("%s, line %d is damaged: its request is sent again", path, number)
            elif "rejected" in entry:
                places.pop(entry["key"], None)
                rejected.add(entry["key"])
            else:
                places[entry["key"]] = _Place(path, start, len(line))
    return places, rejected


def _lines(path: pathlib.Path) -> Iterator[tuple[int, int, bytes]]:
    """The lines of a part: number from 1 on, offset in bytes, content. Of a line that is too long its beginning."""
    offset = 0
    with _reading(path), open(path, "rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(_LARGEST_LINE), b""), 1):
            length = len(line)
            if length == _LARGEST_LINE:
                while not line.endswith(b"\n") and (rest := file.readline(_LARGEST_LINE)):
                    length += len(rest)
                    line = line[:100] + rest[-1:]
            yield number, offset, line
            offset += length


def _entry(line: bytes) -> dict[str, Any] | None:
    """The content of a line. None if it is cut off or damaged."""
    if not line.endswith(b"\n") or not _BEGINNING.match(line):
        return None
    try:
        entry = json_files.parse(line, foreign=True, largest=_LARGEST_LINE)
    except ValueError:
        return None
    whole = "rejected" in entry or (
        isinstance(entry.get("request"), dict)
        and isinstance(entry.get("raw"), dict)
        and isinstance(entry.get("seconds"), (int, float))
        and 0 <= entry["seconds"] < math.inf
        and isinstance(entry.get("origin"), (str, type(None)))
    )
    return entry if whole and isinstance(entry["key"], str) else None


def _of_another(folder: pathlib.Path, keys: set[str]) -> dict[str, Stored]:
    """The responses of another run to some requests. Damaged parts are left aside with a warning."""
    try:
        return {key: _read(place) for key, place in _index(folder, only=keys)[0].items()}
    except InputError as error:
        logging.warning("the responses of another run are left aside: %s", error)
        return {}


def recorded(folder: pathlib.Path, keys: Collection[str], *, of_any: bool = False) -> dict[str, Stored]:
    """The responses to some requests that a run has or takes from those next to it, by their keys. Writes nothing.

    With ``of_any``, the keys belong to requests to a responder with an empty fingerprint, and the run's responses
    of any responder count.
    """
    places, rejected = _index(folder)
    if of_any:
        stored = {_key({}, response.request): response for response in map(_read, places.values())}
        return {key: stored[key] for key in keys if key in stored}
    stored = {key: _read(places[key]) for key in keys if key in places}
    for other in ResponseStore(folder).neighbours():
        missing = set(keys) - stored.keys() - rejected
        stored |= _of_another(other, missing) if missing else {}
    return stored


def num_recorded(folder: pathlib.Path) -> int:
    """How many responses a folder holds, of those that can be read."""
    return len(_index(folder)[0])


def _read(position: _Place) -> Stored:
    with _reading(position.path), open(position.path, "rb") as file:
        file.seek(position.offset)
        entry = _entry(file.read(position.length))
    if entry is None:
        raise InputError(
            f"{position.path} has changed while it was in use: give the same command again.", code="file-changed"
        )
    return Stored(entry["key"], entry["request"], entry["raw"], float(entry["seconds"]), entry.get("origin"))


def _mend(path: pathlib.Path) -> int:
    """Takes away a last line that was cut off, and returns how many bytes are left."""
    part = os.open(path, os.O_RDWR)
    try:
        if not files.lock(part):
            raise _taken(path.parent)
        size = os.fstat(part).st_size
        last = max(_lines(path), default=None)
        if last is not None and _entry(last[2]) is None:
            logging.warning("%s: the last line was cut off and is taken away", path)
            size = last[1]
            os.ftruncate(part, size)
            os.fsync(part)
        return size
    finally:
        os.close(part)


def _taken(folder: pathlib.Path) -> InputError:
    return InputError(
        f"another process is writing into {folder}: wait for it, or choose another --workdir.", code="in-use"
    )
