"""Images from many web sites: requested with rate limits, checked, and kept if they are images.

A site gets one request at a time, with a pause between two. Several sites get requests at once. An address that is dead
(no such page, no right to it, not an image) is noted in a file, a line each, and not asked again while its line is
there. One that failed in a way that may pass is requested again at the next call.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import dataclasses
import http.client
import io
import os
import pathlib
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping

from winobench.base import files
from winobench.base.errors import InputError
from winobench.base.progress import Progress
from winobench.base.version import __version__
from winobench.data import images
from winobench.data.downloads import PASSING, retry_after

DEAD, FAILED = "dead_addresses.tsv", "failed_addresses.tsv"
"""Names of the files that list addresses: an image's name, its address, and the reason, with tabs."""

USER_AGENT = f"winobench/{__version__} (downloads a published benchmark once, one request at a time a site)"

_LARGEST, _CHUNK = 64 * 2**20, 2**16


@dataclasses.dataclass(frozen=True)
class RateLimits:
    """The number and the pace of requests to sites. Times in seconds."""

    delay: float = 1.0  # between the end of a request to a site and the next one
    sites: int = 16  # asked at once
    attempts: int = 3  # at an address whose failure may pass
    first_wait: float = 2.0  # before the second attempt, doubled from attempt to attempt. Or as the site asks for
    longest_wait: float = 120.0  # a site that requires a longer one is left alone until the next call
    timeout: float = 30.0  # without data
    longest: float = 180.0  # for a whole image


DEFAULT_LIMITS = RateLimits()


@dataclasses.dataclass(frozen=True)
class Fetched:
    """The numbers of images that are there, of dead addresses, and of addresses that failed for now."""

    there: int
    dead: int
    failed: int


class _DeadError(Exception):
    """Another request would not help."""


class _PassingError(Exception):
    """May pass. With the seconds that the site asks to wait, and whether it was reached at all."""

    def __init__(self, reason: str, wait: float = 0.0, *, reached: bool = True):
        super().__init__(reason)
        self.wait, self.reached = wait, reached


class _LeaveAloneError(Exception):
    """The site gets no more requests in this call."""


def fetch(
    folder: str | os.PathLike, addresses: Mapping[str, str], display: Progress, limits: RateLimits = DEFAULT_LIMITS
) -> Fetched:
    """Gets missing images, as ``<folder>/images/<name>``, byte for byte as the sites have them."""
    run = _Run(pathlib.Path(folder), addresses, display, limits)
    try:
        return run.all()
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror or error}", code="cannot-write") from error


