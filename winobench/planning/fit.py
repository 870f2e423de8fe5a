"""What a scorer needs of a device's memory, and the largest step that fits."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from winobench.planning.compiling import Compiled, compile_program
from winobench.planning.programs import Program, Scoring
from winobench.planning.topologies import Target

# Sizes are tried in units of this many items, and not beyond this many times the first one.
_UNIT = 8
_SPAN = 16
_TRIES = 4


@dataclasses.dataclass(frozen=True)
class Fit:
    """A scorer's programs on one kind of device.

    Attributes:
      scoring: what was asked about.
      step: the step of the number of passes that the scorer begins with, or of the next smaller one that fits, as the
        scorer would halve it; None if not even one pass fits.
      encoders: the programs that fill the tables, of as many items as fit; None for one that does not fit at all.
        Empty where they are left out.
      largest: passes of the largest step that fits, as far as it was looked for; None if it was not.
    """

    scoring: Scoring
    step: Compiled | None
    encoders: tuple[Compiled | None, ...]
    largest: int | None


def fit_scorer(scoring: Scoring, target: Target, *, largest: bool, say: Callable[[str], None]) -> Fit:
    """Compiles a scorer's programs for a device, and finds steps that fit into its memory.

    Args:
      scoring: the programs.
      target: the devices.
      largest: also look for the largest step, which compiles two to five times more.
      say: is told what is compiled next.
    """

    def compiled(program: Program) -> Compiled | None:
        if scoring.beside(program.noun) > target.accelerator.usable_memory:
            return None
        say(f"{target.text}: compiling the {program.name}, {program.items} x {program.noun}")
        result = compile_program(program, target)
        return result if result is not None and _fits(scoring, result, target) else None

    def halved_until_it_fits(program: Program) -> Compiled | None:
        while program.items:
            if (result := compiled(program)) is not None:
                return result
            program = program.halved()
        return None

    if scoring.resident > target.accelerator.usable_memory:
        return Fit(scoring, None, (None,) * len(scoring.encoders), None)
    encoders = tuple(map(halved_until_it_fits, scoring.encoders))
    step = halved_until_it_fits(scoring.step(scoring.usual_batch))
    if step is None or not largest:
        return Fit(scoring, step, encoders, None)
    return Fit(scoring, step, encoders, _largest(scoring, target, step, compiled))


def _fits(scoring: Scoring, compiled: Compiled, target: Target) -> bool:
    return scoring.beside(compiled.noun) + compiled.temporaries + compiled.code <= target.accelerator.usable_memory


def _largest(scoring: Scoring, target: Target, step: Compiled, compiled: Callable[[Program], Compiled | None]) -> int:
    """By a straight line through what two sizes need, and then by the compiler."""
    other = compiled(scoring.step(max(1, step.items // 4)))
    if other is None or other.items == step.items:
        return step.items
    slope = (step.temporaries - other.temporaries) / (step.items - other.items)
    free = target.accelerator.usable_memory - scoring.resident - step.code - step.temporaries
    asked = step.items + int(free / max(slope, 1.0))
    asked = min(asked, _SPAN * step.items)
    for _ in range(_TRIES):
        asked = asked if asked < _UNIT else asked - asked % _UNIT
        if asked <= step.items:
            break
        if compiled(scoring.step(asked)) is not None:
            return asked
        asked = int(asked * 0.9)
    return step.items
