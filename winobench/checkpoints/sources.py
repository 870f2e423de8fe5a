"""Locations of a checkpoint's files: a local folder or a repository on the Hugging Face hub."""

from __future__ import annotations

import abc
import contextlib
import importlib.metadata
import os
import pathlib
import re
import stat
import time
from collections.abc import Iterable, Iterator
from typing import Any

from winobench.base import extensions, hub, json_files, options, registry
from winobench.base.errors import InputError
from winobench.base.files import digest, refuse_pointer, user_path

ADAPTER_CONFIG = "adapter_config.json"
"""The name of the config of peft's adapters."""

_COMMIT = re.compile(r"[0-9a-f]{40}")
_TICK_NS = 2 * 10**9  # the coarsest clock of a file system


class Source(abc.ABC):
    """The files of a checkpoint, found by name."""

    @abc.abstractmethod
    def find(self, name: str) -> str | None:
        """Returns the local path of a file (with ``/`` in its name for subfolders), fetched if needed, or None."""

    @abc.abstractmethod
    def names(self, subfolder: str) -> list[str]:
        """Returns the names of the files in a subfolder (``""`` for the top) as far as they are known, sorted."""

    def state(self) -> str | None:
        """A digest of where the files are and when they changed. It changes with a file. None where that is unknown.

        Reads no file: names, sizes and times tell. A time of change cannot be set, unlike a time of modification.
        """
        stamps = []
        try:
            for path in self.paths():
                status = path.stat()
                if not stat.S_ISDIR(status.st_mode):
                    stamps.append([str(path), status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns])
                elif path.is_symlink():  # the files of a linked folder are not listed
                    return None
        except OSError:  # such as a file of the hub's cache that is gone
            return None
        # Two changes within one tick of a file system's clock look alike.
        if not stamps or time.time_ns() - max(times[-1] for times in stamps) < _TICK_NS:
            return None
        return digest([stamps, {name: _version(name) for name in ("diffusers", "torch")}])

    @abc.abstractmethod
    def paths(self) -> list[pathlib.Path]:
        """All files on this machine, and their folders, in a fixed order. Empty where that is unknown."""

    @abc.abstractmethod
    def hint(self) -> str:
        """Returns why a file is missing although it may well exist, or an empty text."""

    def refuse_without_config(self) -> None:
        """Raises InputError where there is an adapter of peft's or a file in one piece, but no model's folder."""
        self.refuse_adapter()
        if files := self._files_without_config():
            raise InputError(
                f"{self} has no config of a model, but {shorten(files)}{self._way(files)}", code="no-such-file"
            )

    def _has_config(self) -> bool:
        return any(map(self.find, ("config.json", "model_index.json", "open_clip_config.json")))

    def _files_without_config(self) -> list[str]:
        if self._has_config():
            return []
        return [name for name in self.names("") if name.endswith(registry.SINGLE_FILES)]

    def _way(self, files: list[str]) -> str:
        return f": for a diffusion model in one file, {self.way_to(files[0])}" if files else ""

    def refuse_adapter(self) -> None:
        """Raises InputError where there is an adapter of peft's, but no model."""
        if not self._has_config() and self.find(ADAPTER_CONFIG) is not None:
            raise InputError(
                f"{self} holds an adapter ({ADAPTER_CONFIG}), but no model: name the model it was made for, with the"
                " adapter merged into its weights or, for a diffusion model, as its LoRA",
                code="wrong-kind-of-model",
            )

    @abc.abstractmethod
    def way_to(self, file: str) -> str:
        """Returns how a user names a file in one piece, such as "name FOLDER/FILE"."""

    def require(self, name: str, purpose: str) -> str:
        """Returns the local path of a file that cannot be missing."""
        path = self.find(name)
        if path is None:
            if hint := self.hint():
                raise InputError(f"{name} of {self} is not available: {hint}", code="hub-not-reached")
            self.refuse_adapter()
            way = self._way(self._files_without_config())
            raise InputError(f"{self} has no {name}, {purpose}{way}", code="no-such-file")
        return path


class LocalFolder(Source):
    """A folder on this machine."""

    def __init__(self, path: str | os.PathLike):
        self.path = pathlib.Path(path)

    def find(self, name: str) -> str | None:
        path = self.path / name
        if not path.is_file():
            return None
        refuse_pointer(path)
        return str(path)

    def names(self, subfolder: str) -> list[str]:
        folder = self.path / subfolder
        return sorted(entry.name for entry in folder.iterdir() if entry.is_file()) if folder.is_dir() else []

    def hint(self) -> str:
        return ""

    def way_to(self, file: str) -> str:
        return f"name {self.path / file}"

    def paths(self) -> list[pathlib.Path]:
        return sorted(self.path.absolute().rglob("*"))

    def __str__(self) -> str:
        return f"the folder {self.path}"


