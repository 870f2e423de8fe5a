"""Downloads published files: by URL, resuming where an earlier attempt broke off, or from the Hugging Face hub."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import email.utils
import errno
import hashlib
import http.client
import json
import os
import pathlib
import re
import shutil
import socket
import stat
import tarfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from winobench.base import files, hub, json_files, options
from winobench.base.errors import InputError
from winobench.base.progress import Progress
from winobench.base.version import __version__

if TYPE_CHECKING:
    from winobench.data.sources import Download

_CHUNK = 2**20
_SECONDS_WITHOUT_DATA = 60.0
_FIRST_WAIT = 1.0  # seconds before the second attempt, doubled from attempt to attempt
_LONGEST_WAIT = 60.0
# Statuses of servers that are busy, restarting or in trouble for a while.
PASSING = (408, 425, 429, 500, 502, 503, 504)
# Attempts at a host that has no name or no server. Mostly this machine is offline, or the address is wrong.
_ATTEMPTS_TO_REACH = 3
# Annotations as JSON shrink to a tenth, black images perhaps to a hundredth. An archive with more is a bomb.
_LARGEST_RATIO, _UNPACKED_AT_LEAST, _MOST_FILES = 100, 2**30, 3_000_000
# Endings of notes on downloads: the mark of an unpacked archive, and the parts of an unfinished file.
_UNPACKED = ".unpacked"
_NOTES = (_UNPACKED, ".part", ".part.json")
# Errors of the system that keep a sound archive from being written: a full disk, no permission, or a limit.
_DISK_ERROR_NAMES = ("ENOSPC", "EDQUOT", "EFBIG", "EACCES", "EPERM", "EROFS", "EIO", "EMFILE", "ENFILE", "ENOMEM")
_DISK_ERRORS = {getattr(errno, name, None) for name in _DISK_ERROR_NAMES} - {None}


def fetch(
    download: Download,
    folder: str | os.PathLike,
    display: Progress,
    *,
    others: Iterable[str] = (),
    attempts: int = 8,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Downloads a file into a folder, and unpacks it if the download requires that. Does nothing for a finished file.

    No archive may hold a file by the name of one of the ``others``, which are downloads into the same folder.
    """
    target = pathlib.Path(folder) / download.to
    # Stays when the archive has gone, so that nothing is downloaded twice.
    unpacked = target.with_name(f"{target.name}{_UNPACKED}")
    for path in (target, unpacked):
        if path.is_dir():
            raise InputError(f"{path} is a folder, where a file must be: move it away", code="cannot-write")
    if unpacked.exists():
        return
    if target.exists() and not download.unpack:
        _check_content(target, download)
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            _check_content(target, download)
            archive = target
        elif download.url is None:
            archive = _from_hub(download, target)
        else:
            _from_url(download.url, download, target, display, attempts, sleep)
            archive = target
        if download.unpack:
            display.say(f"unpacking {target.name}")
            names = {_folded(pathlib.Path(folder) / name) for name in (*others, download.to)}
            _unpack(archive, target.parent, names, is_own=archive == target)
            unpacked.touch()
            target.unlink(missing_ok=True)
    except OSError as error:
        advice = " (see `ulimit -f`, or name a folder on another file system with --data_dir)"
        too_large = advice if error.errno == errno.EFBIG else ""
        raise InputError(
            f"{target} cannot be written: {error.strerror or error}{too_large}", code="cannot-write"
        ) from error


@dataclasses.dataclass
class _Part:
    """The beginning of a file, and what the server stated about the whole."""

    path: pathlib.Path
    url: str
    validator: str | None = None  # an entity tag or a date, which change with the file
    total: int | None = None

    @property
    def _notes(self) -> pathlib.Path:
        return self.path.with_name(f"{self.path.name}.json")

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def recall(self) -> None:
        """Continues the part of an earlier process, if it surely belongs to the same file."""
        try:
            notes = json_files.read_object(self._notes)
        except (OSError, ValueError):
            notes = {}
        validator, total = notes.get("validator"), notes.get("total")
        is_whole = total is None or (isinstance(total, int) and total >= 0)
        if notes.get("url") == self.url and validator and isinstance(validator, str) and is_whole:
            self.validator, self.total = validator, total
        else:
            self.drop()

    def note(self) -> None:
        notes = {"url": self.url, "validator": self.validator, "total": self.total}
        self._notes.write_text(json.dumps(notes), encoding="utf-8")

    def drop(self) -> None:
        self.path.unlink(missing_ok=True)
        self._notes.unlink(missing_ok=True)
        self.validator = self.total = None


