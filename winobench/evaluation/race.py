"""Sampling where it decides: a question's candidates leave the race once their fate is sure.

Many questions race at once: between two looks, the pairs that any undecided question still needs are scored on the next
samples together, so that the devices have full batches. Pairs of one question always share their samples, which makes
the difference of two candidates much less noisy than either of them. Samples are met in random order, whatever rule
has chosen their timesteps; docs/race.md says what is sure then, and why.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from winobench import metrics
from winobench.errors import InputError
from winobench.evaluation.plan import Plan
from winobench.evaluation.summary import score_terms
from winobench.metrics import sequential
from winobench.tasks.base import Task

MODES = ("fixed", "race")
"""How samples are spent: all pairs on all of them, or each pair only until its question is decided."""

ALPHA = 0.01
"""How often a question may be decided otherwise than by the whole budget, at most, by default: `sequential.SHARE` says
under which assumption."""

# Numbers of samples after which a candidate's rivals are chosen, on whom it is bet from there on, and the shares of the
# level: 1 / 2, 1 / 4, ... With two candidates there is nothing to choose.
_FIRST_CHOICE, _NEXT_CHOICE = 4, 4


def check(tasks: Iterable[Task]) -> None:
    """Makes sure that a race can decide some tasks; reads no data.

    Bias tasks have nothing to decide: they take all of their samples.

    Raises:
      InputError: a task's metric does not say which comparisons decide a question, or does not fit the task's shape.
    """
    for task in tasks:
        if task.association is None:
            _check_shape(task, task.shape, f"task {task.name!r}")


def check_questions(plan: Plan, tasks: Iterable[Task]) -> None:
    """As `check`, for each question of a plan: before any of them is scored.

    Raises:
      InputError: a question has a shape or a target that its task's metric does not decide.
    """
    for task in tasks:
        for question in plan.questions[task.name]:
            what = f"question {question.id!r} of task {task.name!r}"
            decision = _check_shape(task, (len(question.images), len(question.texts)), what)
            if (question.target is None) != decision.is_diagonal:
                target = "no target" if question.target is None else f"the target {question.target}"
                raise InputError(
                    f"{what} has {target}, which the metric {task.metric!r} cannot decide: use mode='fixed'"
                )


def _check_shape(task: Task, shape: tuple[int, int], what: str) -> metrics.Decision:
    metric = metrics.METRICS.get(task.metric)
    decision = metric.decision if metric else None
    if decision is None:
        raise InputError(
            f"{what} cannot race: its metric {task.metric!r} does not say which comparisons decide a question"
            " (`decision` of winobench.metrics.Metric); use mode='fixed' (--config.sampling.mode=fixed)"
        )
    if not decision.fits(shape):
        raise InputError(
            f"{what} cannot race: it has {shape[0]} images and {shape[1]} texts, but the metric {task.metric!r} is"
            f" decided for {decision.asks_for}; use mode='fixed' (--config.sampling.mode=fixed)"
        )
    return decision


class Ranking:
    """A question whose candidates are ranked: texts for an image, or images for a text.

    Attributes:
      num_samples: [candidates] int, the samples that each was judged on.
    """

    def __init__(
        self,
        rows: np.ndarray,
        signs: np.ndarray,
        tops: Sequence[int] = (1,),
        weights: np.ndarray | None = None,
        order: np.ndarray | None = None,
    ):
        """
        Args:
          rows: int [candidates, terms], rows of the errors that a candidate's score is made of.
          signs: int [terms], of these errors in the score.
          tops: the sets of best candidates that are asked for: the best one, the best five.
          weights: float [samples], of each sample; equal ones when None.
          order: int [samples], in which samples are met; as they are numbered when None.
        """
        self._rows, self._signs, self._weights, self._order = rows, signs, weights, order
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

    def look(self, errors: np.ndarray, n: int, budget: int, level: float, share: float = sequential.SHARE) -> None:
        """Decides what the first n samples can decide.

        Args:
          errors: [rows, samples] floats; of the needed rows, the first n in the order are known.
          n: at most ``budget``.
          budget: the samples that a decision should agree with.
          level: probability that this question is decided otherwise at any look.
          share: as of `winobench.metrics.sequential.will_stay_positive`.
        """
        running = self._running()
        self.num_samples[running] = n
        scores = self._scores(errors, n)
        for top in self._tops:
            if top.is_open.any():
                top.look(scores, budget, level / len(self._tops), share)

    def _scores(self, errors: np.ndarray, n: int) -> np.ndarray:
        """[candidates, n] float64, NaN where a sample is not known."""
        return _sample_scores(errors, self._rows, self._signs, self._weights, self._order, n)

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
    """Which of some candidates are the k best?

    A candidate leaves when it is sure that k others are better, and enters when it is sure that it is better than all
    but k - 1 others. Which others that shall be is chosen after a few samples, and only later ones are evidence: a
    choice by the same samples would need a share of the level for each that might have been chosen. One that belongs to
    the k best leaves only if one of its rivals that does not is held to be better: of the two kinds of mistakes there
    are k, and as many as there are other candidates.
    """

    def __init__(self, num_candidates: int, k: int):
        self.is_open = np.full(num_candidates, k < num_candidates)
        self.is_in = ~self.is_open
        self._k = k
        # With one place, who enters is known when all others have left.
        kinds = int(k > 0) + int(1 < k < num_candidates - 1)
        others = num_candidates - k
        self._leaving = 0.0 if others == 1 < k else 1 / (kinds * k)
        self._entering = 0.0 if k == 1 else 1 / (kinds * max(others, 1))
        # Samples used for choosing -> the share of the level, and open candidates from best to worst after them.
        self._choices: dict[int, tuple[float, np.ndarray, int]] = {}

    def look(self, scores: np.ndarray, budget: int, level: float, share: float) -> None:
        """Settles those whose fate the scores, [candidates, n], make sure."""
        n = scores.shape[1]
        if n >= budget:
            enter, leave = self._by_means(scores)
        else:
            self._choose(scores, budget)
            leave = self._sure(scores, budget, level, share, leaving=True)
            enter = self._sure(scores, budget, level, share, leaving=False)
        # No more than there are places, and rivals for them, even after a mistake.
        enter = enter[: self._k - int(self.is_in.sum())]
        self.is_in[enter] = True
        self.is_open[enter] = False
        leave = leave[: max(0, int(self.is_open.sum()) - (self._k - int(self.is_in.sum())))]
        self.is_open[leave] = False
        # All places taken, or none that could be taken from anybody.
        places = self._k - int(self.is_in.sum())
        if places in (0, int(self.is_open.sum())):
            self.is_in |= self.is_open & (places > 0)
            self.is_open[:] = False

    def _by_means(self, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Who enters and who leaves by the means of the whole budget; neither where they are equal."""
        candidates = np.flatnonzero(self.is_open)
        places = self._k - int(self.is_in.sum())
        order = candidates[np.argsort(-scores[candidates].mean(axis=1), kind="stable")]
        above, below = order[:places], order[places:]
        better = (scores[above][:, None] - scores[below][None]).mean(axis=-1) > 0
        return above[better.all(axis=1)], below[better.all(axis=0)]

    def _choose(self, scores: np.ndarray, budget: int) -> None:
        """Orders the open candidates by the first samples, as often as there are new numbers of them."""
        candidates = np.flatnonzero(self.is_open)
        places = self._k - int(self.is_in.sum())
        if len(self.is_open) == 2:
            self._choices.setdefault(0, (1.0, candidates, places))
            return
        number, part = _FIRST_CHOICE, 0.5
        while number < min(scores.shape[1], budget / 2):
            if number not in self._choices:
                means = scores[candidates, :number].mean(axis=1)
                self._choices[number] = (part, candidates[np.argsort(-means, kind="stable")], places)
            number, part = number * _NEXT_CHOICE, part / 2

    def _sure(self, scores: np.ndarray, budget: int, level: float, share: float, *, leaving: bool) -> np.ndarray:
        """Candidates that surely leave, or surely enter."""
        of_level = self._leaving if leaving else self._entering
        found: set[int] = set()
        if not of_level:
            return np.zeros(0, np.int64)
        # Whose comparisons are settled needs no other; one with who has gone the other way cannot be won.
        settled = self.is_in if leaving else ~self.is_in & ~self.is_open
        means = scores.mean(axis=1) * (1 if leaving else -1)
        for start, (part, order, places) in self._choices.items():
            number = places if leaving else len(order) - places

            def are_sure(
                one: Sequence[int], rivals: Sequence[int], start: int = start, part: float = part
            ) -> np.ndarray:
                """[n] bool: is each rival better than one that may leave, or worse than one that may enter?"""
                sign = 1 if leaving else -1
                differences = sign * (scores[list(rivals)] - scores[list(one)])
                return sequential.will_stay_positive(differences, budget, level * of_level * part, share, start)

            rivals_of = {}
            for candidate in order[self.is_open[order]].tolist():
                rivals = [rival for rival in (order if leaving else order[::-1]).tolist() if rival != candidate][
                    :number
                ]
                rivals = [rival for rival in rivals if not settled[rival]]
                if candidate not in found and rivals and all(self.is_open[rival] for rival in rivals):
                    rivals_of[candidate] = sorted(rivals, key=lambda rival: means[rival])
            # The closest rival of each first: most candidates need no other comparison.
            close = are_sure(list(rivals_of), [rivals[0] for rivals in rivals_of.values()])
            rivals_of = {one: rivals for (one, rivals), sure in zip(rivals_of.items(), close, strict=True) if sure}
            pairs = [(one, rival) for one, rivals in rivals_of.items() for rival in rivals[1:]]
            rest = are_sure([one for one, _ in pairs], [rival for _, rival in pairs])
            found |= set(rivals_of) - {one for (one, _), sure in zip(pairs, rest, strict=True) if not sure}
        return np.array(sorted(found), np.int64)


