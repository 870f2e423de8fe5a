"""Self-Bench: does a scorer find the text from which an image was generated? (Jeong et al. 2025, arXiv:2505.17955)

Images are from runs of ``winobench generate --config=images --prompts=geneval:FILE``, or from Self-Bench in its
published layout: ``<guidance>/<model>/<prompt>/samples/0000<0 to 3>.png`` with ``metadata.jsonl`` next to ``samples``,
and ``filter/SD-<version>-CFG=<guidance>.json`` with rows of ``sample_path`` and ``labels`` (or ``human_label``). Groups
are the generators, and their images that a run's `winobench.runs.verdicts` or the filter file call correct: all labels
must be ``original_good``. FLUX.1 has no filter file. Warnings name what a filter file does not judge.
"""

from __future__ import annotations

import collections
import dataclasses
import pathlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from winobench.base import files, options
from winobench.base.errors import InputError
from winobench.base.files import user_path
from winobench.data import images as image_files
from winobench.prompts import geneval
from winobench.runs import image_runs
from winobench.runs.verdicts import read_verdicts, verdict_on
from winobench.tasks.annotations import Entry, read_json, read_json_lines
from winobench.tasks.base import Example, Task

_GOOD = "original_good"
_SKILLS = {
    "single_object": "recognition",
    "two_object": "recognition",
    "counting": "counting",
    "colors": "recognition",
    "position": "spatial",
    "color_attr": "attribute_binding",
}
_VERSIONS = {
    "stable-diffusion-v1-5": "1.5",
    "stable-diffusion-2-base": "2.0",
    "stable-diffusion-3-medium-diffusers": "3-m",
    "FLUX.1-dev": "flux",
}
"""Folder of a model -> what the published code and its filter files call it (dataset_loading_geneval.py)."""


@dataclasses.dataclass(frozen=True)
class Drawn:
    """An image that was generated from a prompt."""

    id: str
    path: pathlib.Path
    generator: str  # label of the model
    tag: str  # the skill, a key of `winobench.prompts.geneval.SKILLS`, or the category
    texts: tuple[str, ...]
    target: int  # the text from which it was generated
    correct: bool | None  # whether it shows its prompt; None without a verdict
    content: str  # identifies the image's content

    @property
    def groups(self) -> tuple[str, ...]:
        return (self.generator, f"{self.generator}, correct") if self.correct else (self.generator,)


def make(sources: Sequence[str]) -> list[Task]:
    """A task for each skill of which there are images."""
    by_tag = read_folders(
        sources, lambda folder: _of_run(folder) if (folder / "config.json").is_file() else _as_published(folder)
    )
    about = "Self-Bench, {}: which of {} texts was the image generated from?"
    return [
        task(f"selfbench_{tag}", about.format(tag.replace("_", " "), size), size, by_tag[tag], _SKILLS[tag])
        for tag, size in geneval.SKILLS.items()
        if tag in by_tag
    ]


def read_folders(sources: Sequence[str], read: Callable[[pathlib.Path], Iterable[Drawn]]) -> dict[str, list[Drawn]]:
    """The images of all folders by their tags. Each generator may be in one of them alone."""
    generators: set[str] = set()
    by_tag: dict[str, list[Drawn]] = {}
    for source in sources:
        folder = pathlib.Path(user_path(source))
        images = list(read(folder))
        if both := generators & {image.generator for image in images}:
            raise InputError(
                f"{folder} has images of {min(both)!r}, as a folder before it: name each generator once",
                code="named-twice",
            )
        for image in images:
            generators.add(image.generator)
            by_tag.setdefault(image.tag, []).append(image)
    return by_tag


def of_record(run: image_runs.Images, record: Any, verdicts: Any, tag: str, texts: Iterable[str], target: int) -> Drawn:
    """An image of a run."""
    name, correct = f"{record.model}/{record.seed}/{record.number}", verdict_on(record, verdicts)
    return Drawn(name, run.path(record), record.model, tag, tuple(texts), target, correct, record.sha256)


def task(name: str, description: str, size: int, images: Sequence[Drawn], skill: str) -> Task:
    """The task of a skill."""

    def load(data_dir: str | None, limit: int | None) -> Iterator[Example[pathlib.Path, str]]:
        del data_dir
        for image in _limited(images, limit):
            yield Example(image.id, (image.path,), image.texts, image.target, image.groups)

    def fingerprint(data_dir: str | None, limit: int | None) -> str:
        del data_dir
        rows = [[image.id, image.content, image.texts, image.target, image.groups] for image in _limited(images, limit)]
        return files.digest(rows)

    return Task(
        name=name,
        version=1,
        description=description,
        metric="accuracy",
        shape=(1, size),
        chance={"accuracy": 1 / size},
        load=load,
        ready=lambda data_dir: None,
        images_compete=False,
        data_fingerprint=fingerprint,
        count=lambda data_dir: len(images),
        when_named=True,
        skills=(skill,),
    )


def _limited(images: Sequence[Drawn], limit: int | None) -> list[Drawn]:
    """The first images of each generator."""
    counts: collections.Counter[str] = collections.Counter()
    limited = []
    for image in images:
        counts[image.generator] += 1
        if limit is None or counts[image.generator] <= limit:
            limited.append(image)
    return limited


def _of_run(folder: pathlib.Path) -> Iterator[Drawn]:
    run, verdicts = image_runs.read_images(folder), read_verdicts(folder)
    for record in run.records:
        content = record.prompt.content
        if _is_geneval(content):
            tag = content["tag"]
            texts, target = _question(tag, content.get("include"), record.prompt.text, str(folder))
            yield of_record(run, record, verdicts, tag, texts, target)
    if not any(_is_geneval(prompt.content) for prompt in run.prompts):
        raise InputError(
            f"{folder} has no images from GenEval's prompts: generate with --prompts=geneval:FILE",
            code="no-examples",
        )


