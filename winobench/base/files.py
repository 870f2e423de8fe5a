"""Files that are written whole or not at all, and digests of their content."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import stat
import tempfile
from collections.abc import Iterator
from typing import Any

from winobench.base import options
from winobench.base.errors import InputError

_LONGEST_NAME = 255  # bytes, on the usual file systems
LARGEST = 64 * 2**20
"""Bytes of a table or text that people have written, unless its reader says otherwise."""


def user_path(path: str | os.PathLike[str]) -> str:
    """A path as its user means it, with ``~`` for home folders: shells keep ``--workdir=~/runs`` as it is."""
    try:
        text = os.fspath(path)
    except TypeError:
        raise InputError(
            f"a path is a text, such as a folder's name, not {options.quote(path)}", code="wrong-type"
        ) from None
    text = os.fsdecode(text)
    if "\0" in text:
        raise InputError(
            f"the path {options.quote(text)} has a zero byte in it, which no path can have", code="zero-byte-in-path"
        )
    return os.path.expanduser(text)


def check_utf8(path: str | os.PathLike, what: str, advice: str) -> str:
    """A path that can be printed, recorded and made."""
    text = os.fspath(path)
    try:
        os.fsencode(text).decode("utf-8")
    except ValueError:
        raise InputError(f"{what} {text!a} is not UTF-8: {advice}", code="name-not-utf8") from None
    if any(len(os.fsencode(part)) > _LONGEST_NAME for part in text.split(os.sep)):
        raise InputError(f"{what} {options.quote(text)} is too long for a file system: {advice}", code="bad-name")
    return text


_CONVERT = "convert it to PNG or JPEG"
_POINTER = ("a Git LFS pointer", "run `git lfs pull` in its folder")
_RAW, _UNPACK, _FRAME, _AGAIN = "develop it to PNG or JPEG", "unpack it", "give an image", "download the file again"
# (Kind of file, what to do with one that should be something else) -> first bytes, of which the first that fit count.
_KINDS = {
    _POINTER: (b"version https://git-lfs",),
    ("a git-annex pointer", "run `git annex get` in its folder"): (b"/annex/objects/",),
    ("a JPEG XL image", _CONVERT): (b"\xff\x0a", b"\0\0\0\x0cJXL "),
    ("a JPEG 2000 image", _CONVERT): (b"\0\0\0\x0cjP  ", b"\xff\x4f\xff\x51"),
    ("a JPEG XR image", _CONVERT): (b"II\xbc\x01",),
    ("a Photoshop file", _CONVERT): (b"8BPS",),
    ("a GIMP file", _CONVERT): (b"gimp xcf",),
    ("an OpenEXR image", _CONVERT): (b"v/1\x01",),
    ("a Radiance HDR image", _CONVERT): (b"#?radiance",),
    ("a QOI image", _CONVERT): (b"qoif",),
    ("a DDS texture", _CONVERT): (b"dds ",),
    ("an icon", _CONVERT): (b"\0\0\1\0",),
    ("a camera's raw file", _RAW): (b"fujifilmccd-raw", b"IIRO", b"IIRS", b"MMOR", b"IIU\0", b"FOVb"),
    ("a PostScript file", _CONVERT): (b"%!PS", b"\xc5\xd0\xd3\xc6"),
    ("a PDF file", _CONVERT): (b"%PDF",),
    ("an SVG file", _CONVERT): (b"<svg", b"<!doctype svg"),
    ("a video", _FRAME): (b"\x1aE\xdf\xa3", b"FLV\1", b"\0\0\1\xba", b"0&\xb2u", b"OggS"),
    ("an HTML page", _AGAIN): (b"<!doctype html", b"<html", b"<head", b"<body", b"<!--"),
    ("an XML file", _AGAIN): (b"<?xml",),
    ("a JSON file", _AGAIN): (b"{",),
    ("a zip archive", _UNPACK): (b"PK\x03\x04",),
    ("a gzip archive", _UNPACK): (b"\x1f\x8b",),
    ("a bzip2 archive", _UNPACK): (b"BZh",),
    ("an xz archive", _UNPACK): (b"\xfd7zXZ",),
    ("a Zstandard archive", _UNPACK): (b"\x28\xb5\x2f\xfd",),
    ("a RAR archive", _UNPACK): (b"Rar!",),
    ("a 7z archive", _UNPACK): (b"7z\xbc\xaf",),
    ("a NumPy array", _CONVERT): (b"\x93NUMPY",),
}
# The same of bytes further on.
_KINDS_AT = (
    (8, b"AVI ", "a video", _FRAME),
    (8, b"CR\2", "a camera's raw file", _RAW),
    (128, b"DICM", "a DICOM file", _CONVERT),
    (257, b"ustar", "a tar archive", _UNPACK),
)
_HEIC = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")
_BRANDS = {
    **dict.fromkeys(_HEIC, ("a HEIC image", _CONVERT)),
    **dict.fromkeys((b"avif", b"avis"), ("an AVIF image that cannot be read", _CONVERT)),
    b"crx ": ("a camera's raw file", _RAW),
}


def known_kind(head: bytes) -> tuple[str, str] | None:
    """(kind, advice) of a file by its first 64 bytes or more, such as ("a Git LFS pointer", ...); None for others."""
    if head[4:8] == b"ftyp":
        return _BRANDS.get(head[8:12], ("a video", _FRAME))
    if head and not head.strip(b"\0"):
        return "a file of zeros", _AGAIN
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<?xml", b"<!--")) and b"<svg" in text:
        return "an SVG file", _CONVERT
    for offset, start, kind, advice in _KINDS_AT:
        if head.startswith(start, offset):
            return kind, advice
    fits = (kind for kind, starts in _KINDS.items() if head.startswith(starts) or text.startswith(starts))
    return next(fits, None)


def check_regular(path: str | os.PathLike) -> None:
    """Checks that a path is a file before it is opened: a named pipe would be waited for without end."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))


