"""Launches ``python -m MODULE WORD ...`` within this process, or in a new one, which takes seconds to import JAX."""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import io
import multiprocessing
import os
import pathlib
import runpy
import signal
import socket
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing import forkserver
from typing import Any
from unittest import mock

from absl import flags, logging

# Whose flag is registered once, before any launch takes away what launchers register.
from launch import configuration
from winobench.base import memory, progress

ROOT = pathlib.Path(__file__).resolve().parents[1]
"""The checkout, from which everything is launched and imported."""

# All launchers share its flag; the others' flags may have equal names.
_SHARED = configuration.__name__


def module(launcher: str) -> str:
    """The module that ``python -m launch.LAUNCHER`` runs."""
    is_package = importlib.util.find_spec(f"launch.{launcher}").submodule_search_locations is not None
    return f"launch.{launcher}.__main__" if is_package else f"launch.{launcher}"


def environment(devices: int | None = None, **more: str) -> dict[str, str]:
    """The environment of a new process with so many CPU devices, which imports from this checkout."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    number = "--xla_force_host_platform_device_count"
    of_xla = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if not flag.startswith(number)]
    of_xla += [] if devices is None else [f"{number}={devices}"]
    here = {"PYTHONPATH": path, "XLA_FLAGS": " ".join(of_xla), "JAX_PLATFORMS": "cpu", "COLUMNS": "120"}
    return {**os.environ, **here, **more}


def start(module: str, *words: object, cwd: str | os.PathLike[str], **more: Any) -> subprocess.Popen[str]:
    """Starts a launcher in a new process, in an `environment`."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(
        [sys.executable, "-m", module, *map(str, words)], cwd=cwd, env=environment(**more), **streams
    )


class Fork:
    """A program in a fork of a process that has imported JAX, which would take two seconds again.

    It has what tests need of a `subprocess.Popen`. Variables that JAX reads when it is imported are this process's.
    """

    def __init__(self, module: str, *words: object, cwd: str | os.PathLike[str], printed: pathlib.Path, **more: Any):
        """Starts ``python -m module``, which prints to the files ``printed.out`` and ``printed.err``."""
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["winobench.evaluation.evaluate", "winobench.scorers.diffusion_itm", __name__])
        self._paths = [printed.with_suffix(".out"), printed.with_suffix(".err")]
        arguments = (module, [str(word) for word in words], os.fspath(cwd), environment(**more), self._paths)
        self._process = context.Process(target=_run, args=arguments)
        self._process.start()

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def communicate(self, timeout: float | None = None) -> tuple[str, ...]:
        self._process.join(timeout)
        if self._process.is_alive():
            raise TimeoutError(f"it still runs after {timeout} seconds")
        return tuple(path.read_text() for path in self._paths)

    def send_signal(self, number: int) -> None:
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        self._process.kill()

    @staticmethod
    def end_server() -> None:
        """Ends the process that is forked, which the next `Fork` starts again."""
        forkserver._forkserver._stop()


def _run(
    module: str, words: Sequence[str], cwd: str, environment: Mapping[str, str], paths: Sequence[pathlib.Path]
) -> None:
    """As a new interpreter would, which multiprocessing is not: it sets no last error, and calls nothing at exit."""
    for number, path in enumerate(paths, 1):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    sys.argv = [module, *words]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except Exception as error:
        sys.last_value = error
        traceback.print_exception(error)
        sys.exit(1)
    finally:
        atexit._run_exitfuncs()


def kill(process: subprocess.Popen[str] | Fork, ready: Callable[[], object]) -> None:
    """Kills a process as soon as ``ready`` returns something true."""
    deadline = time.monotonic() + 300
    try:
        while not ready() and time.monotonic() < deadline:
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=20)
        assert process.returncode == -signal.SIGKILL
    finally:
        process.kill()


def finish(processes: Sequence[subprocess.Popen[str] | Fork], status: int = 0) -> list[tuple[str, str]]:
    """Waits for processes, which must end with this status. Returns stdout and stderr of each."""
    try:
        printed = [process.communicate(timeout=500) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert {process.returncode for process in processes} == {status}, printed
    return printed


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return f"localhost:{probe.getsockname()[1]}"


def launch_process(
    module: str, *words: object, cwd: str | os.PathLike[str] = ROOT, **more: str
) -> tuple[int, str, str]:
    process = start(module, *words, cwd=cwd, **more)
    out, err = process.communicate()
    return process.returncode, out, err


def refuse(module: str, *words: object, named: Sequence[str] = (), **how: Any) -> None:
    """Launches with bad input, which must end with status 2 and one line that has some texts."""
    status, out, err = launch(module, *words, **how)
    assert (status, out, err.count("\n"), err.startswith("error: ")) == (2, "", 1, True), err
    assert all(text in err for text in named), err


def launch(module: str, *words: object, cwd: str | os.PathLike[str] | None = None, **more: str) -> tuple[int, str, str]:
    """As `launch_process`, but within this process, whose devices and compiled programs it uses."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    status: object = 0
    with (
        mock.patch.dict(os.environ, {"COLUMNS": "120", **more}),
        mock.patch.object(sys, "argv", [module, *map(str, words)]),
        mock.patch.object(memory, "keep_freed"),  # the tests' process is not a launcher's
        mock.patch.object(progress, "say_what_compiles"),  # nor would it stop
        contextlib.chdir(cwd or ROOT),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        _logging_to(err),
        flags_of_its_own(),
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
def flags_of_its_own() -> Iterator[None]:
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
    """Whether flags of this module are a launcher's; those of ``__main__`` are listed under its file's path."""
    return module.startswith("launch.") or module == sys.argv[0] or module.endswith(".py")


def is_running(process_id: int) -> bool:
    """Whether it does anything; one that has ended may wait for its new parent to notice."""
    try:
        status = pathlib.Path(f"/proc/{process_id}/stat").read_text()
    except OSError:
        return False
    return status.rsplit(")", 1)[1].split()[0] != "Z"
