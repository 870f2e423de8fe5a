"""The recipes of ``winobench train``, and the folder of a run: its config is kept, and another's is refused."""

from __future__ import annotations

import contextlib
import hashlib
import json
import pathlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from winobench.base import extensions, files, json_files
from winobench.base.errors import InputError

# Recipe -> module. It, or its ``RECIPE``, has ``run(config, workdir, max_seconds=..., log=...)``, which returns a
# report, ``free_fields(config)``, which may change when a run continues, and ``default_name(config, spec, digest)``.
# A module with ``ONE_PROCESS = True`` is not for several processes.
OWN_RECIPES = {"hardneg": "winobench.training.hardneg"}


def names() -> dict[str, str]:
    """Recipe -> module, also of packages that plug in."""
    return {**extensions.added(extensions.RECIPES), **OWN_RECIPES}


def load(name: str) -> Any:
    module = _module(name)
    return getattr(module, "RECIPE", module)


def needs_one_process(name: str) -> bool:
    return getattr(_module(name), "ONE_PROCESS", False)


def _module(name: str) -> Any:
    known = names()
    if name not in known:
        raise InputError(f"the config's recipe is {name!r}, but must be one of {', '.join(known)}", code="unknown-name")
    return extensions.load(known[name])


@contextlib.contextmanager
def run_folder(
    values: Mapping[str, Any],
    workdir: pathlib.Path,
    *,
    free: Collection[str],
    alone: bool = True,
    name: str | None = None,
) -> Iterator[None]:
    """Writes or checks the run's config in its folder, and locks it. A failed block leaves no new, empty folder.

    A run without a name keeps the one that it has.
    """
    path = workdir / "config.json"
    values = json_files.as_json(values)
    named: dict[str, Any] = {} if name is None else {"name": name}
    free = {*free, *({"name"} - values.keys())}
    with files.writing(workdir):
        is_new = not path.exists()
    if not is_new:
        recorded = json_files.read_object(path, "name another --workdir")
        named = {key: recorded[key] for key in ("name",) if key in recorded} | named
        old, new = _fixed(recorded, free), _fixed(values, free)
        differing = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
        if differing:
            raise InputError(
                f"{workdir} holds a run with another {', '.join(differing)}: give its settings or another --workdir",
                code="another-run",
            )
    made = [folder for folder in (workdir, *workdir.parents) if not folder.exists()]
    with files.writing(workdir):
        workdir.mkdir(parents=True, exist_ok=True)
    try:
        taken = f"another process is training in {workdir}: wait for it, or choose another --workdir"
        with files.locked(workdir, taken) if alone else contextlib.nullcontext():
            with files.writing(workdir):
                files.write_json(path, {**named, **values})
            yield
    except BaseException:
        with contextlib.suppress(OSError):  # another process has done so, or something else has come into it
            if is_new and [entry.name for entry in workdir.iterdir()] == [path.name]:
                path.unlink()
                for folder in made:
                    folder.rmdir()
        raise


def digest(values: Mapping[str, Any], *, free: Collection[str]) -> str:
    """Eight hexadecimal digits that identify the settings. Arguments as in `run_folder`."""
    fixed = _fixed(json_files.as_json(values), free)
    return hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()[:8]


def _fixed(values: Mapping[str, Any], free: Collection[str], prefix: str = "") -> dict[str, Any]:
    """Dotted field -> value, without the free ones."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= _fixed(value, free, f"{prefix}{name}.")
        elif prefix + name not in free:
            flat[prefix + name] = value
    return flat
