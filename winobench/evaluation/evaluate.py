"""One evaluation from beginning to end: plan, score what is not yet recorded, record, summarise."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os
import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from winobench.errors import InputError
from winobench.evaluation import gallery, provenance, records, summary
from winobench.evaluation import plan as planning
from winobench.evaluation import progress as progress_bars
from winobench.scorers import base, samples
from winobench.tasks import TASKS, TEXT_TASKS, get_task, get_text_task
from winobench.tasks.base import Task
from winobench.tasks.questions import TextTask

READY = "ready"
"""Instead of task names: every task whose data are there."""

BIAS_SAMPLES = 20
"""Samples a pair of bias tasks (paper, footnote 6)."""

# Triples that the scorer is given at once, which bounds the memory of their indices. A power of two, so that batches
# of a power of two are cut alike in a run that was stopped and in one that was not.
_TRIPLES_A_CALL = 2**22

# What a fingerprint says that does not change the error of a given sample: the timestep is recorded beside the error,
# and kinds of error are turned into each other.
_NOT_OF_A_SAMPLE = ("error", "timestep_range")


@dataclasses.dataclass
class _Round:
    """Tasks that are judged on the same samples.

    Attributes:
      tasks: the tasks.
      sampling: arguments of ``iter_errors``.
      scores: which errors these are.
      plan: what must be scored.
      errors: [num_pairs, num_samples] float32, NaN where not yet known.
    """

    tasks: list[Task]
    sampling: dict[str, Any]
    scores: records.ScoreSet
    plan: planning.Plan
    errors: np.ndarray


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
    timesteps: str | Sequence[int] = "uniform",
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
    call with the same arguments continues where an earlier one was stopped, and returns at once where it had finished.
    Errors that a run in a neighbouring folder has recorded are not computed again: fewer samples, another
    normalisation, other metrics or tasks over the same pairs need no pass of the network.

    Args:
      scorer: judges the pairs; anything with ``score(images, texts)`` (see `winobench.scorers.base`).
      tasks: names, `Task` objects, or ``"ready"`` for every known task whose data are there.
      workdir: the run's folder; ``runs/<name>-<hash of all that can change a number>`` by default.
      data_dir: where the tasks find prepared data; see `winobench.data.prepared.default_data_dir`.
      limit: scenes or items a task; None means all.
      num_samples: noise and timestep samples a pair; None for the default of the rule for timesteps.
      num_bias_samples: the same for tasks of social bias.
      seed: of the samples, and of permutations and resamples of bias tasks.
      timesteps: ``uniform``, ``stratified``, ``even``, ``published``, or the timesteps themselves, for all tasks.
      normalize: ``auto``, ``none``, ``unconditional`` or ``gray_image``; see `winobench.evaluation.plan.NORMALIZE`.
      overwrite: delete the records of another run in ``workdir`` instead of refusing the folder.
      reuse: look for errors in the folders beside ``workdir``.
      progress: show passes, passes a second and the time left.
      name: begins the default folder's name.
      model: what reports call the scorer.
      config: recorded in the results as it is, in place of these arguments.

    Returns:
      The content of ``results.json``: {"tasks": {task: {metric: {"value", "low", "high", "chance", "n", "ties"}}},
      "failed": {task: why its data could not be used}, "config", "versions", "passes": triples that the numbers rest
      on, "computed_passes": those computed by this call, "seconds": with those of the calls that this one continues},
      and "workdir", the run's folder.

    Raises:
      InputError: unknown or unready tasks, no task with usable data, a folder of another run, errors that are not
        finite.
    """
    started = time.monotonic()
    chosen = choose_tasks(tasks, data_dir)
    scorer = base.for_evaluation(scorer)
    is_sampled = not isinstance(scorer, base.WithoutSamples)
    if normalize not in planning.NORMALIZE:
        raise InputError(f"normalize is one of {', '.join(planning.NORMALIZE)}, not {normalize!r}.")
    if not is_sampled and normalize not in ("auto", "none"):
        raise InputError(f"normalize={normalize!r} is for diffusion models: leave it at auto for this scorer.")
    if num_samples is None:
        num_samples = samples.DEFAULT_NUM_SAMPLES if isinstance(timesteps, str) else len(timesteps)
    sampling = {
        "num_samples": samples.check_num_samples(num_samples),
        "num_bias_samples": samples.check_num_samples(num_bias_samples),
        "seed": samples.check_seed(seed),
        "timesteps": timesteps if isinstance(timesteps, str) else np.asarray(timesteps).tolist(),
    }
    fingerprint = scorer.fingerprint()
    failed: dict[str, str] = {}
    rounds = _make_rounds(
        scorer,
        fingerprint,
        chosen,
        sampling,
        data_dir=data_dir,
        limit=limit,
        normalize=normalize if is_sampled else "none",
        failed=failed,
    )
    if not rounds:
        raise InputError(next(iter(failed.values())) if len(failed) == 1 else _listed(failed))
    usable = [task for task in chosen if task.name not in failed]
    identity = {
        # In this order a folder's refusal names what differs: causes before what follows from them.
        "limit": limit,
        "normalize": normalize,
        "sampling": sampling,
        "scorer": fingerprint,
        "tasks": {
            task.name: {"version": task.version, "data": task.data_fingerprint(data_dir, limit)} for task in usable
        },
    }
    if config is None:
        names = [task.name for task in chosen]
        config = {"tasks": names, "data_dir": data_dir, "limit": limit, "normalize": normalize, "sampling": sampling}
    versions = {
        **provenance.software(),
        "seeds": {"samples": seed},
        "device": provenance.devices(),
        "weights": fingerprint.get("model"),
        "scorer": fingerprint,
        "data": {name: described["data"] for name, described in identity["tasks"].items()},
    }
    description = {
        "status": "running",
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "model": model or fingerprint.get("scorer", type(scorer).__name__),
        "config": config,
        "identity": identity,
        "rounds": [
            {
                "tasks": [task.name for task in one.tasks],
                "num_samples": len(one.scores.timesteps),
                "timesteps": list(one.scores.timesteps) if is_sampled else None,
            }
            for one in rounds
        ],
        "versions": versions,
    }
    if workdir is None:
        workdir = pathlib.Path("runs") / f"{name}-{records.digest(identity)[:8]}"
    folder = records.RunFolder(workdir)
    # All processes of a program hold all errors; the first one keeps the records and tells the others what is in them.
    is_writing = _process_index() == 0
    if is_writing:
        folder.open(description, overwrite=overwrite)
    elif not overwrite:
        folder.check(identity)  # fails where the first process fails, instead of waiting for it
    nothing_kept = True
    seconds_before, computed = 0.0, 0
    try:
        if progress and is_writing:
            progress_bars.say(f"records in {folder.path}")
        for one in rounds:
            writer = None
            if is_writing:
                writer = records.ErrorWriter(
                    folder, one.scores, one.plan.image_hashes, one.plan.text_hashes, note=versions
                )
                nothing_kept = nothing_kept and not writer.num_parts
                seconds_before += _read_recorded(folder, one, writer, reuse=reuse)
            one.errors = _broadcast(one.errors)
            try:
                computed += _score_missing(scorer, one, writer, progress and is_writing)
            finally:
                nothing_kept = nothing_kept and (writer is None or not writer.num_parts)
        results: dict[str, Any] = {"tasks": {}, "failed": failed, "config": config, "versions": versions}
        scores = {
            task.name: summary.question_scores(one.plan, task.name, one.errors) for one in rounds for task in one.tasks
        }
        plans = {task.name: one.plan for one in rounds for task in one.tasks}
        for task in usable:
            plan = plans[task.name]
            try:
                results["tasks"][task.name] = summary.task_results(
                    task, plan.questions[task.name], scores[task.name], texts=plan.texts, seed=seed
                )
            except InputError as error:
                failed[task.name] = str(error)
            if is_writing:
                folder.write_examples(task.name, summary.example_table(task, plan, scores[task.name]))
                folder.write_gallery(task.name, gallery.picture_table(task, plan, scores[task.name]))
        results["passes"] = sum(one.errors.size for one in rounds)
        results["computed_passes"] = computed
        results["seconds"] = round(seconds_before + time.monotonic() - started, 3)
        if is_writing:
            records.write_json(folder.results_path, results)
            folder.describe({**description, "status": "finished"})
    except BaseException as error:
        if is_writing:
            _leave(folder, description, error, nothing_kept)
        raise
    finally:
        folder.close()
    return {**results, "workdir": str(folder.path)}


