"""What a benchmark of texts takes of some devices: a language model's memory, its programs, hours and dollars."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from winobench import parallel
from winobench.base import memory
from winobench.base.errors import InputError
from winobench.planning import abstract, language, text_work
from winobench.planning.compiling import Compiled, compile_program
from winobench.planning.estimate import Assumptions, InParts
from winobench.planning.language import Batches, Model
from winobench.planning.programs import Program
from winobench.planning.text_work import Asked
from winobench.planning.topologies import Target

if TYPE_CHECKING:
    import ml_collections


@dataclasses.dataclass(frozen=True)
class LanguageDuration(InParts):
    """Seconds of an evaluation, in parts that do not overlap. But for ``compiling`` none has been measured.

    Attributes:
      devices: how many there are.
      reading: prompts and options, at the estimated rate.
      writing: tokens behind the first of each text, at the estimated rate.
      loading: weights, at the assumed rate of storage.
      compiling: all programs, as long as it took on this machine. Next to nothing where the persistent compilation
        cache has them.
    """

    devices: int
    reading: float
    writing: float
    loading: float
    compiling: float


@dataclasses.dataclass(frozen=True)
class Rates:
    """Estimated, of all devices of a plan.

    Attributes:
      prompts: seconds of a batch's prompts or options.
      token: seconds of a token of all rows; 0 where options are scored.
      tokens: per second, 0 as well.
      questions: per second.
    """

    prompts: float
    token: float
    tokens: float
    questions: float


@dataclasses.dataclass(frozen=True)
class LanguagePlan:
    """What a config takes on one kind of device.

    Attributes:
      target: e.g. ``h100:2``.
      copies: of the parameters, each of which works on rows of its own.
      model_parallel: devices that share one copy.
      weights: bytes on a device.
      usable: bytes of a device that programs can use.
      batches: for each task and protocol.
      answer_tokens: see `Assumptions`.
      durations: for each number of devices. None if something does not fit.
      price: dollars per device and hour; None if nobody said.
      notes: what the numbers rest on.
    """

    target: str
    copies: int
    model_parallel: int
    weights: int
    usable: int
    batches: tuple[Batches, ...]
    answer_tokens: int | None
    durations: tuple[LanguageDuration, ...]
    price: float | None
    notes: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """Bytes on a device, at most."""
        return self.weights + max(each.resident for each in self.batches)

    @property
    def fits(self) -> bool:
        """Whether every program does."""
        return all(each.answering for each in self.batches) and self.total <= self.usable

    def rates(self, batch: Batches) -> Rates:
        """How fast a task is worked off; its program must fit."""
        answering, turns = batch.answering, batch.turns(self.answer_tokens)
        token = answering.turn.seconds if answering.turn else 0.0
        rows = batch.rows * self.copies
        seconds = answering.seconds + turns * token
        questions = rows / seconds * batch.asked.questions / batch.asked.requests
        return Rates(answering.seconds, token, rows / token if token else 0.0, questions)

    def as_json(self) -> dict[str, Any]:
        """All of it as JSON values, with what is computed from it."""
        content = dataclasses.asdict(self)
        for each, written in zip(self.batches, content["batches"], strict=True):
            written["rates"] = dataclasses.asdict(self.rates(each)) if each.answering else None
        for duration, written in zip(self.durations, content["durations"], strict=True):
            written["total"], written["with_cache"] = duration.total, duration.with_cache
        return content | {"total": self.total, "fits": self.fits}


def make_plan(
    config: ml_collections.ConfigDict,
    name: str,
    target: Target,
    devices: Sequence[int],
    price: float | None,
    assumed: Assumptions,
    say: Callable[[str], None],
) -> LanguagePlan:
    """Plans a config of texts for some devices. Arguments as of `winobench.planning.plans.make_plan`.

    Where one device does not hold what ``model_parallel=1`` puts on it, the smallest number of devices is looked for
    that do together, and where none do, a smaller batch.

    Raises:
      InputError: the model writes no text on devices of one's own, there is no such task or protocol, or a number of
        devices does not make up whole copies of the model.
    """
    network = abstract.read_language_model(name, revision=config.revision)
    asked, unknown = text_work.read(
        config.tasks, config.protocol, config.data_dir, config.limit, assumed.characters_a_token
    )
    ways = [config.model_parallel]
    if config.model_parallel == 1:
        ways = language.ways_to_share(network, len(target.devices))

    def made(parts: int, batch_size: int | None) -> Model:
        mesh = parallel.make_mesh(target.devices, model_parallel=parts)
        return language.make_model(network, mesh, dtype=config.dtype, int8=config.int8, batch_size=batch_size)

    model, batches = _fitting(made, ways, config.batch_size, asked, target, say)
    copies = parallel.data_parallelism(model.mesh)
    plan = LanguagePlan(
        target=target.text,
        copies=copies,
        model_parallel=len(target.devices) // copies,
        weights=model.room.parameter_bytes,
        usable=target.accelerator.usable_memory,
        batches=tuple(batches),
        answer_tokens=assumed.answer_tokens,
        durations=(),
        price=price,
        notes=_notes(asked, unknown, assumed),
    )
    if not plan.fits:
        return plan
    durations = tuple(_duration(model, plan, number, assumed) for number in devices or (len(target.devices),))
    notes = plan.notes
    if plan.model_parallel != config.model_parallel:
        notes += (
            f"{target.text} needs --config.model_parallel={plan.model_parallel} at least, for which this plan is; with"
            " more, weights and caches leave room for larger batches",
        )
    if model.room.batch_size != config.batch_size:
        notes += (f"{target.text} needs --config.batch_size={model.room.batch_size}",)
    return dataclasses.replace(plan, durations=durations, notes=notes)


def _fitting(
    made: Callable[[int, int | None], Model],
    ways: Sequence[int],
    batch_size: int | None,
    asked: Sequence[Asked],
    target: Target,
    say: Callable[[str], None],
) -> tuple[Model, list[Batches]]:
    """The first of some ways to share the parameters that fits, or the last one with the largest batch that does."""

    def compiled(program: Program) -> Compiled | None:
        say(f"{target.text}: compiling the {program.name}, {program.items} x {program.noun}")
        return compile_program(program, target)

    def planned(model: Model) -> tuple[list[Batches], bool]:
        free = target.accelerator.usable_memory - model.room.parameter_bytes
        if free <= 0:
            return [language.plan_batches(model, each, lambda _: None) for each in asked], False
        found = [language.plan_batches(model, each, compiled) for each in asked]
        return found, all(each.answering and each.resident <= free for each in found)

    for parts in ways:
        model = made(parts, batch_size)
        found, fits = planned(model)
        if fits:
            return model, found
    rows = max(each.rows for each in found)
    while not fits and rows > 1 and model.room.parameter_bytes < target.accelerator.usable_memory:
        rows //= 2
        model = made(ways[-1], rows)
        found, fits = planned(model)
    return model, found


def _duration(model: Model, plan: LanguagePlan, devices: int, assumed: Assumptions) -> LanguageDuration:
    if devices % plan.model_parallel:
        raise InputError(
            f"--devices has {devices}, but {plan.model_parallel} devices share one copy of the model on"
            f" {plan.target}: name multiples of it"
        )
    reading = writing = 0.0
    programs = []
    for each in plan.batches:
        runs = each.runs(devices // plan.model_parallel)
        reading += runs * each.answering.seconds + (each.reading.seconds if each.reading else 0.0)
        writing += runs * each.turns(plan.answer_tokens) * plan.rates(each).token
        programs += [program for program in (each.answering, each.reading) if program and program not in programs]
    return LanguageDuration(
        devices=devices,
        reading=reading,
        writing=writing,
        loading=memory.of_arrays(model.params) / assumed.storage_rate,
        compiling=sum(program.compile_seconds for program in programs),
    )


def _notes(asked: Sequence[Asked], unknown: Sequence[str], assumed: Assumptions) -> tuple[str, ...]:
    notes = [f"tasks of unknown size are left out: {', '.join(unknown)}"] if unknown else []
    for each in asked:
        length = f"prompts of {each.prompt:,} tokens, {assumed.characters_a_token:g} characters each (an assumption)"
        notes.append(f"{each.name}: {each.questions:,} questions, {each.source}; {length}")
    if any(each.limit for each in asked):
        if assumed.answer_tokens is None:
            notes.append("every answer is as long as its task allows; --answer_tokens plans for shorter ones")
        else:
            notes.append(f"the longest answer of a batch has {assumed.answer_tokens:,} tokens (an assumption)")
    notes.append(
        f"weights are read from storage of {assumed.storage_rate / 1e9:g} GB/s a host (an assumption); collectives take"
        " as long as their bytes at the links' rate, without the time until the first one arrives"
    )
    return tuple(notes)