class _Interrupted(Exception):
    """A failure that may pass: its reason, the seconds to wait at least, and whether no server was reached at all."""

    def __init__(self, reason: str, wait: float = 0.0, *, unreached: bool = False):
        super().__init__(reason)
        self.wait = wait
        self.unreached = unreached


def _from_url(
    url: str,
    download: Download,
    target: pathlib.Path,
    display: Progress,
    attempts: int,
    sleep: Callable[[float], None],
) -> None:
    _check_address(url, target)
    part = _Part(target.with_name(f"{target.name}.part"), url)
    part.recall()
    failures, has_answered = 0, False
    while True:
        before = part.size
        try:
            _receive(part, display)
            break
        except _Interrupted as error:
            failures = 1 if part.size > before else failures + 1
            has_answered = has_answered or not error.unreached
            if failures >= (attempts if has_answered else min(attempts, _ATTEMPTS_TO_REACH)):
                when = "" if has_answered else " when the host can be reached"
                raise InputError(
                    f"{url} cannot be downloaded ({error}): give the same command again later{when}, and it"
                    f" resumes where it was, or get the file by other means and put it at {target}",
                    code="cannot-download",
                ) from error
            wait = min(max(_FIRST_WAIT * 2 ** (failures - 1), error.wait), _LONGEST_WAIT)
            display.say(f"{target.name}: {error}, trying again in {wait:.0f} s")
            sleep(wait)
    try:
        _check_content(part.path, download, target)
    except InputError:
        part.drop()
        raise
    files.sync(part.path)
    part.path.replace(target)
    part.drop()


def _check_content(path: pathlib.Path, download: Download, target: pathlib.Path | None = None) -> None:
    """Refuses a file whose checksum is not the published one."""
    if download.sha256 is None:
        return
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != download.sha256:
        source = path if target is None else download.url
        raise InputError(
            f"{source} is not the file that was published (SHA-256 {digest} instead of {download.sha256}): get the file"
            f" by other means and put it at {target or path}",
            code="wrong-checksum",
        )


def _check_address(url: str, target: pathlib.Path) -> None:
    """Refuses an address that no web server can have."""
    try:
        parts = urllib.parse.urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        valid = False
    if not valid or re.search(r"[\x00-\x20\x7f]", url):
        raise InputError(
            f"{options.quote(url)} is not the address of a file on the web (https://HOST/FILE): get the file by other"
            f" means and put it at {target}",
            code="bad-url",
        )


def _receive(part: _Part, display: Progress) -> None:
    """Requests the missing rest of a file, and appends it."""
    if part.total is not None and part.size == part.total:
        return
    request = urllib.request.Request(part.url, headers={"User-Agent": f"winobench/{__version__}"})
    offset = part.size
    if offset:
        request.add_header("Range", f"bytes={offset}-")
        if part.validator:
            request.add_header("If-Range", part.validator)
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS_WITHOUT_DATA) as answer:
            target = part.path.with_suffix("")
            if answer.headers.get_content_type() == "text/html" and target.suffix.lower() not in (".html", ".htm"):
                # Some sites request a confirmation first, or count downloads.
                raise InputError(
                    f"{part.url} sent a page instead of the file, perhaps for too many downloads of it today: try again"
                    f" later, or open it in a browser and put the file at {target}",
                    code="cannot-download",
                )
            offset = _agree(part, answer, offset)
            _check_space(part.path.parent, (part.total or offset) - offset, part.url)
            display.start(part.total, offset)
            with open(part.path, "ab") as file:
                while chunk := answer.read(_CHUNK):
                    file.write(chunk)
                    display.advance(len(chunk))
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            part.drop()  # the server has another, shorter file by now
            raise _Interrupted("the file has changed") from error
        if error.code in PASSING:
            raise _Interrupted(f"{error.code} {error.reason}", retry_after(error.headers["Retry-After"])) from error
        raise InputError(
            f"{part.url} cannot be downloaded ({error.code} {error.reason}): see whether it has moved, or get the file"
            f" by other means and put it at {part.path.with_suffix('')}",
            code="cannot-download",
        ) from error
    except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
        reason = getattr(error, "reason", "") or error
        unreached = isinstance(reason, socket.gaierror | ConnectionRefusedError)
        raise _Interrupted(str(reason or type(error).__name__), unreached=unreached) from error
    if part.total is not None and part.size != part.total:
        if part.size > part.total:
            part.drop()
        raise _Interrupted("the connection broke off")