def choose_tasks(
    tasks: str | Sequence[str | Task | TextTask],
    data_dir: str | None = None,
    known: Mapping[str, Task] | Mapping[str, TextTask] | None = None,
) -> list[Task] | list[TextTask]:
    """The tasks that are meant.

    Args:
      tasks: names, task objects, or ``"ready"`` for every known task whose data are there.
      data_dir: handed to the tasks.
      known: `winobench.tasks.TASKS`, which it is by default, or `winobench.tasks.TEXT_TASKS`.

    Raises:
      InputError: no task, an unknown name, or a named task whose data are not there.
    """
    known = TASKS if known is None else known
    if isinstance(tasks, str):
        if tasks != READY:
            tasks = [name.strip() for name in tasks.split(",") if name.strip()]
        else:
            tasks = [name for name, task in known.items() if task.ready(data_dir) is None]
    get = get_text_task if known is TEXT_TASKS else get_task
    chosen = [get(task) if isinstance(task, str) else task for task in tasks]
    if not chosen:
        raise InputError(f"no task is chosen: name at least one of {', '.join(known)}, or {READY!r}.")
    for task in chosen:
        how_to_get_data = task.ready(data_dir)
        if how_to_get_data is not None:
            raise InputError(f"task {task.name!r} has no data yet: {how_to_get_data}")
    return chosen


