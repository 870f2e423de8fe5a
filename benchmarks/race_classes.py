"""A race among a hundred classes beside a fixed budget: passes saved, and decisions that are the same.

    python -m benchmarks.race_classes                     the embedded model: 16 images, 100 classes, 250 samples
    python -m benchmarks.race_classes --images 4 --classes 20 --budget 100
    python -m benchmarks.race_classes --workdir DIR --output FILE

A class is a pair of coloured shapes, as "A red cube and a blue sphere."; an image is a rendered scene of one class. All
classes are scored on the whole budget once, and recorded in ``--workdir``. Races are then run by `winobench.evaluate`
on the same samples, whose errors they find recorded, so that they make no pass, and say how many they would have made.

Beside them stand the schedules by which Diffusion Classifier's code leaves out classes (Li et al. 2023): of 100 classes
the best 20 are kept after 20 samples, 10 after 50, 5 after 100, and the best one of these wins after 500. ``published``
has these numbers, with the budget in place of 500; ``published, halved`` has half of the samples in each round. They
take the first samples of a low-discrepancy sequence, whose timesteps are spread evenly over the range.
"""

from __future__ import annotations

import argparse
import itertools
import pathlib
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import winobench
from benchmarks import common, machine, result_files
from winobench import metrics, parallel
from winobench.base import files
from winobench.base.errors import InputError
from winobench.clevr import captions, renderer
from winobench.clevr import scenes as clevr_scenes
from winobench.evaluation import evaluate, importance
from winobench.metrics import sequential
from winobench.runs.settings import Sampling
from winobench.scorers.diffusion_itm import DiffusionITM
from winobench.tasks.base import Example, Task

NAME = "clevr_classes"
SHARES = (sequential.SHARE, 0.1, 0.2)
SCHEDULES = {
    "published": ((20, 20), (10, 50), (5, 100)),
    "published, halved": ((20, 10), (10, 25), (5, 50)),
}
"""Name -> rounds but for the last: (classes that are kept, samples by then)."""

_IMAGE_SIZE = 64
_SEED = 0
_SCENES_AT_ONCE = 256


def caption(things: Sequence[captions.Thing]) -> str:
    """The class of a scene: its two objects in the order of their colours' names."""
    first, second = sorted(f"{thing.color} {thing.shape}" for thing in things)
    return f"A {first} and a {second}."


def task(num_classes: int, num_images: int) -> Task:
    """Task with the question which class an image shows. The classes are the first ones of the validation scenes.

    Raises:
      InputError: more classes or images than there can be.
    """
    most = 8 * 7 * 3 * 2 // 2
    if not 2 <= num_classes <= most or num_images < 1:
        raise InputError(
            f"--classes is {num_classes} and --images {num_images}, but there must be 2 to {most} classes and an image",
            code="out-of-range",
        )

    def load(data_dir: str | None, limit: int | None) -> Iterator[Example]:
        del data_dir
        classes = _first_classes(num_classes)
        chosen = (scene_of_class for scene_of_class in _scenes("evaluation") if scene_of_class[0] in classes)
        for number, (text, scene) in enumerate(itertools.islice(chosen, num_images if limit is None else limit)):
            (image,) = renderer.render(scene, _IMAGE_SIZE)
            yield Example(f"image-{number:04d}", (image,), tuple(classes), classes.index(text))

    return Task(
        name=NAME,
        version=1,
        description="Which of many pairs of coloured shapes a rendered image shows.",
        metric="accuracy",
        shape=(1, num_classes),
        chance={},
        load=load,
        ready=lambda data_dir: None,
        images_compete=False,
        data_fingerprint=lambda data_dir, limit: files.digest([num_classes, num_images, limit]),
        skills=("classification",),
    )


def _first_classes(count: int) -> list[str]:
    classes: dict[str, None] = {}
    scenes = _scenes("validation")
    while len(classes) < count:
        classes[next(scenes)[0]] = None
    return list(classes)


def _scenes(split: str) -> Iterator[tuple[str, clevr_scenes.Scenes]]:
    """(class, scene) of one task scene after the other, without end."""
    for start in itertools.count(0, _SCENES_AT_ONCE):
        scenes = clevr_scenes.sample_task_scenes(_SCENES_AT_ONCE, seed=_SEED, split=split, start=start)
        for index, things in enumerate(captions.describe(scenes)):
            yield caption(things), scenes[index]


