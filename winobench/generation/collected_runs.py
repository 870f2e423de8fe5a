"""A run of images that other programs made, from files whose places are known.

The run has copies, since a run must not change once it is judged, and its readers know RGB PNG files alone. The record
of each image has its file's path and SHA-256. Of the models, only the name is known.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import hashlib
import io
import itertools
import math
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import PIL.Image

from winobench.base import files, json_files, registry
from winobench.base import progress as progress_bars
from winobench.base.errors import InputError
from winobench.data import images as image_data
from winobench.generation.image_layouts import FoundImage
from winobench.prompts.prompt_files import Prompt, digest
from winobench.runs import image_records, image_runs, lifecycle, provenance
from winobench.runs import records as run_folders
from winobench.runs.image_records import ABSENT, MissingImage, Place

BLACK = "black"
"""Kind of `MissingImage`: an image that is all black, which a benchmark's script writes for a missing one."""

_AT_ONCE = 64  # files
_MOST_LETTERS = 60  # of a prompt in a message


@dataclasses.dataclass(frozen=True)
class Collection:
    """Files and their places in a run. A file with a grid has the places of consecutive seeds."""

    folder: pathlib.Path
    prompts: tuple[Prompt, ...]
    models: Mapping[str, str]  # label -> name
    seeds: tuple[int, ...]
    images: Mapping[Place, FoundImage]  # by the place of the first image in each file
    grid: tuple[int, int] = (1, 1)
    black_is_missing: bool = False

    @property
    def tiles(self) -> int:
        return math.prod(self.grid)

    @property
    def missing(self) -> Iterator[Place]:
        """The places without a file. A grid's first place counts for all of them."""
        firsts = self.seeds[:: self.tiles]
        places = itertools.product(self.models, firsts, range(len(self.prompts)))
        return (place for place in places if place not in self.images)

    @property
    def count(self) -> int:
        """The number of images of a run that lacks none."""
        return len(self.models) * len(self.seeds) * len(self.prompts)


def write_run(
    collection: Collection,
    workdir: str | os.PathLike[str] | None,
    config: Mapping[str, Any],
    *,
    overwrite: bool = False,
    progress: bool = True,
) -> image_runs.Images:
    """Makes the run of a collection. ``config`` has the arguments, such as ``allow_missing``.

    Raises:
      InputError: images are missing and may not be, or as in `collect_images`.
    """
    _check_missing(collection, config)
    named = f"collected-{registry.model_label(str(collection.folder.resolve()))}"
    where = {**config, "folder": str(collection.folder.resolve()), "prompts": digest(collection.prompts)}
    with contextlib.closing(lifecycle.folder_for(workdir, named, where, image_records.GENERATED)) as folder:
        about = {"stamp": _stamp(collection), "config": dict(config)}
        recorded = _recorded(folder)
        if not overwrite and recorded.get("collected") == about and (run := _finished(folder)) is not None:
            if progress:
                progress_bars.say(f"collected before: all images are in {folder.path}")
            return run
        hashes = _hashes(collection, progress)
        description = {"kind": image_runs.KIND, "layout": image_runs.LAYOUT} | lifecycle.described(
            _identity(collection, hashes),
            kind=image_runs.KIND,
            model=", ".join(collection.models.values()),
            config=dict(config),
            versions=provenance.software(),
        )
        description |= {"collected": about, image_records.GENERATED: {}}
        if not overwrite and recorded.get("identity") == description["identity"]:
            written = image_records.read_records(folder.path).values()
            _check_black([record for record in written if isinstance(record, MissingImage)], config)
        folder.open(description, overwrite=overwrite)
        with lifecycle.recording(folder, description, folder.has_records):
            if progress:
                progress_bars.say(f"images in {folder.path}")
            image_records.write_prompts(folder.path, collection.prompts)
            _copy(folder.path, collection, hashes, config, progress)
    return image_runs.read_images(folder.path)


def _check_missing(collection: Collection, config: Mapping[str, Any]) -> None:
    lacking = collection.count - collection.tiles * len(collection.images)
    if not lacking or config["allow_missing"]:
        return
    label, seed, number = next(collection.missing)
    prompt = collection.prompts[number]
    raise InputError(
        f"{lacking:,} of the {collection.count:,} images of {len(collection.prompts):,} prompts,"
        f" {len(collection.seeds):,} a prompt, are missing in {collection.folder}, such as number {seed} of prompt"
        f" {prompt.id} ({prompt.text[:_MOST_LETTERS]}) by {collection.models[label]}: add them, or give"
        " --allow_missing",
        code="missing-images",
    )


def _stamp(collection: Collection) -> str:
    """A digest of the prompts, and of the files' places, sizes and times, without reading the files."""
    rows = []
    for place, image in collection.images.items():
        try:
            status = image.path.stat()
        except OSError:
            image_data.open_image(image.path)  # which names the fault
            raise
        rows.append([place, image.file, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino])
    return files.digest([rows, collection.grid, digest(collection.prompts)])


