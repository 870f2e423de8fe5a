"""One progress bar: passes done, passes a second, time left."""

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
def passes(total: int, done: int = 0, *, enabled: bool = True) -> Iterator[Callable[[int], None]]:
    """Shows on stderr how a number of denoiser passes is worked off.

    Args:
      total: number of passes.
      done: how many of them an earlier run did; they do not count for the speed.
      enabled: False shows nothing.

    Yields:
      A function that is told how many more passes are done.
    """
    console = rich.console.Console(stderr=True)
    if not enabled:
        yield lambda count: None
    elif console.is_terminal:
        with rich.progress.Progress(
            rich.progress.TextColumn("scoring"),
            rich.progress.BarColumn(),
            rich.progress.MofNCompleteColumn(),
            _Speed(),
            rich.progress.TimeRemainingColumn(),
            rich.progress.TextColumn("left"),
            console=console,
        ) as bar:
            task = bar.add_task("scoring", total=total, completed=done)
            yield lambda count: bar.advance(task, count)
    else:
        yield _Lines(console, total, done).advance


def say(line: str, console: rich.console.Console | None = None) -> None:
    """Prints a line on stderr as it is."""
    (console or rich.console.Console(stderr=True)).print(line, highlight=False, markup=False, soft_wrap=True)


class _Speed(rich.progress.ProgressColumn):
    def render(self, task: rich.progress.Task) -> rich.text.Text:
        return rich.text.Text(f"{task.speed:,.0f} passes/s" if task.speed else "compiling")


class _Lines:
    """A line now and then, with the speed since the first batch, whose time is spent on compiling."""

    def __init__(self, console: rich.console.Console, total: int, done: int):
        self._console, self._total, self._done = console, total, done
        self._first_done = done
        self._first = self._last = None
        say(f"scoring {total - done:,} passes" + (f", {done:,} are recorded" if done else ""), console)

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
            line = f"{self._done:,} of {self._total:,} passes, {speed:,.0f} passes/s, {left / 60:.1f} minutes left"
            say(line, self._console)
