"""What 8 bits cost in accuracy, and what they bring: the same questions, samples and seeds in several arithmetics.

    python -m benchmarks.quantization                             the embedded model, on the CPU
    python -m benchmarks.quantization --device gpu --model sd21-base --tasks winoground
    python -m benchmarks.quantization --output FILE               writes the figures as JSON, too

Each model is judged in float32, in bfloat16, and with its denoiser in 8 bits (`winobench.models.quantized`), on the
same noise and timesteps; and in float32 with the next seed, which shows what other samples alone would change. Of each:

* the tasks' values with 95% intervals, and the share of questions that are judged as in float32;
* errors: the root mean square of their change, relative to theirs; and the same of the differences between the two
  candidates of a question, sample by sample and after the mean over samples. Decisions are made of the last;
* the size of the denoiser's parameters, and passes a second: medians of rounds that alternate between the arithmetics.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import statistics
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from flax import nnx

from benchmarks import common, machine, race
from winobench import parallel
from winobench.errors import InputError
from winobench.evaluation import plan as planning
from winobench.evaluation import summary
from winobench.scorers.diffusion_itm import DiffusionITM
from winobench.tasks import get_task

TASKS = ("clevr", "clevr_image", "clevr_winoground")
REFERENCE = "float32"
OTHER_SEED = "float32, next seed"
# Name -> dtype and quantization. Those of the second group are for accelerators, on which float32 is not what is fast.
ARITHMETICS = {
    REFERENCE: ("float32", "none"),
    "bfloat16": ("bfloat16", "none"),
    "int8": ("float32", "int8"),
    "fp8": ("float32", "fp8"),
}
ACCELERATED = {"int8, bfloat16": ("bfloat16", "int8"), "fp8, bfloat16": ("bfloat16", "fp8")}
RULE = "uniform"
# Batches of all devices in one round of the timing.
_TIMED_BATCHES = 8


def differences(plan: planning.Plan, errors: np.ndarray) -> np.ndarray:
    """The second candidate's error less the first one's: float64 [questions, samples], of questions of two candidates.

    Errors are normalised where the task's are, so that images can be compared.
    """
    found = []
    for name in plan.questions:
        for terms in summary.score_terms(plan, name):
            if terms[0][0].size == 2:
                normalised = sum(sign * errors[rows.ravel()].astype(np.float64) for rows, sign in terms)
                found.append(normalised[0] - normalised[1])
    return np.array(found)


def change(values: np.ndarray, reference: np.ndarray) -> float:
    """Root mean square of a change, relative to that of what changes."""
    return float(np.sqrt(np.mean(np.square(values - reference)) / np.mean(np.square(reference))))


def passes_per_second(scorers: dict[str, DiffusionITM], plan: planning.Plan, rounds: int) -> dict[str, list[float]]:
    """Arithmetic -> passes a second in each round; everything is compiled already."""
    found: dict[str, list[float]] = {name: [] for name in scorers}
    for _ in range(rounds):
        for name, scorer in scorers.items():
            wanted = _TIMED_BATCHES * scorer.batch_size * parallel.data_parallelism(scorer.mesh)
            samples = -(-wanted // len(plan.pairs))
            pairs = np.repeat(plan.pairs, samples, axis=0)
            triples = np.column_stack([pairs, np.tile(np.arange(samples), len(plan.pairs))])[:wanted]
            session = scorer.session(plan.images, plan.texts, num_samples=samples)
            # Images and texts are encoded by the first turn, which is not timed.
            for _ in range(2):
                started = time.perf_counter()
                for _ in session.iter_errors(triples):
                    pass
            found[name].append(len(triples) / (time.perf_counter() - started))
    return found


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What every model is asked, and how.

    Attributes:
      tasks: names.
      scenes: rendered scenes, or items, of each task.
      num_samples: samples of a pair.
      rounds: alternating measurements of the speed.
      arithmetics: name -> dtype and quantization.
      timestep_range: (first, end); each model's own when None.
    """

    tasks: Sequence[str]
    scenes: int
    num_samples: int
    rounds: int
    arithmetics: dict[str, tuple[str, str]]
    timestep_range: tuple[int, int] | None


