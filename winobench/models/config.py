"""Base of network configs: reads, checks and writes a published config.json."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

from winobench.base import options
from winobench.base.errors import InputError

# The version written into config.json. Diffusers' pipelines treat a UNet saved before 0.9 whose sample_size is under 64
# as mistaken and overwrite the size, so a small model must name a later one.
_DIFFUSERS_VERSION = "0.42.0"
# Published networks have 1e-3 at most. Below the smallest, single precision has no normal numbers.
_SMALLEST_EPSILON = 1e-37
_LARGEST_EPSILON = 0.1


@dataclasses.dataclass(frozen=True)
class NetworkConfig:
    """Base of the network configs: frozen, hashable, with the option names of the published ``config.json``.

    A subclass declares one field for each option that it implements. Construction and ``from_dict`` raise InputError
    for an option that is unknown or has an unsupported value.
    """

    # Option -> the values at which it is implemented.
    _only: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    # Options that are not written where they are None: what other networks of the same class name do not have.
    _optional: ClassVar[frozenset[str]] = frozenset()
    # Options that are read and dropped.
    _no_effect: ClassVar[frozenset[str]] = frozenset()
    # The name of the network in the file, and the key that holds it.
    _class_key: ClassVar[str] = "_class_name"
    _class_value: ClassVar[str] = ""
    # The class that files of transformers name as well.
    architecture: ClassVar[str] = ""
    # Options that hold the config of a part of the network -> the class of that config.
    _parts: ClassVar[Mapping[str, type[NetworkConfig]]] = {}

    @classmethod
    def _require_object(cls, values: Any) -> None:
        if not isinstance(values, Mapping):
            raise InputError(
                f"{cls.__name__}: a config.json holds an object of options, not {type(values).__name__}.",
                code="not-an-object",
            )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Builds the config from the contents of a published ``config.json``. A part that is missing has its defaults.

        Keys that begin with an underscore are bookkeeping of the library that wrote the file. They are dropped.
        """
        cls._require_object(values)
        named = values.get(cls._class_key, cls._class_value)
        if named != cls._class_value:
            raise InputError(
                f"{cls.__name__}: the config has {cls._class_key}={named!r}, expected {cls._class_value!r}; "
                "point to the folder of the right network.",
                code="wrong-kind-of-model",
            )
        parts = {key: part for key, part in cls._parts.items() if not isinstance(values.get(key), NetworkConfig)}
        values = {**values} | {
            key: part.from_dict({} if values.get(key) is None else values[key]) for key, part in parts.items()
        }
        fields = {field.name for field in dataclasses.fields(cls)}
        chosen = {}
        for key, value in values.items():
            value = _freeze(value)
            if key in fields:
                chosen[key] = value
            elif key in cls._only:
                _check_only(cls, key, value)
            elif not (key.startswith("_") or key == cls._class_key or key in cls._no_effect):
                raise InputError(
                    f"{cls.__name__}: unknown option {key}={value!r} in the config. Remove it if it is idle.",
                    code="unknown-option",
                )
        return cls(**chosen)

    def to_dict(self) -> dict[str, Any]:
        """The contents of a ``config.json`` that describes this network, ready for ``json.dump``."""
        header = {"architectures": [self.architecture]} if self.architecture else {}
        header[self._class_key] = self._class_value
        if self._class_key == "_class_name":
            header["_diffusers_version"] = _DIFFUSERS_VERSION
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return header | {
            key: _thaw(value) for key, value in values.items() if not (value is None and key in self._optional)
        }

    def _require(self, condition: bool, key: str, expected: str) -> None:
        """Raises InputError, which names the option, its value and the expected one, unless ``condition`` holds."""
        if not condition:
            raise InputError(
                f"{type(self).__name__}: unsupported option {key}={options.quote(getattr(self, key))}. Expected"
                f" {expected}.",
                code="unsupported-option",
            )

    def _require_choice(self, key: str, choices: Iterable[str]) -> None:
        # A tuple, as what a file holds may have no hash.
        choices = tuple(choices)
        self._require(getattr(self, key) in choices, key, " or ".join(map(repr, choices)))

    def _require_positive(self, *keys: str) -> None:
        for key in keys:
            self._require(is_count(getattr(self, key)), key, "a positive whole number")

    def _require_levels(self, channels: Any) -> int:
        """Checks ``block_out_channels``. Returns the number of levels."""
        is_tuple = isinstance(channels, tuple) and len(channels) > 0 and all(map(is_count, channels))
        self._require(is_tuple, "block_out_channels", "a tuple of positive whole numbers")
        return len(channels)

    def _require_counts(self) -> None:
        """Requires positive whole numbers of all fields declared ``int`` that are not ids of tokens."""
        ids = ("_token_id", "_token_index")
        counts = (field.name for field in dataclasses.fields(self) if field.type in ("int", int))
        self._require_positive(*(name for name in counts if not name.endswith(ids)))

    def _require_divisor(self, key: str, of: str) -> None:
        whole = getattr(self, of)
        self._require(whole % getattr(self, key) == 0, key, f"a divisor of {of}={whole}")

    def _require_token_ids(self, *keys: str) -> None:
        for key in keys:
            value = getattr(self, key)
            self._require(type(value) is int and value >= 0, key, "one token id")

    def _require_bool(self, *keys: str) -> None:
        for key in keys:
            self._require(isinstance(getattr(self, key), bool), key, "true or false")

    def _require_number(self, *keys: str, low: float = 1e-6, high: float = 1e6) -> None:
        """Requires positive numbers, by default any that a factor can be. Beyond them networks compute nonsense."""
        for key in keys:
            value = getattr(self, key)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            self._require(is_number and low <= value <= high, key, f"a number from {low:g} to {high:g}")

    def _require_epsilon(self, *keys: str) -> None:
        """Requires what keeps a norm from dividing by zero. With a large one all inputs look alike to a network."""
        self._require_number(*keys, low=_SMALLEST_EPSILON, high=_LARGEST_EPSILON)


def is_count(value: Any) -> bool:
    """True for a whole number of at least one (not a bool) that a shape of an array can have."""
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 2**31


def _freeze(value: Any) -> Any:
    return tuple(_freeze(item) for item in value) if isinstance(value, list | tuple) else value


def _thaw(value: Any) -> Any:
    if isinstance(value, NetworkConfig):
        return value.to_dict()
    return [_thaw(item) for item in value] if isinstance(value, tuple) else value


def _check_only(cls: type[NetworkConfig], key: str, value: Any) -> None:
    accepted = cls._only[key]
    # One value a level says the same as a single value. Bool and int are kept apart (0 is not False).
    items = value if isinstance(value, tuple) and value else (value,)
    if not all(any(item == choice and type(item) is type(choice) for choice in accepted) for item in items):
        choices = " or ".join(repr(choice) for choice in accepted)
        raise InputError(
            f"{cls.__name__}: unsupported option {key}={value!r}. winobench implements {choices} only.",
            code="unsupported-option",
        )
