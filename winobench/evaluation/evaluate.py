"""One evaluation from beginning to end: plan, score what is not yet recorded, record, summarise."""

from __future__ import annotations

import contextlib
import datetime
import os
import pathlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from winobench.errors import InputError
from winobench.evaluation import plan as planning
from winobench.evaluation import progress as progress_bars
from winobench.evaluation import provenance, records, summary
from winobench.scorers import samples
from winobench.tasks import TASKS, get_task
from winobench.tasks.base import ImageSource, Task

READY = "ready"
"""Instead of task names: every task whose data are there."""

# Triples that the scorer is given at once, which bounds the memory of their indices. A power of two, so that batches
# of a power of two are cut alike in a run that was stopped and in one that was not.
_TRIPLES_A_CALL = 2**22


class Scorer(Protocol):
    """What an evaluation asks of a scorer, such as `winobench.DiffusionITM`."""

    def fingerprint(self) -> dict[str, Any]:
        """Everything about the scorer that can change an error, as JSON values; ``model`` is its weights' SHA-256."""

    def iter_errors(
        self,
        images: Sequence[ImageSource],
        texts: Sequence[str],
        triples: np.ndarray,
        *,
        num_samples: int,
        seed: int,
        timesteps: str | Sequence[int],
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Yields (index of the first triple, float32 errors) of batch after batch, in the order of the triples."""


def evaluate(
    scorer: Scorer,
    tasks: str | Sequence[str | Task] = READY,
    workdir: str | os.PathLike | None = None,
    *,
    data_dir: str | None = None,
    limit: int | None = None,
    num_samples: int | None = None,
    seed: int = 0,
    timesteps: str | Sequence[int] = "uniform",
    normalize: str = "auto",
    overwrite: bool = False,
    progress: bool = True,
    name: str = "evaluation",
    config: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Evaluates a scorer on tasks and returns their numbers.

    Every (image, text, sample) triple that the tasks need is scored once, and its error is recorded within seconds. A
    call with the same arguments continues where an earlier one was stopped, and returns at once where it had finished.

    Args:
      scorer: judges the pairs.
      tasks: names, `Task` objects, or ``"ready"`` for every known task whose data are there.
      workdir: the run's folder; ``runs/<name>-<hash of all that can change a number>`` by default.
      data_dir: where the tasks find data that they do not make themselves.
      limit: scenes or items a task; None means all.
      num_samples: noise and timestep samples a pair; None for the default of the rule for timesteps.
      seed: of the samples.
      timesteps: ``uniform``, ``stratified``, ``even``, ``published``, or the timesteps themselves.
      normalize: ``auto``, ``none`` or ``unconditional``; see `winobench.evaluation.plan.NORMALIZE`.
      overwrite: delete the records of another run in ``workdir`` instead of refusing the folder.
      progress: show passes, passes a second and the time left.
      name: begins the default folder's name.
      config: recorded in the results as it is, in place of these arguments.

    Returns:
      {"tasks": {task: {metric: {"value", "low", "high", "chance", "n", "ties"}}}, "config", "versions", "seconds"}, the
      content of ``results.json``. ``seconds`` includes the scoring time of the calls that this one continues.

    Raises:
      InputError: unknown or unready tasks, bad data, a folder of another run, errors that are not finite.
    """
    started = time.monotonic()
    chosen = choose_tasks(tasks, data_dir)
    if num_samples is None:
        num_samples = samples.DEFAULT_NUM_SAMPLES if isinstance(timesteps, str) else len(timesteps)
    sampling = {
        "num_samples": samples.check_num_samples(num_samples),
        "seed": samples.check_seed(seed),
        "timesteps": timesteps if isinstance(timesteps, str) else np.asarray(timesteps).tolist(),
    }
    plan = planning.make_plan(chosen, data_dir=data_dir, limit=limit, normalize=normalize)
    score_identity = {"sampling": sampling, "scorer": scorer.fingerprint()}
    identity = {
        # In this order a folder's refusal names what differs: causes before what follows from them.
        "limit": limit,
        "normalize": normalize,
        **score_identity,
        "tasks": {
            task.name: {"version": task.version, "data": task.data_fingerprint(data_dir, limit)} for task in chosen
        },
    }
    if config is None:
        names = [task.name for task in chosen]
        config = {"tasks": names, "data_dir": data_dir, "limit": limit, "normalize": normalize, "sampling": sampling}
    versions = {
        **provenance.software(),
        "seeds": {"samples": seed},
        "device": provenance.devices(),
        "weights": score_identity["scorer"].get("model"),
        "scorer": score_identity["scorer"],
        "data": {name: described["data"] for name, described in identity["tasks"].items()},
    }
    description = {
        "status": "running",
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "config": config,
        "identity": identity,
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
    writer = None
    try:
        table = (records.digest(score_identity), plan.image_hashes, plan.text_hashes)
        errors = np.full((len(plan.pairs), _num_columns(sampling)), np.nan, np.float32)
        seconds_before = 0.0
        if is_writing:
            errors, seconds_before = folder.read_errors(*table, plan.pairs, errors.shape[1])
            writer = records.ErrorWriter(folder, *table, note=versions)
        errors = _broadcast(errors)
        if progress and is_writing:
            progress_bars.say(f"records in {folder.path}")
        _score_missing(scorer, plan, errors, sampling, writer, progress and is_writing)
        results = {"tasks": {}, "config": config, "versions": versions}
        for task in chosen:
            scores = summary.question_scores(plan, task.name, errors)
            results["tasks"][task.name] = summary.task_results(task, plan.questions[task.name], scores)
            if is_writing:
                folder.write_examples(task.name, summary.example_table(task, plan, scores))
        results["seconds"] = round(seconds_before + time.monotonic() - started, 3)
        if is_writing:
            records.write_json(folder.results_path, results)
            folder.describe({**description, "status": "finished"})
    except BaseException as error:
        if writer is not None:
            _leave(folder, description, error, nothing_kept=not writer.num_parts)
        raise
    finally:
        folder.close()
    return results


def choose_tasks(tasks: str | Sequence[str | Task], data_dir: str | None = None) -> list[Task]:
    """The tasks that are meant.

    Args:
      tasks: names, `Task` objects, or ``"ready"`` for every known task whose data are there.
      data_dir: handed to the tasks.

    Raises:
      InputError: no task, an unknown name, or a named task whose data are not there.
    """
    if isinstance(tasks, str):
        if tasks != READY:
            tasks = [name.strip() for name in tasks.split(",") if name.strip()]
        else:
            tasks = [name for name in TASKS if get_task(name).ready(data_dir) is None]
    chosen = [get_task(task) if isinstance(task, str) else task for task in tasks]
    if not chosen:
        raise InputError(f"no task is chosen: name at least one of {', '.join(TASKS)}, or {READY!r}.")
    for task in chosen:
        how_to_get_data = task.ready(data_dir)
        if how_to_get_data is not None:
            raise InputError(f"task {task.name!r} has no data yet: {how_to_get_data}")
    return chosen


def _num_columns(sampling: Mapping[str, Any]) -> int:
    """How many samples there are a pair: the rule of the published code may choose another number than it is given."""
    rule, num_samples = sampling["timesteps"], sampling["num_samples"]
    return len(samples.choose_timesteps(rule, num_samples)) if rule == "published" else num_samples


def _score_missing(
    scorer: Scorer,
    plan: planning.Plan,
    errors: np.ndarray,
    sampling: Mapping[str, Any],
    writer: records.ErrorWriter | None,
    progress: bool,
) -> None:
    """Fills the NaNs of ``errors`` [num_pairs, num_samples], recording batch after batch."""
    flat = errors.reshape(-1)
    missing = np.flatnonzero(np.isnan(flat))
    with progress_bars.passes(flat.size, flat.size - len(missing), enabled=progress and len(missing) > 0) as advance:
        try:
            for first in range(0, len(missing), _TRIPLES_A_CALL):
                places = missing[first : first + _TRIPLES_A_CALL]
                pairs, samples_of = np.divmod(places, errors.shape[1])
                triples = np.concatenate([plan.pairs[pairs], samples_of[:, None]], axis=1).astype(np.int32)
                for start, values in _iter_errors(scorer, plan, triples, sampling):
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


def _iter_errors(
    scorer: Scorer, plan: planning.Plan, triples: np.ndarray, sampling: Mapping[str, Any]
) -> Iterator[tuple[int, np.ndarray]]:
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
