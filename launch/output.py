"""Standard output: a JSON document with ``--json``, and its loss: a reader that has gone (``| head``), a full disk."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn, TextIO

from absl import flags

# What a shell shows of a command that ended by SIGPIPE, and what coreutils end with where they cannot write.
_READER_GONE, _WRITE_ERROR = 128 + getattr(signal, "SIGPIPE", 13), 1


flags.disclaim_key_flags()  # the flag belongs to the launcher that defines it


def define_json() -> None:
    """Defines ``--json`` for a launcher, which then prints one document of `launch.documents`."""
    flags.DEFINE_bool("json", False, "Print one JSON document (docs/schemas), and all messages on standard error.")


def wants_json() -> bool:
    return "json" in flags.FLAGS and flags.FLAGS.is_parsed() and flags.FLAGS.json


def print_json(document: Mapping[str, Any]) -> None:
    """Prints the document, if ``--json`` asks for it."""
    if wants_json():
        text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        getattr(sys.stdout, "write_document", sys.stdout.write)(text)


def print_stderr(line: str) -> None:
    """Writes a line to stderr, or nowhere if that cannot be written."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            print(line, file=sys.stderr)


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """Ends the process like other commands where a block's standard output is lost."""
    _fill_standard_descriptors()
    before = sys.stdout
    if before is None:  # closed from the start, because no output is wanted
        yield
        return
    sys.stdout = stream = _Stream(before)
    try:
        yield
        stream.flush()  # after the end, Python reports no errors of the buffer's rest
    except SystemExit as end:
        try:
            stream.flush()
        except SystemExit as lost:
            raise end if end.code else lost from None
        raise
    finally:
        sys.stdout = before


class _Stream:
    """A text stream whose failures are SystemExit, which no ``except Exception`` on the way handles."""

    def __init__(self, stream: TextIO):
        self._stream = stream
        self.write_document, self.flush = self._watched(stream.write), self._watched(stream.flush)

    def write(self, text: str) -> int:
        """Messages are not a part of the document."""
        if wants_json():
            return len(text) if sys.stderr is None else sys.stderr.write(text)
        return self.write_document(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _watched(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            try:
                return function(*arguments)
            except OSError as error:
                self._end(error)

        return call

    def _end(self, error: OSError) -> NoReturn:
        # The rest of the buffer goes nowhere. Otherwise Python would try again at its end, and complain.
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)
        if isinstance(error, BrokenPipeError):
            raise SystemExit(_READER_GONE) from None
        print_stderr(
            f"error: standard output cannot be written ({error.strerror or error}): make room, or write elsewhere."
        )
        raise SystemExit(_WRITE_ERROR) from None


def _fill_standard_descriptors() -> None:
    """Opens the null device for closed standard streams. The next file would take their numbers, and native prints."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
