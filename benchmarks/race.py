"""Races beside fixed budgets: passes, agreement, accuracy; and which timesteps make differences least noisy.

    python -m benchmarks.race                             the embedded model, half an hour on two cores
    python -m benchmarks.race --model FOLDER --scenes 30  another model
    python -m benchmarks.race --output FILE               writes the figures as JSON, too

Three parts:

* decisions: the CLEVR tasks with a fixed budget; what a race would have decided on the same samples, with how many
  passes; and the same of a race with learned timesteps (importance). ``--errors FILE`` keeps what was scored.
* simulations: races between candidates whose paired differences have a known distribution, most of them adverse, by
  the rule of today and by the one before it, a t test after 4, 8, 16, ... samples.
* timesteps: the mean squared error of the mean paired difference of two captions, by the rule for timesteps, for equal
  passes.
"""

from __future__ import annotations

import argparse
import pathlib
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import stats

from benchmarks import common, machine, result_files
from winobench import metrics, parallel
from winobench.base.errors import InputError
from winobench.base.progress import counting
from winobench.evaluation import importance, summary
from winobench.evaluation import plan as planning
from winobench.evaluation.decisions import PairwiseQuestion, Ranking
from winobench.metrics import sequential
from winobench.runs.settings import Sampling
from winobench.scorers import samples
from winobench.scorers.diffusion_itm import DiffusionITM
from winobench.tasks import get_task

TASKS = ("clevr", "clevr_image", "clevr_winoground")
RULE = importance.PILOT_RULE
_SEED = 0
_FEWER = (8, 16, 32, 64)
SHARES = (sequential.SHARE, 0.1, 0.2)

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
    with counting(len(triples)) as advance:
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
    """Decisions with a fixed budget: see `outcomes`."""
    return outcomes(plan, {name: summary.question_scores(plan, name, errors) for name in plan.questions})


