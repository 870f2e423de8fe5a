"""Old names of commands, configs, fields and flags. They work in this version, with a line that gives the new name."""

from __future__ import annotations

import re
from collections.abc import Sequence

from . import output

CONFIGS = {"pictures": "images", "winoviz:pictures": "winoviz:images", "winoviz:pictures_debug": "winoviz:images_debug"}
FIELDS = {
    "pictures": "images",
    "pictures_per_premise": "images_per_premise",
    "drawer": "generator",
    "drawing": "generation",
}
FLAGS = {"drawn": "images"}

_CONFIG = re.compile(r"(--?config=)([^=]*)")
_FIELD = re.compile(r"(--?config\.)(\w+)(.*)", re.DOTALL)
_FLAG = re.compile(r"(--?)(\w+)(=.*)?", re.DOTALL)


def words(argv: Sequence[str]) -> list[str]:
    """A command line with new names."""
    return [_word(word) for word in argv]


def field(name: str) -> str:
    """The new dotted name of a config's field, as older runs have recorded it."""
    group, dot, inner = name.partition(".")
    return f"{FIELDS.get(group, group)}{dot}{inner}"


def _word(word: str) -> str:
    if match := _CONFIG.fullmatch(word):
        name, colon, form = match[2].partition(":")
        return _renamed(match[1], match[2], CONFIGS.get(match[2]) or f"{CONFIGS.get(name, name)}{colon}{form}")
    for pattern, names in ((_FIELD, FIELDS), (_FLAG, FLAGS)):
        if match := pattern.fullmatch(word):
            return _renamed(match[1], match[2], names.get(match[2], match[2])) + (match[3] or "")
    return word


def _renamed(prefix: str, old: str, new: str) -> str:
    if old != new:
        output.print_stderr(f"{prefix}{old} is now {prefix}{new}: the old name works in this version alone")
    return prefix + new
