"""Named sets of values of options, which the launchers run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ml_collections

from winobench.base import extensions, options

__path__ = [*__path__, *extensions.folders("configs")]


def forms_of(name: str, settings: type, *given: Any) -> Callable[..., ml_collections.ConfigDict]:
    """A ``get_config`` of a dataclass of options, in forms with their own values. The first one is the default.

    The forms (name -> dotted option -> value) are the last argument. Copies of earlier configs give a kind before them.
    """
    forms: Mapping[str, Mapping[str, Any]] = given[-1]

    def get_config(form: str = next(iter(forms))) -> ml_collections.ConfigDict:
        if form not in forms:
            raise ValueError(f"{name} comes as {', '.join(forms)}, not {form!r}.")
        values = options.values(settings())
        if unknown := forms[form].keys() - values.keys():
            raise TypeError(f"{settings.__name__} has no option {min(unknown)!r}")
        # The launcher checks types. Others may put any value into a field.
        config = ml_collections.ConfigDict(options.nested({**values, **forms[form]}), type_safe=False)
        object.__setattr__(config, "_made_by", name)  # which is not a field: `launch.configuration` reads it
        return config

    return get_config
