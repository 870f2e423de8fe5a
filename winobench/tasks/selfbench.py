"""Self-Bench: does a scorer find the text from which an image was generated? (Jeong et al. 2025, arXiv:2505.17955)

Images are those of runs of ``launch.draw --config=pictures --config.prompts=geneval:FILE``, or of Self-Bench in
its published layout; ``--config.tasks=selfbench:FOLDER`` names one, and several such words set generators next to each
other. A task is a skill. Its groups are the models that generated (``<drawer>``), and those of their images that people
or a detector found to show what they should (``<drawer>, correct``): a run's `winobench.runs.verdicts`, or the
filter files of Self-Bench.

The published layout: ``<guidance>/<model>/<prompt>/samples/0000<0 to 3>.png`` with ``metadata.jsonl`` next to
``samples``, and ``filter/SD-<version>-CFG=<guidance>.json`` with rows of ``sample_path`` and ``labels`` (or
``human_label``). Models' folders have the names of their repositories, such as ``stable-diffusion-v1-5``, and their
generators the published code's versions, ``1.5``, ``2.0``, ``3-m`` and ``flux``. An image is correct where all of its
labels are ``original_good``. Of ``3-m``, one of them. FLUX.1 has no filter file. A warning names a missing filter file,
and counts the images that a filter file does not judge.
"""

from __future__ import annotations

import dataclasses
import pathlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
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

# Of Stable Diffusion 3's images one good label is enough, as Self-Bench counts them.
_ANY_LABEL = ("3-m",)


@dataclasses.dataclass(frozen=True)
class Drawn:
    """An image that was generated from a prompt of GenEval.

    Attributes:
      id: unique among all images.
      path: of the file.
      drawer: label of the model.
      tag: the skill, a key of `winobench.prompts.geneval.SKILLS`.
      texts: the candidates.
      target: which of them it was generated from.
      correct: whether it shows what it should; None where nobody says.
      content: identifies the image's content.
    """

    id: str
    path: pathlib.Path
    drawer: str
    tag: str
    texts: tuple[str, ...]
    target: int
    correct: bool | None
    content: str

    @property
    def groups(self) -> tuple[str, ...]:
        """What the example also counts for."""
        return (self.drawer, f"{self.drawer}, correct") if self.correct else (self.drawer,)


def make(places: Sequence[str]) -> list[Task]:
    """A task for each skill of which there are images."""
    drawn: list[Drawn] = []
    for place in places:
        folder = pathlib.Path(user_path(place))
        found = list(_of_run(folder) if (folder / "config.json").is_file() else _as_published(folder))
        both = {one.drawer for one in drawn} & {one.drawer for one in found}
        if both:
            raise InputError(
                f"{folder} has images of {min(both)!r}, as a folder before it: name each generator once",
                code="named-twice",
            )
        drawn += found
    by_tag = {tag: [one for one in drawn if one.tag == tag] for tag in geneval.SKILLS}
    sizes = geneval.SKILLS
    return [
        task(
            f"selfbench_{tag}",
            f"Self-Bench, {tag.replace('_', ' ')}: which of {sizes[tag]} texts was the image generated from?",
            sizes[tag],
            found,
            _SKILLS[tag],
        )
        for tag, found in by_tag.items()
        if found
    ]


def task(name: str, description: str, size: int, drawn: Sequence[Drawn], skill: str) -> Task:
    """The task of a skill."""

    def load(data_dir: str | None, limit: int | None) -> Iterator[Example[pathlib.Path, str]]:
        del data_dir
        for one in _limited(drawn, limit):
            yield Example(one.id, (one.path,), one.texts, one.target, one.groups)

    def fingerprint(data_dir: str | None, limit: int | None) -> str:
        del data_dir
        rows = [[one.id, one.content, one.texts, one.target, one.groups] for one in _limited(drawn, limit)]
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
        count=lambda data_dir: len(drawn),
        when_named=True,
        skills=(skill,),
    )


def _limited(drawn: Sequence[Drawn], limit: int | None) -> list[Drawn]:
    """Of each generator as many."""
    counts: dict[str, int] = {}
    kept = []
    for one in drawn:
        counts[one.drawer] = counts.get(one.drawer, 0) + 1
        if limit is None or counts[one.drawer] <= limit:
            kept.append(one)
    return kept


def _of_run(folder: pathlib.Path) -> Iterator[Drawn]:
    run, verdicts = image_runs.read_pictures(folder), read_verdicts(folder)
    for record in run.records:
        content = record.prompt.content
        if _is_geneval(content):
            tag = content["tag"]
            texts, target = _question(tag, content.get("include"), record.prompt.text, str(folder))
            name, correct = f"{record.model}/{record.seed}/{record.number}", verdict_on(record, verdicts)
            yield Drawn(name, run.path(record), record.model, tag, texts, target, correct, record.sha256)
    if not any(_is_geneval(prompt.content) for prompt in run.prompts):
        raise InputError(
            f"{folder} has no images from GenEval's prompts: generate with --config.prompts=geneval:FILE",
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
            f"{where}: the prompt {options.shown(prompt)} is not one of {tag} as its record says: restore GenEval's"
            " file",
            code="unknown-prompt",
        ) from None


