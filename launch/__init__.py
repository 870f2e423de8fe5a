"""Entry points: ``winobench NAME``, or ``python -m launch.NAME`` in a checkout.

Errors while the libraries load are one line here, as in the launchers."""

import _thread
import contextlib
import gc
import importlib.metadata
import os
import re
import sys
import threading
import types
import warnings
from typing import Any

from winobench.base import extensions

__path__ = [*__path__, *extensions.folders("launch")]

BAD_INPUT, INTERRUPTED = 2, 130  # exit statuses

# Packages that are imported under another name than they are installed by.
_INSTALLED_AS = {
    "absl": "absl-py",
    "PIL": "pillow",
    "google": "protobuf",
    "sky": "skypilot",
    "orbax": "orbax-checkpoint",
    "tensorflow_datasets": "tensorflow-datasets",
    "yaml": "pyyaml",
}
_OWN = ("winobench", "launch", "configs")

_TRUE, _FALSE = ("1", "true", "t", "yes", "y", "on"), ("0", "false", "f", "no", "n", "off")
# Settings of JAX under which runs fail or give other numbers: the values under which they do not.
_USUAL = {
    "JAX_ENABLE_X64": _FALSE,
    "JAX_DEFAULT_PRNG_IMPL": ("threefry2x32",),
    "JAX_THREEFRY_PARTITIONABLE": _TRUE,
    "JAX_RANDOM_SEED_OFFSET": ("0",),
    "JAX_HIGH_DYNAMIC_RANGE_GUMBEL": _FALSE,
    "JAX_NUMPY_RANK_PROMOTION": ("allow", "warn"),
    "JAX_NUMPY_DTYPE_PROMOTION": ("standard",),
    "JAX_TRANSFER_GUARD": ("allow", "log", "log_explicit"),
    "JAX_NUM_CPU_DEVICES": ("-1", *map(str, range(1, 1_025))),
}
# Modules of JAX that read the environment and look for devices.
_SETTINGS, _DEVICES = "jax._src.config", "jax._src.xla_bridge"


def missing_package(error: BaseException) -> str | None:
    """One sentence on how to get a package that is not installed; None for other errors, such as our own modules'."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return None
    package = error.name.partition(".")[0]
    if package in _OWN or package in sys.stdlib_module_names:
        return None
    return f"the Python package {package} is not installed in {sys.prefix}: install it with {_installation(package)}."


def _installation(package: str) -> str:
    """The command that installs a package: alone, or with the smallest of winobench's extras that bring it."""
    name = _INSTALLED_AS.get(package, package).lower().replace("_", "-")
    brought: dict[str | None, set[str]] = {}  # extra, or None for those that always come -> names
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        for line in importlib.metadata.requires("winobench") or ():
            stated, extra = re.match(r"[\w.-]+", line), re.search(r"""; .*extra == ['"]([\w-]+)""", line)
            if stated is not None:
                brought.setdefault(extra and extra[1], set()).add(stated[0].lower().replace("_", "-"))
    extras = [extra for extra, names in brought.items() if name in names]
    if not extras or None in extras:
        return f"pip install {name}"
    return f"pip install 'winobench[{min(extras, key=lambda extra: len(brought[extra]))}]'"


def odd_setting() -> str | None:
    """One sentence on a setting of JAX in the environment that runs do not allow; None without any."""
    for name, usual in _USUAL.items():
        value = os.environ.get(name, usual[0])
        if value.lower() not in usual:
            return f"{name}={value!r} in the environment would give other numbers, or none: unset it."
    return None


def refused_environment(error: BaseException) -> str | None:
    """One sentence on an error of JAX about its settings and devices; None for other errors."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = None if trace is None else trace.tb_frame.f_globals.get("__name__")
    if not isinstance(error, Exception) or where not in (_SETTINGS, _DEVICES):
        return None
    reason = " ".join(str(error).split()).rstrip(".") or "a platform has no plug-in for JAX here"
    of_devices = ("JAX_PLATFORMS", "JAX_PLATFORM_NAME", "JAX_DEFAULT_DEVICE")
    names = of_devices if where == _DEVICES else [] if "jax_" in reason.lower() else sorted(os.environ)
    given = [f"{name}={os.environ[name]!r}" for name in names if name.startswith("JAX_") and name in os.environ]
    seen = f" (in the environment: {', '.join(given)})" if given else ""
    fault = "JAX refuses a setting" if where == _SETTINGS else "JAX finds no device"
    advice = "" if where == _SETTINGS else ": install that plug-in, such as 'winobench[cuda]', or unset the variable"
    return f"{fault}: {reason}{seen}{advice if given else ''}."


def _excepthook(kind: type[BaseException], error: BaseException, traceback: types.TracebackType | None) -> None:
    """Prints an error that nothing has handled in one line, where that is enough."""
    from . import output

    if isinstance(error, KeyboardInterrupt):
        output.print_stderr("interrupted")
        sys.exit(INTERRUPTED)
    sentence = missing_package(error) or refused_environment(error)
    if sentence is None:
        sys.__excepthook__(kind, error, traceback)
        return
    output.print_stderr(f"error: {sentence}")
    sys.exit(BAD_INPUT)


def _unraisablehook(error: Any) -> None:
    """Raises an interrupt again that came in a destructor or a callback of the collector, where Python drops it."""
    from winobench.base import interrupts

    if not issubclass(error.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(error)
    elif interrupts.is_usual():
        threading.Timer(0.05, _thread.interrupt_main).start()  # here it would be dropped, too


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Logs a warning in one line, without the place in the code that gave it."""
    from absl import logging

    logging.warning("%s", " ".join(str(message).split()))


def guard() -> None:
    """Makes errors and warnings one line, for a launcher that is about to run.

    Programs that import this have their own handlers.
    """
    sys.excepthook = _excepthook
    warnings.showwarning = _show_warning
    # JAX would take away the frames by which `refused_environment` knows its errors.
    os.environ.setdefault("JAX_TRACEBACK_FILTERING", "off")
    sys.unraisablehook = _unraisablehook
    # Tracing makes many objects and hardly any garbage: a collection for each 700 of them takes an eighth of the start.
    gc.set_threshold(100_000, 20, 20)
    from winobench.base import interrupts

    interrupts.watch()


# Until Python has found the module of ``-m``, this is its ``sys.argv``.
if sys.argv[:1] == ["-m"]:
    guard()
