"""Steps that all runs share: how they describe themselves, report progress and end."""

from __future__ import annotations

import contextlib
import datetime
import glob
import os
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax

from winobench import parallel
from winobench.base import json_files, parquet_files, trackers
from winobench.base import progress as progress_bars
from winobench.base.errors import InputError
from winobench.runs import provenance, records, run_tables
from winobench.runs.settings import Recording

# What readers raise for files that are not a finished run's. The run itself reports it.
_OF_ANOTHER_RUN = (OSError, ValueError, LookupError, TypeError, parquet_files.DamagedError)

# Folders of generated images were called pictures until 0.2.0.
_IMAGES = re.compile(r"(?<![a-z])images(?![a-z])")
_FREE = ("started", "name")  # what the same run may have another time

FINISHED = "finished"
"""``status`` in the ``config.json`` of a run that has all its numbers."""


def versions_of(identity: Mapping[str, Any], *, on_this_machine: bool, **more: Any) -> dict[str, Any]:
    """Versions, devices, weights and data behind the numbers of a run."""
    return {
        **provenance.software(),
        **more,
        "device": provenance.devices() if on_this_machine else None,
        "weights": identity["scorer"].get("model"),
        "scorer": identity["scorer"],
        "data": {name: described["data"] for name, described in identity["tasks"].items()},
    }


def described(
    identity: Mapping[str, Any],
    *,
    kind: str,
    model: str | None,
    config: Any,
    versions: Mapping[str, Any],
    name: str | None = None,
    **more: Any,
) -> dict[str, Any]:
    """The content of ``config.json`` when a run begins. A run without a name keeps the one that it has."""
    return {
        **({} if name is None else {"name": name}),
        "status": "running",
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "model": model or identity["scorer"].get("scorer", kind),
        "config": config,
        "identity": identity,
        **more,
        "versions": versions,
    }


def report_devices(model: Any, folder: pathlib.Path) -> None:
    """Says which devices compute, of a model that has some in this process, and where they record it."""
    mesh = getattr(model, "mesh", None)
    devices = "" if mesh is None else f"computes on {parallel.describe_mesh(mesh)}; "
    progress_bars.say(f"{devices}records in {folder}")


def folder_for(
    workdir: str | os.PathLike | None, name: str, identity: Mapping[str, Any], kind: str = records.ERRORS
) -> records.RunFolder:
    """The run's folder; ``runs/<name>-<digest of the identity>`` where none is named."""
    if workdir is None:
        workdir = pathlib.Path("runs") / f"{name}-{records.digest(identity)[:8]}"
        before = workdir.with_name(_IMAGES.sub("pictures", workdir.name))
        workdir = before if before.is_dir() and not workdir.exists() else workdir
    return records.RunFolder(workdir, kind)


def folders_named(workdir: str | os.PathLike | None, name: str, kind: str) -> list[records.RunFolder]:
    """The folders that `folder_for` may give, of runs that are there: one that is named, or several of any identity."""
    if workdir is not None:
        return [records.RunFolder(workdir, kind)]
    folders = []
    for path in sorted(pathlib.Path("runs").glob(f"{glob.escape(name)}-*")):
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            identity = json_files.load(path / "config.json")["identity"]
            if (folder := folder_for(None, name, identity, kind)).path == path:
                folders.append(folder)
    return folders


def finished_config(folder: records.RunFolder, description: Mapping[str, Any]) -> dict[str, Any] | None:
    """The ``config.json`` of a run that has finished as it is described now; None of any other run.

    What a description has only once the run is planned does not count. Neither do a checkout's uncommitted changes as
    the same version.
    """
    told = json_files.as_json({name: value for name, value in description.items() if name not in _FREE})
    told |= {"schema": records.SCHEMA_VERSION, "status": FINISHED}
    try:
        recorded = json_files.load(folder.config_path)
        is_same = all(recorded[name] == value for name, value in told.items())
        return recorded if is_same and not told["versions"]["winobench"]["dirty"] else None
    except _OF_ANOTHER_RUN:
        return None


