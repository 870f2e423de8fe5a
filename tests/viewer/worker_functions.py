"""What a worker of the tests computes."""

import os
import pathlib
import signal
import sys
import time

from winobench.base.errors import InputError


def double(number):
    print("what libraries print")
    return {"value": 2 * number, "process": os.getpid()}


def surroundings():
    return {
        "leads_session": os.getsid(0) == os.getpid(),
        "out_of_memory": pathlib.Path("/proc/self/oom_score_adj").read_text().strip(),
        "platforms": os.environ["JAX_PLATFORMS"],
        "has_jax": "jax" in sys.modules,
    }


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
