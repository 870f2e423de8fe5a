"""winobench write_items with the tests' writer in place of every model: a program to launch."""

import os
import runpy
import sys
from unittest import mock

from tests.contrib.people.wscplus_items import fakes
from winobench.responders import loading


def load(name, *_, **__):
    print(f"loaded {name}", file=sys.stderr)
    return fakes.Writer(name, failing=tuple(map(int, os.environ.get("FAILING", "").split())))


if __name__ == "__main__":
    with mock.patch.object(loading, "load_responder", load):
        runpy.run_module("launch.write_items", run_name="__main__", alter_sys=True)
