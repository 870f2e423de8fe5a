"""ArrayRecord files of a prepared set and their metadata for tfds, written whole or not at all."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from winobench.base import files as whole_files
from winobench.base.errors import InputError
from winobench.data import prepared


@functools.cache
def features(kind: str):
    import tensorflow_datasets as tfds

    text, texts = tfds.features.Text, lambda doc: tfds.features.Sequence(tfds.features.Text(), doc=doc)
    if kind == prepared.IMAGES:
        return tfds.features.FeaturesDict(
            {
                "image": tfds.features.Image(doc="JPEG or PNG, RGB."),
                "name": text(doc="The published file, and the box that was cut out."),
                "sha256": text(doc="Of the decoded pixels and their shape."),
            }
        )
    return tfds.features.FeaturesDict(
        {
            "id": text(doc="Unique within the task."),
            "images": tfds.features.Sequence(np.int64, doc="Record numbers in the set of images."),
            "texts": texts("The candidate texts, or the one text."),
            "target": tfds.features.Scalar(np.int64, doc="The right candidate; -1 for none."),
            "groups": texts("Sub-tasks or tags."),
            "ratings": texts("What people gave each image, as decimals. None where nobody rated them."),
        }
    )


@functools.cache
def _serializer(kind: str):
    from tensorflow_datasets.core import example_serializer

    return example_serializer.ExampleSerializer(features(kind).get_serialized_info())


def write_shard(path: pathlib.Path, kind: str, records: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Writes an ArrayRecord file, whole or not at all."""
    from array_record.python import array_record_module

    count = 0
    with atomic(path) as temporary:
        # One record a group, as reading is random access.
        writer = array_record_module.ArrayRecordWriter(str(temporary), "group_size:1")
        try:
            for record in records:
                example = _serializer(kind).get_tf_example(features(kind).encode_example(record))
                # Otherwise the order of the features differs from process to process.
                writer.write(example.SerializeToString(deterministic=True))
                count += 1
        finally:
            writer.close()
    return {**checksum(path), "num_records": count}


def write_metadata(folder: pathlib.Path, kind: str, task: str, entries: Sequence[dict[str, Any]]) -> None:
    """Writes what tfds reads about one of the two data sets; entries are what `write_shard` returned, in order."""
    import tensorflow_datasets as tfds

    template = _template(folder, kind)
    split = tfds.core.SplitInfo(
        name=prepared.SPLIT,
        shard_lengths=[entry["num_records"] for entry in entries],
        num_bytes=sum(entry["num_bytes"] for entry in entries),
        filename_template=template,
    )
    tfds.folder_dataset.write_metadata(
        data_dir=template.data_dir,
        features=features(kind),
        split_infos=[split],
        filename_template=template,
        version=prepared.SET_VERSION,
        description=f"The {kind} of the task {task}, prepared by winobench.",
        check_data=False,  # needs TensorFlow
    )


def shard_path(folder: pathlib.Path, kind: str, shard: int, num_shards: int) -> pathlib.Path:
    template = _template(folder, kind)
    return pathlib.Path(template.sharded_filepath(shard_index=shard, num_shards=num_shards))


def _template(folder: pathlib.Path, kind: str):
    import tensorflow_datasets as tfds

    return tfds.core.ShardedFileTemplate(
        data_dir=prepared.set_folder(folder, kind),
        dataset_name=kind,
        split=prepared.SPLIT,
        filetype_suffix="array_record",
    )


@contextlib.contextmanager
def atomic(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Gives a temporary name in the same folder. Its file is synced and renamed to ``path`` unless an error occurs."""
    try:
        with whole_files.atomic_path(path) as temporary:
            yield pathlib.Path(temporary)
    except InputError:
        raise
    except (OSError, RuntimeError) as error:  # ArrayRecord raises the latter
        reason = " ".join(str(error).split())
        raise InputError(
            f"{path} cannot be written ({reason}): check the disk's space, then go on", code="cannot-write"
        ) from error


def checksum(path: pathlib.Path) -> dict[str, Any]:
    with open(path, "rb") as file:
        return {"sha256": hashlib.file_digest(file, "sha256").hexdigest(), "num_bytes": os.fstat(file.fileno()).st_size}