def agreement(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    """The share of questions that all parts of a metric judge alike; with two candidates, the same one wins."""
    return float(np.mean(np.all([one[part] == other[part] for part in one], axis=0)))


class _Before:
    """The rule before: a t test of the differences after 4, 8, 16, ... samples, at a share of the level for each."""

    share = None

    def __init__(self, budget: int, alpha: float):
        self.looks = [n for n in (4 * 2**power for power in range(60)) if n < budget] + [budget]
        self.alpha, self.budget = alpha / max(1, len(self.looks) - 1), budget

    def sure(self, differences: np.ndarray, level: float) -> np.ndarray:
        """[...] bool: does the test say that the mean over the budget is positive?"""
        n, mean = differences.shape[-1], differences.mean(axis=-1)
        if n >= self.budget:
            return mean > 0
        spread = differences.std(axis=-1, ddof=1) * np.sqrt((1 / n) * (1 - n / self.budget))
        return mean > stats.t.isf(level, n - 1) * spread

    def decide(self, scores: np.ndarray, decision: metrics.Decision) -> tuple[np.ndarray, np.ndarray]:
        """See `Now`."""
        shape, budget = scores.shape[:-1], self.budget
        if decision.is_diagonal:
            mine, other = np.nonzero(~np.eye(len(scores), dtype=bool))
            for n in self.looks:
                own = scores[mine, mine, :n]
                margins = np.stack([own - scores[mine, other, :n], own - scores[other, mine, :n]])
                won, lost = (self.sure(sign * margins, self.alpha / margins[..., 0].size) for sign in (1, -1))
                if (won.all(axis=1) | lost.any(axis=1)).all():
                    break
            return scores[..., :n].mean(axis=-1), np.full(shape, n)
        flat, taken = scores.reshape(-1, budget), np.zeros(scores[..., 0].size, np.int64)
        is_in, is_open, tops = [], [], [k for k in decision.tops if k < len(flat)]
        for _ in tops:
            is_in.append(np.zeros(len(flat), bool))
            is_open.append(np.ones(len(flat), bool))
        for n in self.looks:
            running = np.any(is_open, axis=0)
            if not running.any():
                break
            taken[running] = n
            for k, inside, still in zip(tops, is_in, is_open, strict=True):
                order = np.flatnonzero(still)
                order = order[np.argsort(-flat[order, :n].mean(axis=1), kind="stable")]
                free = k - inside.sum()
                above, below = order[:free], order[free:]
                sure = self.sure(flat[above, None, :n] - flat[None, below, :n], self.alpha / k / (len(flat) - k))
                inside[above[sure.all(axis=1)]] = True
                still[above[sure.all(axis=1)]] = still[below[sure.all(axis=0)]] = False
                if k - inside.sum() in (0, still.sum()):
                    inside |= still & (k > inside.sum())
                    still[:] = False
        means = np.array([row[:n].mean() for row, n in zip(flat, taken, strict=True)])
        for inside in is_in:  # what was decided stands
            if inside.any() and not inside.all():
                means[inside] += max(0.0, means[~inside].max() - means[inside].min() + 1e-12)
        return means.reshape(shape), taken.reshape(shape)


class Now:
    """The rule of today."""

    def __init__(self, budget: int, alpha: float, share: float):
        self.looks = sequential.looks(budget, alpha, share)
        self.alpha, self.budget, self.share = alpha, budget, share

    def decide(self, scores: np.ndarray, decision: metrics.Decision) -> tuple[np.ndarray, np.ndarray]:
        """Decides by a question's scores, [images, texts, budget] in the order of the samples.

        Returns:
          The scores that the race ends with, and the samples that each pair took, [images, texts].
        """
        shape = scores.shape[:-1]
        rows, errors, signs = np.arange(scores[..., 0].size), scores.reshape(-1, self.budget), np.array([1])
        question: Ranking | PairwiseQuestion = (
            PairwiseQuestion(rows.reshape(*shape, 1), signs)
            if decision.is_diagonal
            else Ranking(rows[:, None], signs, decision.tops)
        )
        for n in self.looks:
            question.interim_look(errors, n, self.budget, self.alpha, self.share)
            if question.decided:
                break
        return question.scores(errors).reshape(shape), question.num_samples.reshape(shape)


def _interval(agree: np.ndarray, clusters: Any = None) -> list[float]:
    """A share and its 95% interval."""
    found = metrics.clustered(agree, np.arange(len(agree)) if clusters is None else clusters)
    return [float(found.value), float(found.low), float(found.high)]


def decisions(
    scorer: DiffusionITM | None, scenes: int, budget: int, alpha: float, cache: pathlib.Path | None = None
) -> dict[str, Any]:
    """The first part.

    Args:
      scorer: the model; None where all errors are in the cache.
      scenes: rendered scenes of each task.
      budget: samples of a pair.
      alpha: of the race.
      cache: a file for the errors.
    """
    tasks = [get_task(name) for name in TASKS]
    plan = planning.make_plan(tasks, data_dir=None, limit=scenes, normalize="auto")
    if cache is not None and cache.exists():
        scored = dict(np.load(cache))
    else:
        plain = all_errors(scorer, plan, budget, _SEED)
        # A pilot's samples are the first ones of a fixed budget.
        count = min(budget, importance.PILOT_SAMPLES)
        pilot = importance.pilot(plan, tasks)
        scores = [np.tensordot(signs, plain[rows.T, :count].astype(np.float64), axes=1) for rows, signs in pilot]
        density = importance.learn(scores, samples.low_discrepancy(count, _SEED))
        timesteps, weights = importance.draw(scorer, density, budget, _SEED)
        learned = all_errors(scorer, plan, budget, _SEED, timesteps.tolist())
        scored = {"low0": plain, "density": density, "weights": weights, "importance": learned}
        if cache is not None:
            np.savez(cache, **scored)
    order = samples.visiting_order(budget, _SEED)
    figures: dict[str, Any] = {}
    for task in tasks:
        questions, decision = plan.questions[task.name], metrics.METRICS[task.metric].decision
        terms = summary.score_terms(plan, task.name)
        dependence = summary.image_dependence(questions)
        targets = [question.target for question in questions]
        of: dict[str, Any] = {"questions": len(questions)}
        for rule, weights in (("low0", np.ones(budget)), ("importance", scored["weights"])):
            errors = scored[rule].astype(np.float64) * weights
            whole = fixed(plan, np.float32(errors))[task.name]
            headline = list(whole)[-1]
            rules = {"before": _Before(budget, alpha)} | {f"now {share}": Now(budget, alpha, share) for share in SHARES}
            rates: dict[str, Any] = {"fixed": float(whole[headline].mean())}
            for name, how in rules.items():
                met = errors if name == "before" else errors[:, order]
                taken, scores = np.zeros(len(plan.pairs), np.int64), []
                for parts in terms:
                    matrix = sum(sign * met[rows] for rows, sign in parts)
                    ended, numbers = how.decide(matrix, decision)
                    scores.append(ended)
                    for rows, _ in parts:
                        np.maximum.at(taken, rows.ravel(), numbers.ravel())
                parts_right = metrics.METRICS[task.metric](scores, targets)
                agree = np.all([parts_right[part].correct == right for part, right in whole.items()], axis=0)
                used = np.unique(np.concatenate([rows.ravel() for parts in terms for rows, _ in parts]))
                rates[name] = {
                    "agrees": _interval(agree, dependence),
                    "passes": int(taken[used].sum()),
                    "fixed_passes": len(used) * budget,
                }
            if rule == "low0":
                rates["fewer"] = {}
                for n in (n for n in _FEWER if n < budget):
                    less = fixed(plan, scored[rule][:, :n])[task.name]
                    same = np.all([less[part] == right for part, right in whole.items()], axis=0)
                    rates["fewer"][str(n)] = _interval(same, dependence)
            of[rule] = rates
        figures[task.name] = of
    return {"tasks": figures, "density": scored["density"].tolist()}


def _points(
    random: np.random.Generator, shape: tuple[int, ...], share: float, rare: float, spread: float
) -> np.ndarray:
    """Each sample is rare with the probability ``share``; the others are at 0.25."""
    return np.where(random.random(shape) < share, rare, 0.25) + spread * random.standard_normal(shape)


def _by_timestep(random: np.random.Generator, shape: tuple[int, ...], density: np.ndarray | None) -> np.ndarray:
    """The first tenth of the timesteps at -3, the others at 0.25; of a density of another question's."""
    rows = []
    for _ in range(int(np.prod(shape[:-1]))):
        position = samples.low_discrepancy(shape[-1], int(random.integers(2**31)))
        weight = np.ones(shape[-1])
        if density is not None:
            position = np.interp(position, np.concatenate([[0], np.cumsum(density) / 10]), np.linspace(0, 1, 11))
            weight = 1 / density[np.minimum((10 * position).astype(int), 9)]
        rows.append(np.where(position < 0.1, -3.0, 0.25) * weight)
    return np.reshape(rows, shape) + 0.05 * random.standard_normal(shape)


# What the pilot makes of questions that differ at the last timesteps alone.
_UNLIKE = np.array([0.5] * 9 + [5.5])

DISTRIBUTIONS: dict[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]] = {
    "normal": lambda random, shape: random.standard_normal(shape),
    "normal, mean 0.3": lambda random, shape: random.standard_normal(shape) + 0.3,
    "normal, mean 1": lambda random, shape: random.standard_normal(shape) + 1,
    "t, 3 degrees of freedom": lambda random, shape: random.standard_t(3, shape),
    "t, 2 degrees of freedom": lambda random, shape: random.standard_t(2, shape),
    "exponential": lambda random, shape: random.exponential(1, shape) - 1,
    "lognormal": lambda random, shape: np.exp(random.standard_normal(shape)) - np.exp(0.5),
    "a tenth at -2.5": lambda random, shape: _points(random, shape, 0.1, -2.5, 0.3),
    "a tenth at -3": lambda random, shape: _points(random, shape, 0.1, -3, 0.05),
    "a twentieth at -6": lambda random, shape: _points(random, shape, 0.05, -6, 0.05),
    "a tenth at -3, by timestep": lambda random, shape: _by_timestep(random, shape, None),
    "the same, importance of other questions": lambda random, shape: _by_timestep(random, shape, _UNLIKE),
}
"""Differences of two candidates: sample by sample, with a mean near 0 unless it is named."""

