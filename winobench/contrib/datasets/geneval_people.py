"""How far a judge's verdicts on GenEval's published images agree with people's (Ghosh et al. 2023).

The images come from the task ``meta_geneval``: 100 prompts, four images by Stable Diffusion 2, by IF-XL, and found
with CLIP. People call an image correct where most of five say that it fully captures the caption.
"""

from __future__ import annotations

import itertools
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from winobench.base import files, json_files
from winobench.base.errors import InputError
from winobench.contrib.datasets import meta_geneval
from winobench.generation import judged
from winobench.generation.collected_runs import write_run
from winobench.generation.collecting import settle
from winobench.generation.image_layouts import FoundImage
from winobench.metrics import agreement, intervals
from winobench.prompts.prompt_files import Prompt
from winobench.runs import judgements
from winobench.runs.image_records import ImageRecord, Place
from winobench.runs.image_runs import Images
from winobench.runs.requests import Responder

RUBRIC, AGREEMENT = "geneval_questions", "agreement.json"
"""The rubric that gives verdicts, and the file of results in the judge's folder."""


def read_study(
    source: str | os.PathLike[str], prompts: list[Prompt], folder: str | os.PathLike[str]
) -> tuple[Images, dict[Place, bool]]:
    """The published images as a collected run in a folder, and what people say of each.

    Args:
      source: the folder with annotations_*.csv and ``images``, as ``winobench prepare --tasks=meta_geneval`` takes it.
      prompts: GenEval's, from ``geneval:FILE``.
      folder: the run's, as `winobench.collect_images` makes it.

    Raises:
      InputError: a file is missing or damaged, or a caption is not the prompt of its number.
    """
    by_id = {prompt.id: prompt for prompt in prompts}
    source = pathlib.Path(files.user_path(source))
    images, shares = [], {}
    for item in meta_geneval.read(source):
        name, _, identity = item.id.partition("/")
        prompt = by_id.get(identity)
        if prompt is None or prompt.text != item.texts[0]:
            raise InputError(
                f"the annotations have the caption {item.texts[0]!r} for prompt {identity}, but the prompts have"
                f" {prompt and prompt.text!r}: name GenEval's evaluation_metadata.jsonl",
                code="contradicting-rows",
            )
        for seed, (image, share) in enumerate(zip(item.images, item.ratings, strict=True)):
            path = pathlib.Path(image.path)
            file = path.relative_to(source).as_posix()
            images.append(FoundImage(path, file, file, id=identity, seed=seed, model=name))
            shares[file] = share
    images.sort(key=lambda image: [*meta_geneval.SETS].index(image.model))
    chosen = [by_id[identity] for identity in dict.fromkeys(image.id for image in images)]
    config = {"folder": str(source), "people": meta_geneval.__name__, "allow_missing": True}
    run = write_run(settle(source, images, chosen), folder, config, progress=False)
    return run, {record.place: shares[record.source["file"]] > 0.5 for record in run.records}


def judge_study(
    run: Images,
    people: Mapping[Place, bool],
    responder: Responder,
    *,
    name: str,
    label: str | None = None,
    progress: bool = True,
) -> dict[str, dict[str, Any]]:
    """Has a judge answer GenEval's questions about the images of `read_study`, and returns `agree`.

    An interrupted call resumes when it is made again. The rows are in ``agreement.json`` of the judge's folder, too.
    """
    judgement = judged.judge_images(run, responder, name=name, rubric=RUBRIC, label=label, progress=progress)
    folder = judged.folder_of(run, RUBRIC, name, label)
    verdicts = {}
    for _, line in json_files.read_lines(folder / judgements.SCORES):
        scores = {(score["metric"], score["group"]): score["value"] for score in line["scores"]}
        verdicts[line["model"], line["seed"], line["number"]] = scores["accuracy", "all"] == 1
    rows = agree(run, verdicts, people)
    with files.writing(folder):
        files.write_text(folder / AGREEMENT, json.dumps({"judge": judgement.judge, "rows": rows}, indent=2) + "\n")
    return rows


def agree(run: Images, judge: Mapping[Place, bool], people: Mapping[Place, bool]) -> dict[str, dict[str, Any]]:
    """All, source of the images, or tag -> how far a judge agrees with people.

    Each row has ``accuracy``, the share of images with the same verdict, and its 95% interval ``low`` and ``high``. It
    has Cohen's ``kappa``, ``kappa_low`` and ``kappa_high``, the shares that ``judge`` and ``people`` call correct, and
    ``n``. Images of one prompt depend on each other. Images without a judge's verdict do not count.
    """
    records = [record for record in run.records if record.place in judge]
    groups = [("all", records)]
    for of in (lambda record: record.model, lambda record: record.prompt.category):
        ordered = sorted(records, key=of)
        groups += [(name, [*images]) for name, images in itertools.groupby(ordered, of)]
    return {name: _row(images, judge, people) for name, images in groups if images}


def _row(records: list[ImageRecord], judge: Mapping[Place, bool], people: Mapping[Place, bool]) -> dict[str, Any]:
    first, second = (np.array([of[record.place] for record in records]) for of in (judge, people))
    prompts = [record.prompt.id for record in records]
    share = intervals.clustered(first == second, prompts)
    kappa = agreement.cohen_kappa(first, second, prompts)
    return {
        "accuracy": float(share.value),
        "low": float(share.low),
        "high": float(share.high),
        "kappa": kappa.value,
        "kappa_low": kappa.low,
        "kappa_high": kappa.high,
        "judge": float(first.mean()),
        "people": float(second.mean()),
        "n": len(records),
    }
