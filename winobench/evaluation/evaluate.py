"""One evaluation from beginning to end: plan, score what is not yet recorded, record, summarise.

In a program of several processes (`winobench.parallel.join_processes`) each scores its share of what is missing on its
own devices, and records it. The first process reads what is there before, tells the others what is not, and summarises.
They meet a few times, and never while they score.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from winobench import metrics, parallel
from winobench.base import options
from winobench.base import progress as progress_bars
from winobench.base.errors import InputError
from winobench.evaluation import contracts, gallery, importance, race, runner, sample_groups, summary
from winobench.evaluation.sample_groups import SampleGroup
from winobench.metrics import association, normalization, sample_mean, sequential
from winobench.metrics import timestep_weights as weighting
from winobench.models import holding
from winobench.runs import lifecycle, records
from winobench.scorers import base, samples
from winobench.tasks import TASKS, TEXT_TASKS, get_task, get_text_task, tasks_from
from winobench.tasks.base import Task
from winobench.tasks.questions import TextTask

READY = "ready"
"""Instead of task names: every task whose data are there."""

BIAS_SAMPLES = 20
"""Samples a pair of bias tasks (paper, footnote 6)."""


def evaluate(
    scorer: base.Scorer | base.SampledScorer,
    tasks: str | Sequence[str | Task] = READY,
    workdir: str | os.PathLike | None = None,
    *,
    data_dir: str | None = None,
    limit: int | None = None,
    num_samples: int | None = None,
    num_bias_samples: int = BIAS_SAMPLES,
    seed: int = 0,
    timesteps: str | Sequence[int] | None = None,
    timestep_weights: str | os.PathLike | Mapping[str, Any] = weighting.UNIFORM,
    reduce_dtype: str = sample_mean.DTYPES[0],
    mode: str = "fixed",
    alpha: float = race.ALPHA,
    rare_share: float = sequential.SHARE,
    normalize: str = "auto",
    overwrite: bool = False,
    reuse: bool = True,
    progress: bool = True,
    name: str = "evaluation",
    model: str | None = None,
    config: Mapping[str, Any] | None = None,
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
      data_dir: where the tasks find prepared data. See `winobench.data.prepared.default_data_dir`.
      limit: scenes or items a task; None means all.
      num_samples: noise and timestep samples a pair, in a race at most; None for the default of the rule for timesteps.
      num_bias_samples: the same for tasks of social bias.
      seed: of the samples, and of permutations and resamples.
      timesteps: ``uniform``, ``low_discrepancy``, ``stratified``, ``even``, ``published``, or the timesteps themselves,
        for all tasks; ``uniform`` when None. A race also knows ``importance``, its default: timesteps where candidates
        differ, learned from a pilot (`winobench.evaluation.importance`).
      timestep_weights: how much each timestep counts: ``uniform``, a rule for noise levels, or a file of
        learned weights (`winobench.metrics.timestep_weights`). Errors are recorded without them.
      reduce_dtype: each error is rounded to it before the mean over samples; ``float16`` does as the published code,
        which makes ties (docs/ties.md). Recorded errors are not rounded.
      mode: ``fixed`` scores every pair on every sample; ``race`` only until its question is decided, as
        `winobench.evaluation.race` says. Tasks of bias and ratings have nothing to decide, and take all of theirs.
      alpha: of a race: how often a question may be decided otherwise than by all samples, at most, if ``rare_share``
        is right.
      rare_share: of a race: the smallest share of the samples that may hold all that speaks for a candidate. No single
        sample is taken to hold more than 1 / (rare_share * num_samples) of it. What is smaller assumes less and takes
        more samples (docs/race.md).
      normalize: ``auto``, or a name in `winobench.metrics.normalization.NORMALIZATIONS`.
      overwrite: delete the records of another run in ``workdir`` instead of refusing the folder.
      reuse: look for errors in the folders next to ``workdir``.
      progress: show passes, passes a second and the time left.
      name: begins the default folder's name.
      model: what reports call the scorer.
      config: recorded in the results as it is, instead of these arguments.

    Returns:
      The content of ``results.json``: {"tasks": {task: {metric: {"value", "low", "high", "chance", "n", "ties"}}},
      "failed": {task: why its data could not be used}, "config", "versions", "passes": triples that the numbers rest
      on, "computed_passes": those computed by this call, "seconds": with those of the calls that this one continues,
      of a race "race": {"alpha", "rare_share", "passes", "fixed_passes": without a race, "density" of
      the timesteps, "tasks": {task: {"questions", "undecided":
      those that took all samples, "samples": the median a question}}}}, and "workdir", the run's folder.

    Raises:
      InputError: unknown or unready tasks, tasks in question form of a scorer that does not answer, no task with
        usable data, a folder of another run, errors that are not finite. Another process failed or was lost, or does
        not see the same folder.
    """
    # Identity and errors are of the same weights, even if the model changes in the meantime.
    started, scorer = time.monotonic(), holding.hold(base.for_evaluation(scorer))
    chosen = choose_tasks(tasks, data_dir)
    contracts.check_questions(chosen, scorer)
    limit = options.LIMIT.check("limit", limit)
    options.text().or_none().check("model", model)
    is_sampled = not isinstance(scorer, base.WithoutSamples)
    sampling = _sampling(mode, timesteps, num_samples, num_bias_samples, seed, alpha, rare_share, is_sampled)
    sampling |= _of_the_mean(timestep_weights, reduce_dtype, mode, is_sampled)
    _check_normalize(normalize, is_sampled)
    _check_race(scorer, chosen, mode)
    own = contracts.fingerprint(scorer)
    fingerprint = _common_fingerprint(own, sampling["timesteps"])
    failed: dict[str, InputError] = {}
    plans = {"data_dir": data_dir, "limit": limit, "normalize": normalize if is_sampled else "none", "failed": failed}
    groups = sample_groups.make_groups(scorer, fingerprint, chosen, sampling, **plans)
    if not groups:
        raise lifecycle.unusable(failed)
    _check_metrics(groups, mode)
    usable = [task for task in chosen if task.name not in failed]
    # In this order a folder's refusal names what differs: causes before what follows from them.
    asked = {"limit": limit, "normalize": normalize, "sampling": sampling}
    identity = {**asked, "scorer": fingerprint, "tasks": _versions_of(usable, data_dir, limit)}
    arguments = {"tasks": [task.name for task in chosen], "data_dir": data_dir, **asked}
    description = lifecycle.described(
        identity,
        kind=type(scorer).__name__,
        model=model,
        config=contracts.json_values(arguments if config is None else config, "config"),
        versions=lifecycle.versions_of(identity, on_this_machine=True, seeds={"samples": seed}),
        rounds=[_described(group, is_sampled) for group in groups],
        metrics={task.name: _metric_of(task) for task in usable},
    )
    with contextlib.closing(lifecycle.folder_for(workdir, name, identity)) as folder:
        parallel.broadcast_from_host0(lambda: folder.open(description, overwrite=overwrite))
        if hasattr(scorer, "keep_in"):
            scorer.keep_in(folder.path, reuse=reuse)
        work = runner.Runner(scorer, groups, folder, description["versions"], own, reuse=reuse, progress=progress)
        results = _score_and_summarise(work, usable, failed, description, started)
    return {**results, "workdir": str(folder.path)}