QUESTIONS = {
    "1 x 2": ((1, 2), "accuracy", 1.0),
    "2 x 2": ((2, 2), "winoground", 0.5),
    "3 x 3": ((3, 3), "winoground", 0.5),
    "1 x 10": ((1, 10), "accuracy", 0.3),
    "1 x 100, recall at 1 and 5": ((1, 100), "recall", 0.03),
}
"""What is asked: shape, metric, and the part of the races that are run."""


def simulations(budget: int, alpha: float, races: int = 1000) -> list[dict[str, Any]]:
    """The second part: agreement with the whole budget, and the samples of a pair, before and now.

    The first candidate's score (of the diagonal, each right pair's) is ahead of each other one's by a draw of the
    distribution and by normal noise of a tenth of its spread, with either sign.
    """
    rows = []
    for question, (shape, metric, part) in QUESTIONS.items():
        decision, number = metrics.METRICS[metric].decision, max(5, round(part * races))
        for kind, draw in DISTRIBUTIONS.items():
            random = np.random.default_rng(zlib.crc32(f"{question} {kind}".encode()))
            rules = {"before": _Before(budget, alpha), "now": Now(budget, alpha, sequential.SHARE)}
            agree: dict[str, list[bool]] = {name: [] for name in rules}
            taken: dict[str, list[float]] = {name: [] for name in rules}
            for race_number in range(number):
                ahead = draw(random, (*shape, budget)) if decision.is_diagonal else draw(random, (1, 1, budget))
                ahead = ahead * (1 if race_number % 2 else -1)
                scores = 0.1 * np.abs(ahead).mean() * random.standard_normal((*shape, budget))
                if decision.is_diagonal:  # each wrong pair is behind by a draw of its own
                    scores -= ahead * ~np.eye(shape[0], dtype=bool)[..., None]
                else:
                    scores[0, 0] += ahead[0, 0]
                order = random.permutation(budget)
                target = [None if decision.is_diagonal else 0]
                whole = metrics.METRICS[metric]([scores.mean(axis=-1)], target)
                for name, rule in rules.items():
                    ended, numbers = rule.decide(scores if name == "before" else scores[..., order], decision)
                    outcome = metrics.METRICS[metric]([ended], target)
                    agree[name].append(all(outcome[key].correct[0] == whole[key].correct[0] for key in whole))
                    taken[name].append(float(numbers.mean()))
            rows.append(
                {
                    "question": question,
                    "differences": kind,
                    "races": number,
                    **{
                        name: {"agrees": _interval(np.array(agree[name])), "samples": np.mean(taken[name])}
                        for name in rules
                    },
                }
            )
        common.log(f"simulations {question}: done")
    return rows


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
    scorer: DiffusionITM | None,
    model: str,
    scenes: int,
    budget: int,
    alpha: float,
    questions: int,
    races: int,
    cache: pathlib.Path | None = None,
) -> dict[str, Any]:
    """All three parts, ready for JSON; a part whose number of questions or races is 0 is left out."""
    load_before = machine.load_average()
    figures: dict[str, Any] = {"model": model, "scenes": scenes, "budget": budget, "alpha": alpha, "rule": RULE}
    if questions:
        figures["timesteps"] = timestep_rules(scorer, questions)
    if scenes:
        figures["decisions"] = decisions(scorer, scenes, budget, alpha, cache)
    if races:
        figures["simulations"] = simulations(budget, alpha, races)
    return {**figures, "machine": machine.describe(None), "load_average": [load_before, machine.load_average()]}


