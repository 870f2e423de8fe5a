"""Races beside fixed budgets: passes, agreement, accuracy; and which timesteps make differences least noisy.

    python -m benchmarks.race                             the embedded model, half an hour on two cores
    python -m benchmarks.race --model FOLDER --scenes 30  another model
    python -m benchmarks.race --output FILE               writes the figures as JSON, too

Three parts:

* decisions: the CLEVR tasks with a fixed budget, under two seeds; what a race would have decided on the same samples,
  with how many passes; and the same of a race with learned timesteps (importance). Beside it, fixed budgets of fewer
  samples.
* simulations: races between candidates whose paired differences have a known mean and distribution, so that it is
  known which one is better.
* timesteps: the mean squared error of the mean paired difference of two captions, by the rule for timesteps, for equal
  passes.
"""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks import common, machine
from winobench import metrics, parallel
from winobench.evaluation import importance, progress, race, summary
from winobench.evaluation import plan as planning
from winobench.metrics import sequential
from winobench.scorers import samples
from winobench.scorers.diffusion_itm import DiffusionITM
from winobench.tasks import get_task

TASKS = ("clevr", "clevr_image", "clevr_winoground")
RULE = importance.PILOT_RULE
_SEEDS = (0, 1)
_FEWER = (8, 16, 32, 64)

# Of the comparison of rules: samples a mean, and how many means of each question.
_SAMPLES, _REPEATS = 16, 16
# Samples of each question that the density of importance sampling is learned from.
_LEARNING = 128
_BINS = 10

Errors = Callable[[np.ndarray], np.ndarray]


def all_errors(
    scorer: DiffusionITM, plan: planning.Plan, num_samples: int, seed: int, timesteps: str | list[int] = RULE
) -> np.ndarray:
    """The errors of every pair: float32 [num_pairs, num_samples]."""
    grid = np.repeat(plan.pairs, num_samples, axis=0)
    triples = np.column_stack([grid, np.tile(np.arange(num_samples, dtype=np.int32), len(plan.pairs))])
    errors = np.empty(len(triples), np.float32)
    options = {"num_samples": num_samples, "seed": seed, "timesteps": timesteps}
    with progress.passes(len(triples)) as advance:
        for rows, part in scorer.iter_errors(plan.images, plan.texts, triples, **options):
            errors[rows] = part
            advance(len(part))
    return errors.reshape(len(plan.pairs), num_samples)


def outcomes(plan: planning.Plan, scores: dict[str, list[np.ndarray]]) -> dict[str, dict[str, np.ndarray]]:
    """Task -> part of its metric -> which questions are right, bool [num_questions]."""
    found = {}
    for name, matrices in scores.items():
        targets = [question.target for question in plan.questions[name]]
        parts = metrics.METRICS[get_task(name).metric](matrices, targets)
        found[name] = {part: outcome.correct for part, outcome in parts.items()}
    return found


def fixed(plan: planning.Plan, errors: np.ndarray) -> dict[str, dict[str, np.ndarray]]:
    """What a fixed budget decides: as of `outcomes`."""
    return outcomes(plan, {name: summary.question_scores(plan, name, errors) for name in plan.questions})