def _check_race(scorer: base.SampledScorer, tasks: Sequence[Task], mode: str) -> None:
    """Raises InputError where a race is asked of a scorer's devices or tasks' metrics that cannot."""
    if mode != "race":
        return
    if parallel.is_multihost(getattr(scorer, "mesh", None)):
        raise InputError(runner.RACE_OVER_PROCESSES, code="several-processes")
    race.check(tasks)


def _versions_of(tasks: Sequence[Task], data_dir: str | None, limit: int | None) -> dict[str, dict[str, Any]]:
    """What the numbers of tasks depend on, by their names."""
    return {task.name: {"version": task.version, "data": task.data_fingerprint(data_dir, limit)} for task in tasks}


def _score_and_summarise(
    work: runner.Runner,
    usable: Sequence[Task],
    failed: dict[str, InputError],
    description: dict[str, Any],
    started: float,
) -> dict[str, Any]:
    """What needs an open folder: scores what is missing, records it, and returns the results."""
    folder = work.folder
    with lifecycle.recording(folder, description, folder.has_records):
        if work.progress:
            progress_bars.say(f"records in {folder.path}")
        work.check_alike(description["identity"])
        _learn_timesteps(work, description)
        seconds_before = work.find_missing()
        parts = work.score_missing()

        def finish() -> dict[str, Any]:
            work.collect(parts)
            seconds = seconds_before + time.monotonic() - started
            about = {"config": description["config"], "versions": work.versions}
            return _summarise(folder, work.groups, usable, failed, about, seconds)

        return parallel.broadcast_from_host0(finish)


