"""Named sets of values of options, which the launchers run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ml_collections
from ml_collections import config_dict

from winobench.base import extensions, options

__path__ = [*__path__, *extensions.folders("configs")]


def forms_of(
    name: str, settings: type, kind: str, forms: Mapping[str, Mapping[str, Any]]
) -> Callable[..., ml_collections.ConfigDict]:
    """A ``get_config`` of a dataclass of options, in forms with their own values. The first one is the default."""

    def get_config(form: str = next(iter(forms))) -> ml_collections.ConfigDict:
        if form not in forms:
            raise ValueError(f"{name} comes as {', '.join(forms)}, not {form!r}.")
        config, values = ml_collections.ConfigDict({"kind": kind}), dict(forms[form])
        for option, field in options.declared(settings).items():
            *groups, last = option.split(".")
            holder = config
            for group in groups:
                if group not in holder:
                    holder[group] = ml_collections.ConfigDict()
                holder = holder[group]
            value, allowed = values.pop(option, field.default), field.metadata["range"]
            holder[last] = config_dict.FieldReference(value, field_type=allowed.kind) if allowed.optional else value
        if values:
            raise TypeError(f"{settings.__name__} has no option {next(iter(values))!r}")
        return config

    return get_config