def rename(folder: records.RunFolder, recorded: Mapping[str, Any], description: Mapping[str, Any]) -> None:
    """Gives a finished run the name of its description, if that has one."""
    if description.get("name", recorded.get("name")) != recorded.get("name"):
        folder.describe({**recorded, "name": description["name"]})


def finished(
    folder: records.RunFolder, description: Mapping[str, Any], is_recorded: Callable[[dict[str, Any]], bool]
) -> dict[str, Any] | None:
    """The results of a run of `finished_config`, all of whose files are whole; None otherwise.

    ``is_recorded(results)`` says whether all that they rest on is still in the folder. It may fail as readers do.
    """
    if (recorded := finished_config(folder, description)) is None:
        return None
    try:
        results = json_files.load(folder.results_path)
        if results["failed"] or list(results["tasks"]) != list(recorded["identity"]["tasks"]):
            return None
        for task in results["tasks"]:
            parquet_files.metadata(folder.examples_path / f"{task}.parquet")
        if not is_recorded(results):
            return None
        rename(folder, recorded, description)
        return results
    except _OF_ANOTHER_RUN:
        return None


@contextlib.contextmanager
def watched(
    recording: Recording, folder: records.RunFolder, description: Mapping[str, Any], unit: str
) -> Iterator[trackers.RunReporter]:
    """Reports the progress of an open run to its trackers, from the first process."""
    names = trackers.read(recording.log) if _is_first() else []
    if recording.overwrite and _is_first():
        trackers.forget(folder.path)
    told = json_files.as_json({name: description[name] for name in ("model", "config", "identity", "versions")})
    made = trackers.make_trackers(names, folder.path, told)
    with contextlib.closing(trackers.RunReporter(made, unit)) as watch:
        yield watch


def report_results(watch: trackers.RunReporter, results: Mapping[str, Any]) -> None:
    """Reports the values of whole tasks with their intervals, and a table of all numbers."""
    rows = run_tables.records(results["tasks"], groups=True)
    values = {
        f"{row['task']}/{row['metric']}{end}": row[column]
        for row in rows
        for column, end in (("value", ""), ("low", "/low"), ("high", "/high"))
        if not row["group"]
    }
    watch.summarise(values, rows)


def _is_first() -> bool:
    return not (jax.distributed.is_initialized() and parallel.num_processes() > 1) or parallel.is_main_process()


@contextlib.contextmanager
def recording(
    folder: records.RunFolder, description: Mapping[str, Any], has_records: Callable[[], bool], done: str = FINISHED
) -> Iterator[None]:
    """Records how the work inside ends: finished, interrupted, or failed and why. The first process does this.

    The folder of a run that ends before anything was recorded is taken away.
    """
    has_others = jax.distributed.is_initialized() and parallel.num_processes() > 1
    is_first = _is_first()
    try:
        yield
        if is_first:
            folder.describe({**description, "status": done})
    except BaseException as error:
        if is_first:
            # Who is interrupted has not waited for the other processes, which may be about to record something.
            alone = not has_others or not isinstance(error, KeyboardInterrupt)
            if not (alone and not has_records() and folder.discard()):
                reason = "interrupted" if isinstance(error, KeyboardInterrupt) else f"failed: {error}"
                with contextlib.suppress(InputError):  # the first error is the one to tell
                    folder.describe({**description, "status": reason})
        raise


def unusable(failed: Mapping[str, InputError]) -> InputError:
    """The error of a run none of whose tasks can be used, from each task's error."""
    if len(failed) == 1:
        return next(iter(failed.values()))
    reasons = "; ".join(f"{name}: {str(error).rstrip('.')}" for name, error in failed.items())
    return InputError(f"no task has usable data: {reasons}", code="no-usable-task")