def _percent(interval: Sequence[float]) -> str:
    value, low, high = (f"{100 * end:.1f}" for end in interval)
    return f"{value} [{low}, {high}]"


def table(figures: dict[str, Any]) -> str:
    """The figures as Markdown tables."""
    lines = [f"{figures['model']}, budget {figures['budget']} samples, alpha {figures['alpha']}", ""]
    if "decisions" in figures:
        names = ["before", *(f"now {share}" for share in SHARES)]
        lines += [
            "| | questions | timesteps | fixed | " + " | ".join(f"{n}: agrees, % | fewer passes" for n in names) + " |"
        ]
        lines += ["| --- | ---: | --- |" + " ---: |" * (1 + 2 * len(names))]
        for task, of in figures["decisions"]["tasks"].items():
            for rule in ("low0", "importance"):
                cells = [task, str(of["questions"]), RULE if rule == "low0" else rule, f"{of[rule]['fixed']:.1%}"]
                for name in names:
                    decision = of[rule][name]
                    cells += [_percent(decision["agrees"]), f"{decision['fixed_passes'] / decision['passes']:.1f} x"]
                lines.append(f"| {' | '.join(cells)} |")
        lines += ["", "Fixed budgets of fewer samples: agreement with all, %.", ""]
        sizes = list(next(iter(figures["decisions"]["tasks"].values()))["low0"]["fewer"])
        lines += ["| | " + " | ".join(sizes) + " |", "| --- |" + " ---: |" * len(sizes)]
        for task, of in figures["decisions"]["tasks"].items():
            lines.append(f"| {task} | " + " | ".join(_percent(of["low0"]["fewer"][n]) for n in sizes) + " |")
    if "simulations" in figures:
        lines += ["", "| question | differences | races | before: agrees, % | samples | now: agrees, % | samples |"]
        lines += ["| --- | --- | ---: | ---: | ---: | ---: | ---: |"]
        for of in figures["simulations"]:
            cells = [of["question"], of["differences"], str(of["races"])]
            for name in ("before", "now"):
                cells += [_percent(of[name]["agrees"]), f"{of[name]['samples']:.0f}"]
            lines.append(f"| {' | '.join(cells)} |")
    if "timesteps" in figures:
        lines += [
            "",
            "| timesteps | squared error, uniform = 1 | by question (geometric mean) |",
            "| --- | ---: | ---: |",
        ]
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
    parser.add_argument("--scenes", type=int, default=30, help="rendered scenes of each task; 0 for no tasks")
    parser.add_argument("--budget", type=int, default=250, help="samples of a pair")
    parser.add_argument("--alpha", type=float, default=Sampling.alpha, help="of the race")
    parser.add_argument(
        "--questions", type=int, default=60, help="of the comparison of rules for timesteps; 0 for none"
    )
    parser.add_argument("--races", type=int, default=1000, help="of each simulation of two candidates; 0 for none")
    parser.add_argument("--timestep_range", type=int, nargs=2, help="first and end; the model's own when left out")
    parser.add_argument("--errors", type=pathlib.Path, help="a file (.npz) for the tasks' errors, read if it exists")
    parser.add_argument("--output", type=pathlib.Path, help="a file for the figures, as JSON")
    options = parser.parse_args(arguments)
    common.check_positive(options, "budget")
    for name in ("scenes", "questions", "races"):
        if getattr(options, name) < 0:
            raise InputError(f"--{name} is {getattr(options, name)}, but it must be at least 0", code="out-of-range")
    scorer = None
    if options.questions or (options.scenes and not (options.errors is not None and options.errors.exists())):
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
        options.errors,
    )
    print(table(figures))
    result_files.write(figures, options.output)


if __name__ == "__main__":
    common.run(main)
