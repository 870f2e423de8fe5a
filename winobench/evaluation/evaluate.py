"""One evaluation from beginning to end: plan, score missing errors, record, summarise.

Before: ``launch.eval`` loads a scorer, and a file such as `winobench.tasks.colorswap` declares the task. After:
`winobench.evaluation.plan` lists the pairs of images and texts that need a score.

Each of several processes scores its share on its own devices. They meet a few times, and never while they score.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from winobench import metrics, parallel
from winobench.base import json_files, options, parquet_files, trackers
from winobench.base import progress as progress_bars
from winobench.base.errors import InputError
from winobench.evaluation import contracts, example_rows, gallery, importance, race, runner, sample_groups, summary
from winobench.evaluation.choice import READY, choose_tasks
from winobench.evaluation.sample_groups import SampleGroup
from winobench.metrics import association, sample_mean
from winobench.models import snapshots
from winobench.runs import error_parts, lifecycle, records
from winobench.runs import settings as of_runs
from winobench.runs.settings import Recording, Sampling, Scoring
from winobench.scorers import base, samples
from winobench.tasks.base import Task


def evaluate(
    scorer: base.Scorer | base.SampledScorer,
    tasks: str | Sequence[str | Task] = READY,
    workdir: str | os.PathLike[str] | None = None,
    sampling: Sampling = Sampling(),
    settings: Scoring = Scoring(),
    recording: Recording = Recording(),
    **more: Any,
) -> dict[str, Any]:
    """Evaluates a scorer on tasks and returns their numbers.

    Every (image, text, sample) triple that the tasks need is scored once, and its error is recorded within seconds. A
    call with the same arguments continues where an earlier one was interrupted, and returns at once where it had
    finished. Errors that a run in a neighbouring folder has recorded are not computed again: fewer samples, another
    normalisation, other metrics or tasks over the same pairs need no pass of the network.

    Where several processes run one program, all call this with the same arguments and a folder that they share. What
    is missing is divided among them, unless the scorer's mesh spans them: then they compute everything together. What
    a lost process has left undone is done by the next call, with any number of processes.

    Args:
      scorer: judges the pairs. Anything with ``score(images, texts)`` (see `winobench.scorers.base`).
      tasks: names, `Task` objects, or ``"ready"`` for every known task whose data are there.
      workdir: the run's folder; ``runs/<name>-<hash of all that can change a number>`` by default.
      sampling: how noise and timesteps are sampled, and how their errors are averaged.
      settings: the data, and how they are scored.
      recording: how the run is recorded and shown.
      **more: fields of these three by their names, such as ``num_samples=16`` or ``limit=10``.

    Returns:
      The content of ``results.json``: {"tasks": {task: {metric: {"value", "low", "high", "chance", "n", "ties"}}},
      "failed": {task: why its data could not be used}, "config", "versions", "passes": triples that the numbers rest
      on, "computed_passes": by this call alone, "seconds": with all calls that this one continues,
      of a race "race": {"alpha", "rare_share", "passes", "fixed_passes": without a race, "density" of
      the timesteps, "tasks": {task: {"questions", "undecided":
      those that took all samples, "samples": the median a question}}}}, and "workdir", the run's folder.

    Raises:
      InputError: unknown or unready tasks, tasks in question form of a scorer that does not answer, no task with
        usable data, a folder of another run, errors that are not finite. Another process failed or was lost, or does
        not see the same folder.
    """
    # Identity and errors are of the same weights, even if the model changes in the meantime.
    started, sampled = time.monotonic(), snapshots.snapshot(base.for_evaluation(scorer))
    sampling, settings, recording = of_runs.with_options(
        more, {Sampling: sampling, Scoring: settings, Recording: recording}
    )
    trackers.read(recording.log)
    chosen = choose_tasks(tasks, settings.data_dir)
    contracts.check_questions(chosen, sampled)
    options.text().or_none().check("model", recording.model)
    options.text().or_none().check("label", recording.label)
    run = _Evaluation(sampled, chosen, _settled(of_runs.checked(sampling)), of_runs.checked(settings), recording)
    return run.finished(workdir) or run.carry_out(workdir, started)


def check_folder(
    workdir: str, tasks: Sequence[Task], sampling: Sampling, settings: Scoring, scorer: Mapping[str, Any]
) -> None:
    """Refuses another run's folder before a scorer is loaded. ``scorer``: the known part of its fingerprint."""
    folder, recorded = records.RunFolder(workdir), {}
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        recorded = dict(json_files.load(folder.config_path)["identity"])
    sampling, settings = _settled(of_runs.checked(sampling)), of_runs.checked(settings)
    before, known = recorded.get("tasks") or {}, _options(sampling, settings)
    with contextlib.suppress(InputError):  # planning reports a task with broken data, which the folder then lacks
        known["tasks"] = {
            task.name: {"version": task.version, "data": task.data_fingerprint(settings.data_dir, settings.limit)}
            for task in tasks
            if task.name in before
        }
    folder.check({**recorded, **known, "scorer": {**(recorded.get("scorer") or {}), **scorer}})


