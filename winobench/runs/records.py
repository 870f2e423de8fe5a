"""A run's folder: its identity, the errors of every scored pair, the examples and the results.

    config.json                              the command, what the scores depend on, and how far it got
    errors/part-<process>-<number>.parquet   per-sample errors, written while the run continues
    examples/<task>.parquet                  one row an example
    gallery/<task>.parquet                   small images of some examples
    results.json                             the numbers

Runs of text benchmarks have ``responses`` (`winobench.runs.responses`), and runs that generate images have ``drawn``
and ``pictures`` (`winobench.runs.image_records`) instead of errors. Each of several processes writes parts of its own
number into the shared folder; the first process writes everything else. Files appear under their names only when they
are whole. A part that changed on disk is named, kept as ``*.damaged`` and computed again.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pyarrow as pa

from winobench.base import files as whole_files
from winobench.base import json_files, parquet_files
from winobench.base.errors import InputError
from winobench.base.files import digest as digest  # records are named by it, and so their users find it here
from winobench.runs.image_records import GENERATED, IMAGES

SCHEMA_VERSION = 2
"""Raised when a folder's layout or columns change."""

_TEMPORARY = ".tmp"
DAMAGED = ".damaged"
"""End of the name of a part that is set aside."""

ERRORS, RESPONSES = "errors", "responses"
"""Kinds of records that grow, and their folders. Another kind is ``GENERATED``."""

INSTANCE = "instance"
"""In the identity of a scorer without ``fingerprint()``: a name that no other scorer has."""

REPEATING = ("groups.list.element", "images.list.element", "terms.list.element", "texts.key_value.key", "status")
"""Columns of the tables of examples whose values repeat."""

_EXAMPLES, _GALLERY = "examples", "gallery"
_FOLDERS = {ERRORS: (ERRORS, _EXAMPLES, _GALLERY), RESPONSES: (RESPONSES, _EXAMPLES), GENERATED: (GENERATED, IMAGES)}
_SECONDS_OF_A_LOOK = 0.05
_REPORT = "report"  # what winobench report makes of the run, in the run's own folder


def write_json(path: pathlib.Path, value: Any) -> None:
    """Writes a JSON file that is either whole or not there."""
    with whole_files.writing(path):
        whole_files.write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def write_table(path: pathlib.Path, table: pa.Table, repeating: Collection[str] | None = None) -> None:
    """Writes a Parquet file that is either whole or not there."""
    with whole_files.writing(path):
        parquet_files.write(path, table, repeating)


