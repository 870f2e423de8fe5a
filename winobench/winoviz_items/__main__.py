"""Serves the page on which a person writes WinoViz items.

python -m winobench.winoviz_items write OBJECTS.txt FOLDER NAME         # then open the printed address
python -m winobench.winoviz_items write OBJECTS.txt FOLDER NAME PORT    # ... at this port
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence

from absl import app

from winobench.base.errors import InputError


def main(arguments: Sequence[str]) -> None:
    """Runs one command: the program's name and the words after it."""
    try:
        match list(arguments[1:]):
            case ["write", objects, folder, name]:
                _write(objects, folder, name, None)
            case ["write", objects, folder, name, port] if port.isascii() and port.isdecimal():
                _write(objects, folder, name, int(port))
            case _:
                raise InputError(
                    "say 'write OBJECTS.txt FOLDER NAME': a file with an object a line, the folder of what people"
                    " write, and who writes. A port may follow",
                    code="bad-command",
                )
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def _write(objects: str, folder: str, name: str, port: int | None) -> None:
    """Serves the page until it is interrupted."""
    # Late: the server takes a while to load.
    from winobench.winoviz_items import page
    from winobench.winoviz_items.written import Written, read_objects

    with Written(folder, name, read_objects(objects)) as written, page.serve(written, port) as server:
        print(f"{server.address} is the page of {name}. Items go to {written.path}")
        print("end it with Ctrl-C. On another device, forward this port to it", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            print(f"\nitems written: {len(written.items):,}; objects left: {len(written.left):,}")


if __name__ == "__main__":
    app.run(main)
