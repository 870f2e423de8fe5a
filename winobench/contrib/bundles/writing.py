"""The viewer as files: the application and the content of its addresses, for any web host."""

from __future__ import annotations

import contextlib
import html
import itertools
import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from winobench.base import files, json_files, progress
from winobench.base.errors import InputError
from winobench.data.images import pixels_alone
from winobench.runs import private_paths
from winobench.viewer import library, site
from winobench.viewer.server import APP
from winobench.viewer.worker import Crash, Worker

_DATA, _SITE = "data", "site.json"
_SECONDS = 900.0  # that a document may take
_PROBLEM = '<!DOCTYPE html>\n<meta charset="utf-8">\n<title>winobench</title>\n<p role="alert">{}</p>\n'


def write(
    paths: Sequence[str | os.PathLike[str]], folder: str | os.PathLike[str], reproduce: str | None = None
) -> None:
    """Writes the application and everything that it shows of some runs into a folder: all of it, or nothing.

    What cannot be made has a sentence in its place, which the page shows, and a line on stderr.

    Args:
      paths: folders of runs, or ones that hold runs.
      folder: new, empty, or a former bundle, which is replaced.
      reproduce: a function, as ``module:name``, from a run to the command by which it is made again.

    Raises:
      InputError: the folder holds other files (``not-empty``), it cannot be written, or no run was found.
    """
    target = pathlib.Path(os.path.abspath(files.user_path(folder)))
    runs = library.Library(paths)
    if not runs.run_folders():
        raise InputError("these folders hold no run: name others", code="nothing-named")
    with files.writing(target):
        _check(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as temporary:
            new = pathlib.Path(temporary) / "new"
            with Worker("winobench.viewer.tasks") as worker:
                _Bundle(new, runs, site.Site(runs, reproduce), worker).write()
            _check(target)  # again: it took a while
            old = pathlib.Path(temporary) / "old"
            with contextlib.suppress(FileNotFoundError):
                target.rename(old)
            try:
                new.rename(target)
            except OSError:
                if old.exists():
                    old.rename(target)
                raise


def _check(target: pathlib.Path) -> None:
    """Refuses a folder with files that no bundle has written."""
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        if json_files.load(target / _DATA / _SITE)["bundle"] is True and (target / "index.html").is_file():
            return
    raise InputError(f"{target} holds other files than a bundle: name a new folder", code="not-empty")


class _Bundle:
    """The files of a bundle, while they are written."""

    def __init__(self, folder: pathlib.Path, runs: library.Library, addresses: site.Site, worker: Worker):
        self._folder, self._library, self._site, self._worker = folder, runs, addresses, worker
        self._said: set[str] = set()

    def write(self) -> None:
        _copy_app(self._folder)
        for folder, *_ in os.walk(self._folder):  # the installed application may be its owner's alone
            os.chmod(folder, 0o777 & ~files.umask())
        (self._folder / ".nojekyll").touch()  # GitHub's pages would leave out names that begin with _
        run_folders = {run_folder.slug: run_folder for run_folder in self._library.run_folders()}
        runs = [run for run in self._library.runs() if run["slug"] in run_folders]
        settings = [_settings(run_folder) for run_folder in run_folders.values()]
        self._without_paths = private_paths.remover([run_folder.path for run_folder in run_folders.values()], settings)
        finished = [run for run in runs if run["status"] == library.FINISHED and run["kind"] != library.GENERATED]
        documents = [*_reports(finished), *_pairs(finished)]
        with progress.counting(len(runs) + len(documents), label="writing", unit="runs and comparisons") as advance:
            for run in runs:
                run["folder"] = run_folders[run["slug"]].path.name  # where it was is nobody's business
                self._write_run(run, run_folders[run["slug"]])
                advance(1)
            for address in documents:
                self._document(address)
                advance(1)
        self._json("runs.json", {"runs": runs})
        self._document("leaderboard.json")
        self._json(_SITE, site.described() | {"bundle": True})

    def _write_run(self, run: dict[str, Any], run_folder: library.RunFolder) -> None:
        at = f"runs/{run['slug']}"
        self._copy(f"{at}/config.json")
        if run["kind"] == library.GENERATED:
            drawn = self._document(f"{at}/drawn.json")
            for image in drawn.get("images", ()):
                for name in filter(None, (image["file"], image["thumbnail"])):
                    self._copy(f"{at}/{name}")
            return
        if not self._copy(f"{at}/results.json"):
            return
        document = self._document(f"{at}/run.json")
        if "error" in document:
            run |= {"status": library.UNREADABLE, "reason": document["error"]}
            return
        for task, entry in document["tasks"].items():
            for folder in ("examples", "gallery"):
                self._copy(f"{at}/{folder}/{task}.parquet")
            entry["has_errors"] = entry["has_errors"] and self._write_errors(
                f"{at}/errors/{task}.parquet", run_folder, task
            )
        document["facts"] = [fact for fact in document["facts"] if fact[0] != "folder"]
        document["exports"] = [name for name in document["exports"] if self._document(f"{at}/export/{name}")]
        self._json(f"{at}/run.json", document)

    def _write_errors(self, address: str, run_folder: library.RunFolder, task: str) -> bool:
        """Whether a task's errors are there."""
        try:
            content = self._made("errors", {"path": run_folder.root, "task": task}, library.stamps(run_folder.root))
        except Exception as error:
            self._say(address, error)
            return False
        if content:
            self._file(address, content)
        return bool(content)

    def _document(self, address: str) -> Any:
        """Writes the content of an address. Returns the value of JSON, or else whether the content could be made.

        If it could not, a sentence takes the place of JSON and of a report.
        """
        is_json = address.endswith(".json")
        try:
            target = self._site.find(address)
            if isinstance(target, site.Document):
                value = target.value
            elif isinstance(target, site.File):
                raise TypeError(f"{address} is a file, which is copied")
            else:
                content = self._made(target.function, target.arguments, target.version)
                value = json_files.parse(content, largest=len(content)) if is_json else None
            if not is_json:
                self._file(address, content)
                return True
            self._json(address, value)
            return value
        except Exception as error:  # one run that cannot be shown keeps no other from it
            sentence = self._say(address, error)
            with contextlib.suppress(OSError):
                if is_json:
                    self._json(address, {"error": sentence})
                elif address.startswith("report/"):
                    self._file(address, _PROBLEM.format(html.escape(self._without_paths(sentence))).encode())
            return {"error": sentence} if is_json else False

    def _made(self, function: str, arguments: Any, version: Any) -> bytes:
        path = self._worker.find(function, arguments, version, wait=_SECONDS)
        if path is None:
            raise Crash("it took too long")
        return path.read_bytes()

    def _copy(self, address: str) -> bool:
        """Copies a file of a run. Whether it is there."""
        try:
            file = self._site.find(address)
            if not isinstance(file, site.File):
                raise TypeError(f"{address} is made, not copied")
            descriptor = site.open_file(file)
        except (site.Missing, InputError):
            return False
        with open(descriptor, "rb") as source:
            if address.endswith(".json"):
                return self._copy_json(address, source.read())
            if address.endswith(".png"):  # programs write prompts and paths into it
                self._file(address, pixels_alone(source.read()))
                return True
            with self._path(address).open("wb") as copy:
                shutil.copyfileobj(source, copy, 2**20)
        return True

    def _copy_json(self, address: str, content: bytes) -> bool:
        """Copies JSON without the paths in it. Damaged JSON is left out."""
        try:
            value = json_files.parse(content, constants=True, largest=len(content))
        except json_files.NotJSON:
            return False
        public = self._without_paths(value)
        self._file(address, content if public == value else json.dumps(public, ensure_ascii=False).encode())
        return True

    def _json(self, address: str, value: Any) -> None:
        self._file(address, json.dumps(self._without_paths(value), ensure_ascii=False, allow_nan=False).encode())

    def _file(self, address: str, content: bytes) -> None:
        self._path(address).write_bytes(content)

    def _say(self, address: str, error: Exception) -> str:
        """Prints why something was not made, each reason once, and returns the sentence."""
        said = " ".join(str(error).split()).rstrip(".")
        said = f"{said[:1].upper()}{said[1:]}."
        if said not in self._said:
            progress.say(f"{address}: {said}")
        self._said.add(said)
        return said

    def _path(self, address: str) -> pathlib.Path:
        path = self._folder / _DATA / address
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


def _settings(run_folder: library.RunFolder) -> Any:
    """The content of a run's config.json, where it can be read."""
    try:
        with open(library.opened(run_folder.root, "config.json"), "rb") as file:
            return json_files.parse(file.read(library.LARGEST["config.json"]), constants=True)
    except (OSError, ValueError):
        return None


def _copy_app(folder: pathlib.Path) -> None:
    """Copies the application's files, without data that a developer may have put next to them."""
    shutil.copytree(
        APP,
        folder,
        ignore=lambda folder, names: {
            name for name in names if name == _DATA or os.path.islink(os.path.join(folder, name))
        },
        copy_function=shutil.copyfile,
    )


def _reports(runs: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The addresses of the reports: each run alone, and all of a kind together."""
    for run in runs:
        yield f"report/{run['slug']}.html"
    for kind in (library.IMAGES, library.TEXT):
        slugs = [run["slug"] for run in runs if run["kind"] == kind]
        if 2 <= len(slugs) <= library.MOST_RUNS:
            yield f"report/{'~'.join(slugs)}.html"


def _pairs(runs: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The addresses of the pairs of runs of one kind, in one order of each."""
    for one, other in itertools.combinations(runs, 2):
        if one["kind"] == other["kind"]:
            first, second = sorted((one["slug"], other["slug"]))
            yield f"pairs/{first}~{second}.json"
