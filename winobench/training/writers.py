"""Writers of a training run's numbers: JSON lines, TensorBoard, Weights & Biases.

After a stop, rows of steps that are done again are dropped or hidden, so that a killed run leaves the same curve.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import pathlib
import uuid
from collections.abc import Mapping
from typing import Any, Protocol

from winobench.base import files, json_files
from winobench.base.errors import InputError


class Writer(Protocol):
    """Takes rows of numbers."""

    def start(self, step: int) -> None:
        """Takes the number of finished steps. Rows of later ones, from before a stop, no longer count."""

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Takes the numbers of a step."""

    def close(self) -> None:
        """Called once, at the end, also when training fails."""


class JsonLines:
    """One JSON object a line: ``{"step": 100, "loss": 0.12, ...}``."""

    def __init__(self, path: str | os.PathLike):
        self._path = pathlib.Path(path)
        self._file: Any = None

    def start(self, step: int) -> None:
        """Opens the file, without rows of steps that are done again and without lines that a kill cut off."""
        with files.writing(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if self._path.exists():
                files.check_regular(self._path)
                old = self._path.read_bytes()
                # Nothing is kept of a run that starts from the beginning, nor what it measured before its first step.
                kept = b"".join(line + b"\n" for line in old.splitlines() if step and _is_row_until(line, step))
                if kept != old:
                    files.write_text(self._path, kept.decode("utf-8"))
            self._file = self._path.open("a", encoding="utf-8")

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self._file.write(json.dumps({"step": step, **values}) + "\n")
        self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _is_row_until(line: bytes, step: int) -> bool:
    try:
        return json_files.parse(line, constants=True)["step"] <= step
    except (ValueError, KeyError, TypeError):
        return False


class TensorBoard:
    """TensorBoard event files by tensorboardX, which needs no TensorFlow and no web server."""

    def __init__(self, folder: str | os.PathLike):
        self._folder = os.fspath(folder)
        self._writer: Any = None

    def start(self, step: int) -> None:
        """Opens a new file; TensorBoard hides later steps in older ones."""
        import tensorboardX

        self._writer = tensorboardX.SummaryWriter(
            self._folder,
            purge_step=step + 1 if step else None,
            filename_suffix=f".{step}",  # names tell seconds only, and a file of the same name would be replaced
        )

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Leaves out numbers that are not finite."""
        for name, value in values.items():
            if math.isfinite(value):
                self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class WeightsAndBiases:
    """A run on Weights & Biases, which continues under its id, kept in the run's folder, after a stop."""

    def __init__(self, folder: str | os.PathLike, project: str | None, config: Mapping[str, Any]):
        self._folder, self._project, self._config = pathlib.Path(folder), project, dict(config)
        self._run: Any = None

    def start(self, step: int) -> None:
        """Starts or continues the run. The service itself ignores steps that it has seen."""
        import wandb

        self._folder.mkdir(parents=True, exist_ok=True)
        id_file = self._folder / "wandb-id"
        if not id_file.exists():
            id_file.write_text(uuid.uuid4().hex[:12] + "\n")
        self._run = wandb.init(
            project=self._project,
            name=self._folder.name,
            id=id_file.read_text().strip(),
            resume="allow",
            dir=os.fspath(self._folder),
            config=self._config,
        )

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()


def for_run(workdir: str | os.PathLike, *, project: str | None, config: Mapping[str, Any]) -> list[Writer]:
    """TensorBoard, and Weights & Biases with a ``project``, or with wandb installed and a ``WANDB_*`` variable set."""
    writers: list[Writer] = [TensorBoard(pathlib.Path(workdir) / "tensorboard")]
    is_installed = importlib.util.find_spec("wandb") is not None
    if project is not None and not is_installed:
        raise InputError(
            f"config.wandb names the project {project!r}, but wandb is not installed: pip install wandb, or leave"
            " --config.wandb out",
            code="missing-package",
        )
    if project is not None or (is_installed and any(name.startswith("WANDB_") for name in os.environ)):
        writers.append(WeightsAndBiases(workdir, project, config))
    return writers