def _is_geneval(content: Any) -> bool:
    return isinstance(content, Mapping) and content.get("tag") in geneval.SKILLS


def _question(tag: str, include: Any, prompt: str, where: str) -> tuple[tuple[str, ...], int]:
    try:
        texts = geneval.candidates(tag, include)
        return tuple(texts), texts.index(prompt)
    except (KeyError, IndexError, ValueError, TypeError):
        raise InputError(
            f"{where}: the prompt {options.quote(prompt)} is not one of {tag} as its record says: restore GenEval's"
            " file",
            code="unknown-prompt",
        ) from None


def _as_published(folder: pathlib.Path) -> Iterator[Drawn]:
    """The images of a folder in Self-Bench's layout; ``folder`` has the folders of guidance scales, or is one."""
    folders_of_samples = sorted(folder.glob("*/*/samples")) or sorted(folder.glob("*/*/*/samples"))
    if not folders_of_samples:
        raise InputError(
            f"{folder} is neither a run of images nor Self-Bench's folder: it has no config.json and no"
            " <guidance>/<model>/<prompt>/samples",
            code="not-a-set-of-pictures",
        )
    by_model: dict[pathlib.Path, list[pathlib.Path]] = {}
    for samples in folders_of_samples:
        by_model.setdefault(samples.parent.parent, []).append(samples)
    generators: dict[str, pathlib.Path] = {}
    for folder_of_model, of_model in by_model.items():
        generator = _VERSIONS.get(folder_of_model.name, folder_of_model.name)
        if generator in generators:
            raise InputError(
                f"{generators[generator]} and {folder_of_model} both have images of {generator!r}: name the folder of"
                f" one guidance scale, such as {folder_of_model.parent}",
                code="named-twice",
            )
        generators[generator] = folder_of_model
        yield from _of_generator(generator, folder_of_model, of_model)


def _of_generator(generator: str, folder: pathlib.Path, folders_of_samples: Sequence[pathlib.Path]) -> Iterator[Drawn]:
    """The images in a model's folders of samples. Warns where not all of them have a verdict."""
    labels, verdicts = _verdicts(folder, generator)
    left, unknown, count = set(verdicts), 0, 0
    for samples in folders_of_samples:
        tag, texts, target = _read_record(samples.parent / "metadata.jsonl")
        for path in sorted(samples.glob("*.png")):
            name = f"{samples.parent.name}/samples/{path.name}"
            correct = verdicts.get(name)
            left.discard(name)
            unknown, count = unknown + (correct is None), count + 1
            content = image_files.image_hash(path)
            yield Drawn(f"{folder.name}/{name}", path, generator, tag, texts, target, correct, content)
    problems = []
    if labels is not None and unknown:
        problems.append(f"{labels} does not judge {unknown:,} of the {count:,} images in {folder}")
    if left:
        problems.append(f"{labels} judges {len(left):,} images that are not in {folder}, such as {min(left)}")
    if problems:
        warnings.warn("; ".join(problems), stacklevel=2)


def _read_record(path: pathlib.Path) -> tuple[str, tuple[str, ...], int]:
    """The skill, the candidates and the right one of a prompt."""
    rows = list(read_json_lines(path).rows())
    if len(rows) != 1:
        raise InputError(
            f"{path} has {len(rows)} lines, not one: restore it as it was published", code="wrong-number-of-entries"
        )
    (row,) = rows
    include, prompt, tag = row["include"].value, row["prompt"].text(), row["tag"].one_of(geneval.SKILLS)
    return (tag, *_question(tag, include, prompt, row.where))


def _verdicts(folder_of_model: pathlib.Path, generator: str) -> tuple[pathlib.Path | None, Mapping[str, bool | None]]:
    """The filter file of a model's folder, and <prompt>/samples/<file> -> whether it is correct, None without a label.

    Warns where the file is missing, and has no verdicts then.
    """
    guidance = folder_of_model.parent.name
    scale = f"{float(guidance):g}" if guidance.replace(".", "", 1).isdigit() else guidance
    root = folder_of_model.parent.parent
    name = f"SD-{generator}-CFG={scale}.json"
    # Next to the guidance scales, as the README has it, or one folder higher, as the code reads it.
    paths = [folder / "filter" / name for folder in (root, root.parent)]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        warnings.warn(
            f"the filter file {paths[0]} is missing, so that results have no rows '{generator}, correct': put it there,"
            f" so that it marks which images of {folder_of_model} are correct",
            stacklevel=2,
        )
        return None, {}
    # One good label of Stable Diffusion 3's images is enough, as Self-Bench counts them.
    enough = any if generator == "3-m" else all
    verdicts: dict[str, bool | None] = {}
    for row in read_json(path).rows():
        labels = _labels(row)
        verdict = enough(label == _GOOD for label in labels) if labels else None
        image = "/".join(row["sample_path"].text().split("/")[-3:])
        if verdicts.setdefault(image, verdict) != verdict:
            raise row.wrong(f"is of {image}, which an earlier row judges otherwise", "contradicting-rows")
    return path, verdicts


def _labels(row: Entry) -> list[Any]:
    """The annotators' labels. As in the published code, ``human_label`` replaces missing ``labels``."""
    if "labels" in row:
        return [label["label"].value for label in row["labels"].rows()]
    return [label] if (label := row["human_label"].value) is not None else []


SOURCES: Mapping[str, Callable[[Sequence[str]], list[Task]]] = {"selfbench": make}
"""Word before the colon of ``--tasks`` -> what makes the tasks."""
