"""Sampling where it decides: a question's candidates leave the race once their fate is sure.

Many questions race at once: between two looks, the pairs that any undecided question still needs are scored on the next
samples together, so that the devices have full batches. Pairs of one question always share their samples, which makes
the difference of two candidates much less noisy than either of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from winobench.evaluation.plan import Plan
from winobench.evaluation.summary import score_terms
from winobench.metrics import sequential
from winobench.tasks.base import Task

MODES = ("fixed", "race")
"""How samples are spent: all pairs on all of them, or each pair only until its question is decided."""

ALPHA = 0.01
"""How often a decision may differ from that of the whole budget, at most, by default."""

# What a metric asks of a ranking: which candidates are among the k best.
_TOPS = {"recall": (1, 5)}


class Ranking:
    """A question whose candidates are ranked: texts for an image, or images for a text.

    Attributes:
      num_samples: [candidates] int, the samples that each was judged on.
    """

    def __init__(
        self, rows: np.ndarray, signs: np.ndarray, tops: Sequence[int] = (1,), weights: np.ndarray | None = None
    ):
        """
        Args:
          rows: int [candidates, terms], rows of the errors that a candidate's score is made of.
          signs: int [terms], of these errors in the score.
          tops: the sets of best candidates that are asked for: the best one, the best five.
          weights: float [samples], of each sample; equal ones when None.
        """
        self._rows, self._signs, self._weights = rows, signs, weights
        # Nothing is asked of a single candidate, but it has a score.
        self._tops = [_Top(len(rows), k) for k in sorted(tops) if k < len(rows)] or [_Top(len(rows), len(rows))]
        self.num_samples = np.zeros(len(rows), np.int64)

    @property
    def terms(self) -> tuple[np.ndarray, np.ndarray]:
        """What scores are made of: rows and signs, as they were given."""
        return self._rows, self._signs

    @property
    def decided(self) -> bool:
        """Whether nothing is open."""
        return not self._running().any()

    def _running(self) -> np.ndarray:
        """[candidates] bool: those that another look needs; all of them before the first."""
        if not self.num_samples.any():
            return np.ones(len(self._rows), bool)
        return np.any([top.is_open for top in self._tops], axis=0)

    def needed(self) -> np.ndarray:
        """Rows of the errors that the next look needs; none once all is decided."""
        return self._rows[self._running()].ravel()

    def look(self, errors: np.ndarray, n: int, budget: int, level: float) -> None:
        """Decides what the first n samples can decide.

        Args:
          errors: [rows, samples] floats; the first n of the needed rows are known.
          n: at most ``budget``.
          budget: the samples that a decision should agree with.
          level: probability of a wrong decision at this look.
        """
        running = self._running()
        self.num_samples[running] = n
        scores = self._scores(errors, n)
        for top in self._tops:
            if top.is_open.any():
                top.look(scores, budget, level)

    def _scores(self, errors: np.ndarray, n: int) -> np.ndarray:
        """[candidates, n] float64, NaN where a sample is not known."""
        return _sample_scores(errors, self._rows, self._signs, self._weights, n)

    def scores(self, errors: np.ndarray) -> np.ndarray:
        """[candidates] float64, higher = better: that of the winner, and how far the others are from it.

        Differences are means over the samples that both have. Where those of a few samples would order two candidates
        in another way than was decided, the decision stands.
        """
        most = int(self.num_samples.max())
        samples = self._scores(errors, most)
        is_winner = self._tops[0].is_in if self._tops[0].is_in.any() else self.num_samples == most
        winner = int(np.argmax(is_winner))
        common = np.minimum(self.num_samples, self.num_samples[winner])
        behind = np.array([(samples[winner, :n] - row[:n]).mean() for row, n in zip(samples, common, strict=True)])
        scores = samples[winner, : self.num_samples[winner]].mean() - behind
        for top in self._tops:
            rest = ~top.is_in
            if top.is_in.any() and rest.any():
                scores[rest] = np.minimum(scores[rest], np.nextafter(scores[top.is_in].min(), -np.inf))
        return scores


class _Top:
    """Which of some candidates are the k best?"""

    def __init__(self, num_candidates: int, k: int):
        self.is_open = np.full(num_candidates, k < num_candidates)
        self.is_in = ~self.is_open
        self._k = k
        # What can go wrong is a comparison of one that belongs in with one that does not.
        self._comparisons = k * (num_candidates - k)

    def look(self, scores: np.ndarray, budget: int, level: float) -> None:
        """Settles those whose fate the scores, [candidates, n], make sure."""
        candidates = np.flatnonzero(self.is_open)
        places = self._k - int(self.is_in.sum())
        order = candidates[np.argsort(-scores[candidates].mean(axis=1), kind="stable")]
        above, below = order[:places], order[places:]
        differences = scores[above][:, None] - scores[below][None]
        sure = sequential.will_stay_positive(differences, budget, level / self._comparisons)
        enter, leave = above[sure.all(axis=1)], below[sure.all(axis=0)]
        self.is_in[enter] = True
        self.is_open[enter] = self.is_open[leave] = False
        # All places taken, or none that could be taken from anybody.
        places -= len(enter)
        if places in (0, int(self.is_open.sum())):
            self.is_in |= self.is_open & (places > 0)
            self.is_open[:] = False


class Matching:
    """A question of two images and two texts that belong together in order (Winoground).

    Its pairs go on together until the text score and the image score are both decided: all of a score's comparisons
    are won, or one is lost.

    Attributes:
      num_samples: [2, 2] int, the samples that each pair was judged on.
      decided: whether nothing is open.
    """

    def __init__(self, rows: np.ndarray, signs: np.ndarray, weights: np.ndarray | None = None):
        """
        Args:
          rows: int [2, 2, terms], as of `Ranking`.
          signs: int [terms].
          weights: as of `Ranking`.
        """
        self._rows, self._signs, self._weights = rows, signs, weights
        self.decided = False
        self.num_samples = np.zeros((2, 2), np.int64)

    @property
    def terms(self) -> tuple[np.ndarray, np.ndarray]:
        """As of `Ranking`."""
        return self._rows, self._signs

    def needed(self) -> np.ndarray:
        """As of `Ranking`."""
        return np.zeros(0, np.int64) if self.decided else self._rows.ravel()

    def look(self, errors: np.ndarray, n: int, budget: int, level: float) -> None:
        """As of `Ranking`."""
        scores = self._scores(errors, n)
        own = scores[[0, 1], [0, 1]]
        margins = np.stack([own - scores[[0, 1], [1, 0]], own - scores[[1, 0], [0, 1]]])  # [text or image, 2, n]
        won, lost = (sequential.will_stay_positive(sign * margins, budget, level / 4) for sign in (1, -1))
        self.num_samples[:] = n
        self.decided = bool((won.all(axis=1) | lost.any(axis=1)).all())

    def _scores(self, errors: np.ndarray, n: int) -> np.ndarray:
        return _sample_scores(errors, self._rows, self._signs, self._weights, n)

    def scores(self, errors: np.ndarray) -> np.ndarray:
        """[2, 2] float64, means over the samples that the pairs were judged on."""
        return self._scores(errors, int(self.num_samples.max())).mean(axis=-1)


def _sample_scores(
    errors: np.ndarray, rows: np.ndarray, signs: np.ndarray, weights: np.ndarray | None, n: int
) -> np.ndarray:
    """float64 [..., n], the scores of the first samples, from the rows [..., terms] of errors that they are made of."""
    scores = np.tensordot(signs, errors[np.moveaxis(rows, -1, 0), :n].astype(np.float64), axes=1)
    return scores if weights is None else scores * weights[:n]


@dataclasses.dataclass
class _Entry:
    """A question in the race.

    Attributes:
      task: its task's name.
      shape: images and texts.
      rows: int, the pairs that its scores are made of, without repetitions.
      question: what decides it.
      num_samples: those that the last of its candidates took.
    """

    task: str
    shape: tuple[int, int]
    rows: np.ndarray
    question: Ranking | Matching
    num_samples: int = 0

    def terms(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows of errors that its scores are made of, int [candidates, terms], and the terms' signs."""
        rows, signs = self.question.terms
        return rows.reshape(-1, rows.shape[-1]), signs