def agreement(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    """The share of questions that all parts of a metric judge alike; with two candidates, the same one wins."""
    return float(np.mean(np.all([one[part] == other[part] for part in one], axis=0)))


def decisions(scorer: DiffusionITM, scenes: int, budget: int, alpha: float) -> dict[str, Any]:
    """The first part.

    Args:
      scorer: the model.
      scenes: rendered scenes of each task.
      budget: samples of a pair.
      alpha: of the race.
    """
    tasks = [get_task(name) for name in TASKS]
    plan = planning.make_plan(tasks, data_dir=None, limit=scenes, normalize="auto")
    by_seed = [all_errors(scorer, plan, budget, seed) for seed in _SEEDS]
    whole = [fixed(plan, errors) for errors in by_seed]
    # A pilot's samples are the first ones of a fixed budget.
    pilot_samples = min(budget, importance.PILOT_SAMPLES)
    pilot = race.Race(plan, tasks, budget, alpha).pilot(importance.PILOT_QUESTIONS)
    scores = [
        np.tensordot(signs, by_seed[0][rows.T, :pilot_samples].astype(np.float64), axes=1) for rows, signs in pilot
    ]
    density = importance.learn(scores, samples.low_discrepancy(pilot_samples, _SEEDS[0]))
    timesteps, weights = importance.draw(scorer, density, budget, _SEEDS[0])
    learned = all_errors(scorer, plan, budget, _SEEDS[0], timesteps.tolist())
    fewer = {n: fixed(plan, by_seed[0][:, :n]) for n in _FEWER if n < budget}
    figures: dict[str, Any] = {}

    def raced(task: Any, alone: planning.Plan, errors: np.ndarray, weights: np.ndarray | None) -> dict[str, Any]:
        """What a race comes to, beside the whole budget of the same samples and fixed budgets of two seeds."""
        result = race.Race(alone, [task], budget, alpha, weights=weights).run(errors, lambda *_: None)
        found = outcomes(alone, dict(result.scores))[task.name]
        scaled = errors if weights is None else errors * weights.astype(np.float32)
        return {
            "value": float(found[list(found)[-1]].mean()),
            "agrees": agreement(fixed(alone, scaled)[task.name], found),
            "agrees_with_fixed": [agreement(each[task.name], found) for each in whole],
            "passes": result.passes,
            "fixed_passes": result.fixed_passes,
            "undecided": result.tasks[task.name].undecided,
            "median_samples": result.tasks[task.name].samples,
        }

    for task in tasks:
        alone = planning.make_plan([task], data_dir=None, limit=scenes, normalize="auto")
        row_of = plan.pair_index()
        rows = [
            row_of[plan.image_hashes.index(alone.image_hashes[i]), plan.texts.index(alone.texts[t])]
            for i, t in alone.pairs.tolist()
        ]
        name, headline = task.name, list(whole[0][task.name])[-1]
        figures[name] = {
            "questions": len(alone.questions[name]),
            "pairs": len(alone.pairs),
            "metric": headline,
            "fixed": float(whole[0][name][headline].mean()),
            "two_fixed_agree": agreement(whole[0][name], whole[1][name]),
            "race": raced(task, alone, by_seed[0][rows], None),
            "race_importance": raced(task, alone, learned[rows], weights),
            "fewer": {
                str(n): {"value": float(found[name][headline].mean()), "agrees": agreement(whole[0][name], found[name])}
                for n, found in fewer.items()
            },
        }
    return {
        "tasks": figures,
        "density": density.tolist(),
        "pilot_pairs": len(np.unique(np.concatenate([r.ravel() for r, _ in pilot]))),
    }


def _standard(random: np.random.Generator, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    """Noise of mean 0 and variance 1."""
    if kind == "normal":
        return random.standard_normal(shape)
    if kind == "Student's t, 3 degrees of freedom":
        return random.standard_t(3, shape) / np.sqrt(3)
    if kind == "one sample in ten":
        return (random.random(shape) < 0.1) * random.standard_normal(shape) * np.sqrt(10)
    if kind == "skewed (exponential)":
        return random.exponential(1.0, shape) - 1.0
    raise ValueError(kind)


DISTRIBUTIONS = ("normal", "Student's t, 3 degrees of freedom", "one sample in ten", "skewed (exponential)")
EFFECTS = (0.0, 0.1, 0.3, 1.0)


def simulations(budget: int, alpha: float, races: int = 1000, candidates: Sequence[int] = (2, 10)) -> list[dict]:
    """The second part: the first candidate is better than the others by an effect, in standard deviations of a paired
    difference."""
    random = np.random.default_rng(0)
    looks, level = sequential.looks(budget), sequential.level_of_a_look(alpha, budget)
    found = []
    for number in candidates:
        for kind in DISTRIBUTIONS:
            for effect in EFFECTS:
                same = best = best_of_all = passes = 0
                for _ in range(races):
                    # The difference of two has the variance 1.
                    errors = _standard(random, kind, (number, budget)) / np.sqrt(2)
                    errors[1:] += effect
                    ranking = race.Ranking(np.arange(number)[:, None], np.array([-1]))
                    for n in looks:
                        ranking.look(errors, n, budget, level)
                        if ranking.decided:
                            break
                    winner, of_all = int(np.argmax(ranking.scores(errors))), int(np.argmin(errors.mean(axis=1)))
                    same += winner == of_all
                    best += winner == 0
                    best_of_all += of_all == 0
                    passes += int(ranking.num_samples.sum())
                found.append(
                    {
                        "candidates": number,
                        "distribution": kind,
                        "effect": effect,
                        "agrees": same / races,
                        "best": best / races,
                        "best_of_fixed": best_of_all / races,
                        "passes": passes / races / number,
                    }
                )
    return found


def _timesteps(
    rule: str, bounds: tuple[int, int], number: int, importance: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Timesteps and weights of one mean, [_SAMPLES] each."""
    plain = np.ones(_SAMPLES)
    if rule.startswith("antithetic"):
        half = samples.choose_timesteps("low_discrepancy", _SAMPLES // 2, seed=number, timestep_range=bounds)
        return np.repeat(half, 2), plain
    if rule == "importance":
        # The quantiles of a density that is constant in each bin, at points of a low-discrepancy sequence.
        position = samples.choose_timesteps("low_discrepancy", _SAMPLES, seed=number, num_train_timesteps=10**6) / 1e6
        edges = np.linspace(*bounds, _BINS + 1)
        drawn = np.interp(position, np.concatenate([[0], np.cumsum(importance)]), edges)
        bins = np.minimum(np.searchsorted(edges, drawn, side="right") - 1, _BINS - 1)
        return np.floor(drawn).astype(np.int32), 1 / (importance[bins] * _BINS)
    return samples.choose_timesteps(rule, _SAMPLES, seed=number, timestep_range=bounds), plain


RULES = ("uniform", "stratified", "even", "low_discrepancy", "antithetic noise", "importance")


def timestep_rules(scorer: DiffusionITM, questions: int) -> dict[str, Any]:
    """The third part: mean squared error by rule, relative to ``uniform``, mean over questions of their ratios.

    The reference is the mean over all that was scored under the rules whose expectation is that of ``uniform``. The
    density of ``importance`` is proportional to the root of the mean squared difference in each of ten bins of the
    range, learned on as many other questions.
    """
    task = get_task("clevr")
    examples = list(task.load(None, -(-2 * questions // 14)))
    chosen = [examples[i] for i in np.random.default_rng(0).permutation(len(examples))[: 2 * questions]]
    bounds = scorer.timestep_range or (0, scorer.pipeline.schedule.num_train_timesteps)

    def differences(of: Sequence[Any], timesteps: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """False caption's error less the true one's: float64 [questions, samples]."""
        images = [example.images[0] for example in of]
        texts = list(dict.fromkeys(text for example in of for text in example.texts))
        pairs = [(i, texts.index(text)) for i, example in enumerate(of) for text in example.texts]
        grid = np.repeat(np.array(pairs, np.int32), len(timesteps), axis=0)
        triples = np.column_stack([grid, np.tile(np.arange(len(timesteps), dtype=np.int32), len(pairs))])
        errors = np.empty(len(triples), np.float64)
        for rows, part in scorer.iter_errors(images, texts, triples, timesteps=timesteps, noise=noise):
            errors[rows] = part
        errors = errors.reshape(len(of), 2, -1)
        return errors[:, 1] - errors[:, 0]

    random = np.random.default_rng(1)

    def draw(count: int) -> np.ndarray:
        return random.standard_normal((count, *scorer.latent_shape), np.float32)

    learning = samples.choose_timesteps("low_discrepancy", _LEARNING, seed=99, timestep_range=bounds)
    squares = np.square(differences(chosen[questions:], learning, draw(len(learning)))).mean(axis=0)
    bins = (learning - bounds[0]) * _BINS // (bounds[1] - bounds[0])
    density = np.array([np.sqrt(squares[bins == b].mean()) for b in range(_BINS)])
    density /= density.sum()

    means = {}
    for rule in RULES:
        parts = [_timesteps(rule, bounds, 1000 + number, density) for number in range(_REPEATS)]
        timesteps, weights = (np.concatenate(part) for part in zip(*parts, strict=True))
        noise = draw(len(timesteps))
        if rule.startswith("antithetic"):
            noise[1::2] = -noise[::2]
        values = differences(chosen[:questions], timesteps.astype(np.int32), noise) * weights
        means[rule] = values.reshape(questions, _REPEATS, _SAMPLES).mean(axis=-1)
        common.log(f"timesteps {rule}: done")
    reference = np.mean([means[rule].mean(axis=1) for rule in RULES if rule != "even"], axis=0)
    squared = {rule: np.square(of - reference[:, None]).mean(axis=1) for rule, of in means.items()}
    return {
        "questions": questions,
        "samples": _SAMPLES,
        "repeats": _REPEATS,
        "importance": density.round(4).tolist(),
        "relative_error": {rule: float(np.mean(of) / np.mean(squared["uniform"])) for rule, of in squared.items()},
        # Over questions, each with its own scale, and how sure that is.
        "mean_log_ratio": {
            rule: [
                float(np.mean(np.log(of / squared["uniform"]))),
                float(np.std(np.log(of / squared["uniform"])) / np.sqrt(questions)),
            ]
            for rule, of in squared.items()
        },
    }


def benchmark(
    scorer: DiffusionITM, model: str, scenes: int, budget: int, alpha: float, questions: int, races: int
) -> dict[str, Any]:
    """All three parts, ready for JSON."""
    load_before = machine.load_average()
    figures = {
        "model": model,
        "scenes": scenes,
        "budget": budget,
        "alpha": alpha,
        "rule": RULE,
        "timesteps": timestep_rules(scorer, questions),
        "decisions": decisions(scorer, scenes, budget, alpha),
        "simulations": simulations(budget, alpha, races),
    }
    return {**figures, "machine": machine.describe(None), "load_average": [load_before, machine.load_average()]}


def table(figures: dict[str, Any]) -> str:
    """The figures as Markdown tables."""
    budget, tasks = figures["budget"], figures["decisions"]["tasks"]
    lines = [
        f"{figures['model']}, {figures['scenes']} scenes, budget {budget} samples, alpha {figures['alpha']}",
        "",
        f"| | questions | fixed {budget} | two seeds agree | race | agrees | fewer passes | took all | race, importance"
        " | agrees | with fixed | fewer passes | took all |",
        "| --- |" + " ---: |" * 12,
    ]
    for name, of in tasks.items():
        cells = [name, str(of["questions"]), f"{of['fixed']:.1%}", f"{of['two_fixed_agree']:.1%}"]
        for kind in ("race", "race_importance"):
            one = of[kind]
            cells += [f"{one['value']:.1%}", f"{one['agrees']:.1%}"]
            cells += [f"{one['agrees_with_fixed'][0]:.1%}"] if kind == "race_importance" else []
            cells += [f"{one['fixed_passes'] / one['passes']:.1f} x", str(one["undecided"])]
        lines.append(f"| {' | '.join(cells)} |")
    sizes = list(next(iter(tasks.values()))["fewer"])
    lines += ["", f"Fixed budgets of fewer samples: agreement with {budget}.", ""]
    lines += ["| | " + " | ".join(sizes) + " |", "| --- |" + " ---: |" * len(sizes)]
    for name, of in tasks.items():
        lines.append(f"| {name} | " + " | ".join(f"{of['fewer'][n]['agrees']:.1%}" for n in sizes) + " |")
    lines += ["", "| candidates | distribution | effect | agrees | best (fixed) | best (race) | samples a candidate |"]
    lines += ["| ---: | --- | ---: | ---: | ---: | ---: | ---: |"]
    for of in figures["simulations"]:
        lines.append(
            f"| {of['candidates']} | {of['distribution']} | {of['effect']} | {of['agrees']:.1%}"
            f" | {of['best_of_fixed']:.1%} | {of['best']:.1%} | {of['passes']:.0f} |"
        )
    lines += ["", "| timesteps | squared error, uniform = 1 | by question (geometric mean) |", "| --- | ---: | ---: |"]
    for rule, ratio in figures["timesteps"]["relative_error"].items():
        mean, error = figures["timesteps"]["mean_log_ratio"][rule]
        low, high = np.exp(mean - 1.96 * error), np.exp(mean + 1.96 * error)
        lines.append(f"| {rule} | {ratio:.2f} | {np.exp(mean):.2f} [{low:.2f}, {high:.2f}] |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, prints tables, and writes the figures."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.race", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="clevr-tiny", help="a registered name, a folder or a hub id")
    parser.add_argument("--called", help="what the tables call the model")
    parser.add_argument("--scenes", type=int, default=30, help="rendered scenes of each task")
    parser.add_argument("--budget", type=int, default=250, help="samples of a pair")
    parser.add_argument("--alpha", type=float, default=race.ALPHA, help="of the race")
    parser.add_argument("--questions", type=int, default=60, help="of the comparison of rules for timesteps")
    parser.add_argument("--races", type=int, default=1000, help="of each simulation")
    parser.add_argument("--timestep_range", type=int, nargs=2, help="first and end; the model's own when left out")
    parser.add_argument("--output", type=pathlib.Path, help="a file for the figures, as JSON")
    options = parser.parse_args(arguments)
    common.check_positive(options, "scenes", "budget", "questions", "races")
    parallel.one_device_per_core()
    bounds = None if options.timestep_range is None else tuple(options.timestep_range)
    scorer = DiffusionITM.from_pretrained(options.model, timestep_range=bounds)
    figures = benchmark(
        scorer,
        options.called or options.model,
        options.scenes,
        options.budget,
        options.alpha,
        options.questions,
        options.races,
    )
    print(table(figures))
    common.write(figures, options.output)


if __name__ == "__main__":
    common.run(main)
