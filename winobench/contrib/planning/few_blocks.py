"""Deep transformers planned from shallow ones: what a block takes is the same for every block of its kind.

XLA's compiler for TPUs takes the longer the more blocks there are, many minutes for the largest networks. A network of
one block of each kind, and those with one more of a kind, are compiled in a fraction of it. Operations, bytes, kernels,
times and the program's own size are sums over blocks. Memory for temporaries is used again by the next blocks. That is
an extrapolation from the compiler's figures, and is called so wherever it is shown.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from winobench.contrib.planning.programs import Compiled
from winobench.contrib.planning.roofline import Sum

# Temporaries grow with the second and the third block, and no more: FLUX.1-dev's on an H100 are 2.50 GB with one
# block of each kind, 2.73 GB with one more, and 2.95 GB with all 57.
_GROWS = 2


def block_counts(config: Any) -> tuple[int, ...]:
    """Counts a network's blocks of each kind. Empty if its config does not state them."""
    return tuple(getattr(config, "block_counts", ()))


def shallow_counts(full: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """The numbers of blocks to compile instead: one of each kind, then one more of each. Empty where all are as few."""
    base = tuple(min(1, count) for count in full)
    more = [tuple(n + (kind == other) for other, n in enumerate(base)) for kind, n in enumerate(base) if n < full[kind]]
    found = (base, *more)
    return found if more and sum(map(sum, found)) < sum(full) else ()


def extrapolated(full: Sequence[int], of_few: Sequence[tuple[Sequence[int], Compiled]]) -> Compiled:
    """The figures of a program with all blocks, from the figures of shallow programs."""
    (base, first), *others = of_few
    steps = []
    for counts, compiled in others:
        kind = next(kind for kind, (few, more) in enumerate(zip(base, counts, strict=True)) if more > few)
        steps.append((full[kind] - base[kind], compiled))

    def linear(read: Callable[[Compiled], float]) -> float:
        start = read(first)
        return start + sum(times * (read(compiled) - start) for times, compiled in steps)

    def of_kind(kind: str, name: str) -> float:
        return linear(lambda compiled: getattr(compiled.kernels[kind], name) if kind in compiled.kernels else 0)

    def of_instruction(name: str) -> int:
        return round(linear(lambda compiled: compiled.collectives.get(name, 0)))

    growth = [min(times, _GROWS) * max(0, compiled.temporaries - first.temporaries) for times, compiled in steps]
    names = [field.name for field in dataclasses.fields(Sum)]
    kinds = dict.fromkeys(kind for _, compiled in of_few for kind in compiled.kernels)
    instructions = dict.fromkeys(name for _, compiled in of_few for name in compiled.collectives)
    return dataclasses.replace(
        first,
        temporaries=first.temporaries + sum(growth),
        arguments=round(linear(lambda compiled: compiled.arguments)),
        code=round(linear(lambda compiled: compiled.code)),
        kernels={kind: Sum(*(of_kind(kind, name) for name in names)) for kind in kinds},
        collectives={name: of_instruction(name) for name in instructions},
        compile_seconds=sum(compiled.compile_seconds for _, compiled in of_few),
        blocks=tuple(full),
    )