def _make_rounds(
    scorer: base.SampledScorer,
    fingerprint: Mapping[str, Any],
    tasks: Sequence[Task],
    sampling: Mapping[str, Any],
    *,
    failed: dict[str, str],
    **planned: Any,
) -> list[_Round]:
    """Groups the tasks by their samples and plans each group; tasks whose data cannot be used end up in ``failed``."""
    seed, rule = sampling["seed"], sampling["timesteps"]
    of_a_sample = {name: value for name, value in fingerprint.items() if name not in _NOT_OF_A_SAMPLE}
    digest = records.digest({"scorer": of_a_sample, "seed": seed})
    groups: dict[tuple[int, ...], tuple[int, list[Task]]] = {}
    for task in tasks:
        # Timesteps that are given one by one are meant for all tasks.
        is_bias = task.association is not None and isinstance(rule, str)
        num_samples = sampling["num_bias_samples" if is_bias else "num_samples"]
        timesteps = tuple(np.asarray(scorer.choose_timesteps(num_samples, seed, rule)).tolist())
        groups.setdefault(timesteps, (num_samples, []))[1].append(task)
    rounds = []
    for timesteps, (num_samples, members) in groups.items():
        plan = planning.make_plan(members, failed=failed, **planned)
        members = [task for task in members if task.name not in failed]
        if members:
            rounds.append(
                _Round(
                    members,
                    {"num_samples": num_samples, "seed": seed, "timesteps": rule},
                    records.ScoreSet(digest, timesteps, scorer.error),
                    plan,
                    np.full((len(plan.pairs), len(timesteps)), np.nan, np.float32),
                )
            )
    return rounds


def _read_recorded(folder: records.RunFolder, one: _Round, writer: records.ErrorWriter, *, reuse: bool) -> float:
    """Fills in what this run has recorded, then what its neighbours have; returns the seconds spent on the former."""
    table = (one.scores, one.plan.image_hashes, one.plan.text_hashes, one.plan.pairs)
    one.errors, seconds = folder.read_errors(*table)
    if not reuse or not np.isnan(one.errors).any():
        return seconds
    found = one.errors.copy()
    for neighbour in folder.neighbours():
        # A neighbour's damaged part is the neighbour's trouble.
        with contextlib.suppress(InputError):
            errors, _ = records.read_errors(neighbour, *table)
            found = np.where(np.isnan(found), errors, found)
    new = np.flatnonzero(np.isnan(one.errors) & ~np.isnan(found))
    if len(new):
        pairs, samples_of = np.divmod(new, found.shape[1])
        triples = np.concatenate([one.plan.pairs[pairs], samples_of[:, None]], axis=1).astype(np.int32)
        writer.add(triples, found.reshape(-1)[new])
        writer.flush()
        one.errors = found
    return seconds


