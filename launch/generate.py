"""Names the five launchers that replace ``launch.generate``. For one version."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence

from winobench.base.errors import InputError

from . import BAD_INPUT, configuration, output
from .overrides import LAUNCHERS


def new_command(words: Sequence[str]) -> str | None:
    """The command line that does what ``winobench generate`` did with these words. None if they named no program."""
    modes = [match[1] for word in words if (match := re.fullmatch("--?(caption|compare)(=true)?", word))]
    rest = [word for word in words if not re.fullmatch("--?(caption|compare)(=.*)?", word)]
    found = (re.fullmatch("--?config(?:=(.*))?", word) for word in words)
    specs = [match[1] or after for match, after in zip(found, [*words[1:], ""], strict=False) if match]
    if modes:
        launcher = modes[0]
    elif specs:
        launcher = LAUNCHERS.get(configuration.load(specs[-1]).kind, "eval")
    elif any(re.match("--?(config[.]|check|annotate|finish|workdir)", word) for word in words):
        launcher = "write_items"
    else:
        return None
    return shlex.join(["winobench", launcher, *rest])


if __name__ == "__main__":
    names = "winobench draw, caption, compare, edit and write_items, each with its own --help"
    try:
        sentence = f"winobench generate is five programs now: {new_command(sys.argv[1:]) or names}"
    except InputError as error:
        sentence = str(error)
    output.print_stderr(f"error: {configuration.in_one_line(sentence)}")
    sys.exit(BAD_INPUT)
