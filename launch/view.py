"""Shows runs in the browser: winobench view RUNS [RUNS ...]"""

from __future__ import annotations

import os
import threading
import webbrowser
from collections.abc import Sequence

from absl import flags

from winobench.base import extensions
from winobench.base.errors import InputError
from winobench.base.files import user_path

from . import configuration, reproduce

USAGE = """
Shows runs in the browser: a table of them, their numbers, every question with its scores and errors, comparisons, and
the questions on which two models differ. The words are folders of runs, or folders that hold runs:

  winobench view runs                              every run in runs/ (open the printed address)
  winobench view runs/a runs/b                     two runs
  winobench view runs --open                       opens the browser, too
  winobench view runs --allow_host=hub.example.org for a proxy of that name, such as JupyterHub's
  winobench view runs/a runs/b --bundle=site       writes the same pages into site/, for any web host

The page follows the folders: new runs appear, and those that are being computed show how far they are. The viewer only
reads. It needs no model, no device and no network, and only this computer can open it. Ctrl-C ends it.
"""

_PORT = flags.DEFINE_integer(
    "port", None, "Of the page. 8765 or the next free one by default.", lower_bound=0, upper_bound=65535
)
_OPEN = flags.DEFINE_bool("open", False, "Open the page in the browser.")
_ALLOW_HOST = flags.DEFINE_list(
    "allow_host", [], "Hosts of proxies that serve the page, with commas: NAME or NAME:PORT, as a browser shows them."
)
_REPRODUCE = f"{reproduce.eval_command.__module__}:{reproduce.eval_command.__name__}"
_BUNDLE = flags.DEFINE_string("bundle", None, "Folder to write the pages to as files, instead of serving them.")


def main(words: list[str]) -> None:
    if not words:
        raise InputError("no folder is named: winobench view RUNS [RUNS ...]", code="nothing-named")
    for word in words:
        if not os.path.isdir(user_path(word)):
            problem, code = ("is a file", "is-a-file") if os.path.exists(word) else ("does not exist", "no-such-folder")
            raise InputError(f"{word} {problem}: name a folder of a run, or one that holds runs", code=code)
    if _BUNDLE.value == "":
        raise InputError("--bundle names no folder: name a new one", code="nothing-named")
    if _BUNDLE.value:
        _write(words, _BUNDLE.value)
    else:
        _serve(words)


def _write(words: Sequence[str], folder: str) -> None:
    if _PORT.value is not None or _OPEN.value or _ALLOW_HOST.value:
        raise InputError(
            "--bundle writes files, and serves nothing: leave out --port, --open and --allow_host", code="bad-command"
        )
    extensions.find(extensions.PARTS, "viewer_bundle")(words, folder, _REPRODUCE)
    print(f"{folder} is a website: put it on any web host, or try it by python -m http.server --directory {folder}")


def _serve(words: Sequence[str]) -> None:
    # Late, so that --help answers at once.
    from winobench.viewer import server

    with server.serve(words, _PORT.value, _REPRODUCE, _ALLOW_HOST.value) as running:
        try:
            print(f"{running.address} shows {_said(words)}")
            if _ALLOW_HOST.value:
                print(f"through the proxy, add ?token={running.token} to its address of port {running.server_port}")
            print("end it with Ctrl-C. On another device, forward this port to it", flush=True)
            if _OPEN.value:
                webbrowser.open(running.address)
            threading.Event().wait()
        except KeyboardInterrupt:
            print()


def _said(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{len(words)} folders"


if __name__ == "__main__":
    configuration.start_without_config(main, usage=USAGE, takes_words=True)
