"""A finished run of images, for its readers: comparisons, tasks, pages."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import PIL.Image

from winobench.base import files, json_files
from winobench.base.errors import InputError
from winobench.prompts.prompt_files import Prompt, digest, read_json_prompts
from winobench.runs import image_records
from winobench.runs.image_records import GENERATED, ImageRecord, MissingImage, Place

KIND = "pictures"
"""``kind`` in the ``config.json`` of such runs."""

LAYOUT = 1
"""``layout`` in the ``config.json``. Raised when a folder's layout or records change."""

_LABEL = re.compile(r"[\w+-][\w.+-]*")
_ADVICE = "give its command again, which makes the missing images"


@dataclasses.dataclass(frozen=True)
class GeneratingModel:
    """A model of a run. Fingerprint and settings are empty where they are unknown, or not known yet."""

    label: str  # differs from the other models' labels, and is the name of its folder
    name: str  # a name of `winobench.base.registry.MODELS`, a hub id, a folder's name, and its LoRA
    fingerprint: str | None
    lora: dict[str, Any] | None  # name, sha256, scale
    settings: dict[str, Any]


@dataclasses.dataclass(frozen=True, repr=False)
class Images:
    """A run of images. Printing it gives counts, models and the folder.

    Every model has an image of each prompt and seed, or a record of why it is missing, unless the run was read with
    ``complete=False``.

    Attributes:
      folder: the run's.
      models: in the order in which they were named.
      prompts: in their order; ``prompts[n]`` is the prompt of the images of number n.
      seeds: in the order in which they were named.
      records: of all images that are there, by model, seed and number.
      config: the content of ``config.json``.
      missing: the places that have no image and get none, with the reason, by model, seed and number.
    """

    folder: pathlib.Path
    models: tuple[GeneratingModel, ...]
    prompts: tuple[Prompt, ...]
    seeds: tuple[int, ...]
    records: tuple[ImageRecord, ...]
    config: Mapping[str, Any]
    missing: tuple[MissingImage, ...] = ()

    def __repr__(self) -> str:
        labels = [model.label for model in self.models]
        named = ", ".join(labels[:3]) + (f" and {len(labels) - 3} more" if len(labels) > 3 else "")
        return (
            f"<Images of {named}: {len(self.records):,} images, {len(self.prompts):,} prompts, "
            f"{len(self.seeds):,} seeds, in {self.folder}>"
        )

    @functools.cached_property
    def by_place(self) -> Mapping[Place, ImageRecord]:
        """(model's label, seed, number) -> record."""
        return {record.place: record for record in self.records}

    @property
    def categories(self) -> tuple[str, ...]:
        """The prompts' categories, in the order in which they first occur. Without the empty one."""
        return tuple(dict.fromkeys(prompt.category for prompt in self.prompts if prompt.category))

    @property
    def is_collected(self) -> bool:
        """Whether another program made the images, so that only the models' names are known."""
        return "collected" in self.config

    def model(self, label: str) -> GeneratingModel:
        """The model of a label.

        Raises:
          InputError: the name is unknown.
        """
        for model in self.models:
            if model.label == label:
                return model
        known = ", ".join(model.label for model in self.models)
        raise InputError(f"{self.folder} has no images of the model {label!r}: name one of {known}")

    def record(self, model: str, seed: int, number: int) -> ImageRecord:
        """The record of an image.

        Args:
          model: label.
          seed: of the noise.
          number: of the prompt.

        Raises:
          InputError: the image does not exist.
        """
        record = self.by_place.get((model, seed, number))
        if record is None:
            raise InputError(f"{self.folder} has no image of {model!r} with seed {seed} and number {number}")
        return record

    def path(self, record: ImageRecord) -> pathlib.Path:
        """The PNG file of an image."""
        return self.folder / record.file

    def image(self, record: ImageRecord) -> np.ndarray:
        """An image, uint8 ``[height, width, 3]``.

        Raises:
          InputError: its file is not as it was written.
        """
        path = self.path(record)
        if not image_records.is_whole(self.folder, record):
            raise InputError(f"{path} is not the image that was generated (its SHA-256 is another): {_ADVICE}")
        with PIL.Image.open(path) as image:
            return np.asarray(image.convert("RGB"))


