"""Fields of a config, given on the command line as text."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from winobench.base import near_names, options
from winobench.base.errors import InputError

# ``--config.field=text``, or ``--config.field`` with the text as the next word.
OVERRIDE = re.compile(r"--?config\.([\w.]*)(?:=(.*))?", re.DOTALL)

# As Python writes them: no zeros in front, which would make 1,000 a list of 1 and 0.
_WHOLE = re.compile(r"[+-]?(?:0|[1-9][0-9]*(?:_[0-9]+)*)")
# A text in double quotes, or a single letter.
_MARKS = re.compile(r'"(?:[^"\\]|\\.)*"|.', re.DOTALL)
_TRUE, _FALSE = ("true", "t", "1", "yes"), ("false", "f", "0", "no")


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted field -> value of nested dictionaries."""
    fields: dict[str, Any] = {}
    for name, value in config.items():
        fields |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return fields


def split(words: str | None) -> list[str]:
    """Words with commas, each once."""
    return list(dict.fromkeys(options.comma_separated(words or "")))


def named_values(flag: str, text: str) -> dict[str, str]:
    """Name -> value, of ``name=value`` with commas. A comma within JSON, or before no name, is part of a value."""
    parts, depth = [""], 0
    for mark in _MARKS.findall(text):
        depth = max(0, depth + (mark in "{[") - (mark in "}]"))
        if mark == "," and not depth:
            parts.append("")
        else:
            parts[-1] += mark
    values: dict[str, str] = {}
    for part in parts:
        name, equals, value = part.partition("=")
        name = name.strip()
        if not equals or not re.fullmatch(r"[A-Za-z]\w*", name):
            if not values:
                raise InputError(
                    f"{flag} is {options.quote(text)}, but it must be name=value, with commas between several",
                    code="bad-value",
                )
            values[next(reversed(values))] += f",{part}"
        elif name in values:
            raise InputError(f"{flag} has {name} twice: give it once", code="named-twice")
        else:
            values[name] = value.strip()
    return values


def check_name(field: str, known: Collection[str]) -> None:
    """Refuses a name that no field has, and one that a group of fields has."""
    if field in known:
        return
    if inner := [name for name in sorted(known) if name.startswith(f"{field}.")]:
        raise InputError(
            f"--config.{field} is a group of fields: override one of {', '.join(inner)}.", code="group-of-fields"
        )
    names = sorted(known)
    near = near_names.near(field, names)
    near += [name for name in names if name.rsplit(".", 1)[-1] == field.rsplit(".", 1)[-1] and name not in near]
    hint = " or ".join(f"--config.{name}" for name in near)
    hint = f"did you mean {hint}?" if near else f"it has {', '.join(names)}."
    raise InputError(f"the config has no field {options.quote(field)}: {hint}", code="unknown-field")


def read_text(field: str, text: str, allowed: options.Range, current: Any) -> Any:
    """A field's new value from its text. The type of its range decides how it is read."""
    kind, optional = allowed.kind, allowed.optional
    # An empty word is a shell's variable that is not set. It says nothing, but for a text.
    if optional and (text.lower() == "none" or (not text and kind is str)):
        return None
    try:
        if kind == int | str:
            return _whole(text) if _WHOLE.fullmatch(text) else _not_empty(text)
        if kind == tuple | str:
            return text if re.fullmatch(r"[A-Za-z_]+", text) else tuple(_items(text, None))
        if kind in _READERS:
            return _READERS[kind](text)
        if kind in (tuple, list):
            return kind(_items(text, current))
    except ValueError:
        names = {bool: "true or false", int: "a whole number", float: "a number"}
        wanted = names.get(kind, "a list with commas") + (", or none" if optional else "")
        raise InputError(f"--config.{field} is {wanted}, not {options.quote(text)}.", code="bad-value") from None
    raise InputError(f"--config.{field} holds a {kind}, which the command line cannot set.", code="field-not-settable")


def _whole(text: str) -> int:
    if not _WHOLE.fullmatch(text.strip()):
        raise ValueError
    return int(text)


def _number(text: str) -> float:
    if not text.isascii():
        raise ValueError
    return float(text)


def _truth(text: str) -> bool:
    if text.lower() not in _TRUE + _FALSE:
        raise ValueError
    return text.lower() in _TRUE


def _not_empty(text: str) -> str:
    if not text.strip():
        raise ValueError
    return text


_READERS: Mapping[type, Callable[[str], Any]] = {bool: _truth, int: _whole, float: _number, str: str}


def _items(text: str, current: Sequence[Any] | None) -> list[Any]:
    """The items of a list like ``1,2`` or ``(1, 2)``, of the type of the present items if there are any."""
    inner = text.strip()
    if inner[:1] + inner[-1:] in ("()", "[]"):
        inner = inner[1:-1].strip().removesuffix(",")
    words = [word.strip() for word in inner.split(",")]
    # Other brackets and quotes belong to something else than a flat list.
    if any(not word or re.search("[][(){}'\"]", word) for word in words):
        raise ValueError
    if current:
        return [_READERS[type(current[0])](word) for word in words]
    return [_plain(word) for word in words]


def _plain(word: str) -> Any:
    """A number, if the word is one. Itself otherwise."""
    for reader in (_whole, _number):
        with contextlib.suppress(ValueError):
            return reader(word)
    return word
