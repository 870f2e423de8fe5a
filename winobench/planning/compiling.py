"""Programs compiled for described devices, and the compilers' figures, which are kept on disk."""

from __future__ import annotations

import dataclasses
import os
import re
import time
from collections.abc import Iterable, Sequence

import jax
import jaxlib

import winobench
from winobench.base import caches, files, json_files
from winobench.base.errors import InputError
from winobench.engine import batch_size
from winobench.planning import few_blocks, hlo, roofline
from winobench.planning.programs import Compiled, Program, Turn
from winobench.planning.roofline import Sum
from winobench.planning.topologies import Target

# Raised whenever the figures of a compiled program change.
_READER = 3


def compile_program(program: Program, target: Target) -> Compiled | None:
    """A compiler's figures of a program for the target's devices, from disk if they are known.

    Where the program has shallow networks, the figures are extrapolated from these. None if the compiler finds that the
    program does not fit into a device's memory.
    """
    found = []
    for counts, one in program.shallow_programs():
        compiled = compile_program(one, target)
        if compiled is None:
            return None
        found.append((counts, compiled))
    return few_blocks.extrapolated(program.blocks, found) if found else _compile(program, target)


def _compile(program: Program, target: Target) -> Compiled | None:
    lowered = program.lower()
    identity = {
        "program": files.digest(_without_places(lowered.as_text())),
        "target": target.text,
        "versions": [jax.__version__, jaxlib.__version__, winobench.__version__, *_compiler_version(target)],
        "reader": _READER,
    }
    path = os.path.join(caches.folder(), "plans", f"{files.digest(identity)}.json")
    known = _read(path)
    if known is not None:
        return _compiled(known["compiled"])
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
    """How many of each collective instruction are among some kernels."""
    found: dict[str, int] = {}
    for kernel in kernels:
        if kernel.kind == hlo.COLLECTIVE:
            found[kernel.opcode] = found.get(kernel.opcode, 0) + kernel.times
    return found


def _sums(kernels: Sequence[hlo.Kernel], target: Target) -> tuple[dict[str, Sum], dict[str, int]]:
    return roofline.by_kind(kernels, target.accelerator), collectives(kernels)


def _text(compiled: jax.stages.Compiled, program: Program, target: Target) -> str:
    try:
        return compiled.as_text()
    except jax.errors.JaxRuntimeError as error:  # a newer compiler's instructions are unknown to an older JAX
        wanted = "libtpu" if target.accelerator.platform == "tpu" else "jax-cuda13-plugin"
        raise InputError(
            f"jaxlib {jaxlib.__version__} cannot read what {' '.join(_compiler_version(target))} made of the"
            f" {program.name} for {target.text}: install the {wanted} that this JAX asks for"
        ) from error


def _compiled(content: dict | None) -> Compiled | None:
    if content is None:
        return None
    turn = content["turn"]
    changed = {"kernels": _kernels(content), "turn": turn and Turn(**{**turn, "kernels": _kernels(turn)}), "blocks": ()}
    return Compiled(**{**content, **changed})


def _kernels(content: dict) -> dict[str, Sum]:
    return {kind: Sum(**numbers) for kind, numbers in content["kernels"].items()}


def _read(path: str) -> dict | None:
    try:
        content = json_files.load(path)
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) and "compiled" in content else None


def _write(path: str, content: dict) -> None:
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        files.write_json(path, content)
    except OSError:  # Then the next plan compiles again.
        return


def _without_places(text: str) -> str:
    """A program's text without names of files and lines, which do not change what it computes."""
    return re.sub(r"loc\(.*?\)", "", text)


def _compiler_version(target: Target) -> list[str]:
    import importlib.metadata

    names = ("libtpu",) if target.accelerator.platform == "tpu" else ("jax-cuda13-plugin", "nvidia-cudnn-cu13")
    found = []
    for name in names:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(name)
    return found