class Matching:
    """A question of n images and n texts that belong together in order (Winoground: two and two).

    Its pairs go on together until the text score and the image score are both decided: all of a score's comparisons
    are won, or one is lost.

    Attributes:
      num_samples: [n, n] int, the samples that each pair was judged on.
      decided: whether nothing is open.
    """

    def __init__(
        self,
        rows: np.ndarray,
        signs: np.ndarray,
        weights: np.ndarray | None = None,
        order: np.ndarray | None = None,
    ):
        """
        Args:
          rows: int [n, n, terms], as of `Ranking`.
          signs: int [terms].
          weights, order: as of `Ranking`.
        """
        self._rows, self._signs, self._weights, self._order = rows, signs, weights, order
        self.decided = False
        self.num_samples = np.zeros(rows.shape[:2], np.int64)

    @property
    def terms(self) -> tuple[np.ndarray, np.ndarray]:
        """As of `Ranking`."""
        return self._rows, self._signs

    def needed(self) -> np.ndarray:
        """As of `Ranking`."""
        return np.zeros(0, np.int64) if self.decided else self._rows.ravel()

    def look(self, errors: np.ndarray, n: int, budget: int, level: float, share: float = sequential.SHARE) -> None:
        """As of `Ranking`."""
        scores = self._scores(errors, n)
        size = len(scores)
        one, other = np.nonzero(~np.eye(size, dtype=bool))
        own = scores[one, one]
        margins = np.stack([own - scores[one, other], own - scores[other, one]])  # [text or image, comparisons, n]
        # Half of the level for each score. It is won by mistake only if a comparison is that is lost, whichever; and
        # lost by mistake if any of them is.
        won = sequential.will_stay_positive(margins, budget, level / 2, share).all(axis=1)
        lost = sequential.will_stay_positive(-margins, budget, level / 2 / len(one), share).any(axis=1)
        means = margins.mean(axis=-1)
        self.num_samples[:] = n
        # What was sure at an earlier look has to be what the means say now: scores are means.
        self._won, self._lost = self._won | won, self._lost | lost
        by_means = (means > 0).all(axis=1)
        settled = (self._won & by_means) | (self._lost & (means < 0).any(axis=1))
        self.decided = bool(settled.all())

    _won = _lost = np.zeros(2, bool)

    def _scores(self, errors: np.ndarray, n: int) -> np.ndarray:
        return _sample_scores(errors, self._rows, self._signs, self._weights, self._order, n)

    def scores(self, errors: np.ndarray) -> np.ndarray:
        """[n, n] float64, means over the samples that the pairs were judged on."""
        return self._scores(errors, int(self.num_samples.max())).mean(axis=-1)


