"""Run folders to view: a run that is being written, and folders that no run would have written."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import pathlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests import wscplus_files
from tests.evaluation import fakes
from tests.generation import fakes as generation_fakes
from tests.report.conftest import Skilled, make_run
from winobench.base import files
from winobench.evaluation import questions
from winobench.metrics.association import Association, TargetPair
from winobench.prompts.prompt_files import Prompt
from winobench.responders.recorded import RecordedModel
from winobench.runs.verdicts import Verdict, write_verdicts
from winobench.tasks.base import Example

_WRITTEN_LATE = ("results.json", "examples", "gallery")


def begin(finished: pathlib.Path, folder: pathlib.Path) -> list[pathlib.Path]:
    """Makes the folder of a run that has just begun, from a finished one. Returns what `run_again` still has to add."""
    folder.mkdir(parents=True)
    for name in ("errors", "examples", "gallery"):
        (folder / name).mkdir()
    set_status(finished, folder, "running")
    parts = sorted((finished / "errors").glob("part-*.parquet"))
    late = [finished / name for name in _WRITTEN_LATE]
    return [*parts, *(path for place in late for path in (sorted(place.iterdir()) if place.is_dir() else [place]))]


def set_status(finished: pathlib.Path, folder: pathlib.Path, status: str) -> None:
    """Writes the config of a finished run with another status."""
    config = json.loads((finished / "config.json").read_text())
    files.write_text(folder / "config.json", json.dumps({**config, "status": status}, indent=2))


def add(finished: pathlib.Path, folder: pathlib.Path, path: pathlib.Path) -> None:
    """Adds one file of the finished run, as winobench writes it: whole, by a change of name."""
    target = folder / path.relative_to(finished)
    temporary = target.with_name(f"{target.name}.tmp")
    shutil.copyfile(path, temporary)
    os.replace(temporary, target)


@contextlib.contextmanager
def taken(folder: pathlib.Path) -> Iterator[None]:
    """Holds the lock that a process holds while it writes a run."""
    lock = os.open(folder / "examples", os.O_RDONLY)
    try:
        assert files.lock(lock)
        yield
    finally:
        os.close(lock)


def run_again(finished: pathlib.Path, folder: pathlib.Path, seconds: float) -> None:
    """Lets a finished run happen once more, in another folder and in so many seconds."""
    missing = begin(finished, folder)
    with taken(folder):
        for path in missing:
            add(finished, folder, path)
            time.sleep(seconds / len(missing))
        set_status(finished, folder, "finished")


MARK = "window.executed=1"
MARKUP = (
    f'</svg></p><script>{MARK}</script><img src=x onerror="{MARK}">"\'><svg onload={MARK}>]]>'
    f" {{{{{MARK}}}}} ${{{MARK}}} javascript:{MARK}"
)
"""What sets ``window.executed`` where a text is taken for markup."""

FORMULAS = ("=cmd|' /C calc'!A0", "+1+1", "@SUM(1)", "\t=1", "\uff1d1+1")
"""What a spreadsheet computes."""

_TASK = f"<img src=x onerror={MARK}>"  # part of the names of files, so that it has no slash


def hostile_runs(root: pathlib.Path) -> list[pathlib.Path]:
    """Whole runs whose every text is markup: with images, of a text benchmark, and of generated images."""
    return [_with_images(root / f"<img src=x onerror={MARK}>"), _of_texts(root / "texts"), _of_images(root / "drawn")]


def _with_images(folder: pathlib.Path) -> pathlib.Path:
    def captions(data_dir: str | None, limit: int | None) -> Iterator[Example]:
        for number in range(24):
            said = (f"{MARKUP} {number}", FORMULAS[number % len(FORMULAS)] + f" {number}")
            yield Example(
                f"{MARKUP} {number}", (fakes.image(number),), said, number % 2, (MARKUP, FORMULAS[number % 5])
            )

    words = (f"{MARKUP} good",), (f"{MARKUP} bad",)

    def bias(data_dir: str | None, limit: int | None) -> Iterator[Example]:
        for number in range(16):
            yield Example(
                f"{number}", (fakes.image(number + 50),), words[0] + words[1], None, (f"{MARKUP} {number % 2}",)
            )

    pair = TargetPair(MARKUP, f"{MARKUP} 0", f"{MARKUP} 1", *words)
    made = [
        fakes.text_task("markup", load=captions),
        fakes.make_task("bias", "effect_size", (1, 2), {}, bias, association=Association((pair,))),
    ]
    make_run(Skilled(0.3), folder, chosen=made, model=MARKUP)
    rename_task(folder, "markup", _TASK)
    return folder


def _of_texts(folder: pathlib.Path) -> pathlib.Path:
    file = wscplus_files.write(folder.parent / "data", said=lambda number, answer: number % 3)
    with file.open(newline="", encoding="utf-8") as opened:
        rows = list(csv.DictReader(opened))
    with file.open("w", newline="", encoding="utf-8") as opened:
        writer = csv.DictWriter(opened, rows[0])
        writer.writeheader()
        writer.writerows({**row, "predicted_reason": f"{MARKUP} {row['predicted_reason']}"} for row in rows)
    options = {"data_dir": str(folder.parent / "data"), "protocol": "toe", "model": MARKUP, "progress": False}
    return pathlib.Path(
        questions.evaluate_questions(RecordedModel(f"recorded:{file}"), "wscplus", folder, **options)["workdir"]
    )


def _of_images(folder: pathlib.Path) -> pathlib.Path:
    prompts = [Prompt(f"{MARKUP} {number}", f"{MARKUP} {number}", MARKUP) for number in range(3)]
    run = generation_fakes.draw(folder, "one", prompts=prompts)
    found = [{"color": MARKUP, "shape": MARKUP}]
    write_verdicts(run, [Verdict(one.file, one.sha256, False, found) for one in run.records])
    return run.folder


def rename_task(folder: pathlib.Path, old: str, new: str) -> None:
    """Gives a task of a finished run another name, which winobench itself would not."""
    for path in (folder / "config.json", folder / "results.json"):
        path.write_text(path.read_text().replace(json.dumps(old), json.dumps(new)))
    for path in folder.glob(f"*/{old}.parquet"):
        path.rename(path.with_name(f"{new}.parquet"))


def _text(name: str, content: str | bytes) -> Callable[[pathlib.Path], object]:
    return lambda folder: (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)


def _changed(name: str, change: Callable[[Any], Any]) -> Callable[[pathlib.Path], object]:
    def apply(folder: pathlib.Path) -> None:
        path = folder / name
        path.write_text(json.dumps(change(json.loads(path.read_text()))))

    return apply


def _with_tasks(tasks: Any) -> Callable[[pathlib.Path], object]:
    return _changed("results.json", lambda content: {**content, "tasks": tasks})


def _cut(name: str, share: float) -> Callable[[pathlib.Path], object]:
    def apply(folder: pathlib.Path) -> None:
        path = folder / name
        os.truncate(path, int(share * path.stat().st_size))

    return apply


def _flipped(name: str) -> Callable[[pathlib.Path], object]:
    """Changes the bytes of a file's first half, which leaves a Parquet file its footer."""

    def apply(folder: pathlib.Path) -> None:
        content = bytearray((folder / name).read_bytes())
        content[40 : len(content) // 2] = bytes(byte ^ 0xFF for byte in content[40 : len(content) // 2])
        (folder / name).write_bytes(content)

    return apply


def _sparse(name: str, size: int) -> Callable[[pathlib.Path], object]:
    return lambda folder: os.truncate(folder / name, size)


def _replaced(name: str, make: Callable[[pathlib.Path], object]) -> Callable[[pathlib.Path], object]:
    def apply(folder: pathlib.Path) -> None:
        (folder / name).unlink()
        make(folder / name)

    return apply


def _without_columns(path: pathlib.Path) -> None:
    pq.write_table(pa.table({"id": ["a"], "scores": ["not a list"]}), path)


def _no_rows(path: pathlib.Path) -> None:
    pq.write_table(pa.table({"id": pa.array([], pa.string())}), path)


def _not_images(path: pathlib.Path) -> None:
    pq.write_table(pa.table({"image": ["0" * 64], "jpeg": [MARKUP.encode()]}), path)


TABLE = "examples/clevr.parquet"
DAMAGES: Mapping[str, Callable[[pathlib.Path], object]] = {
    "table-cut": _cut(TABLE, 0.5),
    "table-empty": _cut(TABLE, 0),
    "table-flipped": _flipped(TABLE),
    "table-text": _text(TABLE, MARKUP),
    "table-other-columns": _replaced(TABLE, _without_columns),
    "table-no-rows": _replaced(TABLE, _no_rows),
    "table-link": _replaced(TABLE, lambda path: path.symlink_to("/etc/passwd")),
    "table-fifo": _replaced(TABLE, os.mkfifo),
    "table-folder": _replaced(TABLE, os.mkdir),
    "errors-cut": _cut("errors/part-0-00000.parquet", 0.5),
    "errors-fifo": _replaced("errors/part-0-00000.parquet", os.mkfifo),
    "errors-link": _replaced("errors/part-0-00000.parquet", lambda path: path.symlink_to("/dev/zero")),
    "gallery-markup": _replaced("gallery/clevr.parquet", _not_images),
    "gallery-cut": _cut("gallery/clevr.parquet", 0.5),
    "results-cut": _cut("results.json", 0.5),
    "results-list": _text("results.json", "[]"),
    "results-tasks-list": _with_tasks([1, 2]),
    "results-number": _with_tasks({"clevr": 3}),
    "results-text": _with_tasks({"clevr": {"accuracy": {"value": MARKUP, "low": [], "high": {}, "n": None}}}),
    "results-infinite": _text("results.json", '{"tasks": {"clevr": {"accuracy": {"value": 1e999, "n": NaN}}}}'),
    "results-deep": _text("results.json", "[" * 200_000),
    "results-latin": _text("results.json", b'{"tasks": {"\xff": {}}}'),
    "results-1-gb": _sparse("results.json", 10**9),
    "results-link": _replaced("results.json", lambda path: path.symlink_to("/etc/passwd")),
    "results-fifo": _replaced("results.json", os.mkfifo),
    "config-list": _text("config.json", "[]"),
    "config-deep": _text("config.json", '{"a":' * 200_000),
    "config-huge": _text("config.json", '{"identity": {}, "schema": 2, "model": "' + "x" * 50_000_000 + '"}'),
    "config-types": _changed("config.json", lambda content: {**content, "model": [1], "status": 7, "rounds": "x"}),
    "config-status": _changed("config.json", lambda content: {**content, "status": f"failed: {MARKUP}"}),
    "config-fifo": _replaced("config.json", os.mkfifo),
}
"""Name -> what breaks a copy of a run with the task ``clevr``."""


def damaged_runs(run: pathlib.Path, root: pathlib.Path) -> list[pathlib.Path]:
    """A copy of a run for each of `DAMAGES`."""
    made = []
    for name, damage in DAMAGES.items():
        shutil.copytree(run, root / name)
        damage(root / name)
        made.append(root / name)
    return made


def many_runs(run: pathlib.Path, root: pathlib.Path, count: int) -> None:
    """Folders of runs that have only begun."""
    config = (run / "config.json").read_text()
    for number in range(count):
        folder = root / f"run-{number:05}"
        (folder / "errors").mkdir(parents=True)
        (folder / "examples").mkdir()
        (folder / "config.json").write_text(config)
