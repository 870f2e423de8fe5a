"""Progress of long work: a bar on a terminal, and lines at intervals in a log file."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import rich.console
import rich.progress
import rich.text

from winobench.base import interrupts

if TYPE_CHECKING:
    from winobench.base.trackers import RunReporter

SECONDS_BETWEEN_LINES = 30.0
"""Where the output is not a terminal: a line after this much time."""

SECONDS_OF_COMPILING = 5.0
"""A program that takes longer to compile is a line."""

_MOST_RUNS_NAMED = 3
_COMPILING = "/jax/core/compile/backend_compile_duration"  # JAX's event
_SECONDS_TO_FIRST_LINE = 5.0
"""After the first steps, which compile: the first line with the time that is left."""


class Progress:
    """Shows on stderr how many things are done, in a ``with`` statement. The unit ``bytes`` is shown as kB, MB ..."""

    def __init__(self, label: str, unit: str, *, enabled: bool = True):
        self._label, self._unit, self._enabled = label, unit, enabled
        # FORCE_COLOR, which notebooks and CI set, makes no terminal that can move its cursor.
        is_terminal = None if sys.stderr.isatty() else False
        self._console = rich.console.Console(stderr=True, quiet=not enabled, force_terminal=is_terminal)
        self._bar: rich.progress.Progress | None = None
        self._task: rich.progress.TaskID | None = None
        self._total: int | None = None
        self._note = ""
        self._done = self._first_done = 0
        self._first: float | None = None
        self._last = 0.0

    def __enter__(self) -> Progress:
        if self._console.is_terminal and self._enabled:
            is_bytes = self._unit == "bytes"
            self._bar = rich.progress.Progress(
                rich.progress.TextColumn(self._label, markup=False),
                rich.progress.BarColumn(),
                rich.progress.DownloadColumn() if is_bytes else rich.progress.MofNCompleteColumn(),
                rich.progress.TransferSpeedColumn() if is_bytes else _Speed(self._unit),
                rich.progress.TimeRemainingColumn(),
                _Note(self),
                console=self._console,
            )
            self._bar.start()
        return self

    def __exit__(self, *_) -> None:
        if self._bar is not None:
            self._bar.stop()

    def start(self, total: int | None, done: int = 0) -> None:
        self._total = total
        self._begin(done)
        if self._bar is None:
            if total is None:
                self.say(self._label)
            else:
                before = f", {self._number(done)} are done" if done else ""
                self.say(f"{self._label}: {self._number(total)} {self._word}{before}")
        elif self._task is None:
            self._task = self._bar.add_task("", total=total, completed=done)
        else:
            self._bar.reset(self._task, total=total, completed=done)

    def advance(self, count: int = 1) -> None:
        interrupts.check()
        self._done += count
        if self._bar is not None:
            if self._task is not None:
                self._bar.advance(self._task, count)
            return
        now = time.monotonic()
        if self._first is None:
            # The first steps include compiling or connecting.
            self._first = now
            self._last = now - max(0.0, SECONDS_BETWEEN_LINES - _SECONDS_TO_FIRST_LINE)
            self._first_done = self._done
        elif now - self._last >= SECONDS_BETWEEN_LINES:
            self._last = now
            line = f"{self._label}: {self._number(self._done)} {self._rest(now - self._first)}"
            self.say(f"{line}, {self._note}" if self._note else line)

    def note(self, text: str) -> None:
        """Sets the text after the numbers, such as the loss."""
        self._note = text

    def say(self, line: str) -> None:
        """Prints a line on stderr as it is, above the bar."""
        say(line, self._console)

    def _begin(self, done: int) -> None:
        self._done = self._first_done = done
        self._first, self._last = None, 0.0

    def _rest(self, seconds: float) -> str:
        speed = (self._done - self._first_done) / seconds
        if self._total is None or not speed:
            return self._word
        minutes = (self._total - self._done) / speed / 60
        rate = speed / 1e6 if self._unit == "bytes" else speed
        return f"of {self._number(self._total)} {self._word}, {_rate(rate)} {self._word}/s, {minutes:.1f} minutes left"

    @property
    def _word(self) -> str:
        return "MB" if self._unit == "bytes" else self._unit

    def _number(self, number: int) -> str:
        return f"{number / 1e6:,.1f}" if self._unit == "bytes" else f"{number:,}"


@contextlib.contextmanager
def counting(
    total: int,
    done: int = 0,
    *,
    label: str = "scoring",
    unit: str = "passes",
    enabled: bool = True,
    watch: RunReporter | None = None,
) -> Iterator[Callable[[int], None]]:
    """A `Progress` of one count, which also goes to a watch. Yields a function of the number of further ones."""

    def advance(count: int) -> None:
        shown.advance(count)
        if watch is not None:
            watch.advance(count)

    with Progress(label, unit, enabled=enabled) as shown:
        shown.start(total, done)
        if watch is not None:
            watch.begin(done, total)
        yield advance


def say(line: str, console: rich.console.Console | None = None) -> None:
    (console or rich.console.Console(stderr=True)).print(line, highlight=False, markup=False, soft_wrap=True)


def say_reused(count: int, total: int, unit: str, runs: Iterable[str]) -> None:
    """Says how many records other runs have, and names these runs."""
    names = [*dict.fromkeys(runs)]
    more = f" and {len(names) - _MOST_RUNS_NAMED:,} more" if len(names) > _MOST_RUNS_NAMED else ""
    say(f"{count:,} of {total:,} {unit} are from {', '.join(names[:_MOST_RUNS_NAMED])}{more}")


@functools.cache
def say_what_compiles() -> None:
    """Prints a line on stderr for each program that compiles for long, in this process from now on."""
    import jax

    timers: dict[int, threading.Timer] = {}  # thread -> of the program that it compiles

    def begin(event: str, value: float, **more: Any) -> None:
        if event == _COMPILING:
            line = f"compiling {more.get('fun_name', 'a program')}: more than {SECONDS_OF_COMPILING:g} s so far"
            timer = timers[threading.get_ident()] = threading.Timer(SECONDS_OF_COMPILING, say, [line])
            timer.daemon = True
            timer.start()

    def end(event: str, duration_secs: float, **more: Any) -> None:
        if event == _COMPILING and (timer := timers.pop(threading.get_ident(), None)) is not None:
            timer.cancel()

    jax.monitoring.register_scalar_listener(begin)
    jax.monitoring.register_event_duration_secs_listener(end)


class _Speed(rich.progress.ProgressColumn):
    def __init__(self, unit: str):
        super().__init__()
        self._unit = unit

    def render(self, task: rich.progress.Task) -> rich.text.Text:
        return rich.text.Text(f"{_rate(task.speed)} {self._unit}/s" if task.speed else self._unit)


class _Note(rich.progress.ProgressColumn):
    def __init__(self, of: Progress):
        super().__init__()
        self._of = of

    def render(self, task: rich.progress.Task) -> rich.text.Text:
        return rich.text.Text(self._of._note)


def _rate(speed: float) -> str:
    """Speeds below ten a second, such as large models have, with a decimal."""
    return f"{speed:,.0f}" if speed >= 10 else f"{speed:.1f}"
