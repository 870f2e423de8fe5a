"""Versions, commit and devices behind a number."""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
import platform
import subprocess
from typing import Any

from winobench.base import json_files, registry
from winobench.base.version import __version__

# Libraries whose version can change a number by more than nothing, or a file's layout.
_LIBRARIES: tuple[str, ...] = ("jax", "jaxlib", "flax", "numpy", "scipy", "pillow")
_LIBRARIES += ("pyarrow", "safetensors", "tokenizers", "transformers")


def software() -> dict[str, Any]:
    """Versions of winobench (``version``, ``commit``, ``dirty``), of Python and of the libraries that it runs on."""
    libraries = [*_LIBRARIES, *(api.package for api in registry.apis().values())]
    return {
        "winobench": {"version": __version__, **package_commit()},
        "python": platform.python_version(),
        "libraries": {name: version for name in libraries if (version := _version(name)) is not None},
    }


def package_commit(package: pathlib.Path | None = None) -> dict[str, Any]:
    """The commit of the package's files, and whether they, launchers or configs differ from it (None without git).

    A repository counts only if it tracks the package's ``__init__.py``: a package installed inside another project's
    repository must not report that project's commit. An installation from a repository's address carries the commit.
    """
    package = pathlib.Path(__file__).resolve().parents[1] if package is None else package
    if _git(package, "ls-files", "--error-unmatch", "__init__.py") is not None:
        commit = _git(package, "rev-parse", "HEAD")
        siblings = [name for name in ("launch", "configs") if (package.parent / name).is_dir()]
        changes = _git(package.parent, "status", "--porcelain", "--", package.name, *siblings)
        if commit is not None and changes is not None:
            return {"commit": commit.strip(), "dirty": bool(changes.strip())}
    return {"commit": _installed_commit(package), "dirty": None}


def devices() -> dict[str, Any]:
    """The kind and number of devices, and of processes."""
    import jax

    device = jax.devices()[0]
    return {
        "platform": device.platform,
        "kind": device.device_kind,
        "count": jax.device_count(),
        "processes": jax.process_count(),
    }


def _git(folder: pathlib.Path, *arguments: str) -> str | None:
    # A hook or another tool may have pointed git at its own repository.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        command = ["git", "-C", str(folder), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, env=environment, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None


def _installed_commit(package: pathlib.Path) -> str | None:
    """The commit of an installation from a repository's address (PEP 610), if it is this package's."""
    try:
        distribution = importlib.metadata.distribution("winobench")
        if pathlib.Path(str(distribution.locate_file(package.name))).resolve() != package:
            return None
        origin = json_files.parse(distribution.read_text("direct_url.json") or "{}")
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return None
    return origin.get("vcs_info", {}).get("commit_id")


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