def _score_missing(scorer: base.SampledScorer, one: _Round, writer: records.ErrorWriter | None, progress: bool) -> int:
    """Fills the NaNs of the round's errors, recording batch after batch; returns how many there were."""
    plan, errors = one.plan, one.errors
    flat = errors.reshape(-1)
    missing = np.flatnonzero(np.isnan(flat))
    if progress and not len(missing):
        progress_bars.say(f"all {flat.size:,} errors are recorded: 0 passes to do")
    with progress_bars.passes(flat.size, flat.size - len(missing), enabled=progress and len(missing) > 0) as advance:
        try:
            for first in range(0, len(missing), _TRIPLES_A_CALL):
                places = missing[first : first + _TRIPLES_A_CALL]
                pairs, samples_of = np.divmod(places, errors.shape[1])
                triples = np.concatenate([plan.pairs[pairs], samples_of[:, None]], axis=1).astype(np.int32)
                for start, values in _iter_errors(scorer, plan, triples, one.sampling):
                    part = slice(start, start + len(values))
                    _check_finite(plan, triples[part], values)
                    flat[places[part]] = values
                    if writer is not None:
                        writer.add(triples[part], values)
                    advance(len(values))
        finally:
            # Also after an interrupt or an error: what is finished is kept.
            if writer is not None:
                writer.flush()
    if np.isnan(flat).any():
        raise RuntimeError("the scorer left out some of the triples it was given.")
    return len(missing)


def _iter_errors(scorer: base.SampledScorer, plan: planning.Plan, triples: np.ndarray, sampling: Mapping[str, Any]):
    """Scores [n, 3] (image, text, sample) of the plan, handing over only the images and texts that these need."""
    images, image_numbers = np.unique(triples[:, 0], return_inverse=True)
    texts, text_numbers = np.unique(triples[:, 1], return_inverse=True)
    numbers = np.stack([image_numbers, text_numbers, triples[:, 2]], axis=1).astype(np.int32)
    return scorer.iter_errors(
        [plan.images[image] for image in images], [plan.texts[text] for text in texts], numbers, **sampling
    )


def _check_finite(plan: planning.Plan, triples: np.ndarray, errors: np.ndarray) -> None:
    finite = np.isfinite(errors)
    if not finite.all():
        image, text, sample = triples[int(np.argmin(finite))].tolist()
        raise InputError(
            f"the error of image {_name(plan, image)} under the text {plan.texts[text]!r}, sample {sample}, is not a "
            "number: try --config.dtype=float32, or check the weights."
        )


def _leave(folder: records.RunFolder, description: Mapping[str, Any], error: BaseException, nothing_kept: bool) -> None:
    """Notes how a run ended; takes away the folder of one that ended before its first error was recorded."""
    if nothing_kept:
        folder.discard()
        return
    reason = "interrupted" if isinstance(error, KeyboardInterrupt) else f"failed: {error}"
    with contextlib.suppress(InputError):  # the first error is the one to tell
        folder.describe({**description, "status": reason})


def _listed(failed: Mapping[str, str]) -> str:
    return "no task has usable data: " + "; ".join(f"{name}: {reason.rstrip('.')}" for name, reason in failed.items())


def _name(plan: planning.Plan, image: int) -> str:
    source = plan.images[image]
    is_path = isinstance(source, str) or hasattr(source, "__fspath__")
    return str(source) if is_path else f"with the hash {plan.image_hashes[image][:12]}"


def _process_index() -> int:
    import jax

    return jax.process_index()


def _broadcast(errors: np.ndarray) -> np.ndarray:
    """What the first process holds, on all of them."""
    import jax

    if jax.process_count() == 1:
        return errors
    from jax.experimental import multihost_utils

    return np.array(multihost_utils.broadcast_one_to_all(errors))