def read_images(folder: str | os.PathLike[str], *, complete: bool = True) -> Images:
    """Reads a run of images. The images themselves are read when they are requested (`Images.image`).

    Args:
      folder: the run's, as ``winobench generate --config=images`` has made it.
      complete: whether every image must be there, or a record of why it is missing. Otherwise those that are there make
        the run.

    Raises:
      InputError: the run does not exist, it has not finished or has lost images (of which the size is looked at), or a
        file of it cannot be read.
    """
    folder = pathlib.Path(files.user_path(folder))
    config = _read_config(folder)
    prompts = tuple(read_json_prompts(folder / GENERATED / image_records.PROMPTS, _ADVICE))
    identity = config["identity"]
    if digest(prompts) != identity["prompts"]["sha256"]:
        raise InputError(
            f"{folder / GENERATED / image_records.PROMPTS} has changed since the images were generated: {_ADVICE}"
        )
    drawn = {label: config["drawn"].get(label, {}) for label in identity["models"]}
    models = tuple(
        GeneratingModel(label, entry["name"], of.get("fingerprint"), entry.get("lora"), of.get("settings", {}))
        for (label, entry), of in zip(identity["models"].items(), drawn.values(), strict=True)
    )
    seeds = tuple(identity["seeds"])
    written = image_records.read_records(folder)
    records: list[ImageRecord] = []
    missing: list[MissingImage] = []
    lost: list[str] = []
    for model, seed, (number, prompt) in itertools.product(models, seeds, enumerate(prompts)):
        record = written.get((model.label, seed, number))
        if record is None or (record.fingerprint, record.prompt) != (model.fingerprint, prompt):
            record = None
        if isinstance(record, MissingImage):
            missing.append(record)
        elif record is not None and _has_size(folder, record):
            records.append(record)
        else:
            lost.append(image_records.image_file(model.label, seed, number))
    if lost and complete:
        was = "has lost" if config.get("status") == "finished" else f"({config.get('status')}) lacks"
        raise InputError(
            f"the run {folder} {was} {len(lost):,} of its {len(lost) + len(records) + len(missing):,} images, such as"
            f" {lost[0]}: {_ADVICE}"
        )
    return Images(folder, models, prompts, seeds, tuple(records), config, tuple(missing))


def is_run(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder is a run of winobench of any kind."""
    try:
        return "identity" in json_files.read_object(os.path.join(files.user_path(folder), "config.json"))
    except InputError:
        return False


def config_path(folder: pathlib.Path, launcher: str) -> pathlib.Path:
    """The ``config.json`` of a run. Raises InputError for a folder without one."""
    advice, what = f"name the folder of a run of {launcher}", "is not a run of winobench: it has no config.json"
    if not os.path.isdir(folder):  # pathlib raises where a name is too long
        if os.path.exists(folder):
            raise InputError(f"{folder} is a file: {advice}", code="is-a-file")
        raise InputError(f"the folder {folder} does not exist: {advice}", code="no-such-folder")
    if not (path := folder / "config.json").is_file():
        images = ", or make one of a folder of images with winobench collect" if "generate" in launcher else ""
        raise InputError(f"{folder} {what}. Name one of {launcher}{images}", code="not-a-run")
    return path


def _read_config(folder: pathlib.Path) -> dict[str, Any]:
    path = config_path(folder, "winobench generate")
    config = json_files.read_object(path)
    if config.get("kind") != KIND:
        raise InputError(f"{folder} is a run without images: name one of winobench generate")
    if config.get("layout") != LAYOUT:
        raise InputError(
            f"{folder} was written by another version of winobench (layout {config.get('layout')}, this one reads"
            f" {LAYOUT}): use that version, or generate again"
        )
    if not _is_described(config):
        raise InputError(f"{path} does not say what was generated: restore it, or generate again with --overwrite")
    return config


def _is_described(config: Mapping[str, Any]) -> bool:
    """Whether a ``config.json`` has all fields that are read."""
    try:
        identity, drawn = config["identity"], config["drawn"]
        models = identity["models"].items()
        return (
            isinstance(identity["prompts"]["sha256"], str)
            and all(isinstance(seed, int) for seed in identity["seeds"])
            # A label is a folder's name, and must not lead out of the run.
            and all(_LABEL.fullmatch(label) and isinstance(model["name"], str) for label, model in models)
            and all(isinstance(drawn.get(label, {}), dict) for label, _ in models)
        )
    except (KeyError, TypeError, AttributeError):
        return False


def _has_size(folder: pathlib.Path, record: ImageRecord) -> bool:
    try:
        return (folder / record.file).stat().st_size == record.size
    except OSError:
        return False
