"""Writes prepared data sets from published files; `winobench.data.prepared` describes their contents.

Images are processed in shards, each by one process: decoded, hashed, written under a temporary name, synced, renamed,
and noted in a journal. A killed run resumes at the first shard that is not noted. All this happens in
``<folder>.unfinished``, which takes the place of ``<folder>`` when it is complete.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import dataclasses
import datetime
import hashlib
import io
import itertools
import json
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import shutil
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from winobench.base import files as whole_files
from winobench.base import json_files, memory
from winobench.base.errors import InputError
from winobench.base.version import __version__
from winobench.data import images as image_files
from winobench.data import prepared, record_files, sources
from winobench.data.example import Box, Item

IMAGES_A_SHARD = 256  # about 40 MB of photographs of 640 x 480 pixels: seconds of work are lost when a run is killed
EXAMPLES_A_SHARD = 8192

_JOURNAL = "journal.jsonl"
# Photographs as PNG take four times as long at zlib's default level, and hardly less space.
_PNG_LEVEL = 1
_KEPT_FORMATS = ("JPEG", "MPO", "PNG")  # MPO: JPEG with more images behind the first
_PIXEL_RULES = 2  # version of the rules in `winobench.data.images`. Shards made under others are made again
_MOST_NAMED = 1000  # examples that ``prepared.json`` names as left out. A set can lose 100,000


def prepare(
    folder: str | os.PathLike,
    items: Iterable[Item | sources.LeftOut],
    *,
    task: str,
    task_version: int,
    root: str | os.PathLike,
    num_published: int | None = None,
    allow_partial: bool = False,
    workers: int | None = None,
    on_start: Callable[[int, int], None] = lambda total, done: None,
    on_progress: Callable[[int], None] = lambda count: None,
    note: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Writes a prepared set, or finishes one that an earlier call has begun with the same files."""
    folder, root = pathlib.Path(os.path.abspath(folder)), pathlib.Path(root)
    _make_folder(folder.parent)
    problems_path = folder.with_name(f"{folder.name}.problems.txt")
    try:
        images, questions, left_out = sources.collect(items, root, task)
        sources.check_count(len(questions), num_published, allow_partial, root, task)
    except InputError as error:
        raise sources.SourceError(str(error), code=error.code) from error

    stamps, missing = sources.stamps(images)
    num_read = len(questions)
    left_out |= sources.left_out(images, questions, missing)
    whole = sources.keep_whole(images, questions, missing)
    if missing and not (allow_partial and whole[1]):
        # By file, without boxes.
        lost = [image for image in images if image.name in missing]
        absent = {sources.name_of(image.path, None, root): missing[image.name] for image in lost}
        num_files = len({image.path for image in images})
        raise sources.problems_error(absent, num_files, root, task, problems_path, allow_partial)
    images, questions = whole
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    with _locked(unfinished, task):
        jobs = _jobs(unfinished, images, stamps)
        ordered = _make_shards(unfinished, jobs, task, allow_partial, workers, on_start, on_progress, note)
        hashes = [digest for entry in ordered for digest in entry["hashes"]]
        broken = {name: reason for entry in ordered for name, reason in entry["problems"].items()}
        whole_questions = [question for question in questions if all(hashes[n] is not None for n in question.images)]
        if broken and not (allow_partial and whole_questions):
            raise sources.problems_error(broken, len(images), root, task, problems_path, allow_partial)
        left_out |= sources.left_out(images, questions, broken)
        about = {
            "task": task,
            "task_version": task_version,
            "num_published": num_published,
            "is_partial": len(whole_questions) < max(num_read, num_published or 0),
            "source": str(root.resolve()),
        }
        if left_out:
            about["left_out"] = _described(left_out)
        state = _finish(unfinished, jobs, ordered, whole_questions, hashes, about)
        _replace(folder, unfinished)
    problems_path.unlink(missing_ok=True)
    return state


