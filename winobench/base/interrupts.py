"""An interrupt that nothing swallows. Python drops an exception that a callback or a destructor raises."""

from __future__ import annotations

import signal
import threading
from typing import Any

_came = False


def handle(*_: Any) -> None:
    """Handles Ctrl-C as Python does, and remembers it."""
    global _came
    _came = True
    raise KeyboardInterrupt


def watch() -> None:
    """Remembers interrupts from now on, where the program has no other handler."""
    if threading.current_thread() is threading.main_thread() and is_usual():
        signal.signal(signal.SIGINT, handle)


def is_usual() -> bool:
    """Whether an interrupt raises KeyboardInterrupt."""
    return signal.getsignal(signal.SIGINT) in (signal.default_int_handler, handle)


def check() -> None:
    """Raises an interrupt that came before and was dropped. Long loops call this at each step."""
    if _came and threading.current_thread() is threading.main_thread():
        raise KeyboardInterrupt
