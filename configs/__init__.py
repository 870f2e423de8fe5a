"""Named sets of values of options, which the launchers run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ml_collections
from ml_collections import config_dict

from winobench.base import options


def from_settings(settings: type, kind: str, values: Mapping[str, Any]) -> ml_collections.ConfigDict:
    """A config with the options of a dataclass."""
    config, values = ml_collections.ConfigDict({"kind": kind}), dict(values)
    for name, field in options.declared(settings).items():
        *groups, last = name.split(".")
        holder = config
        for group in groups:
            if group not in holder:
                holder[group] = ml_collections.ConfigDict()
            holder = holder[group]
        value, allowed = values.pop(name, field.default), field.metadata["range"]
        holder[last] = config_dict.FieldReference(value, field_type=allowed.kind) if allowed.optional else value
    if values:
        raise TypeError(f"{settings.__name__} has no option {next(iter(values))!r}")
    return config


def forms_of(
    name: str, settings: type, kind: str, forms: Mapping[str, Mapping[str, Any]]
) -> Callable[..., ml_collections.ConfigDict]:
    """A ``get_config`` whose argument is one of some forms, the first one by default: form -> values."""

    def get_config(form: str = next(iter(forms))) -> ml_collections.ConfigDict:
        """The config in one of its ``FORMS``."""
        if form not in forms:
            raise ValueError(f"{name} comes as {', '.join(forms)}, not {form!r}.")
        return from_settings(settings, kind, forms[form])

    return get_config
