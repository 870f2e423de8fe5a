"""What a worker of the tests computes."""

import os
import signal
import sys
import time

from winobench.base.errors import InputError


def double(number):
    print("what libraries print")
    return {"value": 2 * number, "process": os.getpid()}


def slowly(seconds):
    time.sleep(seconds)
    return "done"


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def leave():
    sys.stdout.flush()
    os._exit(3)


def refuse():
    raise InputError("it is not there: name another", code="no-such-folder")


def fail():
    raise KeyError("key\nand more")


def fill():
    raise MemoryError


def odd():
    return {"value": float("nan")}
