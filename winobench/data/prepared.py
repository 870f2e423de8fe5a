"""Prepared data sets: the examples of a task and their images, in ArrayRecord files that tfds can open.

The folder of a task holds two data sets, readable by ``tensorflow_datasets.builder_from_directory`` without TensorFlow,
and two files next to them. `winobench.data.preparing` writes them:

* ``images/1.0.0``: each image once, with ``image`` (an encoded JPEG or PNG in RGB), ``name`` (its file, and the box
  that was cut out) and ``sha256`` (of the decoded pixels, see `winobench.data.images.image_hash`);
* ``examples/1.0.0``: ``id``, ``images`` (record numbers in the set above), ``texts``, ``target`` (-1 for none),
  ``groups`` and ``ratings`` (decimals, sets of versions without it have none);
* ``image_hashes.npy``: uint8 [images, 32], the images' ``sha256`` once more, to distinguish them without reading;
* ``prepared.json``: the task and its version, the contents, and the SHA-256 of every file. Written last.
"""

from __future__ import annotations

import bisect
import concurrent.futures
import dataclasses
import functools
import hashlib
import io
import itertools
import os
import pathlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from PIL import Image

from winobench.base import json_files
from winobench.base.errors import InputError
from winobench.base.files import user_path
from winobench.data import images as image_files
from winobench.data.example import Example

FORMAT = 1  # of the folder. A folder of another one has to be prepared again
IMAGES, EXAMPLES = "images", "examples"
SET_VERSION = "1.0.0"
SPLIT = "test"
IMAGE_HASHES = "image_hashes.npy"
STATE = "prepared.json"
NO_TARGET = -1

_STATE_KEYS = {"format", "task", "task_version", "num_examples", "num_published", "num_images", "num_bytes"}
_STATE_KEYS |= {"is_partial", "content", "files"}

# Records of examples are small: enough of them to keep a scorer's planning busy, on few threads.
_NUM_READERS, _NUM_READ_AHEAD, _NUM_VERIFIERS = 4, 256, 8
_MOST_REASONS, _MOST_IDS = 5, 5  # lines on examples that were left out, and the ids in each


def default_data_dir() -> pathlib.Path:
    """The folder of prepared data, unless the user names another: ``$WINOBENCH_DATA``, or ``~/winobench_data``."""
    return pathlib.Path(user_path(os.environ.get("WINOBENCH_DATA") or "~/winobench_data"))


def data_folder(data_dir: str | os.PathLike | None) -> pathlib.Path:
    """The folder of all prepared data; None means the default one."""
    return default_data_dir() if data_dir is None else pathlib.Path(user_path(data_dir))


def task_folder(task: str, data_dir: str | os.PathLike | None = None) -> pathlib.Path:
    """The folder of a task's prepared data."""
    return data_folder(data_dir) / task


def set_folder(folder: str | os.PathLike, kind: str) -> pathlib.Path:
    """The folder of one of the two data sets of a task: ``kind`` is ``"images"`` or ``"examples"``."""
    return pathlib.Path(folder) / kind / SET_VERSION


def read_state(folder: str | os.PathLike) -> dict[str, Any] | None:
    """The content of ``prepared.json``, or None where no finished set of this format is.

    {"format", "task", "task_version", "num_examples", "num_published" (None where that depends on the user),
    "num_images", "num_bytes", "is_partial", "content" (SHA-256 over examples and pixels), "files": {relative path:
    {"sha256", "num_bytes"}}, "source", "prepared", "winobench"}. And where examples were left out, "left_out":
    {"num_examples", "reasons": {reason: examples}, "examples": {id: {"image", "reason"}}, at most 1,000 of them}.
    """
    try:
        state = json_files.load(pathlib.Path(folder) / STATE)
    except (OSError, ValueError):
        return None
    return state if isinstance(state, dict) and state.get("format") == FORMAT and _is_whole(state) else None