def judged(model: str, how: Comparison) -> dict[str, Any]:
    """One model in all arithmetics, ready for JSON."""
    chosen = [get_task(name) for name in how.tasks]
    plan = planning.make_plan(chosen, data_dir=None, limit=how.scenes, normalize="auto")
    scorers, errors = {}, {}
    for name, (dtype, quantization) in how.arithmetics.items():
        scorers[name] = DiffusionITM.from_pretrained(
            model, dtype, quantization=quantization, timestep_range=how.timestep_range
        )
        errors[name] = race.all_errors(scorers[name], plan, how.num_samples, 0, RULE)
        common.log(f"{model}, {name}: done")
    errors[OTHER_SEED] = race.all_errors(scorers[REFERENCE], plan, how.num_samples, 1, RULE)
    exact, whole = errors[REFERENCE], race.fixed(plan, errors[REFERENCE])
    rates = passes_per_second(scorers, plan, how.rounds)
    figures = {}
    for name, of in errors.items():
        decided, found = race.fixed(plan, of), {}
        for task in chosen:
            headline = list(decided[task.name])[-1]
            results = summary.task_results(
                task, plan.questions[task.name], summary.question_scores(plan, task.name, of), texts=plan.texts
            )
            found[task.name] = {
                "metric": headline,
                **{key: results[headline][key] for key in ("value", "low", "high", "n")},
                "as_float32": race.agreement(decided[task.name], whole[task.name]),
            }
        figures[name] = {"tasks": found}
        if name != OTHER_SEED:
            pairs, before = differences(plan, of), differences(plan, exact)
            figures[name] |= {
                "errors_change": change(of.astype(np.float64), exact.astype(np.float64)),
                "differences_change": change(pairs, before),
                "mean_differences_change": change(pairs.mean(axis=1), before.mean(axis=1)),
                "parameter_bytes": sum(a.nbytes for a in jax.tree.leaves(nnx.state(scorers[name].pipeline.unet))),
                "passes_per_second": [round(rate, 1) for rate in rates[name]],
                "batch_size": scorers[name].batch_size,
            }
    return {"pairs": len(plan.pairs), "arithmetics": figures}


def table(figures: dict[str, Any]) -> str:
    """The figures as Markdown tables, one a model."""
    lines = []
    for model, of in figures["models"].items():
        arithmetics = of["arithmetics"]
        tasks = arithmetics[REFERENCE]["tasks"]
        lines += [
            f"{model}, {figures['scenes']} scenes, {figures['samples']} samples",
            "",
            "| | " + " | ".join(f"{name} | as float32" for name in tasks) + " | errors | differences | their means"
            " | parameters, MB | passes/s |",
            "| --- |" + " ---: |" * (2 * len(tasks) + 5),
        ]
        for name, one in arithmetics.items():
            cells = [name]
            for task in one["tasks"].values():
                cells += [
                    f"{100 * task['value']:.1f}% [{100 * task['low']:.1f}, {100 * task['high']:.1f}]",
                    "" if name == REFERENCE else f"{100 * task['as_float32']:.1f}%",
                ]
            if name == OTHER_SEED:
                cells += [""] * 5
            else:
                changes = ("errors_change", "differences_change", "mean_differences_change")
                cells += ["" if name == REFERENCE else f"{100 * one[key]:.2g}%" for key in changes]
                cells += [f"{one['parameter_bytes'] / 1e6:.2f}", f"{statistics.median(one['passes_per_second']):.0f}"]
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    return "\n".join([*lines, common.where(figures, ("jax", "qwix"))])


def benchmark(models: dict[str, str], how: Comparison) -> dict[str, Any]:
    """All models, by what they are called, ready for JSON."""
    load_before = machine.load_average()
    found = {called: judged(model, how) for called, model in models.items()}
    device = jax.local_devices()[0]
    accelerator = None if device.platform == "cpu" else device.device_kind
    return {
        "scenes": how.scenes,
        "samples": how.num_samples,
        "rounds": how.rounds,
        "models": found,
        "machine": machine.describe(accelerator, more=("qwix",)),
        "load_average": [load_before, machine.load_average()],
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, prints the tables, and writes the figures."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.quantization",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu", help="where everything runs")
    parser.add_argument("--model", nargs="+", default=["clevr-tiny"], help="registered names, folders or hub ids")
    parser.add_argument("--called", nargs="+", help="what the tables call the models")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), help="by their names")
    parser.add_argument("--scenes", type=int, default=100, help="rendered scenes, or items, of each task")
    parser.add_argument("--samples", type=int, default=16, help="samples of a pair")
    parser.add_argument("--rounds", type=int, default=3, help="alternating measurements of the speed")
    parser.add_argument("--timestep_range", type=int, nargs=2, help="first and end; each model's own when left out")
    parser.add_argument("--output", type=pathlib.Path, help="a file for the figures, as JSON")
    options = parser.parse_args(arguments)
    common.check_positive(options, "scenes", "samples", "rounds")
    called = options.called or options.model
    if len(called) != len(options.model):
        raise InputError(f"--called has {len(called)} names, but --model has {len(options.model)}: give one for each")
    if options.device == "cpu":
        parallel.one_device_per_core()
    elif jax.default_backend() != "gpu":
        raise InputError("--device gpu needs a jax that sees a GPU: install winobench[cuda]")
    how = Comparison(
        options.tasks,
        options.scenes,
        options.samples,
        options.rounds,
        ARITHMETICS | (ACCELERATED if options.device == "gpu" else {}),
        None if options.timestep_range is None else tuple(options.timestep_range),
    )
    figures = benchmark(dict(zip(called, options.model, strict=True)), how)
    print(table(figures))
    common.write(figures, options.output)


if __name__ == "__main__":
    common.run(main)
