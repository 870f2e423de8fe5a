"""Rounds of scoring: what tasks need on common samples, what of it is recorded, and how the rest is scored.

Each of several processes scores its share, a contiguous part of what is missing (or, in a race, of the questions), and
records it. The first one reads what is there before, and tells the others what is not.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import os
import pathlib
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from winobench import json_files, memory, parallel
from winobench import progress as progress_bars
from winobench.errors import InputError
from winobench.evaluation import contracts, importance, race, records, summary
from winobench.evaluation import plan as planning
from winobench.scorers import base, samples
from winobench.tasks.base import Task

RACE_OVER_PROCESSES = "a race needs a mesh of one process's devices: leave mesh out, or use mode='fixed'"
"""What is wrong with a race of a scorer whose devices belong to several processes."""

# Triples of which those that are missing are scored at once, which bounds the memory of their indices.
_TRIPLES_A_CALL = 2**22

# In the table of errors, and in the list of those that are missing.
_BYTES_OF_AN_ERROR = 4 + 8

# What a fingerprint says that does not change the error of a given sample: the timestep is recorded beside the error,
# and kinds of error are turned into each other.
_NOT_OF_A_SAMPLE = ("error", "timestep_range")

# How long it may take until a file that one process has written is seen by another, on a file system that they share.
_SECONDS_TO_APPEAR = 60.0


@dataclasses.dataclass
class Round:
    """Tasks that are judged on the same samples.

    Attributes:
      tasks: the tasks.
      sampling: arguments of ``iter_errors``.
      scores: which errors these are.
      plan: what may have to be scored.
      alpha: of a race; None where every pair is scored on every sample.
      share: of a race, as of `winobench.evaluation.race.Race`.
      density: of a race whose timesteps were learned: what they were drawn by (`winobench.evaluation.importance`).
      weights: [num_samples] float64 of the samples, with a density.
      pilot_passes: (needed, computed by this call) to learn it.
      errors: [num_pairs, num_samples] float32, NaN where not known to this process.
      missing: int [n], places in the flat errors that nothing was recorded for when the run was opened.
    """

    tasks: list[Task]
    sampling: dict[str, Any]
    scores: records.ScoreSet
    plan: planning.Plan
    alpha: float | None
    share: float | None
    errors: np.ndarray
    missing: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, np.int64))
    density: np.ndarray | None = None
    weights: np.ndarray | None = None
    pilot_passes: tuple[int, int] = (0, 0)

    @property
    def computed(self) -> int:
        """How many of the errors that are known now were not recorded when the run was opened."""
        recorded = self.errors.size - len(self.missing)
        return int(np.count_nonzero(~np.isnan(self.errors))) - recorded + self.pilot_passes[1]

    def outcome(self) -> race.Outcome:
        """The scores, once all that they need is known.

        Raises:
          InputError: an error that a race needs is not known.
        """
        if self.alpha is not None:
            outcome = self.race().run(self.errors, self._check_known)
            return dataclasses.replace(outcome, passes=outcome.passes + self.pilot_passes[0])
        size = self.errors.size
        scores = {task.name: summary.question_scores(self.plan, task.name, self.errors) for task in self.tasks}
        return race.Outcome(scores, passes=size, fixed_passes=size, tasks={})

    def race(self, **share: Any) -> race.Race:
        """The race of the tasks' questions; arguments as of `winobench.evaluation.race.Race`."""
        budget = self.errors.shape[1]
        order = samples.visiting_order(budget, self.sampling["seed"])
        options = {"weights": self.weights, "share": self.share, "order": order, **share}
        return race.Race(self.plan, self.tasks, budget, self.alpha, **options)

    def _check_known(self, pairs: np.ndarray, first: int, end: int) -> None:
        order = samples.visiting_order(self.errors.shape[1], self.sampling["seed"])
        if np.isnan(self.errors[pairs[:, None], order[first:end]]).any():
            raise InputError("errors that were recorded are no longer there: run it again")