def _is_whole(state: dict[str, Any]) -> bool:
    """Whether all that later code relies on is there and of its type."""

    def is_count(value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and value >= 0

    files = state.get("files")
    return (
        state.keys() >= _STATE_KEYS
        and all(is_count(state[key]) for key in ("task_version", "num_examples", "num_images", "num_bytes"))
        and (state["num_published"] is None or is_count(state["num_published"]))
        and isinstance(state["is_partial"], bool)
        and all(isinstance(state[key], str) for key in ("task", "content"))
        and isinstance(files, dict)
        and len(files) > 0
        and all(
            isinstance(about, dict) and isinstance(about.get("sha256"), str) and is_count(about.get("num_bytes"))
            for about in files.values()
        )
    )


def has_state(folder: str | os.PathLike) -> bool:
    """Whether there is a ``prepared.json``, even one that `read_state` cannot use."""
    return (pathlib.Path(folder) / STATE).exists()


def describe(state: dict[str, Any]) -> str:
    """A line for listings."""
    count, published = state["num_examples"], state["num_published"]
    of = f" of {published:,}" if state["is_partial"] and published else ""
    partial = " (partial)" if state["is_partial"] else ""
    return f"{count:,}{of} examples{partial}, {state['num_images']:,} images, {state['num_bytes'] / 1e6:,.1f} MB"


def describe_left_out(state: dict[str, Any]) -> list[str]:
    """Lines on the examples that a prepared set lacks, by reason, with the first ids."""
    left_out = state.get("left_out", {"num_examples": 0, "reasons": {}, "examples": {}})
    lines = []
    for reason, count in list(left_out["reasons"].items())[:_MOST_REASONS]:
        named = [(id, about["image"]) for id, about in left_out["examples"].items() if about["reason"] == reason]
        shown = ", ".join(f"{id} ({image})" if image else id for id, image in named[:_MOST_IDS])
        more = f" and {count - _MOST_IDS:,} more" if count > _MOST_IDS else ""
        lines.append(f"left out {count:,} example{'' if count == 1 else 's'} ({reason}): {shown}{more}")
    if len(left_out["reasons"]) > _MOST_REASONS:
        lines.append(f"and {len(left_out['reasons']) - _MOST_REASONS:,} other reasons, listed in {STATE}")
    absent = (state["num_published"] or 0) - state["num_examples"] - left_out["num_examples"]
    if absent > 0:
        lines.append(f"the annotation files lack {absent:,} of the {state['num_published']:,} published examples")
    return lines


@dataclasses.dataclass(frozen=True)
class PreparedImage:
    """An image in a prepared set. Nothing is read before `open`. May be pickled, and used by several threads."""

    content_hash: str  # see `winobench.data.images.image_hash`
    records: Records = dataclasses.field(repr=False, compare=False)
    number: int = dataclasses.field(compare=False)

    def open(self) -> Image.Image:
        encoded = self.records[self.number]["image"]
        try:
            # Stored images are upright and RGB: see `preparing.encode`.
            with image_files.opened(io.BytesIO(encoded), ("JPEG", "PNG")) as image:
                return image.convert("RGB")
        except image_files.ImageProblem as error:
            raise self.records.damaged(self.number) from error


class Records:
    """Random access to the records of one of a task's data sets. Safe for threads, and pickled without its readers.

    A record is what tfds gives: strings are bytes, and images stay encoded.
    """

    def __init__(self, folder: str | os.PathLike, kind: str, task: str):
        self._place = (str(folder), kind, task)
        self._lock = threading.Lock()
        self._opened: tuple[Sequence[Any], list[int], list[str]] | None = None

    def __reduce__(self):
        return Records, self._place

    def __len__(self) -> int:
        return len(self._open()[0])

    def __getitem__(self, number: int) -> dict[str, Any]:
        source = self._open()[0]
        number = number.__index__()
        if not 0 <= number < len(source):
            raise IndexError(number)
        try:
            return source[number]
        except Exception as error:  # ArrayRecord has several types of errors for files that it cannot read
            raise self.damaged(number) from error

    def damaged(self, number: int) -> InputError:
        """The error to raise where a record cannot be used."""
        _, ends, paths = self._open()
        return _damaged(paths[bisect.bisect_right(ends, number)], self._place[2])

    def _open(self) -> tuple[Sequence[Any], list[int], list[str]]:
        """The tfds data source, and of each of its files the number of the record after its last one, and its path."""
        with self._lock:
            if self._opened is None:
                folder, kind, task = self._place
                path = set_folder(folder, kind)
                try:
                    shards = [(file, length) for file, length in _shards(folder, kind) if length]
                    source = _Decoded(shards, kind, has_ratings=_has_ratings(path))
                except Exception as error:  # broken metadata fail in as many ways as there are of breaking JSON
                    raise _damaged(path / "dataset_info.json", task) from error
                ends = list(itertools.accumulate(length for _, length in shards))
                self._opened = source, ends, [file for file, _ in shards]
            return self._opened


class _Decoded(Sequence[dict[str, Any]]):
    """Records of ArrayRecord files, with winobench's own features: tfds would import classes that the files name."""

    def __init__(self, shards: Sequence[tuple[str, int]], kind: str, *, has_ratings: bool):
        import tensorflow_datasets as tfds
        from array_record.python.array_record_data_source import ArrayRecordDataSource
        from tensorflow_datasets.core.utils.shard_utils import FileInstruction

        self._features = features(kind, has_ratings)
        self._decoders = {"image": tfds.decode.SkipDecoding()} if kind == IMAGES else None
        instructions = [FileInstruction(file, skip=0, take=-1, examples_in_shard=length) for file, length in shards]
        self._source = ArrayRecordDataSource(instructions) if instructions else ()

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, number):
        return self._features.deserialize_example_np(self._source[number], decoders=self._decoders)