def _agree(part: _Part, answer: Any, offset: int) -> int:
    """Returns the offset of the answer. The part is dropped unless it fits, and notes the server's statements."""
    headers = answer.headers
    length = headers["Content-Length"] or ""
    # A weak tag promises no equal bytes.
    tag = headers["ETag"] if not (headers["ETag"] or "").startswith("W/") else None
    validator = tag or headers["Last-Modified"]
    if answer.status == http.HTTPStatus.PARTIAL_CONTENT:
        span = re.fullmatch(r"bytes ([0-9]{1,18})-[0-9]{1,18}/([0-9]{1,18}|\*)", headers["Content-Range"] or "")
        total = None if span is None or span[2] == "*" else int(span[2])
        if span is None or int(span[1]) != offset or (part.total is not None and total != part.total):
            part.drop()
            raise _Interrupted("the server sent another part of the file than the requested one")
    else:
        part.drop()
        offset, total = 0, int(length) if re.fullmatch(r"[0-9]{1,18}", length) else None
    part.validator, part.total = validator, total
    part.note()
    return offset


def _check_space(folder: pathlib.Path, missing: int, name: str) -> None:
    free = shutil.disk_usage(folder).free
    if missing > free:
        raise InputError(
            f"{name} needs {missing / 1e9:.1f} GB, but {folder} has {free / 1e9:.1f} GB left: make room, or name"
            " another folder with --data_dir",
            code="disk-full",
        )


def retry_after(text: str | None) -> float:
    """Seconds to wait by a header Retry-After, which has seconds or a date."""
    if text and re.fullmatch(r"[0-9]{1,9}", text.strip()):
        return float(text)
    with contextlib.suppress(TypeError, ValueError):
        when = email.utils.parsedate_to_datetime(text or "")
        return max(0.0, (when - datetime.datetime.now(datetime.UTC)).total_seconds())
    return 0.0


def _from_hub(download: Download, target: pathlib.Path) -> pathlib.Path:
    """Fetches a file into the hub's cache. Returns its path there, and links it to ``target`` unless it is unpacked."""
    from huggingface_hub import errors

    name = f"the hub data set {download.hub_id}"
    page = f"https://huggingface.co/datasets/{download.hub_id}"
    try:
        path = hub.download(str(download.hub_id), str(download.filename), repo_type="dataset")
    except errors.GatedRepoError as error:
        raise hub.refusal(error, name, page) or error from error
    except errors.RepositoryNotFoundError as error:
        raise InputError(
            f"{name} does not exist or is private: see {page}, and log in with `hf auth login` or set the environment"
            " variable HF_TOKEN",
            code="no-such-repository",
        ) from error
    except errors.RemoteEntryNotFoundError as error:
        raise InputError(f"{name} has no {download.filename} any more: see {page}", code="no-such-file") from error
    except Exception as error:
        if refused := hub.refusal(error, name, page):
            raise refused from error
        if isinstance(error, errors.LocalEntryNotFoundError | ConnectionError):
            raise InputError(
                f"{download.filename} of {name} cannot be downloaded, as the hub cannot be reached: check the"
                " connection and the environment variable HF_HUB_OFFLINE",
                code="hub-not-reached",
            ) from error
        # Other faults of the transport or of the cache's disk.
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(
            f"{download.filename} of {name} cannot be downloaded: {reason}", code="cannot-download"
        ) from error
    cached = pathlib.Path(path).resolve()
    if not download.unpack:
        try:
            target.symlink_to(cached)
        except OSError:  # a file system without links
            shutil.copyfile(cached, target)
    return cached