def _options(sampling: Sampling, settings: Scoring) -> dict[str, Any]:
    """The part of a run's identity that options give."""
    return {**of_runs.described(settings), "sampling": of_runs.described(sampling, {sampling.mode})}


class _Evaluation:
    """One run: its scorer, tasks and options, its identity and its description."""

    def __init__(
        self,
        scorer: base.SampledScorer,
        tasks: Sequence[Task],
        sampling: Sampling,
        settings: Scoring,
        recording: Recording,
    ):
        self.scorer, self.tasks = scorer, tasks
        self.sampling, self.settings, self.recording = sampling, settings, recording
        self._is_sampled = not isinstance(scorer, base.WithoutSamples)
        self._is_normalized = not isinstance(scorer, base.WithoutSamples) or scorer.normalizes
        abilities = {of_runs.SAMPLES: self._is_sampled, of_runs.NORMALIZED: self._is_normalized}
        cases = {sampling.mode, *(case for case, has_it in abilities.items() if has_it)}
        for part in (sampling, settings):
            of_runs.check_cases(options.declared(part), vars(part), cases)
        _check_race(scorer, tasks, sampling)
        self._own, self._threshold = contracts.fingerprint(scorer), contracts.match_threshold(scorer)
        self._fingerprint = _common_fingerprint(self._own, sampling.timesteps)
        self._described = _options(sampling, settings)
        usual = {"tasks": [task.name for task in tasks], "data_dir": settings.data_dir, **self._described}
        self._config = contracts.json_values(usual if recording.config is None else recording.config, "config")
        where = settings.data_dir, settings.limit
        self._data_of = functools.cache(lambda number: tasks[number].data_fingerprint(*where))

    def identity(self, usable: Sequence[Task]) -> dict[str, Any]:
        """All that can change a number. In this order a folder's refusal names what differs: causes first."""
        numbers = {task.name: number for number, task in enumerate(self.tasks)}
        tasks = {task.name: {"version": task.version, "data": self._data_of(numbers[task.name])} for task in usable}
        return {**self._described, "scorer": self._fingerprint, "tasks": tasks}

    def describe(self, identity: Mapping[str, Any], usable: Sequence[Task], **planned: Any) -> dict[str, Any]:
        """The content of ``config.json``."""
        seeds = {"samples": self.sampling.seed}
        return lifecycle.described(
            identity,
            kind=type(self.scorer).__name__,
            model=self.recording.model,
            name=self.recording.label,
            config=self._config,
            versions=lifecycle.versions_of(identity, on_this_machine=True, seeds=seeds),
            **planned,
            metrics={task.name: _metric_of(task, self._threshold) for task in usable},
        )

    def finished(self, workdir: str | os.PathLike[str] | None) -> dict[str, Any] | None:
        """The results of a run that has nothing left to do, which need no plan. None of any other run."""
        known: tuple[dict[str, Any], records.RunFolder] | None = None
        tasks, recording = self.tasks, self.recording
        # The code of metrics that are not winobench's may have changed.
        is_own = all(not task.has_answers or metrics.METRICS.is_own(task.metric) for task in tasks)
        if not recording.overwrite and is_own:
            with contextlib.suppress(InputError):  # planning reports a task with broken data
                identity = self.identity(tasks)
                known = identity, lifecycle.folder_for(workdir, recording.name, identity)

        def look() -> dict[str, Any] | None:
            if known is None or not known[1].results_path.exists():
                return None
            is_recorded = functools.partial(_is_recorded, known[1])
            return lifecycle.finished(known[1], self.describe(known[0], tasks), is_recorded)

        results = parallel.broadcast_from_host0(look)
        if results is not None:
            runner.check_alike(known and known[0])
        if results is None or known is None:
            return None
        identity, folder = known
        if recording.progress and parallel.is_main_process():
            progress_bars.say(f"finished before: all {results['passes']:,} errors are recorded in {folder.path}")
        with lifecycle.watched(recording, folder, self.describe(identity, tasks), "passes") as watch:
            lifecycle.report_results(watch, results)
        return {**results, "computed_passes": 0, "workdir": str(folder.path)}

    def carry_out(self, workdir: str | os.PathLike[str] | None, started: float) -> dict[str, Any]:
        """Plans, computes and records missing errors, and writes the results."""
        groups, failed = self._plan()
        usable = [task for task in self.tasks if task.name not in failed]
        identity, rounds = self.identity(usable), [_described(group, self._is_sampled) for group in groups]
        total, recording = sum(group.errors.size for group in groups), self.recording
        description = self.describe(identity, usable, total=total, rounds=rounds)
        with contextlib.closing(lifecycle.folder_for(workdir, recording.name, identity)) as folder:
            parallel.broadcast_from_host0(lambda: folder.open(description, overwrite=recording.overwrite))
            if isinstance(self.scorer, base.WithoutSamples):
                self.scorer.set_cache_folder(folder.path, reuse=recording.reuse)
            with lifecycle.watched(recording, folder, description, "passes") as watch:
                work = runner.Runner(self.scorer, groups, folder, description["versions"], self._own, recording, watch)
                results = self._score(work, usable, failed, description, started)
                lifecycle.report_results(watch, results)
        return {**results, "workdir": str(folder.path)}

    def _plan(self) -> tuple[list[SampleGroup], dict[str, InputError]]:
        """The tasks in groups of the same samples, and the errors of tasks whose data cannot be used."""
        settings, sampling = self.settings, self.sampling
        failed: dict[str, InputError] = {}
        normalize = settings.normalize if self._is_normalized else "none"
        plans: dict[str, Any] = {
            "data_dir": settings.data_dir,
            "limit": settings.limit,
            "normalize": normalize,
            "failed": failed,
        }
        groups = sample_groups.make_groups(self.scorer, self._fingerprint, self.tasks, sampling, **plans)
        if not groups:
            raise lifecycle.unusable(failed)
        for group in groups if sampling.mode == of_runs.FIXED else ():  # a race checks more itself
            for task in group.tasks:
                if task.has_answers:
                    contracts.check_metric(task, group.plan.questions[task.name])
        return groups, failed

    def _score(
        self,
        work: runner.Runner,
        usable: Sequence[Task],
        failed: dict[str, InputError],
        description: dict[str, Any],
        started: float,
    ) -> dict[str, Any]:
        """Records missing errors in an open folder, and returns the results."""
        folder = work.folder
        with lifecycle.recording(folder, description, folder.has_records):
            if work.progress:
                lifecycle.report_devices(work.scorer, folder.path)
            runner.check_alike(description["identity"], folder.config_path)
            _learn_timesteps(work, description)
            seconds_before = work.find_missing()
            parts = work.score_missing()

            def finish() -> dict[str, Any]:
                work.collect(parts)
                seconds = seconds_before + time.monotonic() - started
                about = {"config": description["config"], "versions": work.versions}
                return _summarise(folder, work.groups, usable, failed, about, seconds, self._threshold)

            return parallel.broadcast_from_host0(finish)