def _shards(folder: str, kind: str) -> list[tuple[str, int]]:
    """The path of each file of a set, and its number of records."""
    info = json_files.load(set_folder(folder, kind) / "dataset_info.json")
    splits = {split["name"]: split for split in info["splits"]}
    lengths = [int(length) for length in splits[SPLIT]["shardLengths"]]
    if min(lengths, default=0) < 0:
        raise ValueError("a file has fewer records than none")
    return [(str(shard_path(folder, kind, shard, len(lengths))), length) for shard, length in enumerate(lengths)]


def _has_ratings(path: pathlib.Path) -> bool:
    """Whether the examples have ratings. Sets of earlier versions have none."""
    return "ratings" in json_files.load(path / "features.json")["featuresDict"]["features"]


@functools.cache
def features(kind: str, has_ratings: bool = True):
    """The tfds features of a kind of set."""
    import tensorflow_datasets as tfds

    text, texts = tfds.features.Text, lambda doc: tfds.features.Sequence(tfds.features.Text(), doc=doc)
    if kind == IMAGES:
        return tfds.features.FeaturesDict(
            {
                "image": tfds.features.Image(doc="JPEG or PNG, RGB."),
                "name": text(doc="The published file, and the box that was cut out."),
                "sha256": text(doc="Of the decoded pixels and their shape."),
            }
        )
    ratings = {"ratings": texts("What people gave each image, as decimals. None where nobody rated them.")}
    return tfds.features.FeaturesDict(
        {
            "id": text(doc="Unique within the task."),
            "images": tfds.features.Sequence(np.int64, doc="Record numbers in the set of images."),
            "texts": texts("The candidate texts, or the one text."),
            "target": tfds.features.Scalar(np.int64, doc="The right candidate; -1 for none."),
            "groups": texts("Sub-tasks or tags."),
            **(ratings if has_ratings else {}),
        }
    )


def shard_path(folder: str | os.PathLike, kind: str, shard: int, num_shards: int) -> pathlib.Path:
    """The path of a file of a set, as tfds names it."""
    return set_folder(folder, kind) / f"{kind}-{SPLIT}.array_record-{shard:05d}-of-{num_shards:05d}"


