"""One progress bar: passes or requests done, how many a second, time left."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

import rich.console
import rich.progress
import rich.text

# Where the output is no terminal, such as a log file: a line after this much time.
_SECONDS_BETWEEN_LINES = 30.0


@contextlib.contextmanager
def passes(
    total: int, done: int = 0, *, enabled: bool = True, doing: str = "scoring", noun: str = "passes"
) -> Iterator[Callable[[int], None]]:
    """Shows on stderr how a number of denoiser passes, or of something else, is worked off.

    Args:
      total: number of passes.
      done: how many of them an earlier run did; they do not count for the speed.
      enabled: False shows nothing.
      doing, noun: what is done to what.

    Yields:
      A function that is told how many more passes are done.
    """
    console = rich.console.Console(stderr=True)
    if not enabled:
        yield lambda count: None
    elif console.is_terminal:
        with rich.progress.Progress(
            rich.progress.TextColumn(doing),
            rich.progress.BarColumn(),
            rich.progress.MofNCompleteColumn(),
            _Speed(noun),
            rich.progress.TimeRemainingColumn(),
            rich.progress.TextColumn("left"),
            console=console,
        ) as bar:
            task = bar.add_task(doing, total=total, completed=done)
            yield lambda count: bar.advance(task, count)
    else:
        yield _Lines(console, total, done, doing, noun).advance


def say(line: str, console: rich.console.Console | None = None) -> None:
    """Prints a line on stderr as it is."""
    (console or rich.console.Console(stderr=True)).print(line, highlight=False, markup=False, soft_wrap=True)


class _Speed(rich.progress.ProgressColumn):
    def __init__(self, noun: str):
        super().__init__()
        self._noun = noun

    def render(self, task: rich.progress.Task) -> rich.text.Text:
        return rich.text.Text(f"{_number(task.speed)} {self._noun}/s" if task.speed else "starting")


class _Lines:
    """A line now and then, with the speed since the first batch, whose time is spent on compiling."""

    def __init__(self, console: rich.console.Console, total: int, done: int, doing: str, noun: str):
        self._console, self._total, self._done, self._noun = console, total, done, noun
        self._first_done = done
        self._first = self._last = None
        say(f"{doing} {total - done:,} {noun}" + (f", {done:,} are recorded" if done else ""), console)

    def advance(self, count: int) -> None:
        self._done += count
        now = time.monotonic()
        if self._first is None:
            self._first = self._last = now
            self._first_done = self._done
        elif now - self._last >= _SECONDS_BETWEEN_LINES:
            self._last = now
            speed = (self._done - self._first_done) / (now - self._first)
            left = (self._total - self._done) / speed
            line = f"{self._done:,} of {self._total:,} {self._noun}, {_number(speed)} {self._noun}/s"
            say(f"{line}, {left / 60:.1f} minutes left", self._console)


def _number(speed: float) -> str:
    """Speeds of less than ten a second, such as those of large models, with a decimal."""
    return f"{speed:,.0f}" if speed >= 10 else f"{speed:.1f}"