def _check_race(scorer: base.SampledScorer, tasks: Sequence[Task], sampling: Sampling) -> None:
    """Raises InputError for timesteps of another mode, and where devices or metrics cannot race."""
    importance.check(sampling)
    if sampling.mode != of_runs.RACE:
        return
    if parallel.is_multihost(getattr(scorer, "mesh", None)):
        raise InputError(runner.RACE_OVER_PROCESSES, code="several-processes")
    race.check(tasks)


def _is_recorded(folder: records.RunFolder, results: Mapping[str, Any]) -> bool:
    """Whether a folder has all images and errors of its results."""
    for task in results["tasks"]:
        parquet_files.metadata(folder.gallery_path / f"{task}.parquet")
    return error_parts.num_recorded(folder.errors_path) >= results["passes"]


def _settled(sampling: Sampling) -> Sampling:
    """With what follows from other options: the rule for timesteps, and the number of samples."""
    usual = importance.RULE if sampling.mode == of_runs.RACE else "uniform"
    timesteps = usual if sampling.timesteps is None else sampling.timesteps
    count = sampling.num_samples
    if count is None:
        count = samples.DEFAULT_NUM_SAMPLES if isinstance(timesteps, str) else len(timesteps)
    return dataclasses.replace(sampling, timesteps=timesteps, num_samples=samples.check_num_samples(count))


