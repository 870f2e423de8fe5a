"""Passes until an answer is that of a large budget, by the rule that chooses noise and timesteps.

    python -m benchmarks.efficiency --workdir DIR --output FILE           both embedded models, an hour on two cores
    python -m benchmarks.efficiency --workdir DIR --models FOLDER --rounds 2 --images 2 --points 64

Each pair of an image and a text is scored once on ``--points`` timesteps, which are spread evenly over the range, with
noise and with minus this noise. ``--workdir`` keeps these errors, and a second call goes on. All of them together are
the full budget. A rule then chooses some of them, by other random numbers for each seed, and nothing is scored again.

The questions: ``clevr_hard``; its pairs of images with the caption of each, as Winoground asks; and which of several
classes an image shows (`benchmarks.race_classes`). A rule that learns from questions learns from the other half.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks import common, machine, race, race_classes, result_files
from winobench import metrics, parallel
from winobench.base import files
from winobench.clevr import questions as clevr_questions
from winobench.evaluation import importance, summary
from winobench.evaluation import plan as planning
from winobench.runs.settings import Sampling
from winobench.scorers import samples
from winobench.scorers.diffusion_itm import DiffusionITM
from winobench.tasks import get_task
from winobench.tasks.base import Example, Task

MODELS = ("clevr-tiny", "clevr-flow")
HARD, PAIRS, CLASSES = "clevr_hard", "clevr_hard_winoground", race_classes.NAME
NUMBERS = (2, 4, 6, 8, 12, 16, 24, 30, 32, 48, 64, 96, 128, 192, 250)
"""Numbers of samples of a pair after which a rule answers."""
SHOWN = 32
"""The number at which rules are compared."""

_SCORED_AT_ONCE = 32  # points
_QUANTILES = 1000  # of the range, among which points are looked up
_BINS = 10  # of a density
_LOW = 0.5  # the part of the range whose noise has a partner, in the rule for low timesteps
_NO_SCORE = -1e9  # of a candidate that a question lacks


@dataclasses.dataclass(frozen=True)
class Set:
    """Recorded questions: scores [questions, images, texts, points, 2 signs], higher = better match.

    ``targets`` are the right texts, or None where images and texts belong together in order.
    """

    scores: np.ndarray
    targets: np.ndarray | None

    def answers(self, scores: np.ndarray) -> np.ndarray:
        """The decisions by scores [questions, images, texts, n]: int [questions, n]."""
        if self.targets is not None:
            return scores[:, 0].argmax(axis=1)
        ahead = self.ahead(scores, None) > 0
        return ahead[..., :2].all(axis=-1) + 2 * ahead[..., 2:].all(axis=-1)

    def right(self, answers: np.ndarray) -> np.ndarray:
        return answers == (3 if self.targets is None else self.targets[:, None])

    def ahead(self, scores: np.ndarray, winner: np.ndarray | None) -> np.ndarray:
        """[questions, n, comparisons]: how far the winning text, or each right pair, is ahead of the others."""
        if winner is not None:
            ahead = np.take_along_axis(scores[:, 0], winner[:, None, None], axis=1) - scores[:, 0]
            return np.where(scores[:, 0] > _NO_SCORE / 2, ahead, 0).swapaxes(1, 2)
        own, others = scores[:, [0, 1, 0, 1], [0, 1, 0, 1]], scores[:, [0, 1, 1, 0], [1, 0, 0, 1]]
        return (own - others).swapaxes(1, 2)


@dataclasses.dataclass(frozen=True)
class Chosen:
    """Samples in the order in which they are met: points, signs of the noise, and weights, [n] each."""

    points: np.ndarray
    signs: np.ndarray
    weights: np.ndarray


@dataclasses.dataclass(frozen=True)
class Draw:
    """What a rule chooses with. What was learned is [10], of parts of the range."""

    random: np.random.Generator
    seed: int
    count: int  # samples
    num_points: int
    size: np.ndarray  # how far candidates differ: root mean square
    size_of_partners: np.ndarray  # how far the means of two partners do
    signal: np.ndarray  # how far the difference agrees with the mean difference of the other samples

    def at(self, position: np.ndarray, weights: Any = 1.0) -> Chosen:
        """A sample at each position in [0, 1]."""
        signs = self.random.integers(2, size=len(position))
        return Chosen(_parts(position, self.num_points), signs, np.broadcast_to(weights, position.shape))

    def partners(self, position: np.ndarray, weights: Any = 1.0) -> Chosen:
        """Two samples at each position: the second has minus the noise of the first."""
        first = self.at(position, weights)
        signs = np.stack([first.signs, 1 - first.signs], axis=1).reshape(-1)[: self.count]
        points, repeated = (np.repeat(part, 2)[: self.count] for part in (first.points, first.weights))
        return Chosen(points, signs, repeated)

    @property
    def low_discrepancy(self) -> np.ndarray:
        return samples.low_discrepancy(self.count, self.seed)

    @property
    def half(self) -> np.ndarray:
        """Positions of pairs of samples."""
        return self.low_discrepancy[: (self.count + 1) // 2]

    def by(self, density: np.ndarray, count: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Positions by a density, half of which is uniform, and weights that leave the mean."""
        density = (1 + density / density.mean()) / 2
        position = importance.positions(density, self.count if count is None else count, self.seed)
        return position, 1 / density[_parts(position, _BINS)]

    def of_part(self, values: np.ndarray, position: np.ndarray) -> np.ndarray:
        return (values / values.mean())[_parts(position, _BINS)]


