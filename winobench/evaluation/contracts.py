"""Checks of tasks and scorers, where their work enters the evaluation: they may be plug-ins or a caller's objects."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NoReturn

import numpy as np

from winobench import metrics
from winobench.base import json_files, options, registry
from winobench.base.errors import InputError
from winobench.scorers import base
from winobench.tasks.base import Example, Task
from winobench.tasks.questions import TextQuestion, TextTask

# A name is part of the names of files.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")
_LONGEST_ID = 10_000


def check_name(name: Any) -> None:
    """Refuses a task's name that cannot be part of a file's name."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(
            f"a task has the name {options.quote(name)}, but a name is made of letters, digits, _, -, + and ., begins"
            " with a letter, digit or _, and has at most 100 characters",
            code="bad-name",
        )


def check_task(task: Task) -> None:
    """Makes sure that a task about images declares what the evaluation needs."""
    check_name(task.name)

    def refuse(what: str, code: str = "bad-chance-level") -> NoReturn:
        raise InputError(f"task {task.name!r} has the {what}", code=code)

    if task.association is None:
        if not isinstance(task.metric, str):
            refuse(f"metric {options.quote(task.metric)}: give the name of one", "unknown-metric")
        metrics.METRICS.check(task.metric, *metrics.RATING_METRICS, what=f"task {task.name!r}: ")
    if not isinstance(task.chance, Mapping) or not all(isinstance(name, str) for name in task.chance):
        refuse(f"chance levels {options.quote(task.chance)}: give name -> number")
    for name, value in task.chance.items():
        if value is not None and not (_is_number(value) and 0 <= value <= 1):
            refuse(f"chance level {options.quote(value)} of {name!r}: give a number in [0, 1]")


def check_questions(tasks: Iterable[Task], scorer: Any) -> None:
    """Refuses a task in question form and a scorer that does not answer questions."""
    asking = next((task.name for task in tasks if task.asks_questions), None)
    if asking is not None and not getattr(scorer, "answers_questions", False):
        raise InputError(
            f"task {asking!r} asks questions, which {_called(scorer)} does not answer: leave the task out, or"
            " evaluate a scorer with `answers_questions` (winobench.scorers.base.Scorer)",
            code="cannot-answer",
        )


def load(task: Task | TextTask, data_dir: str | None, limit: int | None) -> Iterator[Any]:
    """The examples or questions of a task, one by one."""
    with registry.foreign_code(f"loading task {task.name!r}"):
        examples = task.load(data_dir, limit)
        if isinstance(examples, str) or not isinstance(examples, Iterable):
            raise InputError(
                f"task {task.name!r} loads {options.quote(examples)}: yield its examples, or return a list of them",
                code="bad-example",
            )
        kind = TextQuestion if isinstance(task, TextTask) else Example
        for example in examples:
            if not isinstance(example, kind):
                raise InputError(
                    f"task {task.name!r} gave {options.quote(example)} for an example: give winobench.{kind.__name__}",
                    code="bad-example",
                )
            yield example


def check_example(task: Task, example: Example) -> None:
    """Makes sure that an example is a question that can be asked, recorded and answered."""

    def refuse(what: str, code: str = "bad-example") -> NoReturn:
        raise InputError(f"example {options.quote(example.id)} of task {task.name!r} {what}", code=code)

    if not isinstance(example.id, str) or not 0 < len(example.id) <= _LONGEST_ID:
        refuse(f"has an id that is not a text of 1 to {_LONGEST_ID:,} characters")
    for name in ("images", "texts", "groups"):
        if not isinstance(values := getattr(example, name), tuple | list):
            refuse(f"has the {name} {options.quote(values)}: give a tuple of them")
    if not example.images or not example.texts:
        refuse(f"lacks {'images' if not example.images else 'texts'}.")
    for name, texts in (("id", [example.id]), ("text", example.texts), ("group", example.groups)):
        for text in texts:
            if not isinstance(text, str):
                refuse(f"has the {name} {options.quote(text)}, which is not a string.", "not-a-text")
            if not text.isascii() and json_files.well_formed(text) != text:
                half = "which holds half a character (a lone surrogate)."
                refuse(f"has the {name} {options.quote(text)}, {half}", "lone-surrogate")
    if task.is_rated:
        if len(example.texts) != 1 or len(example.ratings) != len(example.images):
            counts = f"{len(example.images)} images, {len(example.texts)} texts and {len(example.ratings)} ratings"
            refuse(f"has {counts}: give one text, and a rating for each image")
        for rating in example.ratings:
            if not _is_number(rating):
                refuse(f"has the rating {options.quote(rating)}: give a number")
    target, num_candidates = example.target, max(len(example.images), len(example.texts))
    if target is None:
        return
    if not isinstance(target, int | np.integer) or isinstance(target, bool):
        refuse(f"has the target {options.quote(target)}: give the right candidate's index")
    if not 0 <= target < num_candidates:
        refuse(f"has the target {target}, which is not one of its candidates.", "target-not-among-candidates")
    if num_candidates < 2:
        refuse("has one image and one text: there is nothing to choose from", "nothing-to-choose")


