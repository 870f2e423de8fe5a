"""Coverage of the 95% intervals, by simulation with the sizes of the real tasks.

    python -m benchmarks.intervals                       half an hour on one core
    python -m benchmarks.intervals --repetitions 100     less exact
    python -m benchmarks.intervals --output FILE         writes the figures as JSON, too

Parts:

* proportions and differences: answers of one model, or of two that are asked the same, whose dependence is known.
  Questions of a cluster have beta-binomial answers, of a graph (distractors from a pool) thresholds of normal variables
  to which every image of a question adds its own; two models have half of the variance of these in common. ``icc`` is
  the correlation within a cluster, or the share of the images in the variance.
* macro means: groups of unequal sizes and difficulties.
* exact: the least coverage of the interval of independent outcomes over all true proportions, by binomial
  probabilities, and of a paired difference on a grid, by trinomial ones.
* effect sizes, their average over ten pairs, means, kappa, and agreement with ratings, also of skewed and heavy-tailed
  values.
* tests: how often the permutation test calls groups different whose means are equal.
* samples: how often a model differs from itself on other samples, or from an equal one on the same.
* marks: how often a page of 20 rows about two equal models has any mark.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import scipy.sparse
import scipy.stats

from benchmarks import result_files
from winobench.metrics import (
    METRICS,
    Dependence,
    Design,
    agreement,
    association,
    false_discovery_rates,
    paired_difference,
    ratings,
    wilson,
)
from winobench.report import analysis
from winobench.runs.error_store import Batch
from winobench.runs.rows import Row

VALUES = (0.05, 0.35, 0.65, 0.95, 0.99)
PAIRS = ((0.05, 0.07), (0.35, 0.35), (0.65, 0.72), (0.95, 0.95), (0.99, 0.97))
CORRELATIONS = (0.0, 0.3, 0.6)
_AT_ONCE = 2_000_000
# Examples of each image set, of each pool: drawn once, so that every value is tried on the same design.
_SEED = 0


@dataclasses.dataclass(frozen=True)
class Case:
    """A task's size.

    Attributes:
      name: what it stands for.
      images: the images of each question.
      strata: None, or the group of each.
      values: None, or the true proportion of each group, for macro means.
    """

    name: str
    images: Sequence[tuple[int, ...]]
    strata: np.ndarray | None = None
    values: np.ndarray | None = None

    @property
    def is_partition(self) -> bool:
        """Whether questions have either all images in common or none."""
        distinct = set(self.images)
        return sum(map(len, distinct)) == len({image for images in distinct for image in images})


def cases() -> list[Case]:
    """The tasks with images, and designs that are worse than any of them."""
    generator = np.random.default_rng(_SEED)
    return [
        Case("winoground: 400 pairs of images", _alone(400)),
        Case("pets: 3,669 images", _alone(3_669)),
        Case("imagecode_static: 430 on 155 sets", _clusters(_sizes(430, 155, generator))),
        Case("imagecode_video: 1,872 on 884 sets", _clusters(_sizes(1_872, 884, generator))),
        Case("clevr, one sub-task: 1,148 on 574 images", _clusters([2] * 574)),
        Case("clevr: 8,036 on 574 images", _clusters([14] * 574)),
        Case("clevr, one sub-task, 100 scenes: 200", _clusters([2] * 100)),
        Case("clevr, 100 scenes: 1,400", _clusters([14] * 100)),
        Case("clevr_winoground, 100 scenes: 300", [(s, 100 + 3 * s + a) for s in range(100) for a in range(3)]),
        Case("aro_flickr_order: 5,070 on 1,014 images", _clusters([5] * 1_014)),
        Case("flickr30k_image: 1,014 with ten of a pool", _neighbours(1_014, 10, generator)),
        Case("flickr30k_image, 100 of them", _neighbours(1_014, 10, generator)[:1_000:10]),
        Case("svo: 4,000 pairs of 3,000 images", _pairs(4_000, 3_000, generator)),
        Case("coco_hardneg_image: 4,839 and a neighbour", [(i, int(j)) for i, j in _next(4_839, generator)]),
    ]


def few_cases() -> list[Case]:
    """Few clusters, or one that holds most."""
    generator = np.random.default_rng(_SEED + 1)
    return [
        Case("imagecode, 100 on 40 sets", _clusters(_sizes(100, 40, generator))),
        Case("20 clusters of 2", _clusters([2] * 20)),
        Case("10 clusters of 14", _clusters([14] * 10)),
        Case("5 clusters of 14", _clusters([14] * 5)),
        Case("one of 100, 50 of 1", _clusters([100, *[1] * 50])),
        Case("4 of 60, 36 of 3", _clusters([60] * 4 + [3] * 36)),
    ]


def macro_cases() -> list[Case]:
    """ARO's groups, and small groups that are the hard ones."""
    generator = np.random.default_rng(_SEED + 2)
    sizes = np.rint(np.geomspace(10, 3_000, 48)).astype(int)
    shared = generator.integers(sizes.sum() // 4, size=sizes.sum())
    images = [(int(image),) for image in shared]
    strata = np.repeat(np.arange(48), sizes)
    steep = np.clip(np.linspace(0.05, 1.2, 48), 0.05, 0.99)
    case_list = [
        Case(f"aro_vg_relation, 48 groups, {name}", images, strata, values)
        for name, values in {
            "difficulty unrelated to size": generator.uniform(0.3, 0.95, 48),
            "easier with size": np.linspace(0.35, 0.95, 48),
            "twice as steep": steep,
            "harder with size": np.linspace(0.95, 0.35, 48),
            "all 99%": np.full(48, 0.99),
        }.items()
    ]
    for name, sizes, values in (
        ("9 of 1,000 at 99.9%, one of 8 at 50%", [1_000] * 9 + [8], [0.999] * 9 + [0.5]),
        ("9 of 100 at 99.9%, one of 8 at 50%", [100] * 9 + [8], [0.999] * 9 + [0.5]),
        ("200, 200, 10 at 99, 99, 60%", [200, 200, 10], [0.99, 0.99, 0.6]),
    ):
        strata = np.repeat(np.arange(len(sizes)), sizes)
        case_list.append(Case(name, _alone(len(strata)), strata, np.array(values)))
        # One image with two questions: the method must not jump.
        case_list.append(
            Case(f"{name}, one pair shares an image", [(0,), *_alone(len(strata) - 1)], strata, case_list[-1].values)
        )
    return case_list


def answers(case: Case, value, correlation: float, count: int, generator: np.random.Generator) -> np.ndarray:
    """Right and wrong answers of independent models, [n, count] bool.

    Args:
      case: the questions.
      value: the true proportion, or [n] of them.
      correlation: within a cluster.
      count: how many models.
      generator: of the draws.
    """
    value = np.broadcast_to(np.asarray(value, np.float64), len(case.images))
    if correlation and case.is_partition and np.all(value == value[0]):
        spread = (1 - correlation) / correlation
        numbers = Dependence.from_labels(case.images).numbers
        easy = generator.beta(value[0] * spread, (1 - value[0]) * spread, (numbers.max() + 1, count))
        return generator.random((len(value), count)) < easy[numbers]
    return _latent(case, correlation, count, generator) < scipy.stats.norm.ppf(value)[:, None]


def paired_answers(
    case: Case, values: tuple[float, float], correlation: float, count: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Answers of pairs of models that find the same questions hard, each [n, count] bool."""
    common = generator.standard_normal((len(case.images), count))
    first, second = (
        np.sqrt(0.5) * (common + _latent(case, correlation, count, generator)) < scipy.stats.norm.ppf(value)
        for value in values
    )
    return first, second


def proportions(case_list: Iterable[Case], repetitions: int, correlations=CORRELATIONS, values=VALUES) -> list[dict]:
    """Coverage of the interval of a proportion, and of the interval that takes all questions for independent."""
    rows = []
    for case in case_list:
        design = Design(Dependence.from_sets(case.images), case.strata)
        for correlation in correlations:
            for value in values if case.values is None else (float(np.mean(case.values)),):
                of_each = value if case.values is None else case.values[case.strata]
                generator = _generator(case.name, correlation, value)
                estimates = [
                    (*design.proportions(right), *_independent(right, case))
                    for right in _blocks(
                        lambda count, c=case, v=of_each, r=correlation, g=generator: answers(c, v, r, count, g),
                        case,
                        repetitions,
                    )
                ]
                _, low, high, plain_low, plain_high = (np.concatenate(parts) for parts in zip(*estimates, strict=True))
                rows.append(
                    {
                        "design": case.name,
                        "icc": correlation,
                        "value": round(value, 4),
                        "coverage": float(np.mean((low <= value) & (value <= high))),
                        "if_independent": float(np.mean((plain_low <= value) & (value <= plain_high))),
                        "width": float(np.mean(high - low)),
                        "width_if_independent": float(np.mean(plain_high - plain_low)),
                    }
                )
    return rows


def differences(case_list: Iterable[Case], repetitions: int) -> list[dict]:
    """Coverage of the interval of a paired difference, and how often it excludes 0."""
    rows = []
    for case in case_list:
        design = Design(Dependence.from_sets(case.images), case.strata)
        for correlation in CORRELATIONS:
            for values in PAIRS:
                generator = _generator(case.name, correlation, *values)
                estimates = [
                    design.differences(first, second)
                    for first, second in _blocks(
                        lambda count, c=case, v=values, r=correlation, g=generator: paired_answers(c, v, r, count, g),
                        case,
                        repetitions,
                    )
                ]
                _, low, high, _, _ = (np.concatenate(parts) for parts in zip(*estimates, strict=True))
                true = values[1] - values[0]
                rows.append(
                    {
                        "design": case.name,
                        "icc": correlation,
                        "values": list(values),
                        "coverage": float(np.mean((low <= true) & (true <= high))),
                        "excludes_zero": float(np.mean((low > 0) | (high < 0))),
                        "width": float(np.mean(high - low)),
                    }
                )
    return rows


def marks(case_list: Iterable[Case], pages: int, rows_a_page: int = 20) -> list[dict]:
    """Share of pages on two equal models with a row whose interval excludes 0, and with a mark."""
    rows = []
    for case in case_list:
        design, generator = Design(Dependence.from_sets(case.images)), _generator("marks", case.name)
        excluded = marked = 0
        for _ in range(pages):
            first, second = paired_answers(case, (0.65, 0.65), 0.3, rows_a_page, generator)
            _, low, high, p_values, apart = design.differences(first, second)
            excluded += np.any((low > 0) | (high < 0))
            marked += np.any((np.array(false_discovery_rates(p_values)) <= 0.05) & (apart >= 10))
        rows.append({"design": case.name, "rows": rows_a_page, "excluded": excluded / pages, "marked": marked / pages})
    return rows


def exact_proportions() -> list[dict]:
    """The least coverage of the interval of n independent outcomes, of any true proportion, for all n of a range."""
    rows = []
    for level in (0.9, 0.95, 0.99):
        for least, most in ((1, 9), (10, 49), (50, 199), (200, 2_000)):
            totals = range(least, most + 1) if most < 200 else range(least, most + 1, 100)
            found = [(*_least_coverage(total, level), total) for total in totals]
            coverage, value, total = min(found)
            rows.append({"level": level, "n": [least, most], "coverage": coverage, "at": [total, round(value, 4)]})
    return rows


def _least_coverage(total: int, level: float) -> tuple[float, float]:
    """Least coverage and its position. Coverage jumps at ends of intervals, and is concave or falls between them."""
    _, low, high = np.array([wilson(right, total, level) for right in range(total + 1)]).T
    ends = np.concatenate([low[1:], high[:-1]])
    truth = np.concatenate([ends - 1e-11, ends + 1e-11])
    first, last = np.searchsorted(high, truth, "left"), np.searchsorted(low, truth, "right") - 1
    inside = scipy.stats.binom.cdf(last, total, truth) - scipy.stats.binom.cdf(first - 1, total, truth)
    return float(inside.min()), float(truth[inside.argmin()])


def exact_differences() -> list[dict]:
    """The least coverage of a paired difference of n independent questions, on a grid of gains and losses."""
    rows = []
    grid = [0, 0.002, 0.005, 0.01, *np.arange(0.02, 0.5, 0.04)]
    for total in (10, 20, 50, 100):
        counts = [(gained, lost) for gained in range(total + 1) for lost in range(total + 1 - gained)]
        ends = []
        for gained, lost in counts:
            order = np.arange(total)
            difference = paired_difference((order >= gained) & (order < gained + lost), order < gained, range(total))
            ends.append((difference.low, difference.high))
        low, high = np.array(ends).T
        outcomes = np.array([(gained, lost, total - gained - lost) for gained, lost in counts])
        cells = []
        for gain in grid[1:]:
            for loss in (share for share in grid if share <= gain):
                weight = scipy.stats.multinomial.pmf(outcomes, total, [gain, loss, 1 - gain - loss])
                inside = (low <= gain - loss + 1e-9) & (gain - loss - 1e-9 <= high)
                cells.append((float(weight[inside].sum()), round(float(gain), 3), round(float(loss), 3)))
        coverage, *at = min(cells)
        rows.append({"n": total, "coverage": coverage, "at": at, "mean": float(np.mean([cell[0] for cell in cells]))})
    return rows


def effect_sizes(repetitions: int) -> list[dict]:
    """Coverage of the intervals of effect sizes, where groups have associations of one shape and other means."""
    rows = []
    for sizes in ((6, 6), (20, 20), (50, 50), (250, 250), (10, 40), (100, 20)):
        share = np.prod(sizes) / sum(sizes) ** 2
        for name, (draw, variance) in _DISTRIBUTIONS.items():
            for shift in (0.0, 0.5, 1.0):
                generator, hits = _generator("effect", sizes, shift, name), 0
                true = shift / np.sqrt(1 + share * shift**2)
                for _ in range(repetitions):
                    x, y = (draw(generator, size) / np.sqrt(variance) for size in sizes)
                    _, low, high = association.bootstrap_interval(x + shift, y, num_resamples=500)
                    hits += low <= true <= high
                rows.append({"images": list(sizes), "d": round(true, 3), "psi": name, "coverage": hits / repetitions})
    return rows


def tests_of_means(repetitions: int) -> list[dict]:
    """Share of pairs of groups with equal means and unequal spreads whose two-sided p-value is up to 5%."""
    rows = []
    for sizes, spreads in (((250, 250), (3, 1)), ((20, 20), (5, 1)), ((50, 250), (3, 1)), ((20, 100), (5, 1))):
        for name in ("normal", "lognormal"):
            draw, _ = _DISTRIBUTIONS[name]
            generator, hits = _generator("test", sizes, spreads, name), 0
            for seed in range(repetitions):
                x, y = (spread * draw(generator, size) for size, spread in zip(sizes, spreads, strict=True))
                hits += association.permutation_test(x, y, num_permutations=399, seed=seed).p_two_sided <= 0.05
            rows.append({"images": list(sizes), "spreads": list(spreads), "psi": name, "rejected": hits / repetitions})
    return rows


def samples(repetitions: int) -> list[dict]:
    """Share of runs of equally good models that differ: their interval excludes 0, with the noise and without it.

    ``common`` is the share of the samples' noise that serves all questions.
    """
    rows = []
    for kind in ("itself, other samples", "itself, other noise", "an equal one, same samples"):
        for number, count in ((200, 4), (200, 16), (1_000, 16), (200, 64)):
            for common in (0.0, 0.1, 0.5):
                for skill in (0.3, 2.0):
                    generator = _generator(kind, number, count, common, skill)
                    drawn = [_differ(kind, number, count, common, skill, generator) for _ in range(max(1, repetitions))]
                    right, knowing, unknowing = np.mean(drawn, axis=0)
                    rows.append(
                        {
                            "differs_from": kind,
                            "questions": number,
                            "samples": count,
                            "common": common,
                            "accuracy": round(float(right), 2),
                            "differs": float(knowing),
                            "without_noise": float(unknowing),
                        }
                    )
    return rows


def _differ(
    kind: str, number: int, count: int, common: float, skill: float, generator: np.random.Generator
) -> tuple[float, bool, bool]:
    """Accuracy, and whether the runs differ, with and without the noise of the samples."""
    skills = [generator.normal(skill, 1, number)] * 2
    noise = [(generator.normal(size=count), generator.normal(size=(number, count))) for _ in range(3)]
    easy, steps = np.zeros(count), [np.arange(count)] * 2
    if kind == "itself, other samples":
        steps = [np.arange(count), count + np.arange(count)]
    elif kind == "itself, other noise":
        easy = 2 * generator.normal(size=count)
    else:
        skills[1] = skill + 0.4 * (skills[0] - skill) + np.sqrt(0.84) * generator.normal(size=number)
        noise[:2] = [
            tuple(np.sqrt(0.7) * shared + np.sqrt(0.3) * own for shared, own in zip(noise[2], abilities, strict=True))
            for abilities in noise[:2]
        ]
    rows = []
    for abilities, (shared, own), timesteps in zip(skills, noise, steps, strict=False):
        margins = easy + abilities[:, None] + 3 * (np.sqrt(common) * shared + np.sqrt(1 - common) * own)
        errors = np.zeros((number, 1, 2, count), np.float32)
        errors[:, 0, 1] = margins
        batches = [Batch(np.arange(number), {"own": errors})]
        draws = analysis.redrawn(batches, [0] * number, METRICS["accuracy"], timesteps)["accuracy"]
        rows.append(Row("accuracy", np.arange(number), margins.mean(axis=1) > 0, None, draws, count))
    alone = Dependence.from_labels(range(number))
    plain = [dataclasses.replace(row, redrawn=None) for row in rows]
    excluded = [
        analysis.paired_differences([first], [second], alone)[0].excludes_zero for first, second in (rows, plain)
    ]
    return rows[0].value, *excluded


def rating_agreement(repetitions: int) -> list[dict]:
    """Coverage of the measures of agreement with people, five images a prompt; truths are means of large sets."""

    def draw(generator: np.random.Generator, prompts: int) -> tuple[np.ndarray, np.ndarray]:
        hard, quality = generator.normal(size=(prompts, 1)), generator.normal(size=(prompts, 5))
        scores = 0.5 * hard + quality + generator.normal(size=(prompts, 5))
        rated = 3 + 0.4 * hard + 0.8 * quality + 0.6 * generator.normal(size=(prompts, 5))
        return scores, np.round(np.clip(rated, 1, 5) * 3) / 3

    metric = ratings.RATING_METRICS["rank_agreement"]
    generator, truths = _generator("ratings"), []
    for _ in range(12):
        scores, rated = draw(generator, 400)
        whole = ratings.Rated.of(scores.ravel(), rated.ravel(), np.repeat(np.arange(400), 5))
        truths.append({name: measure.value(400) for name, measure in metric.measures(whole).items()})
    rows = []
    for prompts in (20, 50, 100):
        hits = dict.fromkeys(truths[0], 0)
        for _ in range(repetitions):
            scores, rated = draw(generator, prompts)
            results = ratings.rating_results(
                metric, list(scores), list(rated), range(prompts), [()] * prompts, num_resamples=300
            )
            for name in hits:
                true = np.mean([truth[name] for truth in truths])
                hits[name] += results[name]["low"] <= true <= results[name]["high"]
        rows += [{"prompts": prompts, "measure": name, "coverage": hit / repetitions} for name, hit in hits.items()]
    return rows


def average_effect_sizes(repetitions: int) -> list[dict]:
    """Coverage of the interval of the average of ten pairs of five groups, all pairs of which have a bias."""
    rows = []
    for size in (60, 250):
        for step in (0.1, 0.3):
            generator, hits = _generator("average", size, step), 0
            names = "ABCDE"
            couples = [(i, j) for i in range(5) for j in range(i)]
            true = np.mean([step * (i - j) / np.sqrt(1 + (step * (i - j)) ** 2 / 4) for i, j in couples])
            for _ in range(repetitions):
                psi = [generator.normal(step * group, size=size) for group in range(5)]
                pairs = [association.PairAssociations(names[i], names[j], psi[i], psi[j]) for i, j in couples]
                _, low, high = association.average_interval(pairs, num_resamples=300)
                hits += low <= true <= high
            rows.append({"images": size, "average": round(float(true), 3), "coverage": hits / repetitions})
    return rows


def group_means(repetitions: int) -> list[dict]:
    """Coverage of the interval of a mean, of single values and of clusters of 14."""
    rows = []
    for clusters, size in ((10, 1), (20, 1), (50, 1), (100, 1), (250, 1), (574, 1), (100, 14), (10, 14)):
        design = Design(np.repeat(np.arange(clusters), size))
        for name, (draw, _) in _DISTRIBUTIONS.items():
            generator = _generator("means", clusters, size, name)
            values = np.repeat(draw(generator, clusters * repetitions).reshape(clusters, repetitions), size, axis=0)
            if size > 1:
                values = values + generator.normal(size=values.shape)
            _, low, high = design.means(values)
            coverage = float(np.mean((low <= 0) & (high >= 0)))
            rows.append({"clusters": clusters, "of": size, "values": name, "coverage": coverage})
    return rows


def kappas(repetitions: int) -> list[dict]:
    """Coverage of the interval of Fleiss' kappa: three raters, who copy an item's label now and then."""
    rows = []
    for items in (10, 20, 50, 100, 500):
        for kappa, shares in ((0.5, (0.5, 0.3, 0.2)), (0.8, (0.5, 0.5)), (0.2, (0.5, 0.5)), (0.5, (0.95, 0.05))):
            generator, hits, defined = _generator("kappa", items, kappa, shares), 0, 0
            for _ in range(repetitions):
                label = generator.choice(len(shares), size=(items, 1), p=shares)
                own = generator.choice(len(shares), size=(items, 3), p=shares)
                given = np.where(generator.random((items, 3)) < np.sqrt(kappa), label, own)
                counts = (given[:, :, None] == np.arange(len(shares))).sum(axis=1)
                estimate = agreement.fleiss_kappa(counts, num_resamples=500)
                if estimate.low is not None:
                    defined += 1
                    hits += estimate.low <= kappa <= estimate.high
            rows.append({"items": items, "kappa": kappa, "labels": list(shares), "coverage": hits / max(1, defined)})
    return rows


def _mixture(generator: np.random.Generator, size: int) -> np.ndarray:
    """One in ten is five higher."""
    return generator.normal(size=size) + 5 * (generator.random(size) < 0.1) - 0.5


# Name -> values of mean 0, and their variance.
_DISTRIBUTIONS: dict[str, tuple[Callable[[np.random.Generator, int], np.ndarray], float]] = {
    "normal": (lambda generator, size: generator.normal(size=size), 1.0),
    "two humps": (lambda generator, size: generator.choice((-2, 2), size) + generator.normal(size=size) / 2, 4.25),
    "gamma": (lambda generator, size: generator.gamma(4.0, size=size) / 2 - 2, 1.0),
    "exponential": (lambda generator, size: generator.exponential(size=size) - 1, 1.0),
    "student of 3": (lambda generator, size: generator.standard_t(3, size=size), 3.0),
    "mixture": (_mixture, 3.25),
    "lognormal": (lambda generator, size: generator.lognormal(size=size) - np.exp(0.5), (np.e - 1) * np.e),
}


def _latent(case: Case, correlation: float, count: int, generator: np.random.Generator) -> np.ndarray:
    """[n, count] normal variables of variance 1, of which each image of a question brings an equal share."""
    own = generator.standard_normal((len(case.images), count))
    if not correlation:
        return own
    ends = np.cumsum([0, *map(len, case.images)])
    numbers = Dependence.from_labels(image for images in case.images for image in images).numbers
    shares = np.concatenate([np.full(len(images), len(images) ** -0.5) for images in case.images])
    matrix = scipy.sparse.csr_matrix((shares, numbers, ends))
    effects = matrix @ generator.standard_normal((matrix.shape[1], count))
    return np.sqrt(correlation) * effects + np.sqrt(1 - correlation) * own


def _independent(right: np.ndarray, case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Ends of Wilson's interval as if all questions were independent; with groups, at Kish's effective number."""
    strata = np.zeros(len(right), int) if case.strata is None else case.strata
    sizes = np.bincount(strata)
    weights = 1 / (len(sizes) * sizes[strata])
    number = 1 / np.sum(weights**2)
    ends = [wilson(min(1.0, value) * number, number) for value in weights @ right]
    return np.array([end.low for end in ends]), np.array([end.high for end in ends])


def _blocks(draw: Callable[[int], Any], case: Case, repetitions: int) -> Iterable[Any]:
    step = max(1, _AT_ONCE // len(case.images))
    for start in range(0, repetitions, step):
        yield draw(min(step, repetitions - start))


def _generator(*said: Any) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(repr(said).encode()))


def _alone(count: int) -> list[tuple[int, ...]]:
    return [(number,) for number in range(count)]


def _clusters(sizes: Iterable[int]) -> list[tuple[int, ...]]:
    return [(number,) for number, size in enumerate(sizes) for _ in range(size)]


def _sizes(total: int, count: int, generator: np.random.Generator) -> np.ndarray:
    """Sizes of at least one."""
    likely = generator.gamma(1.5, size=count)
    return 1 + generator.multinomial(total - count, likely / likely.sum())


def _neighbours(count: int, size: int, generator: np.random.Generator) -> list[tuple[int, ...]]:
    """An image and those nearest to its caption, on a sphere."""
    images = generator.standard_normal((count, 8))
    images /= np.linalg.norm(images, axis=1, keepdims=True)
    near = np.argsort(-(images + 0.3 * generator.standard_normal(images.shape)) @ images.T, axis=1)[:, :size]
    return [tuple(dict.fromkeys([number, *some]))[:size] for number, some in enumerate(near.tolist())]


def _pairs(count: int, images: int, generator: np.random.Generator) -> list[tuple[int, ...]]:
    """Two images each, some of which are asked about much more often than others."""
    likely = generator.gamma(0.7, size=images)
    return [tuple(generator.choice(images, 2, replace=False, p=likely / likely.sum()).tolist()) for _ in range(count)]


def _next(count: int, generator: np.random.Generator) -> Iterable[tuple[int, int]]:
    return enumerate((np.arange(count) + generator.integers(1, count, count)) % count)


def main(words: Sequence[str] | None = None) -> None:
    """Prints the coverages as tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=1_000, help="of each proportion, difference and mean")
    parser.add_argument("--output", type=pathlib.Path, help="JSON file")
    arguments = parser.parse_args(words)
    repetitions = arguments.repetitions
    fewer = max(1, repetitions * 3 // 10)
    figures = {
        "repetitions": repetitions,
        "exact_proportions": exact_proportions(),
        "exact_differences": exact_differences(),
        "proportions": proportions(cases(), repetitions),
        "few_clusters": proportions(few_cases(), repetitions),
        "macro": proportions(macro_cases(), repetitions),
        "differences": differences(cases(), repetitions),
        "differences_few_clusters": differences(few_cases(), repetitions),
        "marks": marks([cases()[0], cases()[2], cases()[7]], repetitions),
        "effect_sizes": effect_sizes(2 * repetitions),
        "average_effect_sizes": average_effect_sizes(fewer),
        "means": group_means(20 * repetitions),
        "tests": tests_of_means(2 * repetitions),
        "kappas": kappas(repetitions),
        "ratings": rating_agreement(fewer),
        "samples": samples(2 * fewer),
    }
    for name, rows in figures.items():
        if isinstance(rows, list):
            print(f"\n{name}")
            for row in rows:
                print("  " + "  ".join(f"{key} {_short(value)}" for key, value in row.items()))
    rounded = {name: list(map(_rounded, rows)) if isinstance(rows, list) else rows for name, rows in figures.items()}
    result_files.write(rounded, arguments.output)


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    return {name: round(value, 5) if isinstance(value, float) else value for name, value in row.items()}


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
