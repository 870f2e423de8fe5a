"""Serves the pages on which people qualify for writing WinoViz items, and write them.

python -m winobench.contrib.people.winoviz_items qualify FOLDER NAME                # 12 questions
python -m winobench.contrib.people.winoviz_items write OBJECTS.txt FOLDER NAME      # items on the objects of a file

A port may follow. Open the address that the program prints.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence

from absl import app

from winobench.base.errors import InputError


def main(arguments: Sequence[str]) -> None:
    """Runs one command: the program's name and the words after it."""
    *words, port = [*arguments[1:], None]
    if words and words[-1].isascii() and words[-1].isdecimal():
        *words, port = *words[:-1], int(words[-1])
    try:
        match words:
            case ["qualify", folder, name]:
                _qualify(folder, name, port)
            case ["write", objects, folder, name]:
                _write(objects, folder, name, port)
            case _:
                raise InputError(
                    "say 'qualify FOLDER NAME' or 'write OBJECTS.txt FOLDER NAME': a file with an object a line, the"
                    " folder of what people write, and a person. A port may follow",
                    code="bad-command",
                )
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def _qualify(folder: str, name: str, port: int | None) -> None:
    # Late: the server takes a while to load.
    from winobench.contrib.people.winoviz_items import qualification

    with qualification.answers(folder, name) as given, qualification.serve(given, port) as server:
        _wait(server.address, name, f"Clicks go to {given.path}")
        print(f"\nright: {qualification.num_right(given.labels)} of {len(qualification.right_answers())}")


def _write(objects: str, folder: str, name: str, port: int | None) -> None:
    from winobench.contrib.people.winoviz_items import page
    from winobench.contrib.people.winoviz_items.written import Written, read_objects

    with Written(folder, name, read_objects(objects)) as written, page.serve(written, port) as server:
        _wait(server.address, name, f"Items go to {written.path}")
        print(f"\nitems written: {len(written.items):,}, objects left: {len(written.left):,}")


def _wait(address: str, name: str, place: str) -> None:
    """Until the server is interrupted."""
    try:
        print(f"{address} is the page of {name}. {place}")
        print("end it with Ctrl-C. On another device, forward this port to it", flush=True)
        threading.Event().wait()
    except KeyboardInterrupt:
        return


if __name__ == "__main__":
    app.run(main)