class HubRepository(Source):
    """A repository on the hub, through huggingface_hub: its cache, tokens and offline mode are respected.

    All files come from the first file's commit, even if the repository changes meanwhile.
    """

    def __init__(self, repo_id: str, revision: str | None = None):
        self.repo_id = repo_id
        self.requested = revision
        self.revision = revision
        self._unreachable: str | None = None

    def find(self, name: str) -> str | None:
        from huggingface_hub import errors

        repository, page = f"the hub repository {self.repo_id}", f"https://huggingface.co/{self.repo_id}"
        try:
            path = hub.download(self.repo_id, name, revision=self.revision)
        except errors.GatedRepoError as error:
            raise hub.refusal(error, repository, page) from error
        except errors.RepositoryNotFoundError as error:
            raise InputError(
                f"{repository} does not exist or is private, and no such local folder exists: check the spelling, or"
                " log in with `hf auth login` or the environment variable HF_TOKEN",
                code="no-such-repository",
            ) from error
        except errors.RevisionNotFoundError as error:
            message = f"{repository} has no revision {self.revision!r}: name a branch, tag or commit"
            raise InputError(message, code="no-such-revision") from error
        except errors.HFValidationError as error:
            message = f"{self.repo_id!r} is neither a local folder nor a hub id: {error}"
            raise InputError(message, code="no-such-model") from error
        except errors.RemoteEntryNotFoundError:
            return None
        except Exception as error:
            if refused := hub.refusal(error, repository, page):
                raise refused from error
            if isinstance(error, errors.LocalEntryNotFoundError | ConnectionError):
                # Offline, or no connection: the file may well exist on the hub.
                self._unreachable = _first_line(error)
                return None
            if isinstance(error, errors.EntryNotFoundError):
                return None
            # Any other fault of the transport or of the cache's disk.
            message = f"{name} of {repository} could not be fetched: {_first_line(error)}"
            raise InputError(message, code="cannot-download") from error
        self._pin(path)
        return path

    def names(self, subfolder: str) -> list[str]:
        import huggingface_hub

        if not hub.is_reachable():
            return []
        try:
            files = huggingface_hub.HfApi().list_repo_files(self.repo_id, revision=self.revision)
        # The names only serve an error message that is about to be raised. Whatever fails here would hide it.
        except Exception:
            return []
        folder = pathlib.PurePosixPath(subfolder or ".")
        return sorted(path.name for path in map(pathlib.PurePosixPath, files) if path.parent == folder)

    def hint(self) -> str:
        if self._unreachable is None:
            return ""
        from huggingface_hub import constants

        if constants.HF_HUB_OFFLINE:
            return "it is not in the local hub cache and HF_HUB_OFFLINE is set, so download it first"
        return "it is not in the local hub cache and the hub cannot be reached, so check the connection"

    def way_to(self, file: str) -> str:
        return f"download it (hf download {self.repo_id} {file} --local-dir=DIR), and name DIR/{file}"

    def paths(self) -> list[pathlib.Path]:
        path = next(filter(None, map(self.find, ("model_index.json", "config.json"))), None)
        return [] if path is None else sorted(pathlib.Path(path).parent.rglob("*"))

    def _pin(self, path: str) -> None:
        _, _, inside = pathlib.Path(path).as_posix().rpartition("/snapshots/")
        if _COMMIT.fullmatch(commit := inside.partition("/")[0]):
            self.revision = commit

    def __str__(self) -> str:
        return f"the hub repository {self.repo_id}"


def resolve(source: str | os.PathLike | Source, *, revision: str | None = None) -> Source:
    """A local folder or hub repository from a registered name, a folder or a hub id, or a single file."""
    if isinstance(source, Source):
        return source
    if not isinstance(source, str | os.PathLike):
        message = f"a model is a name, a folder or a hub id (owner/name), not {options.quote(source)}"
        raise InputError(message, code="wrong-type")
    name = os.fspath(source)
    for models in (registry.MODELS, registry.LANGUAGE_MODELS):
        if name in models:
            name = models[name].source
    if (parts := registry.single_file(name)) is not None:
        return extensions.find(extensions.PARTS, "single_file")(*parts, revision=revision)
    registry.refuse_address(name)
    path = user_path(name)
    if os.path.isdir(path):
        registry.check_embedded(os.fspath(path))
        return LocalFolder(path)
    if os.path.exists(path):
        raise InputError(registry.not_a_file(name), code="is-a-file")
    if not isinstance(name, str) or not registry.HUB_ID.fullmatch(name):
        message = f"{options.quote(name)} is neither an existing folder nor a hub id of the form owner/name"
        raise InputError(message, code="no-such-model")
    return HubRepository(name, revision)


def read_json(path: str | os.PathLike) -> dict[str, Any]:
    """Reads a JSON object of a checkpoint."""
    return json_files.read_object(path, "get it again")


def join(subfolder: str | None, name: str) -> str:
    """Joins a subfolder (None or ``""`` for the top) and a file name in the way of :meth:`Source.find`."""
    return f"{subfolder}/{name}" if subfolder else name


@contextlib.contextmanager
def blame(path: object) -> Iterator[None]:
    """Puts a file's name before the message of an InputError that does not begin with it."""
    try:
        yield
    except InputError as error:
        if str(error).startswith(str(path)):
            raise
        raise InputError(f"{path}: {error}", code=error.code) from error


def mismatch(message: str) -> InputError:
    """The error for two files of different models."""
    return InputError(f"{message}: check that both are of the same model", code="mismatched-parts")


def shorten(items: Iterable[str], limit: int = 4) -> str:
    """Joins the first few items and counts the rest, for messages."""
    items = list(items)
    rest = len(items) - limit
    return ", ".join(items[:limit]) + (f" and {rest} more" if rest > 0 else "")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
