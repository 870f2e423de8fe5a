"""Types, bounds and choices of options, checked by one mechanism, in the same words everywhere.

An option is a field of a dataclass (`option`), from which configs, ``--help`` and checks are made.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import numbers
import operator
import re
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from winobench.base.errors import InputError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

_LONGEST_SHOWN = 80
# Beyond every path that a system takes, and enough for a list of some models.
_LONGEST_TEXT = 16_384


@dataclasses.dataclass(frozen=True)
class Range:
    """The values that an option may have. ``convert`` returns a value as used, or raises ValueError or TypeError."""

    wanted: str
    convert: Callable[[Any], Any]
    kind: type | types.UnionType = str
    optional: bool = False

    def check(self, name: str, value: Any, code: str = "bad-value") -> Any:
        """The value as it is used: NumPy's numbers as Python's, lists as tuples."""
        if value is None and self.optional:
            return None
        try:
            return self.convert(value)
        except (ValueError, TypeError, OverflowError):
            none = ", or none" if self.optional else ""
            raise InputError(f"{name} is {quote(value)}, but it must be {self.wanted}{none}", code=code) from None

    def or_none(self) -> Range:
        return dataclasses.replace(self, optional=True)

    def __or__(self, other: Range) -> Range:
        def convert(value: Any) -> Any:
            try:
                return self.convert(value)
            except (ValueError, TypeError, OverflowError):
                return other.convert(value)

        wanted, kind = f"{self.wanted}, or {other.wanted}", self.kind | other.kind
        return Range(wanted, convert, kind, self.optional or other.optional)


def option(default: Any, allowed: Range, help: str = "", **about: Any) -> Any:
    """A field of a dataclass of options.

    Args:
      **about: ``outside``: in a config, the option stands outside the group that its dataclass is.
        ``only_for``: cases that the option is for, such as a race. In others only its ``usual`` values are allowed,
        which are the default unless named. With ``ignored``, any value is, and has no effect.
        ``recorded``: False for one that changes no number. ``unless_default``: not recorded where it has that value.
        ``read``: value -> value as it is used, where a call may give more than the range has. Raises InputError.
        ``code``: of the error of a value that is not allowed, if not ``bad-value``.
    """
    return dataclasses.field(default=default, metadata={"range": allowed, "help": help, **about})


def group(of: type, *, short: tuple[str, ...] = ()) -> Any:
    """A field of a dataclass of options that holds another one's options. ``short``: they need not name the group."""
    return dataclasses.field(default_factory=of, metadata={"group": of, "short": short})


def declared(settings: Any, prefix: str = "") -> dict[str, dataclasses.Field]:
    """Dotted name -> field, of the options of a dataclass and of its groups. Other fields are left out."""
    found: dict[str, dataclasses.Field] = {}
    for field in dataclasses.fields(settings):
        if "range" in field.metadata:
            found[("" if field.metadata.get("outside") else prefix) + field.name] = field
        elif "group" in field.metadata:
            found |= declared(field.metadata["group"], f"{prefix}{field.name}.")
    return found


def short_names(settings: Any) -> dict[str, str]:
    """Name -> dotted name, of the options of groups that may be named without their group."""
    fields = dataclasses.fields(settings)
    return {name: f"{field.name}.{name}" for field in fields for name in field.metadata.get("short", ())}


