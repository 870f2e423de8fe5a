"""Writers of a training run's numbers: JSON lines, and experiment trackers.

After a stop, rows of steps that are done again are dropped or hidden, so that a killed run leaves the same curve.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from winobench.base import files, json_files, trackers
from winobench.base.errors import InputError


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
                # Nothing is kept of a run that starts from the beginning, nor its measurements before the first step.
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


def for_run(
    workdir: str | os.PathLike, *, project: str | None, config: Mapping[str, Any], log: Sequence[str] = ()
) -> list[trackers.FailSafeTracker]:
    """The trackers that ``log`` names, and Weights & Biases with a ``project``.

    Without ``log``, TensorBoard, and Weights & Biases also with wandb installed and a ``WANDB_*`` variable set.
    """
    is_installed = importlib.util.find_spec("wandb") is not None
    if project is not None and not is_installed:
        raise InputError(
            f"--wandb names the project {project!r}, but wandb is not installed: pip install 'winobench[wandb]',"
            " or leave --wandb out",
            code="missing-package",
        )
    is_set = not log and is_installed and any(name.startswith("WANDB_") for name in os.environ)
    more = [trackers.WANDB] if (project is not None or is_set) and trackers.WANDB not in log else []
    usual = trackers.FailSafeTracker(
        trackers.TENSORBOARD, trackers.TensorBoard(pathlib.Path(workdir) / trackers.TENSORBOARD)
    )
    path = pathlib.Path(workdir) / "config.json"
    name = json_files.read_object(path).get("name") if path.is_file() else None
    made = trackers.make_trackers([*log, *more], workdir, config, project=project, name=name)
    return [*([] if log else [usual]), *made]
