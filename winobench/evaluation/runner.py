"""Scores what a run still lacks, and records it. Each of several processes scores a contiguous share.

The first process reads recorded errors, and sends the other processes a list of the missing ones.
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
from typing import TYPE_CHECKING, Any

import numpy as np

from winobench import parallel
from winobench.base import json_files
from winobench.base import progress as progress_bars
from winobench.base.errors import InputError
from winobench.evaluation import contracts, importance
from winobench.evaluation import plan as planning
from winobench.evaluation.sample_groups import SampleGroup
from winobench.runs import error_parts, records
from winobench.runs.settings import Recording
from winobench.scorers import base, samples

if TYPE_CHECKING:
    from winobench.base.trackers import RunReporter
    from winobench.scorers.session import Session

RACE_OVER_PROCESSES = "a race needs a mesh of one process's devices: leave mesh out, or use mode='fixed'"
"""Message about a race of a scorer whose devices belong to several processes."""

# Triples whose missing errors are scored at once, which bounds the memory of their indices.
_TRIPLES_A_CALL = 2**22

# Time until other processes see a file that a process has written to a shared file system.
_SECONDS_TO_APPEAR = 60.0

IterErrors = Callable[[np.ndarray, np.ndarray], Iterator[tuple[np.ndarray, np.ndarray]]]
"""``(triples, triples of which these are some)`` -> as in `SampledScorer.iter_errors`."""


def check_alike(identity: Mapping[str, Any] | None, *written: pathlib.Path) -> None:
    """Makes sure that all processes see what the first one has written, and have equal arguments."""

    def look() -> str:
        _wait_for(written)
        return records.digest(json_files.as_json(identity))

    first, *others = parallel.all_gather_object(look)
    for number, other in enumerate(others, 1):
        if other != first:
            raise InputError(
                f"process {number} has other arguments or other data than process 0: start all alike",
                code="unlike-processes",
            )


class Runner:
    """Scores groups of tasks with one scorer into one folder."""

    def __init__(
        self,
        scorer: base.SampledScorer,
        groups: Sequence[SampleGroup],
        folder: records.RunFolder,
        versions: Mapping[str, Any],
        fingerprint: Mapping[str, Any],
        recording: Recording,
        watch: RunReporter | None = None,
    ):
        self.scorer = scorer
        self.groups = groups
        self.folder = folder
        self.versions = versions
        self.reuse = recording.reuse
        self.progress = recording.progress and parallel.is_main_process()
        self._fingerprint = fingerprint
        self._watch = watch

    def learn_timesteps(self, group: SampleGroup) -> None:
        """The first process learns where candidates differ, and gives a group its timesteps and weights.

        The pilot's errors are recorded like others: a resumed run learns the same.
        """
        seed, rule = group.sampling["seed"], importance.PILOT_RULES[str(group.learns)]
        each = 2 if samples.has_partners(rule) else 1  # samples of one timestep

        def pilot() -> dict[str, Any]:
            count = importance.PILOT_SAMPLES * each
            timesteps = np.asarray(self.scorer.choose_timesteps(count, seed, rule)).tolist()
            trial = dataclasses.replace(
                group,
                sampling={**group.sampling, "num_samples": count, "timesteps": rule},
                scores=dataclasses.replace(group.scores, timesteps=tuple(timesteps)),
                errors=np.full((len(group.plan.pairs), count), np.nan, np.float32),
            )
            questions = importance.pilot(group.plan, group.tasks)
            pairs = np.unique(np.concatenate([rows.ravel() for rows, _ in questions]))
            self._read_recorded(trial, reuse=self.reuse)
            flat_indices = (pairs[:, None] * count + np.arange(count)).reshape(-1)
            missing = flat_indices[np.isnan(trial.errors.reshape(-1)[flat_indices])]
            if self.progress:
                progress_bars.say(f"pilot: which timesteps tell most, on {len(questions)} questions")
            with progress_bars.counting(len(missing), enabled=self.progress and len(missing) > 0) as advance:
                writer = self._writer(trial, process=0)
                _score(trial, missing, flat_indices, self._iter_errors(trial), writer, advance)
            scores = [np.tensordot(signs, trial.errors[rows.T].astype(np.float64), axes=1) for rows, signs in questions]
            means = [matrix.reshape(len(matrix), -1, each).mean(axis=-1) for matrix in scores]
            density = importance.learn(means, samples.low_discrepancy(importance.PILOT_SAMPLES, seed))
            return {"density": density.tolist(), "passes": [len(flat_indices), len(missing)]}

        learned = parallel.broadcast_from_host0(pilot)
        group.density = np.array(learned["density"])
        group.pilot_passes = tuple(learned["passes"])
        budget = group.errors.shape[1]
        drawn = importance.draw(self.scorer, group.density, (budget + each - 1) // each, seed)
        timesteps, weights = (np.repeat(part, each)[:budget] for part in drawn)
        if group.alpha is None:
            group.mean = dataclasses.replace(group.mean, weights=weights)
        else:
            group.weights = weights
        group.sampling["timesteps"] = timesteps.tolist()
        group.scores = dataclasses.replace(group.scores, timesteps=tuple(timesteps.tolist()))

    def find_missing(self) -> float:
        """The first process reads recorded errors, and reports missing ones to all. Returns the former's seconds."""

        def look() -> dict[str, Any]:
            seconds = sum(self._read_recorded(group, reuse=self.reuse) for group in self.groups)
            flags = [np.packbits(np.isnan(group.errors)).tobytes() for group in self.groups]
            return {"seconds": seconds, "missing": [base64.b64encode(zlib.compress(flag)).decode() for flag in flags]}

        first = parallel.broadcast_from_host0(look)
        for group, packed in zip(self.groups, first["missing"], strict=True):
            flags = np.frombuffer(zlib.decompress(base64.b64decode(packed)), np.uint8)
            group.missing = _set_flags(np.unpackbits(flags, count=group.errors.size))
        return first["seconds"]

    def score_missing(self) -> list[str]:
        """Scores and records missing errors. Returns the names of the parts that the processes have written."""
        if parallel.is_multihost(getattr(self.scorer, "mesh", None)):
            if any(group.alpha is not None for group in self.groups):
                raise InputError(RACE_OVER_PROCESSES, code="several-processes")
            # All processes do the same. None can wait for the others, which wait for it in the middle of a batch.
            for group in self.groups:
                writer = self._writer(group, process=0) if parallel.is_main_process() else None
                self._score_share(group, group.missing, writer)
            return []

        process, count = parallel.process_number(), parallel.num_processes()

        def score() -> list[str]:
            parts: list[str] = []
            try:
                for group in self.groups:
                    writer = self._writer(group, process=process)
                    try:
                        if group.alpha is not None:
                            self._race_share(group, group.alpha, writer, process, count)
                        else:
                            share = group.missing[parallel.process_slice(len(group.missing), process, count)]
                            self._score_share(group, share, writer, count)
                    finally:
                        parts += writer.written
            except Exception as error:
                if count > 1:
                    progress_bars.say(f"process {process} of {count} failed, and waits for the others: {error}")
                raise
            return parts

        return [name for names in parallel.all_gather_object(score) for name in names]

    def collect(self, parts: Sequence[str]) -> None:
        """Reads the errors that other processes have scored."""
        _wait_for([self.folder.errors_path / name for name in parts])
        for group in self.groups:
            if group.alpha is not None:
                if parallel.num_processes() > 1:
                    self._read_recorded(group, reuse=False)
                continue
            if np.isnan(group.errors).any():
                self._read_recorded(group, reuse=False)
            if np.isnan(group.errors).any():
                raise InputError(
                    f"errors that another process has recorded are not in {self.folder.errors_path}: name a --workdir"
                    " on a file system that all processes share",
                    code="folder-not-shared",
                )

    def _read_recorded(self, group: SampleGroup, *, reuse: bool) -> float:
        """Fills in what this run and then its neighbours have recorded. Returns the seconds spent on the former."""
        table = (group.scores, group.plan.image_hashes, group.plan.text_hashes, group.plan.pairs)
        group.errors, seconds = error_parts.read_own_errors(self.folder, *table)
        if not reuse or not np.isnan(group.errors).any():
            return seconds
        known = group.errors.copy()
        sources: list[str] = []
        for neighbour in self.folder.neighbours():
            errors, _ = error_parts.read_errors(neighbour, *table, on_fault=error_parts.pass_over)
            if (np.isnan(known) & ~np.isnan(errors)).any():
                sources.append(neighbour.parent.name)
            known = np.where(np.isnan(known), errors, known)
        new = np.flatnonzero(np.isnan(group.errors) & ~np.isnan(known))
        if len(new):
            if self.progress:
                progress_bars.say_reused(len(new), known.size, "errors", sources)
            writer = self._writer(group, process=0)
            writer.add(group.triples(new), known.reshape(-1)[new])
            writer.flush()
            group.errors = known
        return seconds

    def _score_share(
        self,
        group: SampleGroup,
        flat_indices: np.ndarray | range,
        writer: error_parts.ErrorWriter | None,
        num_processes: int = 1,
    ) -> None:
        """Scores some of a group's flat errors, recording batch after batch."""
        total, left = group.errors.size, len(group.missing)
        if self.progress and not left:
            progress_bars.say(f"all {total:,} errors are recorded: 0 passes to do")
        if self.progress and left and num_processes > 1:
            progress_bars.say(f"{left:,} passes for {num_processes} processes. This one's share:")
        # With several processes, the first one shows its own part.
        whole, done = (total, total - left) if num_processes == 1 else (len(flat_indices), 0)
        is_shown = self.progress and len(flat_indices) > 0
        with progress_bars.counting(whole, done, enabled=is_shown, watch=self._watch) as advance:
            _score(group, flat_indices, range(total), self._iter_errors(group), writer, advance)

    def _race_share(
        self, group: SampleGroup, alpha: float, writer: error_parts.ErrorWriter, process: int, num_processes: int
    ) -> None:
        """Races this process's share of the questions to their decisions, recording batch after batch."""
        if process > 0:  # the first process has read them
            group.errors, _ = error_parts.read_own_errors(
                self.folder, group.scores, group.plan.image_hashes, group.plan.text_hashes, group.plan.pairs
            )
        flat, budget = group.errors.reshape(-1), group.errors.shape[1]
        if self._watch is not None:
            recorded = int(np.count_nonzero(~np.isnan(flat)))
            self._watch.begin(recorded, recorded)
        session = self._session(group)
        competition = group.race(part=(process, num_processes), rows=session.capacity)

        def score(pairs: np.ndarray, first: int, end: int) -> None:
            flat_indices = (pairs[:, None] * budget + np.sort(competition.order[first:end])).reshape(-1)
            missing = flat_indices[np.isnan(flat[flat_indices])]
            if self.progress:
                progress_bars.say(
                    f"race: {competition.undecided:,} of {competition.num_questions:,} questions are open after {first}"
                    f" samples. To {end}: {len(missing):,} passes"
                )
            is_shown = self.progress and len(missing) > 0
            with progress_bars.counting(len(missing), enabled=is_shown, watch=self._watch) as advance:
                _score(group, missing, flat_indices, session.iter_errors, writer, advance)

        competition.run(group.errors, score, alpha, group.share)

    def _session(self, group: SampleGroup) -> Session | _EachCall:
        """Takes triples of the plan. A scorer's own session keeps its encoded images and texts."""
        session = getattr(self.scorer, "session", None)
        if session is None:
            return _EachCall(self.scorer, group)
        return session(group.plan.images, group.plan.texts, **group.sampling)

    def _iter_errors(self, group: SampleGroup) -> IterErrors:
        """Scores triples in one session, which begins with the first of them: it takes a device's memory."""
        session = functools.cache(lambda: self._session(group))

        def iter_errors(triples: np.ndarray, among: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
            return session().iter_errors(triples, among, choose_again=True) if len(triples) else iter(())

        return iter_errors

    def _writer(self, group: SampleGroup, *, process: int) -> error_parts.ErrorWriter:
        hashes = group.plan.image_hashes, group.plan.text_hashes
        # Errors of a scorer that has changed since the evaluation began are refused.
        check = functools.partial(contracts.check_same, self.scorer, self._fingerprint)
        return error_parts.ErrorWriter(
            self.folder, group.scores, *hashes, process=process, note=self.versions, check=check
        )


@dataclasses.dataclass
class _EachCall:
    """Stands for a session of a scorer that has none: nothing is kept from call to call."""

    scorer: base.SampledScorer
    group: SampleGroup
    capacity = None

    def iter_errors(
        self, triples: np.ndarray, among: np.ndarray, *, choose_again: bool = False
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """See `Session`. Such a scorer is given no more than the triples."""
        del among, choose_again
        if not len(triples):
            return iter(())
        plan = self.group.plan
        return self.scorer.iter_errors(plan.images, plan.texts, triples, **self.group.sampling)


def _score(
    group: SampleGroup,
    missing: np.ndarray | range,
    among: np.ndarray | range,
    iter_errors: IterErrors,
    writer: error_parts.ErrorWriter | None,
    advance: Callable[[int], None],
) -> None:
    """Scores triples and records them batch after batch."""
    flat = group.errors.reshape(-1)
    try:
        done = 0
        for first in range(0, len(among), _TRIPLES_A_CALL):
            all_here = np.asarray(among[first : first + _TRIPLES_A_CALL])
            here = np.asarray(missing[done : done + len(all_here)])  # in the order of ``among``
            is_whole = np.array_equal(here, all_here)
            here = here if is_whole else here[np.isin(here, all_here)]
            done += len(here)
            triples = group.triples(here)
            everything = triples if is_whole else group.triples(all_here)
            given = iter_errors(triples, everything)
            for part, values in contracts.batches(given, len(triples), "the scorer"):
                _check_finite(group.plan, triples[part], values)
                flat[here[part]] = values
                if writer is not None:
                    writer.add(triples[part], values)
                advance(len(values))
                parallel.check_first_process()
    finally:
        # Also after an interrupt or an error: finished errors are kept.
        if writer is not None:
            writer.flush()


def _set_flags(flags: np.ndarray) -> np.ndarray | range:
    """Indices of set flags, as `np.flatnonzero` in half of its memory, or in none where all are set."""
    if (count := np.count_nonzero(flags)) == len(flags):
        return range(count)
    indices = np.empty(count, np.uint32 if len(flags) < 2**32 else np.int64)
    done = 0
    for first in range(0, len(flags), _TRIPLES_A_CALL):
        part = first + np.flatnonzero(flags[first : first + _TRIPLES_A_CALL])
        indices[done : done + len(part)] = part
        done += len(part)
    return indices


def _check_finite(plan: planning.Plan, triples: np.ndarray, errors: np.ndarray) -> None:
    finite = np.isfinite(errors)
    if not finite.all():
        image, text, sample = triples[int(np.argmin(finite))].tolist()
        source = plan.images[image]
        is_path = isinstance(source, str | os.PathLike)
        name = source if is_path else f"with the hash {plan.image_hashes[image][:12]}"
        raise InputError(
            f"the error of image {name} under the text {plan.texts[text]!r}, sample {sample}, is not a number: try"
            " --dtype=float32, or check the weights.",
            code="not-finite",
        )


def _wait_for(paths: Sequence[pathlib.Path]) -> None:
    """Waits until files that other processes have written are seen here."""
    end = time.monotonic() + _SECONDS_TO_APPEAR
    for path in paths:
        # Network file systems look for new files when a program lists the folder.
        while path.name not in os.listdir(path.parent) if path.parent.is_dir() else True:
            if time.monotonic() > end:
                raise InputError(
                    f"{path}, which another process has written, is not there: name a --workdir on a file system that"
                    " all processes share",
                    code="folder-not-shared",
                )
            time.sleep(0.2)
