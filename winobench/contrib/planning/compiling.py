"""Programs compiled for described devices, and the compilers' figures, which are kept on disk."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import importlib.metadata
import os
import re
import time
from collections.abc import Iterable, Sequence

import jax
import jaxlib

from winobench.base import caches, files, json_files
from winobench.base.errors import InputError
from winobench.base.version import __version__
from winobench.contrib.planning import few_blocks, hlo, roofline
from winobench.contrib.planning.programs import Compiled, Program, Turn
from winobench.contrib.planning.roofline import Sum
from winobench.contrib.planning.topologies import Target
from winobench.engine import batch_size

# Raised whenever the figures of a compiled program change.
_READER = 7


def compile_program(program: Program, target: Target) -> Compiled | None:
    """A compiler's figures of a program for the target's devices, from disk if they are known; None if it does not fit.

    Where the program has shallow networks, the figures are extrapolated from these.
    """
    of_few = []
    for counts, shallow in program.shallow_programs():
        compiled = compile_program(shallow, target)
        if compiled is None:
            return None
        of_few.append((counts, compiled))
    return few_blocks.extrapolated(program.blocks, of_few) if of_few else _compile(program, target)


def _compile(program: Program, target: Target) -> Compiled | None:
    lowered = program.lower()
    identity = {
        # Names of files and lines do not change what a program computes.
        "program": files.digest(re.sub(r"loc\(.*?\)", "", lowered.as_text())),
        "target": target.text,
        "versions": [jax.__version__, jaxlib.__version__, __version__, *compiler_version(target)],
        "reader": _READER,
    }
    if effort := jax.config.jax_exec_time_optimization_effort:
        identity["effort"] = effort
    path = os.path.join(caches.folder(), "plans", f"{files.digest(identity)}.json")
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return _compiled(json_files.load(path)["compiled"])
    begin = time.perf_counter()
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        if not batch_size.is_out_of_memory(error):
            raise InputError(
                f"the compiler for {target.text} fails on the {program.name}: {str(error).splitlines()[0][:300]}"
            ) from error
        _write(path, {"identity": identity, "compiled": None})
        return None
    seconds = time.perf_counter() - begin
    stats = compiled.memory_analysis()
    kernels = hlo.kernels(hlo.parse(_text(compiled, program, target)))
    turn = _sums([kernel for kernel in kernels if kernel.in_open_loop], target)
    result = Compiled(
        program.name,
        program.noun,
        program.items,
        stats.temp_size_in_bytes,
        stats.argument_size_in_bytes,
        stats.generated_code_size_in_bytes,
        *_sums([kernel for kernel in kernels if not kernel.in_open_loop], target),
        seconds,
        Turn(*turn) if turn[0] else None,
    )
    _write(path, {"identity": identity, "compiled": dataclasses.asdict(result)})
    return result


def collectives(kernels: Iterable[hlo.Kernel]) -> dict[str, int]:
    """Counts each collective instruction among some kernels."""
    found = collections.Counter()
    for kernel in kernels:
        if kernel.kind == hlo.COLLECTIVE:
            found[kernel.opcode] += kernel.times
    return dict(found)


def _sums(kernels: Sequence[hlo.Kernel], target: Target) -> tuple[dict[str, Sum], dict[str, int]]:
    return roofline.by_kind(kernels, target.accelerator), collectives(kernels)


def _text(compiled: jax.stages.Compiled, program: Program, target: Target) -> str:
    try:
        return compiled.as_text()
    except jax.errors.JaxRuntimeError as error:  # a newer compiler's instructions are unknown to an older JAX
        wanted = "libtpu" if target.accelerator.platform == "tpu" else "jax-cuda13-plugin"
        raise InputError(
            f"jaxlib {jaxlib.__version__} cannot read what {' '.join(compiler_version(target))} made of the"
            f" {program.name} for {target.text}: install the {wanted} that this JAX asks for"
        ) from error


def _compiled(content: dict | None) -> Compiled | None:
    if content is None:
        return None
    turn = content["turn"]
    changed = {"kernels": _kernels(content), "turn": turn and Turn(_kernels(turn), turn["collectives"]), "blocks": ()}
    return Compiled(**{**content, **changed})


def _kernels(content: dict) -> dict[str, Sum]:
    return {kind: Sum(**numbers) for kind, numbers in content["kernels"].items()}


def _write(path: str, content: dict) -> None:
    with contextlib.suppress(OSError):  # Then the next plan compiles again.
        os.makedirs(os.path.dirname(path), exist_ok=True)
        files.write_json(path, content)


def compiler_version(target: Target) -> list[str]:
    def with_version(name: str) -> str:
        try:
            return f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            return name

    names = ("libtpu",) if target.accelerator.platform == "tpu" else ("jax-cuda13-plugin", "nvidia-cudnn-cu13")
    return [with_version(name) for name in names]