def _sample_scores(
    errors: np.ndarray,
    rows: np.ndarray,
    signs: np.ndarray,
    weights: np.ndarray | None,
    order: np.ndarray | None,
    n: int,
) -> np.ndarray:
    """float64 [..., n], the scores of the first samples, from the rows [..., terms] of errors that they are made of."""
    first = np.arange(n) if order is None else order[:n]
    known = errors[np.moveaxis(rows, -1, 0)[..., None], first].astype(np.float64)
    scores = np.tensordot(signs, known, axes=1)
    return scores if weights is None else scores * weights[first]


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
      alpha: how often a question may be decided otherwise than by the whole budget, at most, if samples are met in
        random order and ``share`` is right (docs/race.md).
      share: the smallest share of the samples that may hold all that speaks for a candidate.
      order: int [budget], in which samples are met.
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
        share: float = sequential.SHARE,
        order: np.ndarray | None = None,
    ):
        """
        Args:
          plan: the plan of these tasks.
          tasks: none of them a bias task; `check` and `check_questions` have nothing against them.
          budget: samples a pair, at most.
          alpha: between 0 and 0.5.
          process, num_processes: which of how many shares with equally many pairs; neighbouring questions, which share
            images, stay together.
          rows: how many images and how many texts may race at once, such as fit into a scorer's tables: otherwise they
            would be encoded again for every look.
          weights: float [budget], of each sample; equal ones when None.
          share: in (0, 1].
          order: int [budget], in which samples are met (`winobench.scorers.samples.visiting_order`); as they are
            numbered when None, for samples that are in random order already.

        Raises:
          InputError: as of `check_questions`.
        """
        self.budget, self.alpha, self.share = budget, alpha, share
        self.order = np.arange(budget) if order is None else np.asarray(order)
        check_questions(plan, tasks)
        self._pairs = plan.pairs
        entries = []
        for task in tasks:
            decision = metrics.METRICS[task.metric].decision
            for terms in score_terms(plan, task.name):
                pairs = np.stack([pairs for pairs, _ in terms], axis=-1)
                signs = np.array([sign for _, sign in terms])
                shape = pairs.shape[:2]
                if decision.is_diagonal:
                    question: Ranking | Matching = Matching(pairs, signs, weights, self.order)
                else:
                    question = Ranking(pairs.reshape(max(shape), -1), signs, decision.tops, weights, self.order)
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
            are known for the samples ``order[first:end]``.
        """
        looks = sequential.looks(self.budget, self.alpha, self.share)
        scored = np.zeros(len(self._pairs), np.int64)
        for still in self._heats():
            first = 0
            for n in looks:
                pairs = np.unique(np.concatenate([entry.question.needed() for entry in still]))
                score(pairs, first, n)
                scored[pairs] = np.maximum(scored[pairs], n)
                for entry in still:
                    entry.question.look(errors, n, self.budget, self.alpha, self.share)
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
