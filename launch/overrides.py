"""Fields of a config, given on the command line as text."""

from __future__ import annotations

import ast
import difflib
import re
import types
from collections.abc import Sequence
from typing import Any

import ml_collections
from ml_collections import config_dict

from winobench import options
from winobench.errors import InputError

OVERRIDE = re.compile(r"--?config\.([\w.]*)(?:=(.*))?", re.DOTALL)
"""``--config.field=text``, or ``--config.field`` with the text as the next word."""

_WHOLE = re.compile(r"[+-]?[0-9][0-9_]*")
_TRUE, _FALSE = ("true", "t", "1", "yes"), ("false", "f", "0", "no")


def flat(config: ml_collections.ConfigDict, prefix: str = "") -> dict[str, Any]:
    """Dotted field -> value."""
    fields: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, ml_collections.ConfigDict):
            fields.update(flat(value, f"{prefix}{name}."))
        else:
            fields[f"{prefix}{name}"] = value
    return fields


def set_field(config: ml_collections.ConfigDict, field: str, value: Any) -> None:
    """Gives a field a value of any type, as tuples may change their length."""
    *parents, last = field.split(".")
    for parent in parents:
        config = config[parent]
    if type(config[last]) is not type(value) or config[last] != value:
        with config.ignore_type():
            config[last] = value


def override(config: ml_collections.ConfigDict, field: str, text: str) -> None:
    """Gives a field the value that a text stands for.

    Raises:
      InputError: there is no such field, or the text does not fit it.
    """
    *parents, last = field.split(".")
    holder = config
    for parent in parents:
        holder = holder.get(parent) if isinstance(holder, ml_collections.ConfigDict) else None
    if not isinstance(holder, ml_collections.ConfigDict) or last not in holder:
        known = list(flat(config))
        near = difflib.get_close_matches(field, known, n=3, cutoff=0.6)
        near += [name for name in known if name.rsplit(".", 1)[-1] == last and name not in near]
        hint = " or ".join(f"--config.{name}" for name in near)
        hint = f"did you mean {hint}?" if near else f"it has {', '.join(known)}."
        raise InputError(f"the config has no field {options.shown(field)}: {hint}", code="unknown-field")
    if isinstance(holder[last], ml_collections.ConfigDict):
        inner = ", ".join(f"{field}.{name}" for name in holder[last])
        raise InputError(f"--config.{field} is a group of fields: override one of {inner}.", code="group-of-fields")
    kind = holder.get_type(last)
    optional = isinstance(dict(holder.items(preserve_field_references=True))[last], config_dict.FieldReference)
    value = _convert(field, text, kind, holder[last], optional)
    with holder.ignore_type():  # the value has been given the field's type, and tuples may change their length
        holder[last] = value


def _convert(field: str, text: str, kind: type | types.UnionType, current: Any, optional: bool) -> Any:
    """A field's new value from its text; the field's type decides how it is read."""
    if optional and text.lower() in ("none", ""):
        return None
    try:
        if kind == int | str:
            return int(text.replace("_", "")) if _WHOLE.fullmatch(text) else text
        if kind == tuple | str:
            return text if re.fullmatch(r"[A-Za-z_]+", text) else tuple(_items(text, None))
        if kind is bool:
            if text.lower() not in _TRUE + _FALSE:
                raise ValueError
            return text.lower() in _TRUE
        if kind is int:
            if not _WHOLE.fullmatch(text.strip()):
                raise ValueError
            return int(text.replace("_", ""))
        if kind is float:
            if not text.isascii():
                raise ValueError
            return float(text)
        if kind is str:
            return text
        if kind in (tuple, list):
            return kind(_items(text, current))
    except (ValueError, SyntaxError, TypeError):
        names = {bool: "true or false", int: "a whole number", float: "a number"}
        wanted = names.get(kind, "a list with commas") + (", or none" if optional else "")
        raise InputError(f"--config.{field} is {wanted}, not {options.shown(text)}.", code="bad-value") from None
    raise InputError(
        f"--config.{field} holds a {kind.__name__}, which the command line cannot set.", code="field-not-settable"
    )


def _items(text: str, current: Sequence[Any] | None) -> list[Any]:
    """The items of a list like ``1,2`` or ``(1, 2)``, of the type of the present items if there are any."""
    words = [word.strip() for word in text.strip("()[] ").split(",") if word.strip()]
    if current:
        if not isinstance(current[0], str) and not text.isascii():
            raise ValueError
        return [type(current[0])(word) for word in words]
    try:
        return [ast.literal_eval(word) for word in words]
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return words