def _described(left_out: dict[str, dict[str, str]]) -> dict[str, Any]:
    # What follows in brackets differs from file to file.
    left_out = {id: {**about, "reason": about["reason"].partition(" (")[0]} for id, about in left_out.items()}
    reasons = collections.Counter(about["reason"] for about in left_out.values())
    return {
        "num_examples": len(left_out),
        "reasons": dict(reasons.most_common(_MOST_NAMED)),
        "examples": dict(itertools.islice(left_out.items(), _MOST_NAMED)),
    }


def _make_shards(
    folder: pathlib.Path,
    jobs: Sequence[_Job],
    task: str,
    allow_partial: bool,
    workers: int | None,
    on_start: Callable[[int, int], None],
    on_progress: Callable[[int], None],
    note: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Makes the shards of images that no earlier call has finished, and returns the journal's entries of all."""
    journal = _Journal(folder / _JOURNAL)
    entries = {
        job.path.name: entry
        for job in jobs
        if (entry := journal.find(job)) is not None and (allow_partial or not entry["problems"])
    }
    if stale := len(journal.entries.keys() - entries.keys()):
        note(f"{task}: the source has changed or was incomplete, {stale} finished shards are made again")
    _remove_all_but(prepared.set_folder(folder, prepared.IMAGES), entries)
    on_start(sum(len(job.images) for job in jobs), sum(len(job.images) for job in jobs if job.path.name in entries))
    left = [job for job in jobs if job.path.name not in entries]
    for job, entry in _work_off(left, workers or memory.num_cores()):
        journal.add(job, entry)
        entries[job.path.name] = entry
        on_progress(len(job.images))
    return [entries[job.path.name] for job in jobs]


@dataclasses.dataclass(frozen=True)
class _Job:
    """A shard of images."""

    path: pathlib.Path  # of the finished file
    images: Sequence[sources.SourceImage]
    inputs: str  # digest of all that its content depends on


def _jobs(folder: pathlib.Path, images: Sequence[sources.SourceImage], stamps: dict[str, list[int]]) -> list[_Job]:
    shards = _batched(images, IMAGES_A_SHARD)
    jobs = []
    for shard, images in enumerate(shards):
        described = [(image.path, image.box, image.name, stamps[image.path]) for image in images]
        inputs = hashlib.sha256(json.dumps([prepared.FORMAT, _PIXEL_RULES, described]).encode()).hexdigest()
        jobs.append(_Job(prepared.shard_path(folder, prepared.IMAGES, shard, len(shards)), images, inputs))
    return jobs


def _batched(things: Sequence[Any], size: int) -> list[Sequence[Any]]:
    return [things[start : start + size] for start in range(0, len(things), size)]


class _Journal:
    """The finished shards: a line each, durable when `add` returns."""

    def __init__(self, path: pathlib.Path):
        self._path = path
        self.entries: dict[str, dict[str, Any]] = {}
        with contextlib.suppress(FileNotFoundError):
            text = path.read_text(encoding="utf-8")
            for line in text.splitlines():
                # A killed run can leave a part of a line at the end.
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    entry = json_files.parse(line)
                    self.entries[entry["file"]] = entry
            if text and not text.endswith("\n"):
                self._append("\n")

    def find(self, job: _Job) -> dict[str, Any] | None:
        """The entry of a shard that is finished and was made from the files that are there now."""
        entry = self.entries.get(job.path.name)
        if entry is None or entry["inputs"] != job.inputs or not job.path.is_file():
            return None
        return entry if job.path.stat().st_size == entry["num_bytes"] else None

    def add(self, job: _Job, entry: dict[str, Any]) -> None:
        self._append(json.dumps({"file": job.path.name, "inputs": job.inputs, **entry}) + "\n")

    def _append(self, text: str) -> None:
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())