def _hashes(collection: Collection, progress: bool) -> dict[str, str]:
    """File -> SHA-256."""
    images = {image.file: image for image in collection.images.values()}
    with (
        progress_bars.counting(len(images), label="reading", unit="files", enabled=progress) as advance,
        concurrent.futures.ThreadPoolExecutor() as threads,
    ):
        hashes = {}
        for file, sha256 in zip(
            images, threads.map(lambda it: image_data.file_sha256(it.path), images.values()), strict=True
        ):
            hashes[file] = sha256
            advance(1)
        return hashes


def _identity(collection: Collection, hashes: Mapping[str, str]) -> dict[str, Any]:
    """What the run depends on. The digests of two models or folders with other images differ."""
    models = {}
    for label, name in collection.models.items():
        rows = [[*place[1:], hashes[image.file]] for place, image in collection.images.items() if place[0] == label]
        models[label] = {"name": name, "lora": None, "files": files.digest(sorted(rows))}
    return {
        "prompts": {"sha256": digest(collection.prompts), "count": len(collection.prompts)},
        "seeds": list(collection.seeds),
        "settings": {"grid": list(collection.grid), "black_is_missing": collection.black_is_missing},
        "models": models,
    }


def _recorded(folder: run_folders.RunFolder) -> dict[str, Any]:
    try:
        return json_files.read_object(folder.config_path)
    except InputError:  # `RunFolder.open` names its fault
        return {}


def _finished(folder: run_folders.RunFolder) -> image_runs.Images | None:
    """The run, if it has finished and all its images are whole."""
    try:
        run = image_runs.read_images(folder.path)
    except InputError:
        return None
    is_whole = run.config.get("status") == lifecycle.FINISHED
    is_whole = is_whole and all(image_records.has_source(run.folder, prompt) for prompt in run.prompts)
    return run if is_whole and all(image_records.is_whole(run.folder, record) for record in run.records) else None


def _copy(
    path: pathlib.Path, collection: Collection, hashes: Mapping[str, str], config: Mapping[str, Any], progress: bool
) -> None:
    """Writes the images that are not there yet, and the records of those that are missing."""
    written = image_records.read_records(path)
    tiles = collection.tiles

    def is_there(place: Place) -> bool:
        label, seed, number = place
        records = [written.get((label, seed + tile, number)) for tile in range(tiles)]
        return all(
            record is not None and (isinstance(record, MissingImage) or image_records.is_whole(path, record))
            for record in records
        )

    def missing(label: str, seed: int, number: int, kind: str, reason: str) -> MissingImage:
        return MissingImage(collection.prompts[number], label, seed, number, None, kind, reason)

    left = [(place, image) for place, image in collection.images.items() if not is_there(place)]
    with (
        progress_bars.counting(len(left), label="copying", unit="files", enabled=progress) as advance,
        image_records.ImageStore(path) as store,
        concurrent.futures.ThreadPoolExecutor() as threads,
    ):
        for start in range(0, len(left), _AT_ONCE):
            batch = left[start : start + _AT_ONCE]
            converted = threads.map(lambda pair: _converted(pair[1], collection.grid, hashes), batch)
            contents: list[bytes] = []
            lines: list[dict[str, Any]] = []
            black: list[MissingImage] = []
            for ((label, seed, number), image), parts in zip(batch, converted, strict=True):
                for tile, (content, corners) in enumerate(parts):
                    if collection.black_is_missing and _is_black(content):
                        black.append(missing(label, seed + tile, number, BLACK, f"{image.file} is all black there"))
                        continue
                    source: dict[str, Any] = {"file": image.file, "sha256": hashes[image.file]}
                    source |= {"crop": corners} if tiles > 1 else {}
                    fields: dict[str, Any] = {"model": label, "seed": seed + tile, "number": number, "source": source}
                    known: dict[str, Any] = {
                        "prompt": collection.prompts[number],
                        "fingerprint": None,
                        "lora": None,
                        "settings": {},
                    }
                    contents.append(content)
                    lines.append(fields | known)
            _check_black(black, config)
            store.add(contents, lines)
            store.add_missing(black)
            advance(len(batch))
        absent = [
            missing(label, seed + tile, number, ABSENT, "no file was there")
            for label, seed, number in collection.missing
            for tile in range(tiles)
        ]
        store.add_missing([record for record in absent if record.place not in written])


def _check_black(black: Sequence[MissingImage], config: Mapping[str, Any]) -> None:
    if black and not config["allow_missing"]:
        raise InputError(
            f"{black[0].reason}, which the benchmark's script writes for a missing image: give --allow_missing",
            code="missing-images",
        )


def _converted(image: FoundImage, grid: tuple[int, int], hashes: Mapping[str, str]) -> list[tuple[bytes, list[int]]]:
    content = image.path.read_bytes()
    if hashlib.sha256(content).hexdigest() != hashes[image.file]:
        raise InputError(f"{image.path} changed while it was read: give the same command again", code="file-changed")
    return image_data.as_png(image.path, content, grid)


def _is_black(content: bytes) -> bool:
    with PIL.Image.open(io.BytesIO(content)) as image:
        return image.convert("RGB").getbbox() is None