def _parts(position: np.ndarray, count: int) -> np.ndarray:
    return np.minimum((position * count).astype(np.int64), count - 1)


def _even(draw: Draw) -> Chosen:
    """The middle of each part, or a neighbour, so that seeds differ in their noise."""
    middle = (np.arange(draw.count) + 0.5) / draw.count
    return draw.at(np.clip(middle + draw.random.integers(-1, 2, size=draw.count) / draw.num_points, 0, 1))


def _stratified(draw: Draw) -> Chosen:
    return draw.at((np.arange(draw.count) + draw.random.random(draw.count)) / draw.count)


def _partners_below(draw: Draw) -> Chosen:
    """Partners at low timesteps only: two of them, and two samples at high timesteps, in turns."""
    low = draw.partners(draw.half * _LOW)
    high = draw.at(_LOW + draw.low_discrepancy * (1 - _LOW))
    turns = [np.stack([of.points, of.signs])[:, : draw.count // 4 * 4].reshape(2, -1, 2) for of in (low, high)]
    points, signs = np.stack(turns, axis=2).reshape(2, -1)[:, : draw.count]
    return Chosen(points, signs, np.ones(len(points)))


def _weighted(draw: Draw, weights: np.ndarray) -> Chosen:
    return draw.at(draw.low_discrepancy, draw.of_part(weights, draw.low_discrepancy))


def _weighted_by(draw: Draw, weights: np.ndarray, size: np.ndarray, *, partners: bool = False) -> Chosen:
    """Weights of timesteps, which are drawn where they do most to the variance."""
    position, of_density = draw.by(weights * size, len(draw.half) if partners else None)
    return (draw.partners if partners else draw.at)(position, of_density * draw.of_part(weights, position))


USUAL = "low_discrepancy"
RULES: dict[str, Callable[[Draw], Chosen]] = {
    "uniform": lambda draw: draw.at(draw.random.random(draw.count)),
    "even": _even,
    "stratified": _stratified,
    USUAL: lambda draw: draw.at(draw.low_discrepancy),
    "antithetic": lambda draw: draw.partners(draw.half),
    "antithetic, low timesteps": _partners_below,
    "importance": lambda draw: draw.at(*draw.by(draw.size)),
    "antithetic importance": lambda draw: draw.partners(*draw.by(draw.size_of_partners, len(draw.half))),
    "inverse weights": lambda draw: _weighted(draw, 1 / draw.size),
    "signal weights": lambda draw: _weighted(draw, draw.signal / draw.size**2),
    "signal weights, importance": lambda draw: _weighted_by(draw, draw.signal / draw.size**2, draw.size),
    "signal weights, antithetic importance": lambda draw: _weighted_by(
        draw, draw.signal / draw.size_of_partners**2, draw.size_of_partners, partners=True
    ),
}
"""Name -> rule. 250 of ``uniform`` are the paper's budget, 30 of ``even`` Self-Bench's."""
_WHOLE = ("even", "stratified")  # a smaller number of samples is not the beginning of a larger one


def _median_of_means(parts: np.ndarray) -> np.ndarray:
    """Of scores [..., n], less their mean over candidates: the median of the means of four groups."""
    groups = [parts[..., start::4].mean(axis=-1) for start in range(min(4, parts.shape[-1]))]
    return np.median(groups, axis=0)


def _clipped(parts: np.ndarray) -> np.ndarray:
    """The mean of values that are cut off at three times the median of their sizes, over a question's candidates."""
    sizes = np.abs(np.where(np.abs(parts) < -_NO_SCORE / 2, parts, np.nan))
    most = 3 * np.nanmedian(sizes, axis=(1, 2, 3), keepdims=True)
    return np.where(parts < _NO_SCORE / 2, parts, np.clip(parts, -most, most)).mean(axis=-1)


MEANS: dict[str, Callable[[np.ndarray], np.ndarray]] = {"median of means": _median_of_means, "clipped": _clipped}
"""Means over samples of the usual rule which bound the effect of one sample."""


def _pairs_task() -> Task:
    """Both images of each question of ``clevr_hard_image``, and the true caption of each."""

    def load(data_dir: str | None, limit: int | None) -> Iterator[Example]:
        for example in of_images.load(data_dir, limit):
            number, group = example.id.removeprefix("round-").split("/")
            question = clevr_questions.question(group, int(number))
            texts = question.texts[question.target], question.texts[question.other]
            yield dataclasses.replace(example, texts=texts, target=None)

    of_images = get_task("clevr_hard_image")
    return dataclasses.replace(of_images, name=PAIRS, metric="winoground", shape=(2, 2), chance={}, load=load)


def make_plan(rounds: int, images: int, classes: int) -> planning.Plan:
    """The questions of all sets. Half of the rounds make pairs of images."""
    of_pairs, of_classes = _pairs_task(), race_classes.task(classes, images)
    limits = {HARD: rounds, PAIRS: (rounds + 1) // 2, CLASSES: images}
    tasks = [
        dataclasses.replace(task, load=lambda data_dir, limit, task=task: task.load(data_dir, limits[task.name]))
        for task in (get_task(HARD), of_pairs, of_classes)
    ]
    return planning.make_plan(tasks, data_dir=None, limit=None, normalize="auto")


def record(scorer: DiffusionITM, plan: planning.Plan, num_points: int, folder: pathlib.Path) -> np.ndarray:
    """The errors of all pairs, float32 [pairs, points, 2 signs], in the order of the timesteps."""
    folder.mkdir(parents=True, exist_ok=True)
    points = _parts(samples.low_discrepancy(num_points, 0), num_points)
    quantiles = scorer.choose_timesteps(_QUANTILES, 0, "even")
    timesteps = quantiles[_parts((points + 0.5) / num_points, _QUANTILES)]
    blocks = []
    for start in range(0, num_points, _SCORED_AT_ONCE):
        path = folder / f"errors-{num_points}-{start:04d}.npy"
        if not path.exists():
            own = np.repeat(timesteps[start : start + _SCORED_AT_ONCE], 2)
            noise = np.random.default_rng([0, start]).standard_normal((len(own) // 2, *scorer.latent_shape), np.float32)
            noise = np.stack([noise, -noise], axis=1).reshape(-1, *scorer.latent_shape)
            grid = np.repeat(plan.pairs, len(own), axis=0)
            triples = np.column_stack([grid, np.tile(np.arange(len(own), dtype=np.int32), len(plan.pairs))])
            errors = np.empty(len(triples), np.float32)
            for rows, part in scorer.iter_errors(plan.images, plan.texts, triples, timesteps=own, noise=noise):
                errors[rows] = part
            np.save(path, errors.reshape(len(plan.pairs), -1, 2))
            common.log(f"{path}: written")
        blocks.append(np.load(path))
    return np.concatenate(blocks, axis=1)[:, np.argsort(points)]


def make_set(plan: planning.Plan, name: str, errors: np.ndarray) -> Set:
    """The questions of a task with their scores."""
    questions = plan.questions[name]
    most = [max(len(part) for part in parts) for parts in zip(*((q.images, q.texts) for q in questions), strict=True)]
    scores = np.full((len(questions), *most, *errors.shape[1:]), _NO_SCORE)
    for number, terms in enumerate(summary.score_terms(plan, name)):
        own = sum(sign * errors[rows].astype(np.float64) for rows, sign in terms)
        scores[number, : own.shape[0], : own.shape[1]] = own
    targets = [question.target for question in questions]
    return Set(scores, None if None in targets else np.array(targets))


def _moments(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What scores [questions, images, texts, n] say about [10] parts of the range: how far candidates differ, and how
    far a sample's difference agrees with that of the others."""
    square = signal = np.zeros(scores.shape[-1])
    for of in scores[: importance.PILOT_QUESTIONS]:
        rows = of.reshape(-1, of.shape[-1])
        rows = rows[rows[:, 0] > _NO_SCORE / 2]
        rows = rows - rows.mean(axis=0)
        rows = rows / np.sqrt(np.mean(rows**2))  # every question counts alike
        others = (rows.sum(axis=1, keepdims=True) - rows) / (rows.shape[1] - 1)
        square, signal = square + np.mean(rows**2, axis=0), signal + np.mean(rows * others, axis=0)
    parts = _parts((np.arange(len(square)) + 0.5) / len(square), _BINS)
    square, signal = (np.array([of[parts == part].mean() for part in range(_BINS)]) for of in (square, signal))
    return np.sqrt(square), np.maximum(signal, signal.max() / 10) if signal.max() > 0 else np.ones(_BINS)


def learn(scores: np.ndarray) -> dict[str, np.ndarray]:
    """What other questions teach, without their answers, on as many samples of each as the pilot of a race has."""
    step = max(1, scores.shape[3] // importance.PILOT_SAMPLES)
    size, signal = _moments(scores[..., step // 2 :: step, 0])
    partners, _ = _moments(scores[..., step // 2 :: step, :].mean(axis=-1))
    return {"size": size, "size_of_partners": partners, "signal": signal}


def means(of: Set, rule: str, seed: int, learned: dict[str, np.ndarray]) -> np.ndarray:
    """Mean scores after each number of samples: [questions, images, texts, numbers]."""
    num_points = of.scores.shape[3]
    numbers = [n for n in NUMBERS if n <= num_points]

    def taken(count: int) -> np.ndarray:
        draw = Draw(np.random.default_rng([seed, count]), seed, count, num_points, **learned)
        chosen = RULES.get(rule, RULES[USUAL])(draw)
        return of.scores[..., chosen.points, chosen.signs] * chosen.weights

    if rule in _WHOLE:
        return np.stack([taken(n).mean(axis=-1) for n in numbers], axis=-1)
    whole = taken(numbers[-1])
    if rule in MEANS:
        whole = whole - whole.mean(axis=(1, 2), keepdims=True, where=whole > _NO_SCORE / 2)
        return np.stack([MEANS[rule](whole[..., :n]) for n in numbers], axis=-1)
    return np.cumsum(whole, axis=-1)[..., np.array(numbers) - 1] / numbers


def settled(agrees: np.ndarray, numbers: np.ndarray, budget: int) -> np.ndarray:
    """The first of the numbers of samples from which on all agree [questions, numbers] with the budget: [questions]."""
    stays = np.logical_and.accumulate(agrees[:, ::-1], axis=1).sum(axis=1)
    return np.append(numbers, budget)[len(numbers) - stays]


def judge(of: Set, rule: str, seeds: int) -> dict[str, np.ndarray]:
    """For each question, seed and number of samples: agreement with the full budget, right or wrong, and the squared
    error of the comparisons. ``settled`` [questions, seeds]: the number from which on the answer stays."""
    full = of.scores.mean(axis=(3, 4))[..., None]
    winner = None if of.targets is None else of.answers(full)[:, 0]
    numbers = np.array([n for n in NUMBERS if n <= of.scores.shape[3]])
    judged: dict[str, list[np.ndarray]] = {"agrees": [], "right": [], "squared": [], "settled": []}
    halves = np.arange(len(of.scores)) % 2
    learned = [learn(of.scores[halves != half]) for half in (0, 1)]
    for seed in range(seeds):
        ended = np.empty((*full.shape[:-1], len(numbers)))
        for half in (0, 1):
            own = Set(of.scores[halves == half], None)
            ended[halves == half] = means(own, rule, seed, learned[half])
        agrees = of.answers(ended) == of.answers(full)
        judged["agrees"].append(agrees)
        judged["right"].append(of.right(of.answers(ended)))
        judged["squared"].append(np.square(of.ahead(ended, winner) - of.ahead(full, winner)).sum(axis=-1))
        judged["settled"].append(settled(agrees, numbers, 2 * of.scores.shape[3]))
    return {name: np.stack(parts, axis=1) for name, parts in judged.items()}


def _share(outcomes: np.ndarray) -> list[float]:
    """The share of outcomes [questions, seeds], and its 95% interval over questions."""
    clusters = np.repeat(np.arange(len(outcomes)), outcomes.shape[1])
    return [round(float(end), 4) for end in metrics.clustered(outcomes.reshape(-1), clusters)]


def _mean(values: np.ndarray) -> list[float]:
    """The mean over questions of values [questions], and its 95% interval."""
    ends = metrics.Design(np.arange(len(values))).means(np.asarray(values, np.float64)[:, None])
    return [round(float(end[0]), 4) for end in ends]


def figures_of(of: Set, seeds: int) -> dict[str, Any]:
    """The figures of one set, by rule. ``variance`` is relative to the usual rule, the geometric mean over questions,
    and ``gain`` the agreement with half of the samples less the usual rule's with all of them."""
    numbers = [n for n in NUMBERS if n <= of.scores.shape[3]]
    shown = numbers.index(min(SHOWN, numbers[-1]))
    half = numbers.index(numbers[shown] // 2)
    judged = {rule: judge(of, rule, seeds) for rule in (*RULES, *MEANS)}
    usual = judged[USUAL]
    found = {}
    for rule, of_rule in judged.items():
        apart = metrics.paired_difference(
            usual["agrees"][..., shown].reshape(-1),
            of_rule["agrees"][..., half].reshape(-1),
            np.repeat(np.arange(len(of.scores)), seeds),
        )
        ratio = np.log(of_rule["squared"].mean(axis=1) / usual["squared"].mean(axis=1))[:, shown]
        found[rule] = {
            "agrees": {str(n): _share(of_rule["agrees"][..., index]) for index, n in enumerate(numbers)},
            "right": {str(n): _share(of_rule["right"][..., index]) for index, n in enumerate(numbers)},
            "samples": _mean(of_rule["settled"].mean(axis=1)),
            "variance": np.exp(_mean(ratio)).round(4).tolist(),
            "gain": [round(float(end), 4) for end in apart[:3]],
        }
    return found


def dropping(of: Set, seeds: int) -> dict[str, Any]:
    """Rules that drop classes on the way: the schedules of Diffusion Classifier, and a race."""
    scores = of.scores[:, 0].reshape(*of.scores.shape[:1], of.scores.shape[2], -1)
    full = scores.mean(axis=-1).argmax(axis=1)
    num_points, found = of.scores.shape[3], {}
    rules: dict[str, Callable[[np.ndarray], tuple[int, float]]] = {
        f"schedule, {name}": lambda own, rounds=rounds: race_classes.by_schedule(-own, rounds)
        for name, rounds in race_classes.SCHEDULES.items()
    }
    for share in race_classes.SHARES:
        rule = race.Now(num_points, Sampling.alpha, share)

        def ends(own: np.ndarray, rule: race.Now = rule) -> tuple[int, float]:
            means, numbers = rule.decide(own[None], metrics.METRICS["accuracy"].decision)
            return int(means.argmax()), float(numbers.sum())

        rules[f"race, rare_share {share}"] = ends
    for name, rule in rules.items():
        agrees, right, passes = (np.zeros((len(scores), seeds)) for _ in range(3))
        for seed in range(seeds):
            random = np.random.default_rng(seed)
            points = _parts(samples.low_discrepancy(num_points, seed), num_points)
            if name.startswith("race"):
                points = random.permutation(points)
            own = of.scores[:, 0, :, points, random.integers(2, size=num_points)]
            for number, matrix in enumerate(np.moveaxis(own, 0, -1)):
                answer, taken = rule(matrix)
                agrees[number, seed], right[number, seed] = answer == full[number], answer == of.targets[number]
                passes[number, seed] = taken / len(matrix)
        found[name] = {"agrees": _share(agrees), "right": _share(right), "samples": _mean(passes.mean(axis=1))}
    return found


def benchmark(options: argparse.Namespace) -> dict[str, Any]:
    """The figures of all models, ready for JSON."""
    load_before = machine.load_average()
    plan = make_plan(options.rounds, options.images, options.classes)
    records: dict[str, list[dict[str, Any]]] = {"sets": [], "rules": [], "dropping": []}
    for model in options.models.split(","):
        scorer = DiffusionITM.from_pretrained(model)
        about = [plan.image_hashes, plan.texts, plan.pairs.tolist(), scorer.fingerprint(), options.points]
        errors = record(scorer, plan, options.points, options.workdir / files.digest(about)[:16])
        for name in plan.questions:
            of, common_part = make_set(plan, name, errors), {"model": pathlib.Path(model).name, "set": name}
            right = _share(of.right(of.answers(of.scores.mean(axis=(3, 4))[..., None])))
            records["sets"].append({**common_part, "questions": len(of.scores), "right": right})
            dropped = dropping(of, options.seeds) if name == CLASSES else {}
            for part, rows in (("rules", figures_of(of, options.seeds)), ("dropping", dropped)):
                records[part] += [{**common_part, "rule": rule, **row} for rule, row in rows.items()]
        common.log(f"{model}: done")
    return {
        "budget": 2 * options.points,
        "seeds": options.seeds,
        "classes": options.classes,
        **records,
        "machine": machine.describe(None),
        "load_average": [load_before, machine.load_average()],
    }


def table(figures: dict[str, Any]) -> str:
    """The figures as Markdown tables."""
    head = ["model, questions", "rule", "samples until settled", "agrees at 16", "at 32", "right at 32"]
    lines = [f"| {' | '.join([*head, 'variance', 'gain'])} |", "| --- | --- |" + " ---: |" * 6]
    for row in figures["rules"]:
        cells = [f"{row['model']}, {row['set']}", row["rule"], interval(row["samples"])]
        cells += [percent(row[part][str(n)]) for part, n in (("agrees", 16), ("agrees", 32), ("right", 32))]
        lines.append(f"| {' | '.join([*cells, interval(row['variance'], 2), percent(row['gain'])])} |")
    lines += ["", "| model | rule that drops classes | samples of a class | agrees | right |"]
    lines += ["| --- | --- |" + " ---: |" * 3]
    for row in figures["dropping"]:
        cells = [row["model"], row["rule"], interval(row["samples"]), percent(row["agrees"]), percent(row["right"])]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def interval(ends: Sequence[float], digits: int = 0) -> str:
    value, low, high = (f"{end:.{digits}f}" for end in ends)
    return f"{value} [{low}, {high}]"


def percent(ends: Sequence[float]) -> str:
    return interval([100 * end for end in ends], 1)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, prints a table, and writes the figures."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.efficiency",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--models", default=",".join(MODELS), help="registered names, folders or hub ids, with commas")
    parser.add_argument("--rounds", type=int, default=10, help="of clevr_hard: eight questions each")
    parser.add_argument("--images", type=int, default=16, help="of one of the classes")
    parser.add_argument("--classes", type=int, default=20, help="candidates of each of these images")
    parser.add_argument("--points", type=int, default=256, help="timesteps, each with noise and with minus this noise")
    parser.add_argument("--seeds", type=int, default=200, help="choices of each rule")
    parser.add_argument("--workdir", type=pathlib.Path, required=True, help="keeps the errors of all samples")
    parser.add_argument("--output", type=pathlib.Path, help="a file for the figures, as JSON")
    options = parser.parse_args(arguments)
    common.check_positive(options, "rounds", "images", "points", "seeds")
    race_classes.task(options.classes, options.images)
    parallel.one_device_per_core()
    figures = benchmark(options)
    print(table(figures))
    result_files.write(figures, options.output)


if __name__ == "__main__":
    common.run(main)
