"""The images of a training set as latents, encoded once and kept.

    <folder>/latents-<key>/    a hash of the autoencoder's weights, config and dtype, the image size, and the training
                               set's fingerprint
        shard-00000-of-00110.arrayrecord    1,024 images each: float16 [h, w, c]
        rows.parquet                        the training set's rows
        index.json                          the parts of the key. Written last

Shards are written whole or not at all, so an interrupted encoding continues at the first missing shard. A finished
folder holds all that training reads.
"""

from __future__ import annotations

import collections
import functools
import hashlib
import json
import os
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from winobench import parallel
from winobench.base import json_files, parquet_files
from winobench.base.errors import InputError
from winobench.base.files import user_path
from winobench.checkpoints import models
from winobench.data import array_records, hard_negatives
from winobench.data import images as image_files
from winobench.engine import tables
from winobench.engine.limits import Limit
from winobench.scorers import common

if TYPE_CHECKING:
    from winobench.diffusion.pipeline import Pipeline

_FORMAT = 1  # raised whenever the files or the latents of the same images could change
_IMAGES_A_SHARD = 1024
_ROWS = "rows.parquet"
_BATCH = Limit(16, cpu=4)  # images that each device encodes at once
_BATCHES_AHEAD = 2  # batches that are loaded, or under way, before a result is waited for


class LatentSet:
    """A training set whose images are encoded, as `winobench.data.hard_negatives.EncodedSource` describes it."""

    def __init__(self, folder: str | os.PathLike):
        self.folder = pathlib.Path(folder)
        try:
            self.latents = _Latents(self.folder)
        except FileNotFoundError:
            raise InputError(
                f"{self.folder} holds no finished latents: encode the training set's images again",
                code="unfinished-latents",
            ) from None

    @functools.cached_property
    def rows(self) -> list[hard_negatives.Row]:
        try:
            columns = parquet_files.read(self.folder / _ROWS).to_pydict()
        except (OSError, parquet_files.DamagedError) as error:
            raise InputError(
                f"{self.folder / _ROWS} cannot be read ({error}): delete {self.folder}, and the training set's images"
                " are encoded again",
                code="cannot-read",
            ) from error
        return [
            hard_negatives.Row(image, caption, tuple(captions), tuple(images))
            for image, caption, captions, images in zip(
                *(columns[name] for name in hard_negatives.Row._fields), strict=True
            )
        ]


class _Latents:
    def __init__(self, folder: pathlib.Path):
        self._records = array_records.ShardSource(folder)

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, number: int) -> np.ndarray:
        return self._records[number]["latents"]


def folder_near(workdir: pathlib.Path) -> pathlib.Path:
    """The folder of latents that trainings next to each other share. It is hidden, as it lies among runs."""
    runs = workdir.resolve().parent
    of_earlier_versions = runs / "latents"
    return of_earlier_versions if of_earlier_versions.is_dir() else runs / ".latents"


def encode(
    pipeline: Pipeline,
    source: hard_negatives.Source,
    folder: str | os.PathLike,
    *,
    image_size: int | None = None,
    batch_size: int | None = None,
    on_start: Callable[[int, int], None] = lambda total, done: None,
    on_progress: Callable[[int], None] = lambda count: None,
) -> LatentSet:
    """Encodes every image of a training set, unless that has been done, on all devices.

    The latents are the means of the posterior, scaled as in training, of images that are resized to a square without
    crop, as for scoring. Several processes share the shards, in a folder that all of them see.
    """
    size = pipeline.check_image_size(image_size)
    about = _about(pipeline, source, size)
    key = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
    cache = pathlib.Path(user_path(folder)) / f"latents-{key[:16]}"
    if not array_records.is_complete(cache, about):
        source.verify()
        try:
            cache.mkdir(parents=True, exist_ok=True)
            _encode_shards(pipeline, source, cache, about, size, batch_size, on_start, on_progress)
        except OSError as error:
            raise InputError(
                f"{cache} cannot be written ({error.strerror or error}): name another folder", code="cannot-write"
            ) from error
    return LatentSet(cache)


def _about(pipeline: Pipeline, source: hard_negatives.Source, size: int) -> dict[str, Any]:
    autoencoder = pipeline.autoencoder
    return {
        "format": _FORMAT,
        "autoencoder": models.weights_sha256(autoencoder),
        "config": json_files.as_json(autoencoder.config.to_dict()),
        "dtype": np.dtype(autoencoder.dtype).name,
        "image_size": size,
        "source": source.fingerprint,
    }


