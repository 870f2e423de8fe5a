"""Number of decisions that change in fewer bits: python -m benchmarks.low_precision --output FILE

The same questions with the same samples in float32, in bfloat16, with images encoded in bfloat16, and with 8-bit
factors of products (float8) in both.
float32 with the next seed shows what other samples alone change. CPUs have no such products, so speed is not compared.
"""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks import common, machine, race, result_files
from winobench.evaluation import plan as planning
from winobench.evaluation import summary
from winobench.metrics import intervals
from winobench.scorers.diffusion_itm import DiffusionITM
from winobench.tasks import get_task

TASKS = ("clevr", "clevr_hard")
REFERENCE, OTHER_SEED = "float32", "float32, next seed"
WAYS = {
    REFERENCE: {"dtype": "float32"},
    "bfloat16": {"dtype": "bfloat16"},
    "images in bfloat16": {"dtype": "float32", "autoencoder_dtype": "bfloat16"},
    "bfloat16, also of images": {"dtype": "bfloat16", "autoencoder_dtype": "bfloat16"},
    "float8": {"dtype": "float32", "float8": True},
    "float8, bfloat16": {"dtype": "bfloat16", "float8": True},
}
_RULE = "uniform"


def choices(plan: planning.Plan, errors: np.ndarray) -> dict[str, np.ndarray]:
    """Task -> the candidate that each question's scores choose, int [questions]."""
    return {
        name: np.array([np.argmax(scores) for scores in summary.question_scores(plan, name, errors)])
        for name in plan.questions
    }


def changed(model: str, rounds: int, num_samples: int) -> dict[str, Any]:
    """Task -> way -> share of questions whose decision is another one than in float32, with Wilson's 95% interval."""
    plan = planning.make_plan([get_task(name) for name in TASKS], data_dir=None, limit=rounds, normalize="auto")
    chosen = {}
    for name, how in WAYS.items():
        scorer = DiffusionITM.from_pretrained(model, **how)
        chosen[name] = choices(plan, race.all_errors(scorer, plan, num_samples, 0, _RULE))
        if name == REFERENCE:
            chosen[OTHER_SEED] = choices(plan, race.all_errors(scorer, plan, num_samples, 1, _RULE))
    exact = chosen.pop(REFERENCE)
    return {task: {name: _share(way[task] != exact[task]) for name, way in chosen.items()} for task in exact}


def _share(is_other: np.ndarray) -> dict[str, Any]:
    interval = intervals.wilson(int(is_other.sum()), len(is_other))
    return {"questions": len(is_other), "changed": int(is_other.sum()), "low": interval.low, "high": interval.high}


def main(arguments: Sequence[str] | None = None) -> None:
    """Compares, prints the shares, and writes them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="clevr-tiny,clevr-flow", help="registered names or folders, with commas")
    parser.add_argument("--rounds", type=int, default=25, help="rendered scenes of clevr, rounds of clevr_hard")
    parser.add_argument("--samples", type=int, default=16, help="samples of a pair")
    parser.add_argument("--output", type=pathlib.Path, help="a file for the figures, as JSON")
    options = parser.parse_args(arguments)
    common.check_positive(options, "rounds", "samples")
    results = {model: changed(model, options.rounds, options.samples) for model in options.models.split(",")}
    for model, tasks in results.items():
        for task, ways in tasks.items():
            for name, row in ways.items():
                low, high = 100 * row["low"], 100 * row["high"]
                print(f"{model} {task} {name}: {row['changed']} of {row['questions']} change [{low:.1f}%, {high:.1f}%]")
    figures = {"rounds": options.rounds, "samples": options.samples, "models": results}
    result_files.write({**figures, "machine": machine.describe(None)}, options.output)


if __name__ == "__main__":
    common.run(main)