def _check_normalize(normalize: str, is_sampled: bool) -> None:
    normalization.choice().check("normalize", normalize)
    if not is_sampled and normalize not in (normalization.AUTO, "none"):
        raise InputError(
            f"normalize={normalize!r} is for diffusion models: leave it at auto for this scorer.",
            code="option-of-others",
        )


def _check_metrics(groups: Sequence[SampleGroup], mode: str) -> None:
    for group in groups if mode == "fixed" else ():  # a race asks more, and says what
        for task in group.tasks:
            if task.has_answers:
                contracts.check_metric(task, group.plan.questions[task.name])


def _sampling(
    mode: str,
    timesteps: str | Sequence[int] | None,
    num_samples: int | None,
    num_bias_samples: int,
    seed: int,
    alpha: float,
    rare_share: float,
    is_sampled: bool,
) -> dict[str, Any]:
    """How noise and timesteps are drawn, checked, as the identity has it."""
    options.ALPHA.check("alpha", alpha)
    rare_share = options.RARE_SHARE.check("rare_share", rare_share)
    _check_mode(mode, alpha, timesteps, is_sampled)
    if timesteps is None:
        timesteps = importance.RULE if mode == "race" else "uniform"
    timesteps = samples.check_timesteps(timesteps, (importance.RULE,))
    if num_samples is None:
        num_samples = samples.DEFAULT_NUM_SAMPLES if isinstance(timesteps, str) else len(timesteps)
    return {
        "num_samples": samples.check_num_samples(num_samples),
        "num_bias_samples": samples.check_num_samples(num_bias_samples),
        "seed": samples.check_seed(seed),
        "timesteps": timesteps,
        # Runs without a race keep the identity that their folders have.
        **({"mode": mode, "alpha": float(alpha), "rare_share": float(rare_share)} if mode == "race" else {}),
    }


def _of_the_mean(
    weights: str | os.PathLike | Mapping[str, Any], reduce_dtype: str, mode: str, is_sampled: bool
) -> dict[str, Any]:
    """What is unusual of the mean over samples, as the identity has it; of a file, what it says."""
    given = {
        "timestep_weights": (weights, weighting.described(weighting.parse(weights)), weighting.UNIFORM),
        "reduce_dtype": (reduce_dtype, sample_mean.choice().check("reduce_dtype", reduce_dtype), sample_mean.DTYPES[0]),
    }
    unusual = {name: value for name, (_, value, usual) in given.items() if value != usual}
    for name in unusual if mode == "race" or not is_sampled else ():
        asked, _, usual = given[name]
        what = "a race decides by plain means" if is_sampled else "this scorer has no samples"
        raise InputError(f"{name} is {options.shown(asked)}, but {what}: leave it at {usual}", code="option-of-others")
    return unusual


def _learn_timesteps(work: runner.Runner, description: dict[str, Any]) -> None:
    """Has races learn from a pilot which timesteps tell most, where their rule is to do so; describes them again."""
    if description["identity"]["sampling"]["timesteps"] != importance.RULE:
        return
    for group in work.groups:
        if group.alpha is not None:
            work.learn_timesteps(group)
            description["rounds"] = [_described(each, True) for each in work.groups]
            if parallel.is_main_process():
                work.folder.describe(description)