def make_rounds(
    scorer: base.SampledScorer,
    fingerprint: Mapping[str, Any],
    tasks: Sequence[Task],
    sampling: Mapping[str, Any],
    *,
    alpha: float | None,
    share: float | None,
    failed: dict[str, str],
    **planned: Any,
) -> list[Round]:
    """Groups the tasks by their samples and plans each group; tasks whose data cannot be used end up in ``failed``.

    Args:
      scorer: chooses the timesteps.
      fingerprint: the scorer's.
      tasks: all tasks.
      sampling: ``num_samples``, ``num_bias_samples``, ``seed`` and ``timesteps``.
      alpha: of a race; bias tasks, which have no right answer to decide on, take no part in it.
      share: of a race.
      failed: task -> why its data cannot be used.
      **planned: arguments of `winobench.evaluation.plan.make_plan`.
    """
    seed, rule = sampling["seed"], sampling["timesteps"]
    if rule == importance.RULE:  # to be learned; bias tasks, which take no part in a race, keep this
        rule = importance.PILOT_RULE
    of_a_sample = {name: value for name, value in fingerprint.items() if name not in _NOT_OF_A_SAMPLE}
    digest = records.digest({"scorer": of_a_sample, "seed": seed})
    groups: dict[tuple[tuple[int, ...], float | None], tuple[int, list[Task]]] = {}
    for task in tasks:
        # Timesteps that are given one by one are meant for all tasks.
        is_bias = task.association is not None and isinstance(rule, str)
        num_samples = sampling["num_bias_samples" if is_bias else "num_samples"]
        timesteps = contracts.timesteps(scorer, scorer.choose_timesteps(num_samples, seed, rule))
        key = (timesteps, None if task.association is not None else alpha)
        groups.setdefault(key, (num_samples, []))[1].append(task)
    rounds = []
    for (timesteps, alpha_of_group), (num_samples, members) in groups.items():
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
            rounds.append(
                Round(
                    members,
                    {"num_samples": num_samples, "seed": seed, "timesteps": rule},
                    records.ScoreSet(digest, timesteps, contracts.kind_of_error(scorer)),
                    plan,
                    alpha_of_group,
                    share,
                    np.full((len(plan.pairs), len(timesteps)), np.nan, np.float32),
                )
            )
    return rounds


def check_alike(folder: records.RunFolder, identity: Mapping[str, Any]) -> None:
    """Makes sure that all processes see the folder and are about to do the same, before any of them does it.

    Raises:
      InputError: a process does not see the folder, or has another identity.
    """

    def look() -> str:
        _wait_for([folder.config_path])
        return records.digest(json_files.as_json(identity))

    first, *others = parallel.meet(look)
    for number, other in enumerate(others, 1):
        if other != first:
            raise InputError(f"process {number} has other arguments or other data than process 0: start all alike")


def learn_timesteps(
    scorer: base.SampledScorer,
    one: Round,
    folder: records.RunFolder,
    versions: Mapping[str, Any],
    *,
    reuse: bool,
    progress: bool,
) -> None:
    """Has the first process learn where candidates differ, and gives a round of a race its timesteps and weights.

    The pilot's errors are recorded like others: a run that goes on learns the same.
    """

    def pilot() -> dict[str, Any]:
        count, rule, seed = importance.PILOT_SAMPLES, importance.PILOT_RULE, one.sampling["seed"]
        timesteps = np.asarray(scorer.choose_timesteps(count, seed, rule)).tolist()
        trial = dataclasses.replace(
            one,
            sampling={**one.sampling, "num_samples": count, "timesteps": rule},
            scores=dataclasses.replace(one.scores, timesteps=tuple(timesteps)),
            errors=np.full((len(one.plan.pairs), count), np.nan, np.float32),
        )
        questions = one.race().pilot(importance.PILOT_QUESTIONS)
        pairs = np.unique(np.concatenate([rows.ravel() for rows, _ in questions]))
        _read_recorded(folder, trial, versions, reuse=reuse)
        places = (pairs[:, None] * count + np.arange(count)).reshape(-1)
        missing = places[np.isnan(trial.errors.reshape(-1)[places])]
        if progress:
            progress_bars.say(f"pilot: which timesteps tell most, on {len(questions)} questions")
        with progress_bars.counting(len(missing), enabled=progress and len(missing) > 0) as advance:
            writer = _writer(folder, trial, versions, process=0)
            _score(trial, missing, places, functools.partial(_iter_errors, scorer, trial), writer, advance)
        scores = [np.tensordot(signs, trial.errors[rows.T].astype(np.float64), axes=1) for rows, signs in questions]
        density = importance.learn(scores, samples.low_discrepancy(count, seed))
        return {"density": density.tolist(), "passes": [len(places), len(missing)]}

    learned = parallel.from_first(pilot)
    one.density = np.array(learned["density"])
    one.pilot_passes = tuple(learned["passes"])
    timesteps, one.weights = importance.draw(scorer, one.density, one.errors.shape[1], one.sampling["seed"])
    one.sampling["timesteps"] = timesteps.tolist()
    one.scores = dataclasses.replace(one.scores, timesteps=tuple(timesteps.tolist()))


