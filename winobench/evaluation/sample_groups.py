"""Tasks grouped by the samples that they are judged on, each group with its plan and its errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from winobench.base import memory, options
from winobench.base.errors import InputError
from winobench.evaluation import contracts, importance, race, summary
from winobench.evaluation import plan as planning
from winobench.metrics import timestep_weights
from winobench.metrics.sample_mean import PLAIN, SampleMean
from winobench.runs import error_parts, records, settings
from winobench.scorers import base, samples
from winobench.tasks.base import Task

# In the table of errors, and in the list of missing errors.
_BYTES_OF_AN_ERROR = 4 + 8

# What a fingerprint says that does not change the error of a given sample: the timestep is recorded next to the error,
# and kinds of error are turned into each other.
_NOT_OF_A_SAMPLE = ("error", "timestep_range")


@dataclasses.dataclass
class SampleGroup:
    """Tasks that are judged on the same samples."""

    tasks: list[Task]
    sampling: dict[str, Any]  # arguments of ``iter_errors``
    scores: error_parts.ScoreSet
    plan: planning.Plan
    alpha: float | None  # of a race; None where every pair is scored on every sample
    share: float  # of a race, see `race.Race`
    errors: np.ndarray  # [num_pairs, num_samples] float32, NaN where not known to this process
    missing: np.ndarray | range = dataclasses.field(default_factory=lambda: np.zeros(0, np.int64))
    density: np.ndarray | None = None  # of a race's learned timesteps
    weights: np.ndarray | None = None  # [num_samples] float64, with a density
    mean: SampleMean = PLAIN  # over the samples, outside of races
    learns: str | None = None  # the rule by which timesteps are to be learned, of `importance.PILOT_RULES`
    pilot_passes: tuple[int, int] = (0, 0)  # (needed, computed by this call)

    @property
    def computed(self) -> int:
        """Number of known errors that were not recorded when the run was opened."""
        recorded = self.errors.size - len(self.missing)
        return int(np.count_nonzero(~np.isnan(self.errors))) - recorded + self.pilot_passes[1]

    def outcome(self) -> race.Outcome:
        """The scores, once all that they need is known."""
        if self.alpha is not None:
            outcome = self.race().run(self.errors, self._check_known, self.alpha, self.share)
            return dataclasses.replace(outcome, passes=outcome.passes + self.pilot_passes[0])
        size = self.errors.size
        scores = {
            task.name: summary.question_scores(self.plan, task.name, self.errors, self.mean) for task in self.tasks
        }
        return race.Outcome(scores, passes=size + self.pilot_passes[0], fixed_passes=size, tasks={})

    def race(self, **part: Any) -> race.Race:
        """The race of the tasks' questions. Arguments: see `race.Race`."""
        budget = self.errors.shape[1]
        order = samples.visiting_order(budget, self.sampling["seed"])
        return race.Race(self.plan, self.tasks, budget, weights=self.weights, order=order, **part)

    def triples(self, flat_indices: np.ndarray) -> np.ndarray:
        """Int32 [n, 3] (image, text, sample) of some of the flat errors."""
        triples = np.empty((len(flat_indices), 3), np.int32)
        pairs, triples[:, 2] = np.divmod(flat_indices, self.errors.shape[1])
        triples[:, :2] = self.plan.pairs[pairs]
        return triples

    def _check_known(self, pairs: np.ndarray, first: int, end: int) -> None:
        order = samples.visiting_order(self.errors.shape[1], self.sampling["seed"])
        if np.isnan(self.errors[pairs[:, None], order[first:end]]).any():
            raise InputError("errors that were recorded are no longer there: run it again", code="file-changed")


def make_groups(
    scorer: base.SampledScorer,
    fingerprint: Mapping[str, Any],
    tasks: Sequence[Task],
    sampling: settings.Sampling,
    *,
    failed: dict[str, InputError],
    **planned: Any,
) -> list[SampleGroup]:
    """Groups the tasks by their samples and plans each group. Tasks whose data cannot be used end up in ``failed``."""
    seed, rule = sampling.seed, "uniform" if sampling.timesteps is None else sampling.timesteps
    alpha = sampling.alpha if sampling.mode == settings.RACE else None
    weighting = timestep_weights.parse(sampling.timestep_weights)
    rule = "uniform" if isinstance(scorer, base.WithoutSamples) else rule  # of one sample
    learned = rule if isinstance(rule, str) and rule in importance.PILOT_RULES else None
    if learned is not None:  # tasks that decide nothing keep this
        rule = importance.PILOT_RULES[learned]
    of_a_sample = {name: value for name, value in fingerprint.items() if name not in _NOT_OF_A_SAMPLE}
    noise = {"noise": options.ANTITHETIC} if samples.has_partners(rule) else {}
    digest = records.digest({"scorer": of_a_sample, "seed": seed, **noise})
    by_samples: dict[tuple[tuple[float, ...], bool], tuple[int | None, list[Task]]] = {}
    for task in tasks:
        # Timesteps that are given one by one are meant for all tasks.
        is_bias = task.association is not None and isinstance(rule, str)
        num_samples = sampling.num_bias_samples if is_bias else sampling.num_samples
        timesteps = contracts.timesteps(scorer, scorer.choose_timesteps(num_samples, seed, rule))
        key = (timesteps, task.has_answers and (alpha is not None or learned is not None))
        by_samples.setdefault(key, (num_samples, []))[1].append(task)
    groups = []
    for (timesteps, is_apart), (num_samples, members) in by_samples.items():
        alpha_of_group = alpha if is_apart else None
        plan = planning.make_plan(members, failed=failed, **planned)
        members = [task for task in members if task.name not in failed]
        if members and alpha_of_group is not None:
            race.check_questions(plan, members)
        if members:
            pairs, count = len(plan.pairs), len(timesteps)
            memory.check(
                f"a table of the errors of {pairs:,} pairs x {count:,} samples",
                pairs * count * _BYTES_OF_AN_ERROR,
                "lower num_samples or limit, or name fewer tasks",
            )
            groups.append(
                SampleGroup(
                    members,
                    {"num_samples": num_samples, "seed": seed, "timesteps": rule, **(noise if learned else {})},
                    error_parts.ScoreSet(digest, timesteps, contracts.kind_of_error(scorer)),
                    plan,
                    alpha_of_group,
                    sampling.rare_share,
                    np.full((len(plan.pairs), len(timesteps)), np.nan, np.float32),
                    mean=SampleMean(timestep_weights.sample_weights(weighting, timesteps), sampling.reduce_dtype),
                    learns=learned if is_apart else None,
                )
            )
    return groups
