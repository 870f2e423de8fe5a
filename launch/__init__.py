"""Entry points: ``python -m launch.<name>``. Thin: flags become a config, and the config one call into winobench.

This module is the first of the project's that a launcher runs. What goes wrong while the libraries are being loaded,
before the launchers' own handling of errors is there, is told here as it is there: in one line.
"""

import _thread
import signal
import sys
import threading
import types
from typing import Any

BAD_INPUT, INTERRUPTED = 2, 130
"""Exit statuses of the launchers."""

# Packages that are imported under another name than they are installed by, and those that an extra brings.
_INSTALLED_AS = {
    "absl": "absl-py",
    "PIL": "pillow",
    "google": "protobuf",
    "openai": "'winobench[api]'",
    "anthropic": "'winobench[api]'",
    "sky": "'winobench[cloud]'",
    "orbax": "orbax-checkpoint",
    "tensorflow_datasets": "tensorflow-datasets",
    "yaml": "pyyaml",
}
_OWN = ("winobench", "launch", "configs")


def missing_package(error: BaseException) -> str | None:
    """One sentence on how to get a package that is not installed; None if an error is about something else.

    A module of this project's own that is missing is a mistake, of which the traceback says more.
    """
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return None
    package = error.name.partition(".")[0]
    if package in _OWN or package in sys.stdlib_module_names:
        return None
    name = _INSTALLED_AS.get(package, package)
    return f"the Python package {package} is not installed in {sys.prefix}: install it with pip install {name}."


def _told(kind: type[BaseException], error: BaseException, traceback: types.TracebackType | None) -> None:
    """Python's last word on an error that nobody has handled; a launcher's is one line where that is enough."""
    from launch import output

    if isinstance(error, KeyboardInterrupt):
        output.tell("interrupted")
        sys.exit(INTERRUPTED)
    sentence = missing_package(error)
    if sentence is None:
        sys.__excepthook__(kind, error, traceback)
        return
    output.tell(f"error: {sentence}")
    sys.exit(BAD_INPUT)


def _dropped(error: Any) -> None:
    """Raises an interrupt again that came in a destructor or a callback of the collector, where Python drops it."""
    if not issubclass(error.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(error)
    elif signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        threading.Timer(0.05, _thread.interrupt_main).start()  # here it would be dropped, too


# Only of a launcher that Python is about to run: who imports this package has handlers of their own. Python has not
# found the module yet when it imports the package, and says so here.
if sys.argv[:1] == ["-m"]:
    sys.excepthook = _told
    sys.unraisablehook = _dropped