def find_missing(
    folder: records.RunFolder,
    rounds: Sequence[Round],
    versions: Mapping[str, Any],
    *,
    reuse: bool,
) -> float:
    """Has the first process read what is recorded, and tells all what is not.

    Returns:
      The seconds that earlier calls of this run have spent on what is recorded.
    """

    def look() -> dict[str, Any]:
        seconds = sum(_read_recorded(folder, one, versions, reuse=reuse) for one in rounds)
        return {"seconds": seconds, "missing": [_packed(np.isnan(one.errors)) for one in rounds]}

    first = parallel.from_first(look)
    for one, missing in zip(rounds, first["missing"], strict=True):
        one.missing = np.flatnonzero(_unpacked(missing, one.errors.size))
    return first["seconds"]


def score_missing(
    scorer: base.SampledScorer,
    rounds: Sequence[Round],
    folder: records.RunFolder,
    versions: Mapping[str, Any],
    progress: bool,
) -> list[str]:
    """Scores and records what is missing; returns the names of the parts that the processes have written.

    Raises:
      InputError: a process failed or was lost, or a race is asked of a scorer whose mesh spans processes.
    """
    if parallel.spans_processes(getattr(scorer, "mesh", None)):
        if any(one.alpha is not None for one in rounds):
            raise InputError(RACE_OVER_PROCESSES)
        # All do the same, and none could wait for the others: they would wait for it in the middle of a batch.
        for one in rounds:
            writer = _writer(folder, one, versions, process=0) if parallel.is_first_process() else None
            _score_share(scorer, one, one.missing, writer, progress)
        return []

    process, count = parallel.process_number(), parallel.num_processes()

    def score() -> list[str]:
        parts: list[str] = []
        try:
            for one in rounds:
                writer = _writer(folder, one, versions, process=process)
                try:
                    if one.alpha is not None:
                        _race_share(scorer, one, folder, writer, progress, process, count)
                    else:
                        share = one.missing[parallel.share_of(len(one.missing), process, count)]
                        _score_share(scorer, one, share, writer, progress, count)
                finally:
                    parts += writer.written
        except Exception as error:
            if count > 1:
                progress_bars.say(f"process {process} of {count} failed, and waits for the others: {error}")
            raise
        return parts

    return [name for names in parallel.meet(score) for name in names]


def collect(
    folder: records.RunFolder, rounds: Sequence[Round], versions: Mapping[str, Any], parts: Sequence[str]
) -> None:
    """Reads what other processes have scored, in one that has scored only its share.

    Raises:
      InputError: what another process recorded is not in the folder.
    """
    _wait_for([folder.errors_path / name for name in parts])
    for one in rounds:
        if one.alpha is not None:
            if parallel.num_processes() > 1:
                _read_recorded(folder, one, versions, reuse=False)
            continue
        if np.isnan(one.errors).any():
            _read_recorded(folder, one, versions, reuse=False)
        if np.isnan(one.errors).any():
            raise InputError(
                f"errors that another process has recorded are not in {folder.errors_path}: name a --workdir on a file"
                " system that all processes share"
            )