def _encode_shards(
    pipeline: Pipeline,
    source: hard_negatives.Source,
    folder: pathlib.Path,
    about: dict[str, Any],
    size: int,
    batch_size: int | None,
    on_start: Callable[[int, int], None],
    on_progress: Callable[[int], None],
) -> None:
    num_images = len(source.images)
    parts = [range(start, min(start + _IMAGES_A_SHARD, num_images)) for start in range(0, num_images, _IMAGES_A_SHARD)]
    names = [f"shard-{shard:05d}-of-{len(parts):05d}.arrayrecord" for shard in range(len(parts))]
    process, num_processes = jax.process_index(), jax.process_count()
    mine = list(zip(names, parts, strict=True))[process::num_processes]
    left = [(name, part) for name, part in mine if not (folder / name).exists()]
    total, to_do = (sum(len(part) for _, part in shards) for shards in (mine, left))
    on_start(total, total - to_do)
    if process == 0:
        _write_rows(folder / _ROWS, source.rows)
    if left:
        encoder = _encoder(pipeline, batch_size)
        for name, part in left:
            array_records.write_shard(folder / name, _records(encoder, source, part, size, on_progress))
    _wait_for_all()
    missing = [name for name in names if not (folder / name).exists()]
    if missing:
        raise InputError(
            f"{folder} lacks {missing[0]}, which another process has written: name a folder that all processes share",
            code="folder-not-shared",
        )
    if process == 0:
        array_records.write_index(folder, names, num_images, about)
    _wait_for_all()


def _encoder(pipeline: Pipeline, batch_size: int | None) -> tables.Encoder:
    function, params = pipeline.image_function()
    mesh = parallel.default_mesh(params)
    if batch_size is None:
        batch_size = _BATCH.on(mesh)
    params = parallel.place_parameters(params, mesh)
    return tables.Encoder(function, params, mesh, common.positive("batch_size", batch_size))


def _records(
    encoder: tables.Encoder,
    source: hard_negatives.Source,
    numbers: range,
    size: int,
    on_progress: Callable[[int], None],
) -> Iterator[array_records.Record]:
    """The latents of some images, in their order. Loading, encoding and writing overlap."""

    def finish(first: int, count: int, encoded: jax.Array) -> Iterator[array_records.Record]:
        with np.errstate(over="ignore"):  # checked below
            rounded = parallel.fetch(encoded)[:count].astype(np.float16)
        for number, latents in enumerate(rounded, start=first):
            if not np.isfinite(latents).all():
                raise InputError(
                    f"the latents of image {number} are not finite in float16: load the model with"
                    " encoder_dtype='float32', and check whether the image is noise",
                    code="not-finite",
                )
            yield {"latents": latents}
        on_progress(count)

    batch = encoder.batch_size
    loaded = tables.load_ahead(
        lambda number: image_files.load_image(source.images[number], size), numbers, _BATCHES_AHEAD * batch
    )
    waiting: collections.deque[tuple[int, int, jax.Array]] = collections.deque()
    try:
        for first in range(numbers.start, numbers.stop, batch):
            count = min(batch, numbers.stop - first)
            encoded = encoder.encode([next(loaded) for _ in range(count)])
            encoded.copy_to_host_async()
            waiting.append((first, count, encoded))
            if len(waiting) > _BATCHES_AHEAD:
                yield from finish(*waiting.popleft())
        while waiting:
            yield from finish(*waiting.popleft())
    finally:
        loaded.close()


def _write_rows(path: pathlib.Path, rows: Sequence[hard_negatives.Row]) -> None:
    import pyarrow

    columns = [list(column) for column in zip(*rows, strict=True)]
    types = [pyarrow.int64(), pyarrow.string(), pyarrow.list_(pyarrow.string()), pyarrow.list_(pyarrow.int64())]
    schema = pyarrow.schema(list(zip(hard_negatives.Row._fields, types, strict=True)))
    table = pyarrow.table(dict(zip(hard_negatives.Row._fields, columns, strict=True)), schema=schema)
    parquet_files.write(path, table)


def _wait_for_all() -> None:
    if jax.process_count() > 1:
        from jax.experimental import multihost_utils

        multihost_utils.sync_global_devices("winobench.latent_cache")
