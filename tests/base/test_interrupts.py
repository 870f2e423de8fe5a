"""An interrupt that comes while a callback of the collector runs, where Python drops exceptions."""

import contextlib
import os
import signal

import pytest

from winobench.base import interrupts, progress


def test_a_dropped_interrupt_ends_the_loop_at_its_next_step(monkeypatch, capsys):
    monkeypatch.setattr(interrupts, "_came", False)
    before = signal.getsignal(signal.SIGINT)
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        interrupts.watch()
        assert interrupts.is_usual()
        with progress.counting(3, enabled=False) as advance:
            advance(1)
            with contextlib.suppress(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
            with pytest.raises(KeyboardInterrupt):
                advance(1)
    finally:
        signal.signal(signal.SIGINT, before)


def test_handlers_of_other_programs_stay():
    before = signal.getsignal(signal.SIGINT)
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        interrupts.watch()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        assert not interrupts.is_usual()
    finally:
        signal.signal(signal.SIGINT, before)