class _Run:
    def __init__(self, folder: pathlib.Path, addresses: Mapping[str, str], display: Progress, limits: RateLimits):
        self._folder, self._display, self._limits = folder, display, limits
        self._addresses = {name: " ".join(address.split()) for name, address in addresses.items()}
        self._images = folder / "images"
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._failed: dict[str, str] = {}
        self._has_reached = False
        for name in addresses:
            if name != pathlib.PurePath(name).name or name in ("", ".", "..") or "\0" in name:
                raise InputError(f"an image is called {name!r}, which is not a file's name", code="bad-name")
        # Nobody in between may turn an address into a file's on this machine.
        self._opener = urllib.request.OpenerDirector()
        for kind in ("Proxy", "HTTP", "HTTPS", "HTTPDefaultError", "HTTPRedirect", "Unknown"):
            self._opener.add_handler(getattr(urllib.request, f"{kind}Handler")())
        self._opener.add_handler(urllib.request.HTTPErrorProcessor())

    def all(self) -> Fetched:
        self._images.mkdir(parents=True, exist_ok=True)
        for left in self._images.glob("*.part"):  # of a killed call
            left.unlink()
        dead_list = self._folder / DEAD
        if dead_list.exists() and dead_list.read_bytes()[-1:] not in (b"", b"\n"):
            with open(dead_list, "ab") as file:
                file.write(b"\n")  # ends a line that a killed call has cut
        dead = {name for name, address, _ in read_list(dead_list) if self._addresses.get(name) in (address, "")}
        present = {entry.name for entry in os.scandir(self._images)} & self._addresses.keys()
        wanted = [name for name in self._addresses if name not in present | dead]
        self._display.start(len(self._addresses), len(self._addresses) - len(wanted))
        sites: dict[str, list[str]] = collections.defaultdict(list)
        for name in wanted:
            with contextlib.suppress(ValueError):
                sites[urllib.parse.urlsplit(self._addresses[name]).netloc.lower()].append(name)
                continue
            self._note_dead(name, "no address")
            self._display.advance(1)
        # The longest first, as all others fit next to them.
        self._ask_sites(sorted(sites.values(), key=len, reverse=True))
        if wanted and self._failed and not self._has_reached:
            name, reason = next(iter(self._failed.items()))
            raise InputError(
                f"none of the web sites can be reached, {self._addresses[name]} first ({reason}): check the connection"
                " and give the same command again",
                code="cannot-download",
            )
        files.write_text(self._folder / FAILED, "".join(self._line(*entry) for entry in self._failed.items()))
        present = {entry.name for entry in os.scandir(self._images)} & self._addresses.keys()
        return Fetched(len(present), len(self._addresses) - len(present) - len(self._failed), len(self._failed))

    def _ask_sites(self, sites: Iterable[list[str]]) -> None:
        pool = concurrent.futures.ThreadPoolExecutor(self._limits.sites)
        try:
            for future in concurrent.futures.as_completed([pool.submit(self._site, names) for names in sites]):
                future.result()
        finally:
            self._stop.set()
            pool.shutdown(cancel_futures=True)

    def _site(self, names: list[str]) -> None:
        """Asks for all images of a site, one after the other."""
        left_alone = None
        for number, name in enumerate(names):
            if self._stop.is_set() or (number and not left_alone and self._stop.wait(self._limits.delay)):
                return
            try:
                if left_alone:
                    raise _PassingError(left_alone)
                self._one(name)
            except _DeadError as error:
                self._note_dead(name, str(error))
            except (_PassingError, _LeaveAloneError) as error:
                if isinstance(error, _LeaveAloneError):
                    left_alone = str(error)
                with self._lock:
                    self._failed[name] = str(error)
            with self._lock:
                self._display.advance(1)

    def _one(self, name: str) -> None:
        limits = self._limits
        for attempt in range(1, limits.attempts + 1):
            try:
                content = self._receive(self._addresses[name])
                break
            except _PassingError as error:
                if error.wait > limits.longest_wait or not error.reached:
                    raise _LeaveAloneError(str(error)) from error
                if attempt == limits.attempts:
                    raise
                if self._stop.wait(max(error.wait, limits.first_wait * 2 ** (attempt - 1))):
                    raise
        try:
            with images.opened(io.BytesIO(content)) as image:
                images.to_rgb(image)
        except images.ImageProblem as error:
            raise _DeadError(f"no image: {error}") from error
        part = self._images / f"{name}.part"
        with open(part, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(self._images / name)

    def _receive(self, address: str) -> bytes:
        end = time.monotonic() + self._limits.longest
        try:
            quoted = urllib.parse.quote(address.strip(), safe="%/:=&?~#+!$,;'@()*[]")
            request = urllib.request.Request(quoted, headers={"User-Agent": USER_AGENT, "Accept": "image/*"})
            if request.type not in ("http", "https") or not request.host:
                raise _DeadError("no address of a web site")
            with self._opener.open(request, timeout=self._limits.timeout) as answer:
                self._has_reached = True
                return self._read(answer, end)
        except urllib.error.HTTPError as error:
            self._has_reached = True
            with error:
                if error.code in PASSING:
                    raise _PassingError(
                        f"{error.code} {error.reason}", retry_after(error.headers["Retry-After"])
                    ) from error
                raise _DeadError(f"{error.code} {error.reason}") from error
        except urllib.error.URLError as error:
            if "unknown url type" in str(error.reason):
                raise _DeadError(str(error.reason)) from error
            raise _PassingError(str(error.reason) or type(error).__name__, reached=False) from error
        except (http.client.HTTPException, OSError) as error:
            raise _PassingError(str(error) or type(error).__name__) from error
        except ValueError as error:
            raise _DeadError(f"no address: {error}") from error

    def _read(self, answer: http.client.HTTPResponse, end: float) -> bytes:
        kind = answer.headers.get_content_type()
        if kind in ("text/html", "application/xhtml+xml"):
            raise _DeadError(f"no image but a page ({kind})")
        content = bytearray()
        while chunk := answer.read1(_CHUNK):
            content += chunk
            if len(content) > _LARGEST:
                raise _DeadError(f"more than {_LARGEST // 2**20} MB")
            if time.monotonic() > end:
                raise _PassingError(f"not whole after {self._limits.longest:.0f} s")
            if self._stop.is_set():
                raise _PassingError("stopped")
        length = answer.headers["Content-Length"]
        if length and length.isdecimal() and int(length) != len(content):
            raise _PassingError("the connection broke off")
        return bytes(content)

    def _note_dead(self, name: str, reason: str) -> None:
        with self._lock, open(self._folder / DEAD, "a", encoding="utf-8") as file:
            file.write(self._line(name, reason))
            file.flush()
            os.fsync(file.fileno())

    def _line(self, name: str, reason: str) -> str:
        return "\t".join(" ".join(cell.split()) for cell in (name, self._addresses[name] or "-", reason)) + "\n"


def read_list(path: pathlib.Path) -> Iterator[tuple[str, str, str]]:
    """(name, address, reason) of each line of a list. A line that a killed call has cut is left out."""
    if path.exists():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            cells = line.split("\t")
            if len(cells) == 3:
                yield cells[0], cells[1], cells[2]