class RunFolder:
    """The folder of one run. Nothing is written before ``open`` is called, and ``open`` writes only ``config.json``."""

    def __init__(self, path: str | os.PathLike, kind: str = ERRORS):
        path = whole_files.user_path(path)
        self.path = pathlib.Path(whole_files.check_utf8(path, "--workdir", "choose another name."))
        self._kind = kind
        self.config_path, self.results_path = self.path / "config.json", self.path / "results.json"
        self.records_path, self.errors_path = self.path / kind, self.path / ERRORS
        self.examples_path, self.gallery_path = self.path / _EXAMPLES, self.path / _GALLERY
        self._lock: int | None = None
        self._made = False
        self._replaces = False

    def check(self, identity: Mapping[str, Any]) -> None:
        """Refuses a folder that does not belong to this run."""
        if (recorded := self._read_config()) is None:
            return
        if recorded.get("schema") != SCHEMA_VERSION:
            raise InputError(
                f"{self.path} was written by another version of winobench (layout {recorded.get('schema')}, this one "
                f"writes {SCHEMA_VERSION}): choose another --workdir, or --overwrite to delete its records.",
                code="another-version",
            )
        differences = list(_differences(recorded["identity"], json_files.as_json(identity)))
        if any(line.startswith(f"scorer.{INSTANCE} (") and "null" not in line for line in differences):
            raise InputError(
                f"{self.path} holds a run that cannot continue: its scorer, like this one, does not say what its scores"
                f" depend on. Give {identity['scorer'].get('scorer', 'the scorer')} a method fingerprint() that"
                " returns it, such as {'scorer': 'mine', 'version': 1}, and begin in another folder. A run with"
                " fingerprint() resumes.",
                code="no-fingerprint",
            )
        if differences:
            more = f" and {len(differences) - 3} more" if len(differences) > 3 else ""
            raise InputError(
                f"{self.path} holds another run, which differs in {'; '.join(differences[:3])}{more}: choose another "
                "--workdir, or --overwrite to delete its records and start again.",
                code="another-run",
            )

    def open(self, description: Mapping[str, Any], *, overwrite: bool = False) -> None:
        """Makes the folder, takes it for this process and writes ``config.json``."""
        identity = description["identity"]
        if overwrite:
            self._read_config(remains=True)  # other folders are not deleted either
        else:
            self.check(identity)
        try:
            self._made = not self.path.exists()
            for name in _FOLDERS[self._kind]:
                (self.path / name).mkdir(parents=True, exist_ok=True)
            self._take()
            if not overwrite:
                self.check(identity)  # again: another process may have been here before this one took the folder
            for depth in ("", "*/", f"{IMAGES}/*/*/"):
                for leftover in self.path.glob(f"{depth}*{_TEMPORARY}"):
                    leftover.unlink()
            self._replaces = overwrite and self.config_path.exists()
            if overwrite:
                # A run without results is one that was interrupted, so that this may end anywhere. Where it ends
                # further down, the dependencies of errors tell the old run's from the new run's.
                self.results_path.unlink(missing_ok=True)
            self.describe(description)
            if overwrite:
                self._delete_records()
        except OSError as error:
            self.close()
            raise InputError(f"--workdir {self.path} cannot be written: {error}.", code="cannot-write") from error
        except BaseException:
            self.close()
            raise

    def discard(self) -> bool:
        """Takes away what ``open`` has made, unless that replaced another run, or something else lies in the folder."""
        if self._replaces or self._others():
            return False
        self._delete_records()
        self.results_path.unlink(missing_ok=True)
        self.config_path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # not empty: something else has come to lie there
            for name in _FOLDERS[self._kind]:
                (self.path / name).rmdir()
            if self._made:
                self.path.rmdir()
        return True

    def describe(self, description: Mapping[str, Any]) -> None:
        """Writes ``config.json``. A name that the run was given before stays, where there is no new one."""
        name = {}
        if not self._replaces:
            with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
                name = {"name": json_files.load(self.config_path)["name"]}
        write_json(self.config_path, {"schema": SCHEMA_VERSION, **name, **description})

    def write_examples(self, task: str, table: pa.Table) -> None:
        write_table(self.examples_path / f"{task}.parquet", table, REPEATING)

    def write_gallery(self, task: str, table: pa.Table) -> None:
        with whole_files.writing(self.gallery_path):
            self.gallery_path.mkdir(exist_ok=True)  # runs of text benchmarks have none as long as they need none
        write_table(self.gallery_path / f"{task}.parquet", table, ())

    def has_records(self) -> bool:
        return any(self.records_path.glob("part-*"))

    def neighbours(self) -> list[pathlib.Path]:
        """The folders of the parts of the runs next to this one, whose records may be of use here."""
        own = self.records_path.resolve()
        return sorted(path for path in self.path.resolve().parent.glob(f"*/{self._kind}") if path.resolve() != own)

    def close(self) -> None:
        """Lets other processes write into the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _read_config(self, *, remains: bool = False) -> dict[str, Any] | None:
        """The folder's config; None for one without files but a report, or, with ``remains``, a run's other files."""
        try:
            config = json_files.load(self.config_path)
        except FileNotFoundError:
            records = () if remains else (p for p in self._records() if not p.name.endswith(_TEMPORARY))
            if self._others(_REPORT) or any(True for _ in records):
                raise InputError(
                    f"--workdir {self.path} holds files but no winobench run (no config.json): choose another folder.",
                    code="not-a-run",
                ) from None
            return None
        except NotADirectoryError:
            raise InputError(f"--workdir {self.path} is a file: name a folder.", code="is-a-file") from None
        except (OSError, ValueError) as error:
            raise InputError(
                f"{self.config_path} cannot be read ({error}): choose another --workdir.", code="cannot-read"
            ) from error
        if not isinstance(config, dict) or "identity" not in config:
            raise InputError(f"{self.config_path} is not winobench's: choose another --workdir.", code="not-a-run")
        return config

    def _records(self) -> Iterator[pathlib.Path]:
        """The files of a run of any kind, but for its config."""
        for name in dict.fromkeys(name for names in _FOLDERS.values() for name in names):
            for pattern in ("*.parquet", "*.jsonl", f"*{DAMAGED}"):
                yield from (self.path / name).glob(pattern)
        yield from (self.path / IMAGES).glob("*/*/*.png")
        if self.results_path.exists():
            yield self.results_path

    def _others(self, *but: str) -> bool:
        """Whether the folder holds files that no run has, outside of these folders in it."""
        own = {self.config_path, *self._records()}
        return any(
            path.is_file()
            and not path.name.endswith(_TEMPORARY)
            and path not in own
            and path.relative_to(self.path).parts[0] not in but
            for path in self.path.rglob("*")
        )

    def _delete_records(self) -> None:
        for path in [path for path in self._records() if path != self.results_path]:
            path.unlink()

    def _take(self) -> None:
        # Runs with images and of texts both have a folder of examples.
        self._lock = os.open(self.records_path if self._kind == GENERATED else self.examples_path, os.O_RDONLY)
        is_ours = whole_files.lock(self._lock)
        if not is_ours:  # a viewer may be looking whether it is taken
            time.sleep(_SECONDS_OF_A_LOOK)
            is_ours = whole_files.lock(self._lock)
        if not is_ours:
            self.close()
            raise InputError(
                f"another process is writing into {self.path}: wait for it, or choose another --workdir.", code="in-use"
            )


def _differences(recorded: Any, wanted: Any, name: str = "") -> Iterator[str]:
    """Names the leaves in which two nested mappings differ."""
    if isinstance(recorded, dict) and isinstance(wanted, dict):
        for key in dict.fromkeys((*recorded, *wanted)):
            yield from _differences(recorded.get(key), wanted.get(key), f"{name}.{key}" if name else str(key))
    elif recorded != wanted:
        yield f"{name} ({_short(recorded)} there, {_short(wanted)} here)"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
