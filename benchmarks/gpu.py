"""The scorer's step on this machine's accelerator, beside the bound that plans give it: python -m benchmarks.gpu

    python -m benchmarks.gpu                                       SD 2.1-base at 512 pixels, as many passes as planned
    python -m benchmarks.gpu --models sd21-base,sdxl,flux1-dev
    python -m benchmarks.gpu --batch_size 64 --output FILE.json    the figures as JSON, too
    python -m benchmarks.gpu --program float8                      products of 8 bits; images: the image encoder
    python -m benchmarks.gpu --torch                               the same denoiser in torch, too (SD 1 and 2)
    python -m benchmarks.gpu --all FOLDER                          every benchmark of a GPU, within nine minutes

Weights, latents and text states are random, and made on the device: nothing is downloaded. The program is the one that
`winobench.DiffusionITM` runs, and that `python -m launch.plan` compiles. Steps are timed in fours, as many as the
scorer has under way, after four others.

--all runs each benchmark of `ITEMS` in its own process with its own time limit, the most important first. It writes
the figures of each to FOLDER when it ends, and its output next to them. The same command continues: first with those
that have not begun, then with those that failed. FOLDER also keeps the compiled programs.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import math
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import diffusers
import jax
import jax.numpy as jnp
import numpy as np
import torch

from benchmarks import common, machine, result_files
from winobench import parallel
from winobench.base.accelerators import ACCELERATORS
from winobench.base.errors import InputError
from winobench.contrib.planning import abstract, hlo, roofline, scoring
from winobench.models.unet_2d_condition import UNet2DConditionModel
from winobench.scorers import denoising, samples

STEP, FLOAT8, IMAGES = PROGRAMS = ("step", "float8", "images")

_AT_ONCE = 4
_TOKENS = 77


class Item(NamedTuple):
    """A benchmark of ``--all``."""

    name: str  # of its files
    seconds: int  # that it may take
    words: str  # its module and options
    tiny: str = ""  # the same in small, on a CPU. Empty: left out there


_TRAINING = "hardneg --size=sd21 --device=gpu"
_EVALUATION = "trace --device=gpu --images=64 --slow_loading=0"
_TINY = "gpu --models=clevr-tiny --batch_size=2 --rounds=1"
ITEMS = (
    Item(
        "training",
        240,
        f"{_TRAINING} --dtype=bfloat16 --unchecked --rounds=2",
        "hardneg --size=small --dtype=bfloat16 --unchecked --rounds=1 --steps=1",
    ),
    Item("step", 120, "gpu --torch", f"{_TINY} --torch"),
    Item(
        "evaluation_short",
        90,
        f"{_EVALUATION} --samples=16",
        "trace --size=tiny --images=4 --samples=1 --slow_loading=0",
    ),
    Item("evaluation_long", 90, f"{_EVALUATION} --samples=64"),
    Item("image_encoder", 60, "gpu --program=images", f"{_TINY} --program=images"),
    Item("float8", 90, "gpu --program=float8", f"{_TINY} --program=float8"),
    Item(
        "generation",
        120,
        "images --device=gpu --size=sd21-base --images=16 --rounds=2",
        "images --size=tiny --images=2 --batch_size=2 --steps=2 --rounds=1",
    ),
    Item("decisions", 150, "low_precision", "low_precision --models=clevr-tiny --rounds=1 --samples=1"),
    Item("step_of_64", 60, "gpu --batch_size=64"),
    Item("step_of_128", 60, "gpu --batch_size=128"),
    *(
        Item(f"step_{model}", 90, f"gpu --models={model}")
        for model in ("sdxl", "sd35-medium", "flux2-klein-4b", "z-image-turbo", "flux1-dev")
    ),
    # It compares the first steps of both.
    Item("training_float32", 240, f"{_TRAINING} --batch_size=4 --rounds=1 --steps=1"),
    Item("training_compiled", 400, f"{_TRAINING} --dtype=bfloat16 --unchecked --compile --rounds=1"),
    Item("evaluation_torch", 500, "scorer --device=gpu --rounds=1"),
)


def run_all(folder: pathlib.Path, seconds: float, items: Sequence[tuple[str, int, str]]) -> dict[str, str]:
    """Runs those of the items (name, seconds, words) that have no figures, while there is time.

    Returns:
      item -> its end, in words.
    """
    folder.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + seconds
    ends = {name: "measured before" for name, *_ in items}
    left = [item for item in items if not (folder / f"{item[0]}.json").exists()]
    for name, most, words in sorted(left, key=lambda item: (folder / f"{item[0]}.log").exists()):
        limit = min(most, deadline - time.monotonic())
        if limit > 0:
            common.log(f"{name}: at most {limit:.0f} s")
        ends[name] = _run(words, folder, name, limit) if limit > 0 else "not begun: run the command again"
        common.log(f"{name}: {ends[name]}")
    return ends


def _run(words: str, folder: pathlib.Path, name: str, limit: float) -> str:
    """Runs a benchmark in its own process. Its end, in words."""
    figures, log = folder / f"{name}.json", folder / f"{name}.log"
    module, *options = words.split()
    command = [sys.executable, "-m", f"benchmarks.{module}", *options, f"--output={figures}"]
    # JAX shares the GPU with torch.
    more = {"JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"), "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    begin = time.monotonic()
    with log.open("w") as output:
        # In a session, so that the processes end that it has started itself, such as torch's compilers.
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=more | os.environ, start_new_session=True
        )
        try:
            reason = f"it ended with {process.wait(limit)}"
        except subprocess.TimeoutExpired:
            reason = f"it took more than {limit:.0f} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if figures.exists():
        return f"measured in {time.monotonic() - begin:.0f} s"
    lines = log.read_text(errors="replace").split("\n")
    return f"failed, as {reason}: {next((line[:200] for line in reversed(lines) if line.strip()), 'no output')}"


def measure(model: str, dtype: str, batch_size: int | None, rounds: int, what: str = STEP) -> dict[str, Any]:
    """Times a program of one model on the first device."""
    device = jax.devices()[0]
    pipeline = abstract.make_pipeline(abstract.read_description(model), dtype)
    if what == FLOAT8:
        pipeline = denoising.in_8_bits(pipeline)
    programs = scoring.make_scoring(pipeline, parallel.make_mesh([device]), batch=batch_size)
    program = programs.encoders[0] if what == IMAGES else programs.step
    program = dataclasses.replace(program, items=batch_size or program.items)
    lowered = program.lower()
    begin = time.perf_counter()
    compiled = lowered.compile()
    compile_seconds = time.perf_counter() - begin
    arguments = _of_images(lowered) if what == IMAGES else _arguments(lowered, compiled, pipeline)
    seconds, results = _timed(lambda: [compiled(*arguments) for _ in range(_AT_ONCE)], jax.block_until_ready, rounds)
    if not all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(results)):
        common.log(f"{model}: some results are not numbers")
    bound = _bound(compiled, device.device_kind)
    return {
        "model": model if what == STEP else f"{model}, {what}",
        **_rates(program.items, seconds),
        "bound": bound and round(program.items / bound, 2),
        "compile_seconds": round(compile_seconds, 1),
        "temporaries_gb": round(compiled.memory_analysis().temp_size_in_bytes / 1e9, 2),
    }


@torch.inference_mode()
def measure_torch(model: str, dtype: str, batch_size: int, rounds: int) -> list[dict[str, Any]]:
    """Times the denoiser in torch, with channels last: as it is, and on a GPU also compiled."""
    denoiser = abstract.make_pipeline(abstract.read_description(model), dtype).denoiser
    if not isinstance(denoiser, UNet2DConditionModel) or denoiser.config.addition_embed_type is not None:
        raise InputError(f"--torch is for Stable Diffusion 1 and 2: leave out {model}", code="unknown-family")
    config, device = denoiser.config, "cuda" if torch.cuda.is_available() else "cpu"
    where = {"device": device, "dtype": getattr(torch, dtype)}
    with torch.device(device):
        network = diffusers.UNet2DConditionModel(**dataclasses.asdict(config))
    network = network.to(where["dtype"], memory_format=torch.channels_last).eval()
    latents = torch.randn(batch_size, config.in_channels, config.sample_size, config.sample_size, **where)
    states = torch.randn(batch_size, _TOKENS, config.cross_attention_dim, **where)
    arguments = latents.to(memory_format=torch.channels_last), torch.full((batch_size,), 500, device=device), states
    networks = {"torch": network}
    if device == "cuda":
        networks["torch.compile"] = torch.compile(network, dynamic=False)
    results = []
    for name, each in networks.items():
        begin = time.perf_counter()
        each(*arguments)
        common.synchronize(device)
        first = time.perf_counter() - begin
        seconds, _ = _timed(
            lambda each=each: [each(*arguments) for _ in range(_AT_ONCE)],
            lambda results: common.synchronize(device) or results,
            rounds,
        )
        row = {"model": f"{model}, {name}", **_rates(batch_size, seconds), "bound": None, "temporaries_gb": None}
        results.append(row | {"compile_seconds": round(max(0.0, first - statistics.median(seconds)), 1)})
    return results


def _timed(run: Callable[[], Any], wait: Callable[[Any], Any], rounds: int) -> tuple[list[float], Any]:
    """Seconds of a step in each round but the first, and the last results."""
    seconds = []
    for _ in range(1 + rounds):
        begin = time.perf_counter()
        results = wait(run())
        seconds.append((time.perf_counter() - begin) / _AT_ONCE)
    return seconds[1:], results


def _rates(items: int, seconds: Sequence[float]) -> dict[str, Any]:
    median = statistics.median(seconds)
    return {
        "batch_size": items,
        "passes_per_second": round(items / median, 2),
        "milliseconds": [round(1e3 * duration, 2) for duration in (min(seconds), median, max(seconds))],
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


def _of_images(lowered: Any) -> list[Any]:
    return [jax.tree.map(_random, argument) for argument in lowered.args_info[0]]


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
        temporaries = "-" if result["temporaries_gb"] is None else result["temporaries_gb"]
        lines.append(f"| {cells} | {result['compile_seconds']:.0f} | {temporaries} |")
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
    parser.add_argument("--program", choices=PROGRAMS, default=STEP, help="what is timed")
    parser.add_argument("--torch", action="store_true", help="time the denoiser in torch, too")
    parser.add_argument("--output", type=pathlib.Path, help="a file for the figures, as JSON")
    parser.add_argument("--all", type=pathlib.Path, metavar="FOLDER", help="run every benchmark of a GPU")
    parser.add_argument("--seconds", type=int, default=540, help="that --all may take")
    parser.add_argument("--tiny", action="store_true", help="with --all: small networks on a CPU, to see that all runs")
    options = parser.parse_args(words)
    common.check_positive(options, "rounds", "seconds", *(["batch_size"] if options.batch_size is not None else []))
    if options.all:
        items = [(item.name, item.seconds, item.tiny if options.tiny else item.words) for item in ITEMS]
        ends = run_all(options.all, options.seconds, [item for item in items if item[-1]])
        print("\n".join(f"{name}: {end}" for name, end in ends.items()))
        return
    before = machine.load_average()
    results = []
    for model in options.models.split(","):
        common.log(f"{model}: compiling")
        results.append(measure(model, options.dtype, options.batch_size, options.rounds, options.program))
        if options.torch:
            results += measure_torch(model, options.dtype, results[-1]["batch_size"], options.rounds)
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