def refuse_pointer(path: str | os.PathLike) -> None:
    """Refuses a file that git-lfs has left instead of a large one."""
    try:
        with open(path, "rb") as file:
            known = known_kind(file.read(64))
    except OSError:  # its reader reports that
        return
    if known == _POINTER:
        kind, advice = known
        raise InputError(
            f"{os.fspath(path)} is {kind}, as the file itself was not downloaded: {advice}",
            code="git-lfs-pointer",
        )


def opened(path: str | os.PathLike) -> io.BufferedReader:
    """Opens a regular file for its bytes, without waiting for another program."""
    # A pipe without a writer would keep `open` waiting for ever.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def content(path: str | os.PathLike, largest: int = LARGEST) -> bytes:
    """The bytes of a regular file."""
    with opened(path) as file:
        found = file.read(largest + 1)
    if len(found) > largest:
        raise OSError(errno.EFBIG, f"it has more than {size_in_words(largest)}", os.fspath(path))
    return found


def size_in_words(number: int) -> str:
    return f"{number / 2**20:,.4g} MB" if number >= 2**20 else f"{number:,} bytes"


@contextlib.contextmanager
def writing(folder: str | os.PathLike) -> Iterator[None]:
    """Turns an error of the system while a folder is written into an InputError that names the folder."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{os.fspath(folder)} cannot be written ({error.strerror or error}): name another", code="cannot-write"
        ) from error


def lock(descriptor: int) -> bool:
    """Keeps other processes from locking an open file or folder until it is closed. False if one has done so."""
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # some file systems that machines share
        pass
    return True


def is_locked(path: str | os.PathLike) -> bool:
    """Whether a process has locked a file or folder. True where the system cannot tell, and False without the file."""
    try:
        import fcntl
    except ImportError:
        return True
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


@contextlib.contextmanager
def locked(folder: str | os.PathLike, taken: str) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        if not lock(descriptor):
            raise InputError(taken, code="in-use")
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike) -> Iterator[str]:
    """Gives a temporary name in the same folder, renamed to ``path`` when the block ends without an error. Synced."""
    folder, name = os.path.split(os.path.abspath(path))
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{name}.", suffix=".tmp")
    os.close(handle)
    try:
        yield temporary
        # mkstemp makes files that only their owner may read. A checkpoint has the usual rights.
        os.chmod(temporary, 0o666 & ~umask())
        sync(temporary)
        os.replace(temporary, path)
        sync(folder)  # makes the rename itself durable
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.remove(temporary)
        raise


def umask() -> int:
    """The mode bits that this process's new files lack."""
    bits = os.umask(0)
    os.umask(bits)
    return bits


def write_text(path: str | os.PathLike, text: str) -> None:
    """Writes a UTF-8 text file, whole or not at all."""
    with atomic_path(path) as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)


def write_json(path: str | os.PathLike, content: Any) -> None:
    """Writes a JSON file with sorted keys, whole or not at all."""
    write_text(path, json.dumps(content, indent=2, sort_keys=True) + "\n")


def digest(value: Any) -> str:
    """SHA-256, in hexadecimal, of a value that JSON can hold. The order of keys does not matter."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def sync(path: str | os.PathLike) -> None:
    """Waits until a file, or the names in a folder, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