@dataclasses.dataclass(frozen=True)
class TaskOutcome:
    """What a race came to on one task.

    Attributes:
      questions: their number.
      undecided: those that took the whole budget.
      samples: median over questions of the samples that the last of a question's candidates took.
    """

    questions: int
    undecided: int
    samples: float


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Scores, and what they took.

    Attributes:
      scores: task -> [images, texts] float64 a question, higher = better.
      passes: pairs and samples that were needed.
      fixed_passes: those of the whole budget.
      tasks: task -> what the race came to.
    """

    scores: Mapping[str, list[np.ndarray]]
    passes: int
    fixed_passes: int
    tasks: Mapping[str, TaskOutcome]


class Race:
    """The questions of some tasks, or one process's share of them.

    Attributes:
      budget: samples that an undecided question ends with.
      alpha: how often a decision may differ from that of the whole budget, at most.
      num_questions: questions in this race.
      undecided: those that are open now.
    """

    def __init__(
        self,
        plan: Plan,
        tasks: Sequence[Task],
        budget: int,
        alpha: float = ALPHA,
        *,
        process: int = 0,
        num_processes: int = 1,
        rows: tuple[int, int] | None = None,
        weights: np.ndarray | None = None,
    ):
        """
        Args:
          plan: the plan of these tasks.
          tasks: none of them a bias task.
          budget: samples a pair, at most.
          alpha: between 0 and 0.5.
          process, num_processes: which of how many shares with equally many pairs; neighbouring questions, which share
            images, stay together.
          rows: how many images and how many texts may race at once, such as fit into a scorer's tables: otherwise they
            would be encoded again for every look.
          weights: float [budget], of each sample; equal ones when None.
        """
        self.budget, self.alpha = budget, alpha
        self._pairs = plan.pairs
        entries = []
        for task in tasks:
            for terms in score_terms(plan, task.name):
                pairs = np.stack([pairs for pairs, _ in terms], axis=-1)
                signs = np.array([sign for _, sign in terms])
                shape = pairs.shape[:2]
                if min(shape) > 1:
                    question: Ranking | Matching = Matching(pairs, signs, weights)
                else:
                    question = Ranking(pairs.reshape(max(shape), -1), signs, _TOPS.get(task.metric, (1,)), weights)
                entries.append(_Entry(task.name, shape, np.unique(pairs), question))
        if num_processes > 1:
            entries = _share(entries, process, num_processes)
        self._entries = entries
        self._rows = rows
        self.num_questions = self.undecided = len(entries)

    def run(self, errors: np.ndarray, score: Callable[[np.ndarray, int, int], None]) -> Outcome:
        """Races all questions to their decisions.

        Args:
          errors: [num_pairs, budget] float32.
          score: ``score(pairs, first, end)`` sees to it that the errors of these pairs, int [n] in increasing order,
            are known for the samples from first to end.
        """
        level = sequential.level_of_a_look(self.alpha, self.budget)
        scored = np.zeros(len(self._pairs), np.int64)
        for still in self._heats():
            first = 0
            for n in sequential.looks(self.budget):
                pairs = np.unique(np.concatenate([entry.question.needed() for entry in still]))
                score(pairs, first, n)
                scored[pairs] = np.maximum(scored[pairs], n)
                for entry in still:
                    entry.question.look(errors, n, self.budget, level)
                    entry.num_samples = n
                open_before, still = len(still), [entry for entry in still if not entry.question.decided]
                self.undecided -= open_before - len(still)
                first = n
                if not still:
                    break
        scores: dict[str, list[np.ndarray]] = {}
        samples: dict[str, list[int]] = {}
        for entry in self._entries:
            scores.setdefault(entry.task, []).append(entry.question.scores(errors).reshape(entry.shape))
            samples.setdefault(entry.task, []).append(entry.num_samples)
        return Outcome(
            scores,
            passes=int(scored.sum()),
            fixed_passes=len(self._pairs) * self.budget,
            tasks={
                name: TaskOutcome(len(of), int(np.count_nonzero(np.array(of) >= self.budget)), float(np.median(of)))
                for name, of in samples.items()
            },
        )

    def pilot(self, num_questions: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Some questions, evenly spaced among all: rows of errors, int [candidates, terms], and the terms' signs."""
        chosen = np.unique(np.linspace(0, len(self._entries) - 1, num_questions).round().astype(np.int64))
        return [self._entries[number].terms() for number in chosen]

    def _heats(self) -> Iterator[list[_Entry]]:
        """The questions in parts that need no more images and texts than may race at once."""
        if not self._entries:  # a share of fewer questions than there are processes
            return
        if self._rows is None:
            yield self._entries
            return
        heat: list[_Entry] = []
        images: set[int] = set()
        texts: set[int] = set()
        for entry in _by_image(self._entries):
            own_images, own_texts = (set(column.tolist()) for column in self._pairs[entry.rows].T)
            more = len(own_images - images), len(own_texts - texts)
            if heat and (len(images) + more[0] > self._rows[0] or len(texts) + more[1] > self._rows[1]):
                yield heat
                heat, images, texts = [], set(), set()
            heat.append(entry)
            images |= own_images
            texts |= own_texts
        yield heat


def _by_image(entries: Iterable[_Entry]) -> list[_Entry]:
    """Neighbours share images: pairs are ordered by image."""
    return sorted(entries, key=lambda entry: int(entry.rows[0]))


def _share(entries: Sequence[_Entry], process: int, num_processes: int) -> list[_Entry]:
    """A process's share of the questions: neighbours, with as many pairs as those of the other processes."""
    entries = _by_image(entries)
    # A question belongs to the process in whose share the middle of its pairs lies.
    ends = np.cumsum([len(entry.rows) for entry in entries])
    middles = ends - np.array([len(entry.rows) for entry in entries]) / 2
    owner = np.minimum((middles * num_processes / ends[-1]).astype(np.int64), num_processes - 1)
    return [entry for entry, number in zip(entries, owner.tolist(), strict=True) if number == process]
