"""How often the 95% intervals hold the truth, by simulation with the sizes of the real tasks.

    python -m benchmarks.intervals                       some ten minutes on one core
    python -m benchmarks.intervals --repetitions 100     less exact
    python -m benchmarks.intervals --output FILE         writes the figures as JSON, too

Parts:

* proportions and differences: answers of one model, or of two that are asked the same, whose dependence is known.
  Questions of a cluster have beta-binomial answers, of a graph (distractors from a pool) thresholds of normal variables
  to which every image of a question adds its own; two models have half of the variance of these in common. ``icc`` is
  the correlation within a cluster, or the share of the images in the variance.
* macro means: groups of unequal sizes and difficulties.
* effect sizes, their average over ten pairs, group means, and kappa.
* marks: how often a page of 20 rows about two equal models has any mark.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import scipy.sparse
import scipy.stats

from winobench.metrics import Dependence, Design, agreement, association, false_discovery_rates, wilson

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
    found = [
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
        found.append(Case(name, _alone(len(strata)), strata, np.array(values)))
        # One image with two questions: the method must not jump.
        found.append(
            Case(f"{name}, one pair shares an image", [(0,), *_alone(len(strata) - 1)], strata, found[-1].values)
        )
    return found


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
        numbers = Dependence.of_labels(case.images).numbers
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


def proportions(some: Iterable[Case], repetitions: int, correlations=CORRELATIONS, values=VALUES) -> list[dict]:
    """Coverage of the interval of a proportion, and of the interval that takes all questions for independent."""
    rows = []
    for case in some:
        design = Design(Dependence.of_sets(case.images), case.strata)
        for correlation in correlations:
            for value in values if case.values is None else (float(np.mean(case.values)),):
                of_each = value if case.values is None else case.values[case.strata]
                generator = _generator(case.name, correlation, value)
                found = [
                    (*design.proportions(right), *_independent(right, case))
                    for right in _blocks(
                        lambda count, c=case, v=of_each, r=correlation, g=generator: answers(c, v, r, count, g),
                        case,
                        repetitions,
                    )
                ]
                _, low, high, plain_low, plain_high = (np.concatenate(parts) for parts in zip(*found, strict=True))
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


def differences(some: Iterable[Case], repetitions: int) -> list[dict]:
    """Coverage of the interval of a paired difference, and how often it excludes 0."""
    rows = []
    for case in some:
        design = Design(Dependence.of_sets(case.images), case.strata)
        for correlation in CORRELATIONS:
            for values in PAIRS:
                generator = _generator(case.name, correlation, *values)
                found = [
                    design.differences(first, second)
                    for first, second in _blocks(
                        lambda count, c=case, v=values, r=correlation, g=generator: paired_answers(c, v, r, count, g),
                        case,
                        repetitions,
                    )
                ]
                _, low, high, _, _ = (np.concatenate(parts) for parts in zip(*found, strict=True))
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


def marks(some: Iterable[Case], pages: int, rows_a_page: int = 20) -> list[dict]:
    """How often a page about two equal models has a row whose interval excludes 0, and one with a mark."""
    rows = []
    for case in some:
        design, generator = Design(Dependence.of_sets(case.images)), _generator("marks", case.name)
        excluded = marked = 0
        for _ in range(pages):
            first, second = paired_answers(case, (0.65, 0.65), 0.3, rows_a_page, generator)
            _, low, high, p_values, apart = design.differences(first, second)
            excluded += np.any((low > 0) | (high < 0))
            marked += np.any((np.array(false_discovery_rates(p_values)) <= 0.05) & (apart >= 10))
        rows.append({"design": case.name, "rows": rows_a_page, "excluded": excluded / pages, "marked": marked / pages})
    return rows


def effect_sizes(repetitions: int) -> list[dict]:
    """Coverage of the bootstrap intervals of effect sizes, of normal and of skewed associations."""
    rows = []
    for size in (6, 25, 60, 250):
        for shift in (0.0, 0.5, 1.0):
            for name, draw in _DISTRIBUTIONS.items():
                generator, hits = _generator("effect", size, shift, name), 0
                true = shift / np.sqrt(1 + shift**2 / 4)
                for _ in range(repetitions):
                    x, y = draw(generator, size) + shift, draw(generator, size)
                    _, low, high = association.bootstrap_interval(x, y, num_resamples=500)
                    hits += low <= true <= high
                rows.append({"images": size, "d": round(true, 3), "psi": name, "coverage": hits / repetitions})
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
    """Coverage of Student's interval of a mean, of single values and of clusters of 14."""
    rows = []
    for clusters, size in ((60, 1), (250, 1), (574, 1), (100, 14), (10, 14)):
        design = Design(np.repeat(np.arange(clusters), size))
        for name, draw in _DISTRIBUTIONS.items():
            generator = _generator("means", clusters, size, name)
            shared = draw(generator, clusters * repetitions).reshape(clusters, repetitions)
            values = np.repeat(shared, size, axis=0) + generator.normal(size=(clusters * size, repetitions))
            _, low, high = design.means(values)
            coverage = float(np.mean((low <= 0) & (high >= 0)))
            rows.append({"clusters": clusters, "of": size, "values": name, "coverage": coverage})
    return rows


def kappas(repetitions: int) -> list[dict]:
    """Coverage of the interval of Fleiss' kappa: three raters, who copy an item's label in half of the cases."""
    rows = []
    for items in (20, 50, 100, 500):
        generator, hits = _generator("kappa", items), 0
        for _ in range(repetitions):
            label = generator.choice(3, size=(items, 1), p=(0.5, 0.3, 0.2))
            own = generator.choice(3, size=(items, 3), p=(0.5, 0.3, 0.2))
            given = np.where(generator.random((items, 3)) < np.sqrt(0.5), label, own)
            found = agreement.fleiss_kappa((given[:, :, None] == np.arange(3)).sum(axis=1), num_resamples=1_000)
            hits += found.low is not None and found.low <= 0.5 <= found.high
        rows.append({"items": items, "kappa": 0.5, "coverage": hits / repetitions})
    return rows


_DISTRIBUTIONS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "normal": lambda generator, size: generator.normal(size=size),
    "skewed": lambda generator, size: generator.gamma(4.0, size=size) / 2 - 2,
}


def _latent(case: Case, correlation: float, count: int, generator: np.random.Generator) -> np.ndarray:
    """[n, count] normal variables of variance 1, of which each image of a question brings an equal share."""
    own = generator.standard_normal((len(case.images), count))
    if not correlation:
        return own
    ends = np.cumsum([0, *map(len, case.images)])
    numbers = Dependence.of_labels(image for images in case.images for image in images).numbers
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
    """At least one each."""
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
    found = {
        "repetitions": repetitions,
        "proportions": proportions(cases(), repetitions),
        "few_clusters": proportions(few_cases(), repetitions),
        "macro": proportions(macro_cases(), repetitions),
        "differences": differences(cases(), repetitions),
        "differences_few_clusters": differences(few_cases(), repetitions),
        "marks": marks([cases()[0], cases()[2], cases()[7]], repetitions),
        "effect_sizes": effect_sizes(fewer),
        "average_effect_sizes": average_effect_sizes(fewer),
        "means": group_means(repetitions),
        "kappas": kappas(fewer),
    }
    for name, rows in found.items():
        if isinstance(rows, list):
            print(f"\n{name}")
            for row in rows:
                print("  " + "  ".join(f"{key} {_short(value)}" for key, value in row.items()))
    if arguments.output:
        arguments.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