class PreparedSet:
    """The prepared data of a task."""

    def __init__(self, folder: str | os.PathLike):
        """Raises InputError where the folder of a task (`task_folder`) holds no prepared data."""
        self.folder = pathlib.Path(folder)
        state = read_state(folder)
        if state is None:
            raise InputError(
                f"{folder} holds no prepared data: run `winobench prepare --tasks=NAME --source=DIR`",
                code="not-prepared",
            )
        self.state = state

    def __len__(self) -> int:
        return self.num_examples

    @property
    def num_examples(self) -> int:
        return self.state["num_examples"]

    @property
    def fingerprint(self) -> str:
        """SHA-256 over all examples and pixels: the same wherever and whenever the same data were prepared."""
        return self.state["content"]

    @property
    def num_images(self) -> int:
        return self.state["num_images"]

    @functools.cached_property
    def images(self) -> Records:
        return Records(self.folder, IMAGES, self.state["task"])

    @functools.cached_property
    def _examples(self) -> Records:
        records = Records(self.folder, EXAMPLES, self.state["task"])
        if len(records) != self.num_examples:
            raise _damaged(self.folder / STATE, self.state["task"])
        return records

    @functools.cached_property
    def _image_hashes(self) -> np.ndarray:
        path = self.folder / IMAGE_HASHES
        try:
            hashes = np.load(path)
            is_sound = hashes.dtype == np.uint8 and hashes.shape == (self.num_images, hashlib.sha256().digest_size)
        except Exception as error:  # a damaged header fails in many ways
            raise _damaged(path, self.state["task"]) from error
        if not is_sound:
            raise _damaged(path, self.state["task"])
        return hashes

    def image(self, number: int) -> PreparedImage:
        """The image of this number, which is not read before it is opened."""
        return PreparedImage(self._image_hashes[number].tobytes().hex(), self.images, number)

    def subset_fingerprint(self, limit: int | None) -> str:
        """SHA-256 that changes whenever what ``examples(limit)`` gives could."""
        return hashlib.sha256(f"{self.fingerprint}/{limit}".encode()).hexdigest()

    def verify(self) -> None:
        """Compares every file with its checksum. Raises InputError where one is damaged or missing."""
        with concurrent.futures.ThreadPoolExecutor(_NUM_VERIFIERS) as pool:
            sound = pool.map(self._is_sound, self.state["files"])
            broken = [name for name, is_sound in zip(self.state["files"], sound, strict=True) if not is_sound]
        if broken:
            raise _damaged(self.folder / broken[0], self.state["task"], others=len(broken) - 1)

    def _is_sound(self, name: str) -> bool:
        expected = self.state["files"][name]
        try:
            if not (self.folder / name).is_file():  # a named pipe would be waited for
                return False
            with open(self.folder / name, "rb") as file:
                return (
                    os.fstat(file.fileno()).st_size == expected["num_bytes"]
                    and hashlib.file_digest(file, "sha256").hexdigest() == expected["sha256"]
                )
        except (OSError, ValueError):
            return False

    def examples(
        self, limit: int | None = None, *, seed: int = 0, per_group: bool = False
    ) -> Iterator[Example[PreparedImage, str]]:
        """Reads examples, a little ahead of the caller: all in the order of publication, or at most ``limit``.

        The seed chooses them at random, ``per_group`` the same number of each group. A larger limit begins with the
        examples of a smaller one.
        """
        if limit is not None and limit < 1:
            raise InputError(
                f"the limit is {limit}: it must be at least 1, or none for all examples", code="out-of-range"
            )
        if limit is None:
            return map(self._example, self._read(range(self.num_examples)))
        if not per_group:
            return map(self._example, self._read(_shuffled(range(self.num_examples), seed)[:limit]))
        members: dict[tuple[bytes, ...], list[int]] = {}
        for number, record in enumerate(self._read(range(self.num_examples))):
            members.setdefault(tuple(record["groups"]), []).append(number)
        chosen = [number for numbers in members.values() for number in _shuffled(numbers, seed)[:limit]]
        return map(self._example, self._read(chosen))

    def _read(self, numbers: Sequence[int]) -> Iterator[dict[str, Any]]:
        """The records of these numbers, in their order."""
        import grain

        dataset = grain.MapDataset.source(numbers).map(self._examples.__getitem__)
        return iter(dataset.to_iter_dataset(grain.ReadOptions(_NUM_READERS, _NUM_READ_AHEAD)))

    def _example(self, record: dict[str, Any]) -> Example[PreparedImage, str]:
        target = int(record["target"])
        return Example(
            id=record["id"].decode(),
            images=tuple(self.image(int(number)) for number in record["images"]),
            texts=tuple(text.decode() for text in record["texts"]),
            target=None if target == NO_TARGET else target,
            groups=tuple(group.decode() for group in record["groups"]),
            ratings=tuple(float(rating) for rating in record.get("ratings", ())),
        )


def _shuffled(numbers: Sequence[int], seed: int) -> list[int]:
    """The same in an order that depends on the seed alone, and on no library's random generator."""
    return sorted(numbers, key=lambda number: hashlib.sha256(f"{seed}/{number}".encode()).digest())


def _damaged(path: str | os.PathLike, task: str, others: int = 0) -> InputError:
    more = f" and {others} more file{'s' if others > 1 else ''}" if others else ""
    verb = "are" if others else "is"
    return InputError(
        f"{os.fspath(path)}{more} {verb} damaged or missing: prepare the data again with"
        f" `winobench prepare --tasks={task} --source=DIR --overwrite`",
        code="damaged-file",
    )
