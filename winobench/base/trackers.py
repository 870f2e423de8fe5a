"""Experiment trackers: TensorBoard, Weights & Biases and Trackio. One that fails is left out, and the run continues.

A run that continues after a stop continues in its trackers. Their ids are files in its folder.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from absl import logging

from winobench.base import extensions, json_files, options, text_tables
from winobench.base.errors import InputError

TENSORBOARD, WANDB, TRACKIO = NAMES = ("tensorboard", "wandb", "trackio")
# Between two reports on how far an evaluation is.
_SECONDS = 10.0

Row = Mapping[str, float | str | None]


class Writer(Protocol):
    """Takes rows of numbers."""

    def start(self, step: int) -> None:
        """Takes the number of finished steps. Rows of later ones, from before a stop, no longer count."""

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Takes the numbers of a step."""

    def close(self) -> None:
        """Called once, at the end, also after a failure."""


class Tracker(Writer, Protocol):
    """A writer that also takes a run's results."""

    def summarise(self, step: int, values: Mapping[str, float], rows: Sequence[Row]) -> None:
        """Takes the last numbers by name, and a table of all numbers, whose rows have the same columns."""


def read(given: str | Sequence[str]) -> list[str]:
    """The names of trackers, from a list or a text with commas. Raises InputError where one's package is missing."""
    text = given if isinstance(given, str) else ",".join(options.items(options.choice(*NAMES), 0).check("log", given))
    names = options.comma_separated(options.words(*NAMES).check("log", text)) if text else []
    for name in names:
        if name != TENSORBOARD and not _is_installed(name):
            raise InputError(
                f"log={name} needs the package {name}, which is not installed: pip install 'winobench[{name}]'.",
                code="missing-package",
            )
        if name != TENSORBOARD:
            extensions.find(extensions.PARTS, name)
    return names


def _is_installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def make_trackers(
    names: Sequence[str],
    folder: str | os.PathLike,
    config: Mapping[str, Any] | None = None,
    *,
    project: str | None = None,
    name: str | None = None,
) -> list[FailSafeTracker]:
    """Trackers of the run in a folder. Nothing is written before they start."""
    folder = pathlib.Path(folder)
    name = name or folder.resolve().name
    made: dict[str, Tracker] = {}
    for tracker_name in names:
        if tracker_name == TENSORBOARD:
            made[tracker_name] = TensorBoard(folder / TENSORBOARD, config)
        else:
            make = extensions.find(extensions.PARTS, tracker_name)
            made[tracker_name] = make(folder, project, config or {}, name)
    return [FailSafeTracker(tracker_name, tracker) for tracker_name, tracker in made.items()]


def forget(folder: str | os.PathLike) -> None:
    """The folder's next run is a new one for all trackers."""
    folder = pathlib.Path(folder)
    for path in (*(folder / f"{name}-id" for name in NAMES), *(folder / TENSORBOARD).glob("events.out.tfevents.*")):
        path.unlink(missing_ok=True)


class FailSafeTracker:
    """A tracker whose first failure is a warning, and its end."""

    def __init__(self, name: str, tracker: Tracker):
        self.name, self.tracker, self._is_out = name, tracker, False

    def start(self, step: int) -> None:
        self._try("start", step)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self._try("write", step, values)

    def summarise(self, step: int, values: Mapping[str, float], rows: Sequence[Row]) -> None:
        self._try("summarise", step, values, rows)

    def close(self) -> None:
        self._try("close")

    def _try(self, method: str, *arguments: Any) -> None:
        if self._is_out:
            return
        try:
            getattr(self.tracker, method)(*arguments)
        except Exception as error:
            self._is_out = True
            reason = " ".join(str(error).split())[:300] or type(error).__name__
            logging.warning("%s fails and gets nothing more of this run: %s", self.name, reason)


class TensorBoard:
    """TensorBoard event files by tensorboardX, which needs no TensorFlow and no web server."""

    def __init__(self, folder: str | os.PathLike, config: Mapping[str, Any] | None = None):
        self._folder, self._config = os.fspath(folder), config
        self._writer: Any = None

    def start(self, step: int) -> None:
        """Opens a new file; TensorBoard hides later steps in older ones."""
        import tensorboardX

        self._writer = tensorboardX.SummaryWriter(
            self._folder,
            purge_step=step + 1 if step else None,
            filename_suffix=f".{step}",  # names tell seconds only, and a file of the same name would be replaced
        )
        if self._config is not None:
            text = json.dumps(json_files.as_json(self._config), indent=2)
            self._writer.add_text("config", "\n".join(f"    {line}" for line in text.splitlines()), step)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Leaves out numbers that are not finite."""
        for name, value in values.items():
            if math.isfinite(value):
                self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def summarise(self, step: int, values: Mapping[str, float], rows: Sequence[Row]) -> None:
        self.write(step, values)
        if rows:
            cells = [["" if cell is None else str(cell) for cell in row.values()] for row in rows]
            self._writer.add_text("results", text_tables.write_table("markdown", list(rows[0]), cells), step)
            self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class RunReporter:
    """Reports progress and results of a run to trackers. They start with the first report."""

    def __init__(self, trackers: Sequence[Tracker], unit: str):
        self._trackers, self._unit = trackers, unit
        self._done = self._total = self._new = self._since = 0
        self._last = time.monotonic()
        self._is_open = False

    def begin(self, done: int, total: int) -> None:
        """A part of the work begins, some of which earlier calls have done."""
        self._done += done
        self._total += total
        if not self._new:  # the time before the first step of work does not count
            self._last = time.monotonic()

    def advance(self, count: int) -> None:
        self._done += count
        self._new += count
        self._since += count
        if self._trackers and time.monotonic() - self._last >= _SECONDS:
            self._report()

    def summarise(self, values: Mapping[str, float], rows: Sequence[Row]) -> None:
        if self._trackers:
            self._report()
        for tracker in self._trackers:
            tracker.summarise(self._done, values, rows)

    def close(self) -> None:
        if self._is_open:
            for tracker in self._trackers:
                tracker.close()

    def _report(self) -> None:
        if not self._is_open:
            self._is_open = True
            for tracker in self._trackers:
                tracker.start(self._done - self._new)
        now = time.monotonic()
        values: dict[str, float] = {self._unit: self._done, f"{self._unit}_in_all": self._total}
        if self._since:
            values[f"{self._unit}_per_second"] = self._since / max(now - self._last, 1e-6)
        for tracker in self._trackers:
            tracker.write(self._done, values)
        self._since, self._last = 0, now
