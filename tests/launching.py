"""Launches ``python -m MODULE WORD ...`` as a user does, or within this process, where that is enough.

A process of its own takes seconds to import JAX and knows nothing of what this one has compiled. What only tells a
launch by its words, output, exit status and files from another is launched here; signals, kills, several processes, the
number of devices, and what ``--help`` imports need `launch_process` or `command`.
"""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import runpy
import subprocess
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping
from unittest import mock

from absl import flags, logging

# Whose flag is registered once, before any launch takes away what launchers register.
from launch import configuration

ROOT = pathlib.Path(__file__).resolve().parents[1]
"""The checkout, from which everything is launched and imported."""

# All launchers share its flag; the others' flags may have equal names.
_SHARED = configuration.__name__


def command(module: str, *words: object) -> list[str]:
    """The command line of a launch."""
    return [sys.executable, "-m", module, *map(str, words)]


def environment(devices: int | None = None, **more: str) -> dict[str, str]:
    """The environment of a process of its own, which imports from this checkout and compiles as the tests do.

    Args:
      devices: how many CPU devices it sees; as many as a user has if None.
      **more: further variables.
    """
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    number = "--xla_force_host_platform_device_count"
    of_xla = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if not flag.startswith(number)]
    of_xla += [] if devices is None else [f"{number}={devices}"]
    here = {"PYTHONPATH": path, "XLA_FLAGS": " ".join(of_xla), "JAX_PLATFORMS": "cpu", "COLUMNS": "120"}
    return {**os.environ, **here, **more}


def launch_process(
    module: str, *words: object, cwd: str | os.PathLike[str] | None = None, **more: str
) -> tuple[int, str, str]:
    """Runs a launcher in a process of its own.

    Args:
      module: such as ``launch.eval``.
      *words: what follows on the command line.
      cwd: where it runs; the checkout if None.
      **more: environment variables.

    Returns:
      (exit status, stdout, stderr).
    """
    done = subprocess.run(
        command(module, *words), capture_output=True, text=True, cwd=cwd or ROOT, env=environment(**more)
    )
    return done.returncode, done.stdout, done.stderr


def launch(module: str, *words: object, cwd: str | os.PathLike[str] | None = None, **more: str) -> tuple[int, str, str]:
    """As `launch_process`, but within this process, whose devices and compiled programs it uses.

    The launcher runs again as ``__main__``; its flags, the working directory, the environment, ``sys.argv`` and
    the standard streams are the caller's again afterwards. What it changes elsewhere stays: it may not join processes.
    """
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    status: object = 0
    with (
        mock.patch.dict(os.environ, {"COLUMNS": "120", **more}),
        mock.patch.object(sys, "argv", [module, *map(str, words)]),
        contextlib.chdir(cwd or ROOT),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        _logging_to(err),
        _flags_of_its_own(),
        warnings.catch_warnings(),
    ):
        # Tests import parts of launchers; what runs here is another copy.
        warnings.filterwarnings("ignore", message=".*found in sys.modules after import of package", module="runpy")
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        except SystemExit as end:
            status = end.code
        except BaseException:  # as the interpreter would
            traceback.print_exc()
            status = 1
    if status is None or isinstance(status, int):
        number = int(status or 0)
    else:
        err.write(f"{status}\n")
        number = 1
    texts = (stream.buffer.getvalue().decode() for stream in (out, err))
    return number, *texts


@contextlib.contextmanager
def _logging_to(stream: io.TextIOBase) -> Iterator[None]:
    """absl's handler keeps the stream that it was made with, and launchers lower its verbosity."""
    handler, verbosity = logging.get_absl_handler().python_handler, logging.get_verbosity()
    before = handler.setStream(stream)
    try:
        yield
    finally:
        handler.setStream(before)
        logging.set_verbosity(verbosity)


@contextlib.contextmanager
def _flags_of_its_own() -> Iterator[None]:
    """Takes away the flags of launchers that tests have imported, and gives them back; forgets parsed values."""
    known = flags.FLAGS

    def of_launchers() -> Mapping[str, tuple[str, flags.Flag]]:
        by_module = known.flags_by_module_dict().items()
        return {flag.name: (module, flag) for module, found in by_module if _is_launcher(module) for flag in found}

    def drop(names: Mapping[str, object]) -> None:
        for name in names:
            if name in known:
                delattr(known, name)

    before = of_launchers()
    drop({name: flag for name, (module, flag) in before.items() if module != _SHARED})
    try:
        yield
    finally:
        drop(of_launchers())
        known.unparse_flags()
        for name in known:
            known[name].unparse()
        for name, (module, flag) in before.items():
            flag.unparse()
            known[name] = flag
            known.register_flag_by_module(module, flag)
            known.register_flag_by_module_id(id(sys.modules.get(module)), flag)


def _is_launcher(module: str) -> bool:
    """Whether flags of this module are a launcher's; what runs as ``__main__`` has its flags under its file's path."""
    return module.startswith("launch.") or module == sys.argv[0] or module.startswith(str(ROOT))