def _learn_timesteps(work: runner.Runner, description: dict[str, Any]) -> None:
    """Lets groups learn timesteps from a pilot, where their rule is to do so, and describes them again."""
    for group in work.groups:
        if group.learns is not None:
            work.learn_timesteps(group)
            description["rounds"] = [_described(changed, True) for changed in work.groups]
            if parallel.is_main_process():
                work.folder.describe(description)


def _common_fingerprint(own: Mapping[str, Any], timesteps: Any) -> dict[str, Any]:
    """The scorer's fingerprint: the first process's in all processes."""
    if "timestep_range" in own and not samples.draws_from_range(timesteps):
        own = {**own, "timestep_range": None}  # it has no part in these timesteps
    first, *others = parallel.all_gather_object(lambda: own)
    # A scorer without a stable fingerprint has another name in each process.
    if "instance" not in own and any(other != first for other in others):
        number = next(number for number, other in enumerate(others, 1) if other != first)
        raise InputError(
            f"process {number} has another model or other options than process 0: start all alike",
            code="unlike-processes",
        )
    return first


def _summarise(
    folder: records.RunFolder,
    groups: Sequence[SampleGroup],
    tasks: Sequence[Task],
    failed: dict[str, InputError],
    about: Mapping[str, Any],
    seconds: float,
    threshold: float | None,
) -> dict[str, Any]:
    """Makes numbers of the errors and writes them. Tasks that have none are added to ``failed``."""
    results: dict[str, Any] = {"tasks": {}, "failed": {}, **about}
    judged = [(group, group.outcome()) for group in groups]
    outcomes = {task.name: (group, outcome) for group, outcome in judged for task in group.tasks}
    for task in tasks:
        group, outcome = outcomes[task.name]
        plan, scores = group.plan, outcome.scores[task.name]
        try:
            results["tasks"][task.name] = summary.task_results(
                task,
                plan.questions[task.name],
                scores,
                texts=plan.texts,
                seed=group.sampling["seed"],
                threshold=threshold,
            )
        except InputError as error:
            failed[task.name] = error
        folder.write_examples(task.name, example_rows.example_table(task, plan, scores, threshold))
        folder.write_gallery(task.name, gallery.example_table(task, plan, scores))
    results["failed"] = {name: str(error) for name, error in failed.items()}
    results["passes"] = sum(outcome.passes for _, outcome in judged)
    results["computed_passes"] = sum(group.computed for group in groups)
    raced = [(group, outcome) for group, outcome in judged if group.alpha is not None]
    if raced:
        first = raced[0][0]
        results["race"] = {
            "alpha": first.alpha,
            "rare_share": first.share,
            "passes": sum(outcome.passes for _, outcome in raced),
            "fixed_passes": sum(outcome.fixed_passes for _, outcome in raced),
            "density": None if first.density is None else first.density.tolist(),
            "tasks": {name: dataclasses.asdict(of) for _, outcome in raced for name, of in outcome.tasks.items()},
        }
    results["seconds"] = round(seconds, 3)
    records.write_json(folder.results_path, results)
    return results


def _metric_of(task: Task, threshold: float | None) -> dict[str, Any]:
    """A task's metric as ``config.json`` has it, by a scorer's ``match_threshold``."""
    if task.association is not None:
        return {"name": task.metric, "headline": association.AVERAGE, "shown": [association.AVERAGE]}
    if task.is_rated:
        return metrics.RATING_METRICS[task.metric].described()
    return summary.judge_of(task, threshold).described()


def _described(group: SampleGroup, is_sampled: bool) -> dict[str, Any]:
    """A group of tasks as ``config.json`` has it."""
    return {
        "tasks": [task.name for task in group.tasks],
        "num_samples": len(group.scores.timesteps),
        "timesteps": list(group.scores.timesteps) if is_sampled else None,
        **({} if group.mean.weights is None else {"weights": group.mean.weights.tolist()}),
        **({} if group.mean.dtype == sample_mean.DTYPES[0] else {"reduce_dtype": group.mean.dtype}),
    }
