"""ArrayRecord files of a prepared set and their metadata for tfds, written whole or not at all."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from winobench.base import files as whole_files
from winobench.base.errors import InputError
from winobench.data import prepared


@functools.cache
def _serializer(kind: str):
    from tensorflow_datasets.core import example_serializer

    return example_serializer.ExampleSerializer(prepared.features(kind).get_serialized_info())


def write_shard(path: pathlib.Path, kind: str, records: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Writes an ArrayRecord file, whole or not at all."""
    from array_record.python import array_record_module

    count = 0
    with atomic(path) as temporary:
        # One record a group, as reading is random access.
        writer = array_record_module.ArrayRecordWriter(str(temporary), "group_size:1")
        try:
            for record in records:
                example = _serializer(kind).get_tf_example(prepared.features(kind).encode_example(record))
                # Otherwise the order of the features differs from process to process.
                writer.write(example.SerializeToString(deterministic=True))
                count += 1
        finally:
            writer.close()
    return {**checksum(path), "num_records": count}


def write_metadata(folder: pathlib.Path, kind: str, task: str, entries: Sequence[dict[str, Any]]) -> None:
    """Writes what tfds reads about one of the two data sets. Entries are the results of `write_shard`, in order."""
    import tensorflow_datasets as tfds

    template = tfds.core.ShardedFileTemplate(
        data_dir=prepared.set_folder(folder, kind),
        dataset_name=kind,
        split=prepared.SPLIT,
        filetype_suffix="array_record",
    )
    split = tfds.core.SplitInfo(
        name=prepared.SPLIT,
        shard_lengths=[entry["num_records"] for entry in entries],
        num_bytes=sum(entry["num_bytes"] for entry in entries),
        filename_template=template,
    )
    tfds.folder_dataset.write_metadata(
        data_dir=template.data_dir,
        features=prepared.features(kind),
        split_infos=[split],
        filename_template=template,
        version=prepared.SET_VERSION,
        description=f"The {kind} of the task {task}, prepared by winobench.",
        check_data=False,  # needs TensorFlow
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
            f"{path} cannot be written ({reason}): check the disk's space, then give the command again",
            code="cannot-write",
        ) from error


def checksum(path: pathlib.Path) -> dict[str, Any]:
    with open(path, "rb") as file:
        return {"sha256": hashlib.file_digest(file, "sha256").hexdigest(), "num_bytes": os.fstat(file.fileno()).st_size}