def _read_recorded(folder: records.RunFolder, one: Round, versions: Mapping[str, Any], *, reuse: bool) -> float:
    """Fills in what this run has recorded, then what its neighbours have; returns the seconds spent on the former."""
    table = (one.scores, one.plan.image_hashes, one.plan.text_hashes, one.plan.pairs)
    one.errors, seconds = folder.read_errors(*table)
    if not reuse or not np.isnan(one.errors).any():
        return seconds
    found = one.errors.copy()
    for neighbour in folder.neighbours():
        errors, _ = records.read_errors(neighbour, *table, on_fault=records.pass_over)
        found = np.where(np.isnan(found), errors, found)
    new = np.flatnonzero(np.isnan(one.errors) & ~np.isnan(found))
    if len(new):
        writer = _writer(folder, one, versions, process=0)
        writer.add(_triples(one, new), found.reshape(-1)[new])
        writer.flush()
        one.errors = found
    return seconds


def _score_share(
    scorer: base.SampledScorer,
    one: Round,
    places: np.ndarray,
    writer: records.ErrorWriter | None,
    progress: bool,
    num_processes: int = 1,
) -> None:
    """Scores the triples at some places of the round's flat errors, recording batch after batch."""
    total, left = one.errors.size, len(one.missing)
    if progress and not left:
        progress_bars.say(f"all {total:,} errors are recorded: 0 passes to do")
    if progress and left and num_processes > 1:
        progress_bars.say(f"{left:,} passes for {num_processes} processes; this one's share:")
    # Of several processes the first one shows its own part.
    whole, done = (total, total - left) if num_processes == 1 else (len(places), 0)
    with progress_bars.counting(whole, done, enabled=progress and len(places) > 0) as advance:
        _score(one, places, range(total), functools.partial(_iter_errors, scorer, one), writer, advance)


def _race_share(
    scorer: base.SampledScorer,
    one: Round,
    folder: records.RunFolder,
    writer: records.ErrorWriter,
    progress: bool,
    process: int,
    num_processes: int,
) -> None:
    """Races this process's share of the questions to their decisions, recording batch after batch."""
    if process > 0:  # the first process has read them
        one.errors, _ = folder.read_errors(one.scores, one.plan.image_hashes, one.plan.text_hashes, one.plan.pairs)
    flat, budget = one.errors.reshape(-1), one.errors.shape[1]
    iter_errors, rows = functools.partial(_iter_errors, scorer, one), None
    if hasattr(scorer, "session"):
        # Images and texts that are encoded for one look are there for the next one.
        session = scorer.session(one.plan.images, one.plan.texts, **one.sampling)
        takes_among = getattr(scorer, "takes_among", False)
        iter_errors = (
            session.iter_errors
            if takes_among
            else lambda triples, _: session.iter_errors(triples) if len(triples) else ()
        )
        rows = session.capacity
    competition = one.race(process=process, num_processes=num_processes, rows=rows)

    def score(pairs: np.ndarray, first: int, end: int) -> None:
        places = (pairs[:, None] * budget + np.sort(competition.order[first:end])).reshape(-1)
        missing = places[np.isnan(flat[places])]
        if progress:
            progress_bars.say(
                f"race: {competition.undecided:,} of {competition.num_questions:,} questions are open after {first}"
                f" samples; to {end}: {len(missing):,} passes"
            )
        with progress_bars.counting(len(missing), enabled=progress and len(missing) > 0) as advance:
            _score(one, missing, places, iter_errors, writer, advance)

    competition.run(one.errors, score)