def _unpack(archive: pathlib.Path, folder: pathlib.Path, reserved: Collection[str], *, is_own: bool) -> None:
    """Unpacks folders and regular files of a zip or tar archive, inside the folder and within the space of the disk.

    No member may have one of the ``reserved`` paths (`_folded`).
    """
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as opened:
                sizes = [member.file_size for member in opened.infolist()]
                _check_room(archive, folder, sum(sizes), len(sizes), sum(sizes))
                for member in opened.infolist():
                    if stat.S_ISLNK(member.external_attr >> 16):
                        raise _no_file(archive, member.filename)
                    # zipfile writes it without dots and a slash in front.
                    parts = [part for part in pathlib.PurePosixPath(member.filename).parts if part not in ("/", "..")]
                    _check_member(archive, folder, "/".join(parts), reserved)
                    opened.extract(member, folder)
        else:
            with tarfile.open(archive) as tar:
                for part in _fitting(tar, archive, folder):
                    # The library's filter alone has let links of long paths through (CVE-2025-4517).
                    if not (part.isreg() or part.isdir()):
                        raise _no_file(archive, part.name)
                    _check_member(archive, folder, part.name, reserved)
                    tar.extract(part, folder, filter="data")
    except InputError:
        raise
    except Exception as error:  # readers raise many kinds of errors for damaged archives
        if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
            raise
        reason = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, RuntimeError | NotImplementedError | tarfile.CompressionError):
            # A password, or a method of compression that Python does not know. Another copy would have it, too.
            raise InputError(
                f"the archive {archive} cannot be unpacked here ({reason}): unpack it with another program",
                code="unsupported-archive",
            ) from error
        advice = "give the same command again to download it again" if is_own else "delete it from the hub's cache"
        if is_own:
            with contextlib.suppress(OSError):
                archive.unlink()
        raise InputError(f"the archive {archive} is damaged ({reason}): {advice}", code="damaged-file") from error


def _no_file(archive: pathlib.Path, name: str) -> InputError:
    return InputError(
        f"the archive {archive} holds {options.quote(name)}, which is a link or a device: unpack it with another"
        f" program and make the empty file {archive.name}{_UNPACKED} next to its files",
        code="unsupported-archive",
    )


def _folded(path: pathlib.Path) -> str:
    """The path in one form for all spellings that a file system may take for the same file."""
    return os.path.normpath(path).casefold()


def _check_member(archive: pathlib.Path, folder: pathlib.Path, name: str, reserved: Collection[str]) -> None:
    """Refuses a member that would lie outside of the folder, or take the name of a download or of its notes."""
    path = pathlib.Path(os.path.normpath(folder / name))
    real = pathlib.Path(os.path.realpath(path.parent)) / path.name
    if not (path.is_relative_to(os.path.normpath(folder)) and real.is_relative_to(os.path.realpath(folder))):
        raise InputError(
            f"the archive {archive} holds {options.quote(name)}, which lies outside of its folder: get it from its"
            " publisher",
            code="damaged-file",
        )
    if _folded(path) in reserved or _folded(path).endswith(_NOTES):
        raise InputError(
            f"the archive {archive} holds {options.quote(name)}, the name of another download: get it from its"
            " publisher",
            code="damaged-file",
        )


def _fitting(opened: tarfile.TarFile, archive: pathlib.Path, folder: pathlib.Path) -> Iterator[tarfile.TarInfo]:
    """The members of an archive, each after a check that it fits on the disk: only reading shows their sizes."""
    num_bytes = 0
    for number, member in enumerate(opened, start=1):
        num_bytes += member.size
        _check_room(archive, folder, num_bytes, number, member.size)
        yield member
    # The library takes a damaged header behind the first member for the archive's end, and reads no checksum then.
    opened.fileobj.seek(opened.offset)
    if opened.fileobj.read(tarfile.BLOCKSIZE).strip(b"\0"):
        raise tarfile.ReadError("after its last file follows something else")
    while opened.fileobj.read(_CHUNK):
        pass


def _check_room(archive: pathlib.Path, folder: pathlib.Path, num_bytes: int, num_files: int, missing: int) -> None:
    """Refuses an archive whose content is out of proportion, or whose ``missing`` bytes do not fit on the disk."""
    size = archive.stat().st_size
    if num_bytes > _UNPACKED_AT_LEAST + _LARGEST_RATIO * size or num_files > _MOST_FILES:
        raise InputError(
            f"the archive {archive} has {size / 1e9:.2f} GB and would unpack to {num_bytes / 1e9:,.1f} GB or more in"
            f" {num_files:,} files, which no published data do: see whether it is the right file",
            code="archive-too-large",
        )
    _check_space(folder, missing, f"the content of the archive {archive}")
