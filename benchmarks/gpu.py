"""The scorer's step on this machine's accelerator, beside the bound that plans give it: python -m benchmarks.gpu

    python -m benchmarks.gpu                                       SD 2.1-base at 512 pixels, as many passes as planned
    python -m benchmarks.gpu --models sd21-base,sdxl,flux1-dev
    python -m benchmarks.gpu --batch_size 64 --output FILE.json    the figures as JSON, too

Weights, latents and text states are random, and made on the device: nothing is downloaded. The program is the one that
`winobench.DiffusionITM` runs, and that `python -m launch.plan` compiles. Steps are timed in fours, as many as the
scorer has under way, after four others.
"""

from __future__ import annotations

import argparse
import math
import pathlib
import statistics
import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import common, machine, result_files
from winobench import parallel
from winobench.base.accelerators import ACCELERATORS
from winobench.contrib.planning import abstract, hlo, roofline, scoring
from winobench.scorers import samples

_AT_ONCE = 4


def measure(model: str, dtype: str, batch_size: int | None, rounds: int) -> dict[str, Any]:
    """Times the step of one model on the first device."""
    device = jax.devices()[0]
    pipeline = abstract.make_pipeline(abstract.read_description(model), dtype)
    program = scoring.make_scoring(pipeline, parallel.make_mesh([device]), batch=batch_size).step
    lowered = program.lower()
    begin = time.perf_counter()
    compiled = lowered.compile()
    compile_seconds = time.perf_counter() - begin
    arguments = _arguments(lowered, compiled, pipeline)
    seconds = []
    for _ in range(1 + rounds):
        begin = time.perf_counter()
        errors = jax.block_until_ready([compiled(*arguments) for _ in range(_AT_ONCE)])[0]
        seconds.append((time.perf_counter() - begin) / _AT_ONCE)
    if not bool(jnp.isfinite(errors).all()):
        common.log(f"{model}: some errors are not numbers")
    seconds = seconds[1:]
    median = statistics.median(seconds)
    bound = _bound(compiled, device.device_kind)
    return {
        "model": model,
        "batch_size": program.items,
        "passes_per_second": round(program.items / median, 2),
        "bound": bound and round(program.items / bound, 2),
        "milliseconds": [round(1e3 * duration, 2) for duration in (min(seconds), median, max(seconds))],
        "compile_seconds": round(compile_seconds, 1),
        "temporaries_gb": round(compiled.memory_analysis().temp_size_in_bytes / 1e9, 2),
    }


def _bound(compiled: Any, kind: str) -> float | None:
    """Seconds of a run by the plans' roofline; None on a device that they do not know."""
    known = [each for each in ACCELERATORS.values() if each.device_kind == kind]
    if not known:
        return None
    kernels = hlo.kernels(hlo.parse(compiled.as_text()))
    return sum(each.limit for each in roofline.by_kind(kernels, known[0]).values())


def _arguments(lowered: Any, compiled: Any, pipeline: Any) -> list[Any]:
    """Random arguments of the step: parameters where the program wants them, and a row of the tables for each pass."""
    params, latents, states, _, noised, texts, _ = lowered.args_info[0]
    formats = compiled.input_formats[0]
    total = texts.shape[0]
    schedule = pipeline.schedule
    numbers = np.arange(total, dtype=np.int32)
    middle = schedule.timesteps_at(np.full(total, schedule.num_train_timesteps // 2))
    # An array at a time: there is no room for two copies of the largest networks.
    return [
        jax.tree.map(lambda leaf, layout: jax.device_put(_random(leaf), layout), params, formats[0]),
        _random(latents, 1.0),
        jax.tree.map(lambda leaf: _random(leaf, 1.0), states),
        samples.noise_key(0),
        np.stack([numbers % latents.shape[0], numbers, schedule.as_whole_numbers(middle)]).astype(noised.dtype),
        numbers % jax.tree.leaves(states)[0].shape[0],
        None,
    ]


def _random(leaf: Any, deviation: float | None = None) -> jax.Array:
    """Normal numbers: of kernels, the smaller the more inputs they have. Ones where they are whole, as lengths are."""
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
        return jnp.ones(leaf.shape, leaf.dtype)
    deviation = deviation or max(1, math.prod(leaf.shape[:-1])) ** -0.5
    return _normal(leaf.shape, jnp.dtype(leaf.dtype).name) * jnp.asarray(deviation, leaf.dtype)


def _normal(shape: tuple[int, ...], dtype: str) -> jax.Array:
    return jax.jit(jax.random.normal, static_argnums=(1, 2))(jax.random.key(0), shape, dtype)


def table(figures: dict[str, Any]) -> str:
    lines = [
        common.where(figures, ("jax",)),
        "",
        "| | passes at once | passes/s | bound | share | compiling, s | temporaries, GB |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for result in figures["results"]:
        rate, bound = result["passes_per_second"], result["bound"]
        share = f"{bound:,.4g} | {rate / bound:.0%}" if bound else "- | -"
        cells = f"{result['model']} | {result['batch_size']} | {rate:,.4g} | {share}"
        lines.append(f"| {cells} | {result['compile_seconds']:.0f} | {result['temporaries_gb']} |")
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> None:
    """Measures each model, prints a table, and writes the figures."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default="sd21-base", help="names of launch.plan's --model, with commas")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16", help="of the denoiser")
    parser.add_argument("--batch_size", type=int, help="passes at once; as many as are planned when left out")
    parser.add_argument("--rounds", type=int, default=8, help="of four steps")
    parser.add_argument("--output", type=pathlib.Path, help="a file for the figures, as JSON")
    options = parser.parse_args(words)
    common.check_positive(options, "rounds", *(["batch_size"] if options.batch_size is not None else []))
    before = machine.load_average()
    results = []
    for model in options.models.split(","):
        common.log(f"{model}: compiling")
        results.append(measure(model, options.dtype, options.batch_size, options.rounds))
    figures = {
        "machine": machine.describe(jax.devices()[0].device_kind),
        "dtype": options.dtype,
        "load_average": [before, machine.load_average()],
        "results": results,
    }
    print(table(figures))
    result_files.write(figures, options.output)


if __name__ == "__main__":
    common.run(main)
