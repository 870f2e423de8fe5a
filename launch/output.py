"""Standard output that is lost while a launcher writes to it: a reader that has gone (``| head``), a full disk."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TextIO

# What a shell shows of a command that ended by SIGPIPE, and what coreutils end with where they cannot write.
_READER_GONE, _WRITE_ERROR = 128 + getattr(signal, "SIGPIPE", 13), 1


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
        self.write, self.flush = self._watched(stream.write), self._watched(stream.flush)

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
