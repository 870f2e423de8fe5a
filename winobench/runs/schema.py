"""Types of ``config.json`` and ``results.json`` of a run. `check` compares a value with them.

``Required`` keys are in every file that this version reads, back to layout 1. The others are in every file that this
version writes for the kind of run that their comment names. A reader takes unknown keys for keys of a
later version, and leaves them alone.
"""

from __future__ import annotations

import functools
import math
import types
import typing
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, Required, TypedDict, Union

from winobench.base.errors import InputError
from winobench.runs import settings

_MOST_LETTERS = 60
ROUNDING = 1e-9
"""Room for the rounding of numbers that have to lie in a range."""


class Bounds(NamedTuple):
    """The range of a number, both ends included, with a tolerance for rounding: ``Annotated[int, Bounds(0)]``."""

    low: float = -math.inf
    high: float = math.inf

    def hold(self, value: float) -> bool:
        return self.low - ROUNDING <= value <= self.high + ROUNDING

    def __str__(self) -> str:
        return f"from {self.low:g} on" if self.high == math.inf else f"from {self.low:g} to {self.high:g}"


Share = Annotated[float, Bounds(0, 1)]
"""A proportion."""

Count = Annotated[int, Bounds(0)]
"""A number of things."""


class Proportion(TypedDict):
    """A metric that counts right answers, in ``results.json``."""

    value: Required[Share]  # in [0, 1], as the three that follow
    low: Required[Share]  # ends of the 95% interval
    high: Required[Share]
    chance: Required[Share | None]  # what guessing gives; None where that has no meaning
    n: Required[Count]  # examples
    independent: NotRequired[Count]  # of these, at least so many share no image (in text tasks no pair) with each other
    ties: Required[Count]  # examples whose best score occurs twice, which count as wrong
    constant: NotRequired[str]  # images, texts or candidates: scores are equal over these in nearly all examples


class Association(TypedDict):
    """An effect size, or a mean association, of a task of social bias, in ``results.json``."""

    value: Required[float]
    low: Required[float]  # ends of the 95% bootstrap interval
    high: Required[float]
    too_few: NotRequired[bool]  # images for this interval
    n: Required[Count]  # images
    chance: NotRequired[float | None]
    ties: NotRequired[int]
    constant: NotRequired[str]  # images, texts or candidates: scores are equal over these in nearly all examples
    p_one_sided: NotRequired[float]  # of a pair of groups, by permutation
    p_two_sided: NotRequired[float]
    permutations: NotRequired[int]
    pairs: NotRequired[int]  # of an average: how many it averages
    without_bias: NotRequired[float | None]  # what the average would be
    left_out: NotRequired[dict[str, str]]  # name of a pair without a row -> why


class Agreement(TypedDict):
    """How well scores agree with what people think of images, in ``results.json``."""

    value: Required[Annotated[float, Bounds(-1, 1)]]  # a correlation, or a share in [0, 1]
    low: Required[Annotated[float, Bounds(-1, 1)]]  # ends of the 95% bootstrap interval
    high: Required[Annotated[float, Bounds(-1, 1)]]
    chance: Required[Share | None]  # of random scores
    n: Required[Count]  # images
    ties: Required[Count]  # images whose score another one has too
    constant: NotRequired[str]  # images, texts or candidates: scores are equal over these in nearly all examples
    prompts: Required[Count]
    threshold: NotRequired[float]  # scores that differ by no more are a tie. Or from which on the score says yes
    pairs: NotRequired[Count]  # of images of which people prefer one
    yes: NotRequired[Count]  # images to which people say yes
    prompts_with_tau: NotRequired[Count]  # over which a mean of correlations is


class Failed(TypedDict):
    """Calls of a hosted model that failed."""

    requests: Required[int]
    questions: Required[int]  # which are left out for them
    first: Required[str]  # why the first one failed
    blocked: NotRequired[int]  # how many of them would fail again