def choose_tasks(
    tasks: str | Sequence[str | Task | TextTask],
    data_dir: str | None = None,
    known: Mapping[str, Task] | Mapping[str, TextTask] | None = None,
) -> list[Task] | list[TextTask]:
    """The tasks that are meant.

    Args:
      tasks: names, task objects, groups such as ``@spatial`` (`winobench.tasks.groups`), or ``"ready"`` for every known
        task whose data are there, but for those that are asked only when they are named.
      data_dir: handed to the tasks.
      known: `winobench.tasks.TASKS`, which it is by default, or `winobench.tasks.TEXT_TASKS`.

    Raises:
      InputError: no task, an unknown name, or a named task whose data are not there.
    """
    known = TASKS if known is None else known
    if isinstance(tasks, Mapping | bytes) or not hasattr(tasks, "__iter__"):
        raise InputError(
            f"tasks is {options.shown(tasks)}, but it must be a list of names or tasks, or {READY!r}.",
            code="wrong-type",
        )
    if isinstance(tasks, str):
        if tasks != READY:
            tasks = [name.strip() for name in tasks.split(",") if name.strip()]
        else:
            named = {name for name, task in known.items() if getattr(task, "when_named", False)}
            tasks = [name for name, task in known.items() if name not in named and task.ready(data_dir) is None]
    if known is not TEXT_TASKS:
        tasks = tasks_from(tasks, data_dir)
    get = get_text_task if known is TEXT_TASKS else get_task
    chosen = [get(task) if isinstance(task, str) else task for task in tasks]
    for number, task in enumerate(chosen):
        if not all(hasattr(task, attribute) for attribute in ("name", "ready", "load")):
            raise InputError(
                f"tasks[{number}] is {options.shown(task)}, but it must be a task's name or a task.", code="wrong-type"
            )
        contracts.check_name(task.name)
        if isinstance(task, Task):
            contracts.check_task(task)
    if not chosen:
        raise InputError(
            f"no task is chosen: name at least one of {', '.join(known)}, or {READY!r}.", code="nothing-named"
        )
    for task in chosen:
        how_to_get_data = task.ready(data_dir)
        if how_to_get_data is not None:
            raise InputError(f"task {task.name!r} has no data yet: {how_to_get_data}", code="data-not-ready")
    return chosen


def _common_fingerprint(own: Mapping[str, Any], timesteps: Any) -> dict[str, Any]:
    """The scorer's fingerprint, in all processes that of the first one's."""
    if "timestep_range" in own and not samples.draws_from_range(timesteps):
        own = {**own, "timestep_range": None}  # it has no part in these timesteps
    first, *others = parallel.all_gather_object(lambda: own)
    # A scorer that cannot tell what it is calls itself by another name in each process.
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
) -> dict[str, Any]:
    """Makes numbers of the errors and writes them; tasks that have none are added to ``failed``."""
    results: dict[str, Any] = {"tasks": {}, "failed": {}, **about}
    judged = [(group, group.outcome()) for group in groups]
    found = {task.name: (group, outcome) for group, outcome in judged for task in group.tasks}
    for task in tasks:
        group, outcome = found[task.name]
        plan, scores = group.plan, outcome.scores[task.name]
        try:
            results["tasks"][task.name] = summary.task_results(
                task, plan.questions[task.name], scores, texts=plan.texts, seed=group.sampling["seed"]
            )
        except InputError as error:
            failed[task.name] = error
        folder.write_examples(task.name, summary.example_table(task, plan, scores))
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


def _metric_of(task: Task) -> dict[str, Any]:
    """A task's metric as ``config.json`` has it."""
    if task.is_rated:
        return metrics.RATING_METRICS[task.metric].described()
    if task.association is None:
        return metrics.METRICS[task.metric].described()
    return {"name": task.metric, "headline": association.AVERAGE, "shown": [association.AVERAGE]}


def _described(group: SampleGroup, is_sampled: bool) -> dict[str, Any]:
    """A group of tasks as ``config.json`` has it."""
    return {
        "tasks": [task.name for task in group.tasks],
        "num_samples": len(group.scores.timesteps),
        "timesteps": list(group.scores.timesteps) if is_sampled else None,
        **({} if group.mean.weights is None else {"weights": group.mean.weights.tolist()}),
        **({} if group.mean.dtype == sample_mean.DTYPES[0] else {"reduce_dtype": group.mean.dtype}),
    }


def _check_mode(mode: str, alpha: float, timesteps: str | Sequence[int] | None, is_sampled: bool) -> None:
    """Raises InputError for a mode that does not exist, or that the rest of the arguments does not allow."""
    if mode not in race.MODES:
        raise InputError(f"the sampling mode is one of {', '.join(race.MODES)}, not {mode!r}.", code="unknown-name")
    if mode == "fixed":
        if timesteps == importance.RULE:
            raise InputError(
                f"timesteps={importance.RULE!r} is for a race: choose mode='race', or another rule.",
                code="option-of-others",
            )
        return
    if not is_sampled:
        raise InputError(
            "mode='race' is for diffusion models: leave it at fixed for this scorer.", code="option-of-others"
        )
    if not 0 < alpha < 0.5:
        raise InputError(f"a race's alpha is {alpha!r}, but it must be between 0 and 0.5.", code="out-of-range")