def values(settings: Any, prefix: str = "") -> dict[str, Any]:
    """Dotted name -> value, of the options of a dataclass and of its groups, as `declared` names them."""
    named: dict[str, Any] = {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if "range" in field.metadata:
            named[("" if field.metadata.get("outside") else prefix) + field.name] = value
        elif "group" in field.metadata:
            named |= values(value, f"{prefix}{field.name}.")
    return named


def replaced(settings: T, given: Mapping[str, Any], prefix: str = "") -> T:
    """A dataclass of options with other values: dotted name -> value."""
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(settings):
        name = ("" if field.metadata.get("outside") else prefix) + field.name
        if "group" in field.metadata:
            changes[field.name] = replaced(getattr(settings, field.name), given, f"{prefix}{field.name}.")
        elif name in given:
            changes[field.name] = given[name]
    return dataclasses.replace(settings, **changes)


def part(settings: Any, kind: type[T]) -> T:
    """The options of a dataclass that its parent or another class has, too."""
    return kind(**{field.name: getattr(settings, field.name) for field in dataclasses.fields(kind)})


def nested(named: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted name -> value, as dictionaries of dictionaries, in alphabetical order."""
    whole: dict[str, Any] = {}
    for name in sorted(named):
        *groups, last = name.split(".")
        holder = whole
        for group in groups:
            holder = holder.setdefault(group, {})
        holder[last] = named[name]
    return whole


def checked(field: dataclasses.Field, name: str, value: Any) -> Any:
    """An option's value as it is used. Raises InputError for one that is not allowed."""
    if value is None and field.default is None:
        return None
    about = field.metadata
    return (
        about["read"](value) if "read" in about else about["range"].check(name, value, about.get("code", "bad-value"))
    )


def out_of_place(
    fields: Mapping[str, dataclasses.Field], values: Mapping[str, Any], cases: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Yields (name, case that the option is for), of options with unusual values that these cases do not have."""
    for name, field in fields.items():
        lacking = [case for case in field.metadata.get("only_for", ()) if case not in cases]
        if lacking and name in values and not field.metadata.get("ignored"):
            usual = field.metadata.get("usual", (field.default,))
            if checked(field, name, values[name]) not in usual:
                yield name, lacking[0]


def quote(value: Any) -> str:
    """A value for a message, cut where it is long."""
    try:
        text = repr(value)
    except Exception:  # a number with too many digits to be written, or an object with its own fault
        return f"a {type(value).__name__} that cannot be written out"
    text = " ".join(text.split()).encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 3]}..."


def comma_separated(text: str) -> list[str]:
    """The words of a text with commas between them, without white space and empty ones."""
    return list(filter(None, map(str.strip, text.split(","))))


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _need(condition: Any) -> None:
    if not condition:
        raise ValueError


def whole(low: int, high: int, multiple_of: int = 1) -> Range:
    """Whole numbers from ``low`` to ``high``, both included."""

    def convert(value: Any) -> int:
        _need(not isinstance(value, bool) and not type(value).__name__.startswith("bool"))
        number = operator.index(value)
        _need(low <= number <= high and number % multiple_of == 0)
        return number

    multiple = f" that is a multiple of {multiple_of}" if multiple_of != 1 else ""
    return Range(f"a whole number from {low:,} to {high:,}{multiple}", convert, int)


def number(
    low: float | None = None, high: float | None = None, *, above: float | None = None, below: float | None = None
) -> Range:
    """Finite numbers from ``low`` to ``high``, both included, or strictly between ``above`` and ``below``."""

    def convert(value: Any) -> float:
        _need(isinstance(value, numbers.Real) and not isinstance(value, bool))
        result = float(value)
        _need(math.isfinite(result))
        _need((low is None or result >= low) and (above is None or result > above))
        _need((high is None or result <= high) and (below is None or result < below))
        return result

    first = f"above {_said(above)}" if above is not None else "" if low is None else f"from {_said(low)}"
    last = f"below {_said(below)}" if below is not None else "" if high is None else f"up to {_said(high)}"
    bounds = " and ".join(filter(None, (first, last)))
    if low is not None and high is not None:
        bounds = f"from {_said(low)} to {_said(high)}"
    return Range(f"a finite number {bounds}".rstrip(), convert, float)


def _said(bound: float) -> str:
    return f"{bound:,.15g}"


def flag() -> Range:
    def convert(value: Any) -> bool:
        _need(isinstance(value, bool) or type(value).__name__ in ("bool", "bool_"))
        return bool(value)

    return Range("true or false", convert, bool)


def instance(wanted: str, *kinds: type) -> Range:
    """Objects of some classes. ``wanted`` says which, and where they come from."""

    def convert(value: Any) -> Any:
        _need(isinstance(value, kinds))
        return value

    return Range(wanted, convert)


def choice(*choices: str) -> Range:
    def convert(value: Any) -> str:
        _need(isinstance(value, str) and value in choices)
        return value

    return Range(f"one of {', '.join(choices)}" if len(choices) > 1 else choices[0], convert)


def words(*choices: str) -> Range:
    """A text of one or more of some words, with commas."""

    def convert(value: Any) -> str:
        _need(isinstance(value, str))
        chosen = comma_separated(value)
        _need(chosen and set(chosen) <= set(choices) and len(set(chosen)) == len(chosen))
        return value

    return Range(f"one or more of {', '.join(choices)}, with commas, each once", convert)


def text(longest: int = _LONGEST_TEXT) -> Range:
    """A text that can be printed and written as UTF-8. Empty where its own function says what that means."""

    def convert(value: Any) -> str:
        _need(isinstance(value, str) and len(value) <= longest)
        value.encode("utf-8")
        _need(not re.search(r"[\x00-\x1f\x7f]", value))
        return value

    return Range(f"a text in UTF-8 of at most {longest:,} characters, without control characters", convert)


def settings() -> Range:
    """Names and values, ``zero_empty_text=true,guidance=0.5``. Given back as a dict of numbers, booleans and texts."""

    def convert(value: Any) -> dict[str, Any]:
        if isinstance(value, Mapping):
            return dict(value)
        _need(isinstance(value, str))
        parts = [part.partition("=") for part in value.split(",")]
        _need(all(re.fullmatch(r"[a-z]\w{0,99}", name.strip()) and equals for name, equals, _ in parts))
        _need(len({name.strip() for name, _, _ in parts}) == len(parts))
        return {name.strip(): _value(text.strip()) for name, _, text in parts}

    return Range("names and values, such as zero_empty_text=true, with commas between several", convert)


def _value(text: str) -> bool | int | float | str:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            if text.isascii() and math.isfinite(kind(text)):
                return kind(text)
    return text


def items(item: Range, low: int = 1, high: int = 1_000_000) -> Range:
    def convert(value: Any) -> tuple[Any, ...]:
        _need(isinstance(value, list | tuple) or hasattr(value, "tolist"))
        values = value if isinstance(value, list | tuple) else value.tolist()
        _need(isinstance(values, list | tuple) and low <= len(values) <= high)
        return tuple(item.convert(one) for one in values)

    count = f"{low}" if low == high else f"at least {low}"
    return Range(f"a list of {count}, with commas, each of them {item.wanted}", convert, tuple)


def names() -> Range:
    """Texts, or one text alone. Given back as a tuple."""

    def convert(value: Any) -> tuple[str, ...]:
        return tuple(map(text().convert, (value,) if isinstance(value, str) else value))

    return Range("a text, or a list of texts", convert, tuple)


def span(high: int) -> Range:
    """(first, end): two whole numbers, 0 <= first < end <= high."""
    both = items(whole(0, high), 2, 2)

    def convert(value: Any) -> tuple[int, int]:
        first, end = both.convert(value)
        _need(first < end)
        return first, end

    return Range(f"two whole numbers with a comma, 0 <= first < end <= {high:,}", convert, tuple)


def _in_text(wanted: str, pattern: str, is_allowed: Callable[[str], bool], most: int) -> Range:
    """A text of numbers with commas, at most ``most`` of them."""

    def convert(value: Any) -> str:
        _need(isinstance(value, str))
        parts = [part.strip() for part in value.split(",")]
        _need(len(parts) <= most and all(re.fullmatch(pattern, part) and is_allowed(part) for part in parts))
        return value

    return Range(f"{wanted} with commas", convert)


# Ranges of what several configs and functions have.

MAX_SAMPLES = 1_000_000
MAX_TIMESTEPS = 1_000_000
MAX_STEPS = 1_000_000_000
ANTITHETIC = "antithetic"
"""The rule by which two samples share a timestep, and the second has minus the noise of the first."""
TIMESTEP_RULES = ("uniform", "low_discrepancy", ANTITHETIC, "stratified", "even", "published")
ALL = "all"
"""In place of a range of timesteps: all of the schedule's, and not the range in the model's folder."""

SEED = whole(0, 2**32 - 1)
COUNT = whole(1, 1_000_000_000)
NUM_SAMPLES = whole(1, MAX_SAMPLES)
BATCH_SIZE = whole(1, 1_048_576)
IMAGE_SIZE = whole(1, 65_536)
MAX_PIXELS = whole(1, 2**26)
DEVICES = whole(1, 65_536)
LIMIT = COUNT.or_none()
DTYPES = ("float32", "bfloat16", "float16")
DTYPE = choice(*DTYPES)
DTYPE_NAMES = f"{', '.join(DTYPES[:-1])} or {DTYPES[-1]}"
BACKENDS = ("auto", "native", "torch")
"""What runs a model: the first of the others that can, a family in Flax, or torch's own code under JAX."""
BACKEND = choice(*BACKENDS)
SCALE = number(-1e6, 1e6)
ALPHA = number(above=0, below=0.5)
RARE_SHARE = number(above=0, high=0.5)
NOISE_LEVEL = number(above=0, high=1)
IMPORTANCE = "importance"
"""The rule of a race that learns its timesteps from a pilot: see `winobench.evaluation.importance`."""
ANTITHETIC_IMPORTANCE = "antithetic_importance"
"""The same for a fixed number of samples, two of which share a timestep and have opposite noise."""
LEARNED_TIMESTEPS = (IMPORTANCE, ANTITHETIC_IMPORTANCE)
_NUMBER, _LEVEL = r"[0-9]{1,9}", r"[01]?\.[0-9]{1,20}"
TIMESTEPS = (
    choice(*TIMESTEP_RULES, *LEARNED_TIMESTEPS)
    | _in_text(
        f"whole numbers from 0 to {MAX_TIMESTEPS - 1:,}", _NUMBER, lambda part: int(part) < MAX_TIMESTEPS, MAX_SAMPLES
    )
    | _in_text("noise levels above 0 and up to 1.0", _LEVEL, lambda part: 0 < float(part) <= 1, MAX_SAMPLES)
)
TIMESTEP_RANGE = (span(MAX_TIMESTEPS) | choice(ALL)).or_none()
GUIDANCE = number(-1e4, 1e4)
LEARNING_RATE = number(above=0, high=100)
DECAY = number(0, below=1)
EMA_DECAY = number(0, below=1).or_none()
OPTIMIZER_NAME = choice("adamw", "muon")
SCHEDULE = choice("constant", "cosine", "linear")
CLIP_NORM = number(above=0, high=1e12).or_none()
FACTOR = number(above=1, high=1e12).or_none()
STEPS = whole(1, MAX_STEPS)
WARMUP_STEPS = whole(0, MAX_STEPS)
PATH = text(4_096)


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """Options of the optimizers that `winobench.training.optimizers` makes."""

    name: str = option("adamw", OPTIMIZER_NAME, "adamw or muon")
    learning_rate: float = option(1e-3, LEARNING_RATE, "after the warm-up")
    schedule: str = option("constant", SCHEDULE, "then constant, cosine or linear down to zero")
    weight_decay: float = option(1e-2, number(0, 1e3), "decoupled, times the learning rate")
    b1: float = option(0.9, DECAY, "Adam's decay of the first moment")
    b2: float = option(0.999, DECAY, "Adam's decay of the second moment")
    eps: float = option(1e-8, number(above=0, high=1), "Adam's term in the denominator")
    clip_norm: float | None = option(1.0, CLIP_NORM, "largest global norm of a gradient. None for no limit")


def read_timesteps(given: Any) -> Any:
    """Timesteps as a config or a call has them: a rule's name as it is, others as a list of numbers; None stays."""
    if isinstance(given, str):
        words = [word.strip() for word in given.split(",")]
        for kind, pattern in ((int, _NUMBER), (float, _LEVEL)):
            if all(re.fullmatch(pattern, word) for word in words):
                given = list(map(kind, words))
                break
        else:
            return choice(*TIMESTEP_RULES, *LEARNED_TIMESTEPS).check("timesteps", given)
    listed = items(whole(0, MAX_TIMESTEPS - 1), 1, MAX_SAMPLES) | items(NOISE_LEVEL, 1, MAX_SAMPLES)
    return None if given is None else list(listed.check("timesteps", given))


def check_batch(batch_size: int, accumulate: int) -> None:
    """Raises InputError for a batch that cannot be cut into so many equal micro-batches."""
    if batch_size % accumulate:
        lower, higher = batch_size // accumulate * accumulate, -(-batch_size // accumulate) * accumulate
        near = f"{lower:,} or {higher:,}" if lower else f"{higher:,}"
        raise InputError(
            f"a batch of {batch_size:,} cannot be cut into {accumulate:,} equal micro-batches: make --batch_size"
            f" {near}",
            code="indivisible-batch",
        )