class Endings(TypedDict):
    """How the answers to a task ended: see `winobench.runs.requests.ENDINGS`."""

    finished: Required[Count]
    cut_off: Required[Count]  # by the limit of tokens
    empty: Required[Count]  # or thoughts alone
    filtered: Required[Count]
    tool_call: Required[Count]
    interrupted: Required[Count]
    failed: Required[Count]  # calls without an answer
    unparsable: Required[Count]  # questions: their answers are finished, and choose nothing
    max_tokens: Required[Count | None]  # the limit


class Tokens(TypedDict):
    """Tokens that a language model read and wrote, if it counts them."""

    input: NotRequired[int | None]
    output: NotRequired[int | None]


class RacedTask(TypedDict):
    """A task of a race."""

    questions: Required[int]
    undecided: Required[int]  # those that took all samples
    samples: Required[float]  # the median a question


class Race(TypedDict):
    """Samples and passes of a race."""

    alpha: Required[float]
    rare_share: NotRequired[float]  # see `winobench.evaluation.race`
    passes: Required[Count]
    fixed_passes: Required[Count]  # without a race
    density: NotRequired[list[float] | None]  # of the timesteps, where it was learned
    tasks: Required[dict[str, RacedTask]]


class Software(TypedDict):
    """Version and commit of winobench."""

    version: NotRequired[str]
    commit: NotRequired[str | None]
    dirty: NotRequired[bool | None]  # files differ from the commit; None where nobody knows


class Device(TypedDict):
    """Devices of a run."""

    platform: NotRequired[str]
    kind: NotRequired[str]
    count: NotRequired[int]
    processes: NotRequired[int]


class Versions(TypedDict):
    """Versions, weights and data behind a number."""

    winobench: NotRequired[Software]
    python: NotRequired[str]
    libraries: NotRequired[dict[str, str]]
    seeds: NotRequired[dict[str, int]]  # runs with images
    device: NotRequired[Device | None]  # None for hosted and recorded models
    weights: NotRequired[str | None]  # digest, or name
    scorer: NotRequired[dict[str, Any]]  # the scorer's fingerprint
    data: NotRequired[dict[str, str]]  # task -> digest


Sampling = TypedDict(
    "Sampling",
    {
        **settings.recorded_types(settings.Sampling),  # type: ignore[misc]  # the settings are fields, too
        "timesteps": NotRequired[str | list[Count] | list[Share] | None],  # a rule, or the timesteps or noise levels
        "timestep_weights": NotRequired[str | dict[str, list[float]]],  # a rule, or learned weights
    },
)
Sampling.__doc__ = "How noise and timesteps are sampled."

Identity = TypedDict(
    "Identity",
    {
        **settings.recorded_types(settings.Scoring),  # type: ignore[misc]  # the settings are fields, too
        "sampling": NotRequired[Sampling],  # runs with images
        "protocol": NotRequired[dict[str, str]],  # text runs: task -> how it was asked
        "scorer": NotRequired[dict[str, Any]],  # the scorer's fingerprint
        "captioner": NotRequired[dict[str, Any]],  # text runs: the model that wrote the captions of the questions
        "tasks": NotRequired[dict[str, dict[str, Any]]],  # task -> version and digests of its data and prompts
    },
)
Identity.__doc__ = "All that can change a number: two runs with equal ones are the same run."


class Round(TypedDict):
    """Tasks that share their samples."""

    tasks: Required[list[str]]
    num_samples: NotRequired[Count | None]  # a pair
    timesteps: NotRequired[list[Count] | list[Share] | None]  # None for a scorer that needs no samples
    weights: NotRequired[list[float]]  # of the samples, unless equal. Their mean is 1
    reduce_dtype: NotRequired[str]  # unless float32


class Metric(TypedDict):
    """How a task was judged: see `winobench.metrics.Metric`."""

    name: Required[str]
    headline: Required[str]  # the row that an example counts as right or wrong by
    shown: Required[list[str]]  # rows of charts and summaries
    higher_is_better: NotRequired[bool]
    threshold: NotRequired[float]  # the score above which image and text match (`winobench.metrics.Metric.at`)