def _work_off(jobs: Sequence[_Job], workers: int) -> Iterator[tuple[_Job, dict[str, Any]]]:
    """Makes the shards and yields each with its journal entry, as they become ready."""
    if workers == 1 or len(jobs) <= 1:
        yield from ((job, _write_images(job)) for job in jobs)
        return
    # Processes, as PIL encodes PNG under the interpreter's lock. Spawned, as a fork would copy locked locks.
    pool = concurrent.futures.ProcessPoolExecutor(
        min(workers, len(jobs)), multiprocessing.get_context("spawn"), initializer=_follow_parent
    )
    try:
        futures = {pool.submit(_write_images, job): job for job in jobs}
        for future in concurrent.futures.as_completed(futures):
            yield futures[future], future.result()
    except concurrent.futures.process.BrokenProcessPool as error:
        raise InputError(
            "a process that was preparing images was killed, probably for lack of memory: give the same command again"
            " with fewer --workers, and it resumes where it was",
            code="out-of-memory",
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _follow_parent() -> None:
    """Ends this worker with its parent, even one that was killed, and leaves Ctrl-C to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        if (parent := multiprocessing.parent_process()) is not None:
            multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _write_images(job: _Job) -> dict[str, Any]:
    """Decodes, hashes and writes the images of a shard. Those that cannot be decoded are left out.

    Returns {"sha256", "num_bytes", "num_records", "hashes": of each image its pixels' SHA-256, or None, "problems"}.
    """
    hashes: list[str | None] = []
    problems: dict[str, str] = {}

    def records() -> Iterator[dict[str, Any]]:
        for image in job.images:
            try:
                encoded, digest = encode(image.path, image.box)
            except (image_files.ImageProblem, OSError) as error:
                hashes.append(None)
                problems[image.name] = getattr(error, "strerror", None) or str(error)
                continue
            hashes.append(digest)
            yield {"image": io.BytesIO(encoded), "name": image.name, "sha256": digest}

    written = record_files.write_shard(job.path, prepared.IMAGES, records())
    return {**written, "hashes": hashes, "problems": problems}


def encode(path: str | os.PathLike, box: Box | None = None) -> tuple[bytes, str]:
    """The bytes to store for an image, and the SHA-256 of its pixels.

    Whole JPEG and PNG files that are RGB and upright as they stand keep their bytes. Others, and parts of images,
    become PNG in RGB. A box counts pixels before they are turned upright. Beyond the image it is black, as in PIL.
    """
    with image_files.regular_file(path) as file:
        data = file.read()
    with image_files.opened(io.BytesIO(data)) as opened:
        keeps_bytes = box is None and opened.format in _KEPT_FORMATS and image_files.keeps_pixels(opened)
        image, orientation = image_files.to_rgb(opened), image_files.orientation(opened)
    if box is not None:
        left, top, right, bottom = box
        problem, code = None, "bad-box"
        if right <= left or bottom <= top:
            problem = "the box is empty"
        elif right <= 0 or bottom <= 0 or left >= image.width or top >= image.height:
            problem = f"the box lies outside of the image, which has {image.width} x {image.height} pixels"
        elif (right - left) * (bottom - top) > image_files.MAX_PIXELS:
            problem, code = f"the box has {right - left} x {bottom - top} pixels, too many", "too-many-pixels"
        if problem:
            raise image_files.ImageProblem(problem, code=code)
        image = image.crop(box)
    image = image_files.upright(image, orientation)
    if not keeps_bytes:
        buffer = io.BytesIO()
        image.save(buffer, "PNG", compress_level=_PNG_LEVEL)
        data = buffer.getvalue()
    return data, image_files.image_hash(image)


def _finish(
    folder: pathlib.Path,
    jobs: Sequence[_Job],
    entries: Sequence[dict[str, Any]],
    questions: Sequence[sources.Question],
    hashes: Sequence[str | None],
    about: dict[str, Any],
) -> dict[str, Any]:
    """Writes all that follows from the images: examples, metadata, checksums."""
    # Images that could not be decoded have no record.
    numbers = {position: number for number, position in enumerate(n for n, digest in enumerate(hashes) if digest)}
    _remove_all_but(prepared.set_folder(folder, prepared.EXAMPLES), ())
    written, content = {}, hashlib.sha256()
    parts = _batched(questions, EXAMPLES_A_SHARD)
    for shard, part in enumerate(parts):
        path = prepared.shard_path(folder, prepared.EXAMPLES, shard, len(parts))
        written[path] = record_files.write_shard(path, prepared.EXAMPLES, (_record(q, numbers) for q in part))
        for q in part:
            line = [q.id, [hashes[position] for position in q.images], q.texts, q.target, q.groups]
            line += [q.ratings] if q.ratings else []  # so that sets of versions without ratings stay as they are
            content.update(json.dumps(line).encode() + b"\n")

    record_files.write_metadata(folder, prepared.IMAGES, about["task"], entries)
    record_files.write_metadata(folder, prepared.EXAMPLES, about["task"], list(written.values()))
    table = np.array([list(bytes.fromhex(digest)) for digest in hashes if digest], np.uint8)
    with record_files.atomic(folder / prepared.IMAGE_HASHES) as temporary, open(temporary, "wb") as file:
        np.save(file, table)

    checksums = {job.path: entry for job, entry in zip(jobs, entries, strict=True)} | written
    others = [
        path
        for kind in (prepared.IMAGES, prepared.EXAMPLES)
        for path in sorted(prepared.set_folder(folder, kind).glob("*.json"))
    ]
    checksums |= {path: record_files.checksum(path) for path in [*others, folder / prepared.IMAGE_HASHES]}
    files = {
        path.relative_to(folder).as_posix(): {key: entry[key] for key in ("sha256", "num_bytes")}
        for path, entry in checksums.items()
    }
    state = {
        "format": prepared.FORMAT,
        **about,
        "num_examples": len(questions),
        "num_images": len(table),
        "num_bytes": sum(entry["num_bytes"] for entry in files.values()),
        "content": content.hexdigest(),
        "prepared": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "winobench": __version__,
        "files": files,
    }
    with record_files.atomic(folder / prepared.STATE) as temporary:
        temporary.write_text(json.dumps(state, indent=2) + "\n", encoding="utf-8")
    return state


def _record(question: sources.Question, numbers: dict[int, int]) -> dict[str, Any]:
    return {
        "id": question.id,
        "images": [numbers[position] for position in question.images],
        "texts": list(question.texts),
        "target": prepared.NO_TARGET if question.target is None else question.target,
        "groups": list(question.groups),
        "ratings": [repr(float(rating)) for rating in question.ratings],
    }


def _replace(folder: pathlib.Path, finished: pathlib.Path) -> None:
    """Puts a finished set instead of an earlier one."""
    old = folder.with_name(f"{folder.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    finished.rename(folder)
    whole_files.sync(folder.parent)
    (folder / _JOURNAL).unlink(missing_ok=True)
    shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: pathlib.Path, task: str) -> Iterator[None]:
    """Makes the folder of an unfinished set and keeps other processes out of it."""
    for kind in (prepared.IMAGES, prepared.EXAMPLES):
        _make_folder(prepared.set_folder(folder, kind))
    taken = f"another process is preparing task {task!r} in {folder}: wait for it or stop it"
    with whole_files.locked(folder, taken):
        yield


def _make_folder(folder: pathlib.Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        reason = "" if os.access(folder, os.W_OK) else "Permission denied"
    except OSError as error:
        reason = error.strerror or str(error)
    if reason:
        raise InputError(
            f"{folder} cannot be written ({reason}): name another folder with --data_dir", code="cannot-write"
        )


def _remove_all_but(folder: pathlib.Path, names: Iterable[str]) -> None:
    """Removes what a killed run, or one with other files, has left."""
    for path in folder.iterdir():
        if path.name not in names:
            path.unlink()
