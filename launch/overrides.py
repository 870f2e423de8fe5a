"""Fields of a config, given on the command line as text: ``--NAME=TEXT``, or ``--config.NAME=TEXT``."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from absl import flags

from winobench.base import near_names, options
from winobench.base.errors import InputError

# ``--name=text``, or ``--name`` with the text as the next word.
_NAMED = re.compile(r"--?(config\.)?([A-Za-z][\w.-]*)(?:=(.*))?", re.DOTALL)

# As Python writes them: no zeros in front, which would make 1,000 a list of 1 and 0.
_WHOLE = re.compile(r"[+-]?(?:0|[1-9][0-9]*(?:_[0-9]+)*)")
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


def names(usual: Any) -> dict[str, str]:
    """Name on the command line -> field, of a dataclass of options. None has no options."""
    return {} if usual is None else options.short_names(usual) | {field: field for field in options.declared(usual)}


def shown(usual: Any) -> dict[str, str]:
    """Field -> its shortest name on the command line that no flag of the launcher has."""
    fields = {field: name for name, field in reversed(names(usual).items())}
    return {
        field: f"config.{name}" if name in flags.FLAGS and "." not in name else name for field, name in fields.items()
    }


def parted(argv: Sequence[str], usual: Any) -> tuple[list[str], list[tuple[str, str]]]:
    """Parts a command line into words for absl, and (field, text) of fields.

    ``--X`` is the flag X, and ``--config.X`` the field X. Where one of them does not exist, both mean the other.
    Dashes in a name count as underscores.
    """
    fields, rest, overrides = names(usual), [], []
    switches = {name for name, flag in flags.FLAGS._flags().items() if flag.boolean}
    declared = options.declared(usual) if fields else {}
    switches |= {name for name, field in fields.items() if declared[field].metadata["range"].kind is bool}
    words = [*reversed(argv)]
    while words and words[-1] != "--":
        word = words.pop()
        match = _NAMED.fullmatch(word)
        if match is None:
            rest.append(word)
            continue
        prefix, name, text = match.groups()
        name = name.replace("-", "_")
        off = re.sub("^no_?", "", name)
        if text is None and off in switches and off != name and name not in fields.keys() | set(flags.FLAGS):
            name, text = off, "false"
        if name in fields and (prefix or name not in flags.FLAGS):
            overrides.append((fields[name], _next(name, words, name in switches) if text is None else text))
            continue
        rest.append(f"--{name}" if text is None else f"--{name}={text}")
        if text is None and name in flags.FLAGS and name not in switches and words:
            rest.append(words.pop())
    return [*rest, *reversed(words)], overrides


def _next(name: str, words: list[str], is_switch: bool) -> str:
    """Takes a field's text from the words, whose next one is the last. A switch needs no text."""
    if is_switch and not (words and words[-1].lower() in (*_TRUE, *_FALSE, "none")):
        return "true"
    if not words:
        raise InputError(f"--{name} lacks a value: write --{name}=<value>.", code="missing-value")
    return words.pop()


def check_name(field: str, known: Collection[str]) -> None:
    """Refuses a name that no field has, and one that a group of fields has."""
    if field not in known:
        said = f"the config has no field {options.quote(field)}"
        otherwise = f"it has {', '.join(sorted(known))}."
        raise unknown(field, {name: name for name in known}, said, otherwise, code="unknown-field")


def unknown(
    name: str, fields: Mapping[str, str], said: str, otherwise: str, *, others: Iterable[str] = (), code: str
) -> InputError:
    """The error of a name that no field has. It advises near names of fields, else of others, else ``otherwise``."""
    if inner := [f"--{known}" for known in [*fields, *others] if known.startswith(f"{name}.")]:
        return InputError(f"--{name} is a group: give one of {', '.join(inner)}.", code="group-of-fields")
    parts = {known: known.rpartition(".") for known in fields}
    group, _, last = name.rpartition(".")
    near_last = near_names.near(last, (part for *_, part in parts.values()))
    near = [known for word in near_last for known in fields if parts[known][2] == word]
    near = sorted([*near, *near_names.near(name, fields)], key=lambda known: parts[known][0] != group)
    by_field: dict[str, str] = {}
    for known in near:
        by_field.setdefault(fields[known], known)
    advised = [*by_field.values()][:3] or near_names.near(name, others, 1)
    return InputError(f"{said}: {near_names.question([f'--{known}' for known in advised], otherwise)}", code=code)


def read_text(name: str, text: str, allowed: options.Range, current: Any) -> Any:
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
            return tuple(_items(text, current)) if kind is tuple else _items(text, current)
    except ValueError:
        kinds: dict[Any, str] = {bool: "true or false", int: "a whole number", float: "a number"}
        wanted = kinds.get(kind, "a list with commas") + (", or none" if optional else "")
        raise InputError(f"--{name} is {wanted}, not {options.quote(text)}.", code="bad-value") from None
    raise InputError(f"--{name} holds a {kind}, which the command line cannot set.", code="field-not-settable")


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


_READERS: Mapping[Any, Callable[[str], Any]] = {bool: _truth, int: _whole, float: _number, str: str}


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