def _as_published(folder: pathlib.Path) -> Iterator[Drawn]:
    """The images of a folder in Self-Bench's layout; ``folder`` has the folders of guidance scales, or is one."""
    found = sorted(folder.glob("*/*/samples")) or sorted(folder.glob("*/*/*/samples"))
    if not found:
        raise InputError(
            f"{folder} is neither a run of images nor Self-Bench's folder: it has no config.json and no"
            " <guidance>/<model>/<prompt>/samples",
            code="not-a-set-of-pictures",
        )
    places: dict[pathlib.Path, list[pathlib.Path]] = {}
    for samples in found:
        places.setdefault(samples.parent.parent, []).append(samples)
    drawers: dict[str, pathlib.Path] = {}
    for place, of_model in places.items():
        drawer = _VERSIONS.get(place.name, place.name)
        if drawer in drawers:
            raise InputError(
                f"{drawers[drawer]} and {place} both have images of {drawer!r}: name the folder of one guidance scale,"
                f" such as {place.parent}",
                code="named-twice",
            )
        drawers[drawer] = place
        yield from _of_drawer(drawer, place, of_model)


def _of_drawer(drawer: str, place: pathlib.Path, found: Sequence[pathlib.Path]) -> Iterator[Drawn]:
    """The images in a model's folders of samples. Warns where not all of them have a verdict."""
    labels, verdicts = _verdicts(place, drawer)
    left, unknown, count = set(verdicts), 0, 0
    for samples in found:
        tag, texts, target = _read_record(samples.parent / "metadata.jsonl")
        for path in sorted(samples.glob("*.png")):
            name = f"{samples.parent.name}/samples/{path.name}"
            correct = verdicts.get(name)
            left.discard(name)
            unknown, count = unknown + (correct is None), count + 1
            content = image_files.image_hash(path)
            yield Drawn(f"{place.name}/{name}", path, drawer, tag, texts, target, correct, content)
    said = []
    if labels is not None and unknown:
        said.append(f"{labels} does not judge {unknown:,} of the {count:,} images in {place}")
    if left:
        said.append(f"{labels} judges {len(left):,} images that are not in {place}, such as {min(left)}")
    if said:
        warnings.warn("; ".join(said), stacklevel=2)


def _read_record(path: pathlib.Path) -> tuple[str, tuple[str, ...], int]:
    """The skill, the candidates and the right one of a prompt."""
    rows = list(read_json_lines(path).rows())
    if len(rows) != 1:
        raise InputError(
            f"{path} has {len(rows)} lines, not one: restore it as it was published", code="wrong-number-of-entries"
        )
    (row,) = rows
    tag, include, prompt = row["tag"].text(), row["include"].value, row["prompt"].text()
    if tag not in geneval.SKILLS:
        raise row["tag"].wrong(f"is {options.shown(tag)}, none of {', '.join(geneval.SKILLS)}", "unknown-name")
    return (tag, *_question(tag, include, prompt, row.where))


def _verdicts(place: pathlib.Path, drawer: str) -> tuple[pathlib.Path | None, Mapping[str, bool | None]]:
    """The filter file of a model's folder, and <prompt>/samples/<file> -> whether it is correct, None without a label.

    Warns where the file is missing, and has no verdicts then.
    """
    guidance = place.parent.name
    scale = f"{float(guidance):g}" if guidance.replace(".", "", 1).isdigit() else guidance
    root = place.parent.parent
    name = f"SD-{drawer}-CFG={scale}.json"
    # Next to the guidance scales, as the README has it, or one folder higher, as the code reads it.
    paths = [folder / "filter" / name for folder in (root, root.parent)]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        warnings.warn(
            f"the filter file {paths[0]} is missing, so that results have no rows '{drawer}, correct': put it there to"
            f" tell which images of {place} are correct",
            stacklevel=2,
        )
        return None, {}
    enough = any if drawer in _ANY_LABEL else all
    found: dict[str, bool | None] = {}
    for row in read_json(path).rows():
        labels = _labels(row)
        verdict = enough(label == _GOOD for label in labels) if labels else None
        picture = "/".join(row["sample_path"].text().split("/")[-3:])
        if found.setdefault(picture, verdict) != verdict:
            raise row.wrong(f"is of {picture}, which an earlier row judges otherwise", "contradicting-rows")
    return path, found


def _labels(row: Entry) -> list[Any]:
    """The annotators' labels. As in the published code, of ``human_label`` where there are no ``labels``."""
    if "labels" in row:
        return [label["label"].value for label in row["labels"].rows()]
    return [label] if (label := row["human_label"].value) is not None else []


SOURCES: Mapping[str, Callable[[Sequence[str]], list[Task]]] = {"selfbench": make}
"""Word before the colon of ``--config.tasks`` -> what makes the tasks."""