def _score(
    one: Round,
    missing: np.ndarray,
    among: np.ndarray | range,
    iter_errors: Callable[[np.ndarray, np.ndarray], Iterator[tuple[np.ndarray, np.ndarray]]],
    writer: records.ErrorWriter | None,
    advance: Callable[[int], None],
) -> None:
    """Scores triples and records them batch after batch.

    Args:
      one: the round.
      missing: their places in the round's flat errors.
      among: the places that there were to score if nothing had been recorded. What they are decides how errors are
        computed, so that a run that was stopped gives the same bits as one that was not.
      iter_errors: ``(triples, triples of which these are some)`` -> as of `SampledScorer.iter_errors`.
      writer: takes what is finished; None in a process that records nothing.
      advance: is told how many errors are finished.
    """
    flat = one.errors.reshape(-1)
    try:
        for first in range(0, len(among), _TRIPLES_A_CALL):
            all_here = np.asarray(among[first : first + _TRIPLES_A_CALL])
            here = missing if len(all_here) == len(among) else missing[np.isin(missing, all_here)]
            triples = _triples(one, here)
            given = iter_errors(triples, _triples(one, all_here))
            for part, values in contracts.batches(given, len(triples), "the scorer"):
                _check_finite(one.plan, triples[part], values)
                flat[here[part]] = values
                if writer is not None:
                    writer.add(triples[part], values)
                advance(len(values))
                parallel.check_first_process()
    finally:
        # Also after an interrupt or an error: what is finished is kept.
        if writer is not None:
            writer.flush()


def _triples(one: Round, places: np.ndarray) -> np.ndarray:
    """Int32 [n, 3] (image, text, sample) at some places of the round's flat errors."""
    pairs, samples_of = np.divmod(places, one.errors.shape[1])
    return np.concatenate([one.plan.pairs[pairs], samples_of[:, None]], axis=1).astype(np.int32)


def _iter_errors(
    scorer: base.SampledScorer, one: Round, triples: np.ndarray, among: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Scores [n, 3] (image, text, sample) of the plan, which are some of others, int [m, 3]."""
    if not len(triples):
        return iter(())
    if getattr(scorer, "takes_among", False):
        return scorer.iter_errors(one.plan.images, one.plan.texts, triples, among=among, **one.sampling)
    if isinstance(scorer, base.WithoutSamples):
        # All texts, as their widths may depend on the longest of them.
        return scorer.iter_errors(one.plan.images, one.plan.texts, triples, **one.sampling)
    # Only the images and texts that these need.
    images, image_numbers = np.unique(triples[:, 0], return_inverse=True)
    texts, text_numbers = np.unique(triples[:, 1], return_inverse=True)
    numbers = np.stack([image_numbers, text_numbers, triples[:, 2]], axis=1).astype(np.int32)
    return scorer.iter_errors(
        [one.plan.images[image] for image in images],
        [one.plan.texts[text] for text in texts],
        numbers,
        **one.sampling,
    )


def _writer(folder: records.RunFolder, one: Round, versions: Mapping[str, Any], *, process: int) -> records.ErrorWriter:
    hashes = one.plan.image_hashes, one.plan.text_hashes
    return records.ErrorWriter(folder, one.scores, *hashes, process=process, note=versions)


def _check_finite(plan: planning.Plan, triples: np.ndarray, errors: np.ndarray) -> None:
    finite = np.isfinite(errors)
    if not finite.all():
        image, text, sample = triples[int(np.argmin(finite))].tolist()
        raise InputError(
            f"the error of image {_name(plan, image)} under the text {plan.texts[text]!r}, sample {sample}, is not a "
            "number: try --config.dtype=float32, or check the weights."
        )


def _name(plan: planning.Plan, image: int) -> str:
    source = plan.images[image]
    is_path = isinstance(source, str) or hasattr(source, "__fspath__")
    return str(source) if is_path else f"with the hash {plan.image_hashes[image][:12]}"


def _wait_for(paths: Sequence[pathlib.Path]) -> None:
    """Waits until files that other processes have written are seen here.

    Raises:
      InputError: one does not appear.
    """
    end = time.monotonic() + _SECONDS_TO_APPEAR
    for path in paths:
        # Looking into the folder has network file systems ask for what is new in it.
        while path.name not in os.listdir(path.parent) if path.parent.is_dir() else True:
            if time.monotonic() > end:
                raise InputError(
                    f"{path}, which another process has written, is not there: name a --workdir on a file system that"
                    " all processes share"
                )
            time.sleep(0.2)


def _packed(flags: np.ndarray) -> str:
    return base64.b64encode(zlib.compress(np.packbits(flags).tobytes())).decode()


def _unpacked(packed: str, count: int) -> np.ndarray:
    return np.unpackbits(np.frombuffer(zlib.decompress(base64.b64decode(packed)), np.uint8), count=count)
