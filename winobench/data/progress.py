"""How far work is that is counted in images or bytes: a bar on a terminal, and a line now and then in a log."""

from __future__ import annotations

import time

import rich.console
import rich.progress

# Where the output is no terminal, such as a log file: a line after this much time.
SECONDS_BETWEEN_LINES = 30.0


class Progress:
    """Shows on stderr how a number of things is worked off; use it in a ``with`` statement.

    Args:
      label: what is being done, e.g. ``"preparing clevr"``.
      unit: what is counted: ``"bytes"`` are shown as kB, MB and so on.
    """

    def __init__(self, label: str, unit: str):
        self._label, self._unit = label, unit
        self._console = rich.console.Console(stderr=True)
        self._bar: rich.progress.Progress | None = None
        self._task: rich.progress.TaskID | None = None
        self._total: int | None = None
        self._done = self._first_done = 0
        self._first = self._last = time.monotonic()

    def __enter__(self) -> Progress:
        if self._console.is_terminal:
            count = rich.progress.DownloadColumn() if self._unit == "bytes" else rich.progress.MofNCompleteColumn()
            self._bar = rich.progress.Progress(
                rich.progress.TextColumn(self._label, markup=False),
                rich.progress.BarColumn(),
                count,
                rich.progress.TextColumn("" if self._unit == "bytes" else self._unit),
                rich.progress.TimeRemainingColumn(),
                console=self._console,
            )
            self._bar.start()
        return self

    def __exit__(self, *_) -> None:
        if self._bar is not None:
            self._bar.stop()

    def start(self, total: int | None, done: int = 0) -> None:
        """Begins, or begins anew after an interruption.

        Args:
          total: how many there are; None where that is not known.
          done: how many of them are done already.
        """
        self._total, self._done, self._first_done = total, done, done
        self._first = self._last = time.monotonic()
        if self._bar is None:
            numbers = self._number(done) + " of " if done else ""
            self.say(self._label if total is None else f"{self._label}: {numbers}{self._number(total)} {self._word}")
        elif self._task is None:
            self._task = self._bar.add_task("", total=total, completed=done)
        else:
            self._bar.reset(self._task, total=total, completed=done)

    def advance(self, count: int) -> None:
        """Tells that so many more are done."""
        self._done += count
        if self._bar is not None:
            self._bar.advance(self._task, count)
            return
        now = time.monotonic()
        if now - self._last >= SECONDS_BETWEEN_LINES:
            self._last = now
            self.say(f"{self._label}: {self._number(self._done)} {self._rest(now)}")

    def say(self, line: str) -> None:
        """Prints a line on stderr as it is, above the bar."""
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _rest(self, now: float) -> str:
        speed = (self._done - self._first_done) / (now - self._first)
        if self._total is None or not speed:
            return self._word
        minutes = (self._total - self._done) / speed / 60
        return f"of {self._number(self._total)} {self._word}, {minutes:.1f} minutes left"

    @property
    def _word(self) -> str:
        return "MB" if self._unit == "bytes" else self._unit

    def _number(self, number: int) -> str:
        return f"{number / 1e6:,.1f}" if self._unit == "bytes" else f"{number:,}"