class Config(TypedDict):
    """``config.json``: the command, everything the numbers depend on, and how far the run got."""

    schema: Required[int]  # of the folder's layout
    status: NotRequired[str]  # "running", "finished", "interrupted", or "failed: <why>"
    started: NotRequired[str]  # ISO 8601
    name: NotRequired[str]  # what the user calls the run
    model: NotRequired[str | None]  # what reports call the scorer
    config: NotRequired[dict[str, Any] | None]  # the launcher's config, or the arguments
    identity: Required[Identity]
    total: NotRequired[Count]  # errors or responses to record (a race needs fewer, captions more)
    rounds: NotRequired[list[Round]]  # runs with images
    metrics: NotRequired[dict[str, Metric]]  # runs with images: task -> how it was judged
    versions: NotRequired[Versions]
    pictures: NotRequired[str | None]  # text runs, as all that follow: digest of the questions' images
    files: NotRequired[list[str | None]]  # state of the files of the model, and of the captioner
    recorded: NotRequired[Count]  # finished runs: responses in the folder


class Results(TypedDict):
    """``results.json``: the numbers."""

    tasks: Required[dict[str, dict[str, Proportion | Association | Agreement]]]  # task -> "<group>/<metric>" or metric
    failed: NotRequired[dict[str, str] | None]  # task -> why it has no numbers
    config: NotRequired[dict[str, Any] | None]
    versions: NotRequired[Versions]
    seconds: NotRequired[float]  # with all calls that the last one continued
    passes: NotRequired[Count]  # runs with images: (image, text, sample) triples that the numbers rest on
    computed_passes: NotRequired[Count]  # ... computed by the last call
    race: NotRequired[Race]  # races
    failed_calls: NotRequired[Failed | None]  # text runs, as all that follow
    endings: NotRequired[dict[str, Endings]]  # task -> how its answers ended
    protocols: NotRequired[dict[str, str]]  # task -> how it was asked
    requests: NotRequired[Count]  # that the numbers rest on, failed ones included
    asked: NotRequired[Count]  # ... made by the last call
    tokens: NotRequired[Tokens | None]
    cost: NotRequired[float | None]  # dollars; None where prices are not known


def check(value: Any, expected: Any, where: str, *, strict: bool = False) -> None:
    """Compares a value that JSON gave with a type. A float may be a whole number, but not NaN or infinite."""
    problem = _problem(value, expected, "", strict)
    if problem is not None:
        path, what, code = problem
        raise InputError(f"{path.lstrip('.') + ' of ' if path else ''}{where} {what}", code=code)


def json_schema(expected: Any, title: str) -> dict[str, Any]:
    """A type as a JSON Schema (draft 2020-12), for readers in other languages."""
    definitions: dict[str, Any] = {}
    schema = _json_schema(expected, definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **schema,
        "$defs": dict(sorted(definitions.items())),
    }