def by_schedule(errors: np.ndarray, rounds: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """The class that is left, and the passes that it took.

    Args:
      errors: [classes, samples], in the order in which samples are met.
      rounds: (classes that are kept, samples by then) of each round but the last, which takes all samples. A round
        that would keep more classes than are left, or take more samples than there are, is left out.
    """
    left, done, passes = np.arange(len(errors)), 0, 0
    for kept, samples in (*rounds, (1, errors.shape[1])):
        if kept >= len(left) or samples > errors.shape[1]:
            continue
        passes += len(left) * (samples - done)
        done = samples
        left = left[np.argsort(errors[left, :done].mean(axis=1), kind="stable")[:kept]]
    return int(left[0]), passes


def _share(same: np.ndarray) -> dict[str, Any]:
    found = metrics.wilson(int(same.sum()), len(same))
    return {"same": int(same.sum()), "of": len(same), "interval": [float(found.low), float(found.high)]}


def benchmark(
    scorer: DiffusionITM, model: str, num_classes: int, num_images: int, budget: int, workdir: pathlib.Path
) -> dict[str, Any]:
    """The figures, ready for JSON; what was scored stays in ``workdir``."""
    load_before = machine.load_average()
    tasks = [task(num_classes, num_images)]
    settings = {"num_samples": budget, "seed": _SEED, "timesteps": importance.PILOT_RULE}
    whole = evaluate.evaluate(scorer, tasks, workdir / "fixed", model=model, **settings)
    run = winobench.read_run(workdir / "fixed")
    examples = run.tasks[NAME].examples
    answers = np.array([scores.argmax() for scores in examples.scores])
    rules: dict[str, Any] = {}
    for share in SHARES:
        raced = evaluate.evaluate(
            scorer, tasks, workdir / f"race-{share}", model=model, mode="race", rare_share=share, **settings
        )
        theirs = winobench.read_run(workdir / f"race-{share}").tasks[NAME].examples
        rules[f"race, rare_share {share}"] = {
            "passes": raced["race"]["passes"],
            "computed_passes": raced["computed_passes"],
            "accuracy": raced["tasks"][NAME]["accuracy"]["value"],
            "answers": _share(np.array([scores.argmax() for scores in theirs.scores]) == answers),
        }
    (batch,) = run.batches(NAME)
    errors = batch.own[:, 0].astype(np.float64)
    targets = np.array(examples.targets)[batch.rows]
    for name, rounds in SCHEDULES.items():
        ends = [by_schedule(errors_of_question, rounds) for errors_of_question in errors]
        answers_of_race = np.array([answer for answer, _ in ends])
        rules[f"schedule, {name}"] = {
            "passes": sum(passes for _, passes in ends),
            "accuracy": float(np.mean(answers_of_race == targets)),
            "answers": _share(answers_of_race == answers[batch.rows]),
        }
    return {
        "model": model,
        "classes": num_classes,
        "images": num_images,
        "budget": budget,
        "alpha": Sampling.alpha,
        "rule": importance.PILOT_RULE,
        "fixed": {"passes": whole["passes"], "accuracy": whole["tasks"][NAME]["accuracy"]["value"]},
        "seconds": whole["seconds"],
        "rules": rules,
        "machine": machine.describe(None),
        "load_average": [load_before, machine.load_average()],
    }


def table(figures: dict[str, Any]) -> str:
    """The figures as a Markdown table."""
    head = "{model}: {images} images, {classes} classes, budget {budget} samples, alpha {alpha}"
    fixed = figures["fixed"]
    lines = [head.format(**figures), "", "| | passes | share of all | same answers | accuracy |"]
    lines += ["| --- | ---: | ---: | ---: | ---: |"]
    lines.append(f"| all samples | {fixed['passes']:,} | 100% | | {fixed['accuracy']:.1%} |")
    for name, of in figures["rules"].items():
        same, share = of["answers"], of["passes"] / fixed["passes"]
        answers = f"{same['same']} of {same['of']}"
        lines.append(f"| {name} | {of['passes']:,} | {share:.1%} | {answers} | {of['accuracy']:.1%} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, prints a table, and writes the figures."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.race_classes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", default="clevr-tiny", help="a registered name, a folder or a hub id")
    parser.add_argument("--classes", type=int, default=100, help="candidates of each image")
    parser.add_argument("--images", type=int, default=16, help="rendered images")
    parser.add_argument("--budget", type=int, default=250, help="samples of a pair")
    parser.add_argument("--workdir", type=pathlib.Path, help="keeps what was scored; goes on where it was stopped")
    parser.add_argument("--output", type=pathlib.Path, help="a file for the figures, as JSON")
    options = parser.parse_args(arguments)
    common.check_positive(options, "budget")
    task(options.classes, options.images)
    parallel.one_device_per_core()
    scorer = DiffusionITM.from_pretrained(options.model)
    with tempfile.TemporaryDirectory() as temporary:
        workdir = options.workdir or pathlib.Path(temporary)
        figures = benchmark(scorer, options.model, options.classes, options.images, options.budget, workdir)
    print(table(figures))
    result_files.write(figures, options.output)


if __name__ == "__main__":
    common.run(main)
