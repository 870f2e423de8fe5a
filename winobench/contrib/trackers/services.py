"""Trackers (`winobench.base.trackers`) of Weights & Biases and Trackio.

A run that continues after a stop continues there. Its ids are files in its folder.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import sys
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from winobench.base.trackers import WANDB, Row

_PROJECT = "winobench"  # in Trackio, which needs one


def _kept_id(folder: pathlib.Path, name: str) -> str:
    """The id of a run in a tracker, which is in the run's folder from its first start on."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-id"
    if not path.exists():
        path.write_text(uuid.uuid4().hex[:12] + "\n")
    return path.read_text().strip()


class WeightsAndBiases:
    """A run on Weights & Biases, which continues under its id after a stop."""

    def __init__(
        self, folder: str | os.PathLike, project: str | None, config: Mapping[str, Any], name: str | None = None
    ):
        self._folder, self._project, self._config = pathlib.Path(folder), project, dict(config)
        self._name = name or self._folder.name
        self._run: Any = None

    def start(self, step: int) -> None:
        """Starts or continues the run. The service itself ignores steps that it has seen."""
        import wandb

        run_id = _kept_id(self._folder, WANDB)
        self._run = wandb.init(
            project=self._project,
            name=self._name,
            id=run_id,
            resume="allow",
            dir=os.fspath(self._folder),
            config=self._config,
        )

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def summarise(self, step: int, values: Mapping[str, float], rows: Sequence[Row]) -> None:
        import wandb

        self._run.summary.update(dict(values))
        if rows:
            self._run.log({"results": wandb.Table(list(rows[0]), [list(row.values()) for row in rows])})

    def close(self) -> None:
        if self._run is not None:
            how = {"exit_code": 1} if sys.exc_info()[0] is not None else {}
            self._run.finish(**how)


class Trackio:
    """A run in Trackio, on this machine or where its environment variables say. It continues under its name."""

    def __init__(self, folder: str | os.PathLike, project: str | None, config: Mapping[str, Any], name: str):
        self._folder, self._config, self._name = pathlib.Path(folder), dict(config), name
        self._project = project or os.environ.get("TRACKIO_PROJECT", _PROJECT)
        self._run: Any = None

    def start(self, step: int) -> None:
        import trackio

        name = f"{self._name}-{_kept_id(self._folder, 'trackio')}"
        with contextlib.redirect_stdout(sys.stderr):
            self._run = trackio.init(self._project, name, config=self._config, resume="allow", embed=False)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def summarise(self, step: int, values: Mapping[str, float], rows: Sequence[Row]) -> None:
        import trackio

        self._run.log({**values, "results": trackio.Table(data=[dict(row) for row in rows])}, step=step)

    def close(self) -> None:
        if self._run is not None:
            with contextlib.redirect_stdout(sys.stderr):
                self._run.finish()