def check_metric(task: Task, questions: Iterable[Example[int, int]]) -> None:
    """Makes sure that a task's metric can judge its questions, on made-up scores: before anything is scored."""
    metric = metrics.METRICS[task.metric]
    kinds = {(len(item.images), len(item.texts), item.target is None): item for item in questions}
    for (num_images, num_texts, _), question in kinds.items():
        where = f"the metric {metric.name!r} cannot judge question {options.quote(question.id)} of task {task.name!r}"
        scores = np.arange(num_images * num_texts, dtype=np.float64).reshape(num_images, num_texts)
        try:
            outcomes = metric([scores] * 2, [question.target] * 2)
        except Exception as error:
            raise InputError(
                f"{where} ({type(error).__name__}: {error}): correct the task, or the metric", code="bad-metric"
            ) from error
        for name in (metric.headline, *metric.shown):
            if name not in outcomes:
                raise InputError(
                    f"{where}: it gives no {name!r}, which it names: correct the metric", code="bad-metric"
                )


def fingerprint(scorer: Any) -> dict[str, Any]:
    """A scorer's fingerprint as JSON values."""
    content = scorer.fingerprint()
    if not isinstance(content, Mapping):
        given = f"{_called(scorer)}.fingerprint() gave {options.quote(content)}"
        raise InputError(f"{given}: give a mapping of JSON values", code="bad-fingerprint")
    return json_values(content, f"{_called(scorer)}.fingerprint()")


def check_same(scorer: Any, before: Mapping[str, Any]) -> None:
    """Makes sure that a scorer has not changed since its evaluation began."""
    from winobench.models import snapshots  # late: reports need this module, and no JAX

    if isinstance(getattr(scorer, "scorer", scorer), snapshots.HasSnapshots):
        return  # a snapshot, which nobody changes
    now = fingerprint(scorer)
    if changed := [name for name in {**before, **now} if before.get(name) != now.get(name)]:
        raise InputError(
            f"the fingerprint of {_called(scorer)} has another {changed[0]!r} than when the evaluation began: leave"
            " weights and options as they are until it is done, or give the scorer a method snapshot()"
            " (winobench.scorers.base.Scorer)",
            code="scorer-changed",
        )


def json_values(value: Any, what: str) -> Any:
    """A value as JSON has it."""
    try:
        return json_files.parse(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"{what} holds what JSON cannot ({reason}): give texts, numbers, lists and mappings", code="not-json"
        ) from None


def timesteps(scorer: Any, chosen: Any) -> tuple[float, ...]:
    """The timesteps that a scorer chose, one for each sample."""
    array = np.asarray(chosen)
    is_whole = np.issubdtype(array.dtype, np.integer)
    is_level = np.issubdtype(array.dtype, np.floating) and bool(np.all((array > 0) & (array <= 1)))
    if array.ndim != 1 or not len(array) or not (is_whole or is_level):
        raise InputError(
            f"{_called(scorer)}.choose_timesteps() gave {options.quote(chosen)}: give an array of whole numbers, or of"
            " noise levels above 0 and up to 1, one for each sample",
            code="bad-timesteps",
        )
    return tuple(array.tolist())


def match_threshold(scorer: Any) -> float | None:
    """The score above which an image and a text match, or None for a scorer that does not decide this."""
    value = getattr(scorer, "match_threshold", None)
    if value is None:
        return None
    if not _is_number(value):
        given = f"{_called(scorer)}.match_threshold is {options.quote(value)}"
        raise InputError(f"{given}: give a finite number, or None", code="bad-threshold")
    return float(value)


def kind_of_error(scorer: Any) -> str:
    if not isinstance(scorer.error, str) or not scorer.error:
        given = f"{_called(scorer)}.error is {options.quote(scorer.error)}"
        raise InputError(f"{given}: give the name of a kind of error", code="bad-kind-of-error")
    return scorer.error


def batches(given: Any, count: int, who: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The batches of a scorer's ``iter_errors``, checked: (int64 [b] triples, float32 [b] errors)."""

    def refuse(what: str, code: str = "bad-scores") -> NoReturn:
        raise InputError(f"{who} {what}", code=code)

    if not isinstance(given, Iterable):
        refuse(f"gave {options.quote(given)} for errors: yield (numbers of triples, their errors)")
    done, positions = np.zeros(count, bool), np.empty(count, np.int32)
    for batch in given:
        try:
            part, values = map(np.asarray, batch)
        except (TypeError, ValueError):
            refuse(f"yielded {options.quote(batch)}: yield (numbers of triples, errors)")
        if part.ndim != 1 or not np.issubdtype(part.dtype, np.integer):
            refuse(f"yielded triples as {part.dtype} {list(part.shape)}: give whole numbers [b]")
        if values.shape != part.shape or not base.is_real(values):
            shape = f"{values.dtype} {list(values.shape)} for {len(part)} triples"
            refuse(f"yielded errors as {shape}: give floats [{len(part)}]")
        if len(part) and not (part.min() >= 0 and part.max() < count):
            given_count = f"one of the {count:,} it was given"
            refuse(f"yielded the error of a triple that is not {given_count}", "score-of-another-triple")
        numbers = np.arange(len(part), dtype=np.int32)
        positions[part] = numbers
        if done[part].any() or not np.array_equal(positions[part], numbers):
            refuse("yielded the error of a triple twice", "repeated-score")
        done[part] = True
        yield part, values.astype(np.float32, copy=False)
    if not done.all():
        refuse(f"left out {count - int(done.sum()):,} of the {count:,} triples it was given", "missing-scores")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool) and math.isfinite(value)


def _called(scorer: Any) -> str:
    return type(getattr(scorer, "scorer", scorer)).__name__