def _json_schema(expected: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
    if expected is Any:
        return {}
    if origin in (Required, NotRequired):
        return _json_schema(arguments[0], definitions)
    if origin in (Union, types.UnionType):
        return {"anyOf": [_json_schema(choice, definitions) for choice in arguments]}
    if origin is Annotated:
        schema = _json_schema(arguments[0], definitions)
        for bounds in arguments[1:]:
            ends = {"minimum": bounds.low, "maximum": bounds.high}
            schema |= {key: end for key, end in ends.items() if math.isfinite(end)}
        return schema
    if origin is Literal:
        return {"enum": list(arguments)}
    if typing.is_typeddict(expected):
        if expected.__name__ not in definitions:
            definitions[expected.__name__] = {}  # so that a type may hold itself
            hints = typing.get_type_hints(expected, include_extras=True)
            definitions[expected.__name__] = {
                "type": "object",
                "description": " ".join((expected.__doc__ or "").split()),
                "properties": {key: _json_schema(hint, definitions) for key, hint in hints.items()},
                "required": [key for key, hint in hints.items() if typing.get_origin(hint) is Required],
            }
        return {"$ref": f"#/$defs/{expected.__name__}"}
    if origin is dict:
        return {"type": "object", "additionalProperties": _json_schema(arguments[1], definitions)}
    if origin is list:
        return {"type": "array", "items": _json_schema(arguments[0], definitions)}
    names = {float: "number", int: "integer", str: "string", bool: "boolean", type(None): "null", list: "array"}
    return {"type": names[expected]}


class _Problem(NamedTuple):
    """Where a value differs from a type, how, and the code of the error."""

    place: str
    what: str
    code: str


def _problem(value: Any, expected: Any, path: str, strict: bool) -> _Problem | None:
    """Where a value first differs from a type, and how; None where it fits."""
    if expected is Any:
        return None
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
    if origin in (Required, NotRequired):
        return _problem(value, arguments[0], path, strict)
    if origin in (Union, types.UnionType):
        of_choices = [_problem(value, choice, path, strict) for choice in arguments]
        # The choice that fits best says the most: the one that differs furthest inside.
        wrong = [problem for problem in of_choices if problem is not None]
        return max(wrong, key=lambda problem: len(problem.place)) if len(wrong) == len(of_choices) else None
    if origin is Annotated:
        problem = _problem(value, arguments[0], path, strict)
        for bounds in arguments[1:]:
            if problem is None and not bounds.hold(value):
                problem = _is_not(value, path, f"a number {bounds}")
        return problem
    if origin is Literal:
        return None if value in arguments else _is_not(value, path, " or ".join(map(repr, arguments)))
    if typing.is_typeddict(expected):
        return _dictionary_problem(value, expected, path, strict)
    if origin is dict:
        if not isinstance(value, dict):
            return _is_not(value, path, "an object")
        problems = (_problem(item, arguments[1], f"{path}.{_quoted(key)}", strict) for key, item in value.items())
    elif origin is list:
        if not isinstance(value, list):
            return _is_not(value, path, "a list")
        problems = (_problem(item, arguments[0], f"{path}[{number}]", strict) for number, item in enumerate(value))
    else:
        return _plain_problem(value, expected, path)
    return next((problem for problem in problems if problem is not None), None)


def _dictionary_problem(value: Any, expected: Any, path: str, strict: bool) -> _Problem | None:
    if not isinstance(value, dict):
        return _is_not(value, path, "an object")
    hints = _hints(expected)
    for key, hint in hints.items():
        if key in value:
            problem = _problem(value[key], hint, f"{path}.{key}", strict)
            if problem is not None:
                return problem
        elif typing.get_origin(hint) is Required:
            return _Problem(path, f"has no {key!r}", code="missing-field")
    unknown = sorted(value.keys() - hints.keys()) if strict else ()
    return _Problem(path, f"has an unknown {_quoted(unknown[0])!r}", code="unknown-field") if unknown else None


@functools.cache
def _hints(expected: Any) -> dict[str, Any]:
    return typing.get_type_hints(expected, include_extras=True)


def _plain_problem(value: Any, expected: Any, path: str) -> _Problem | None:
    if expected is float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return None if is_number and math.isfinite(value) else _is_not(value, path, "a finite number")
    if expected is int:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        # Arrays hold no larger ones.
        is_whole = is_whole and -(2**63) <= value < 2**63
        return None if is_whole else _is_not(value, path, "a whole number")
    names = {str: "a text", bool: "true or false", type(None): "null"}
    return None if isinstance(value, expected) else _is_not(value, path, names[expected])


def _is_not(value: Any, path: str, expected: str) -> _Problem:
    return _Problem(path, f"is {_quoted(repr(value))}, not {expected}", code="wrong-value")


def _quoted(text: str) -> str:
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}…"
