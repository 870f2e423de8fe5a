"""Self-Bench: does a scorer find the text from which a picture was drawn? (Jeong et al. 2025, arXiv:2505.17955)

Pictures are those of runs of ``launch.generate --config=pictures --config.prompts=geneval:FILE``, or of Self-Bench in
its published layout; ``--config.tasks=selfbench:FOLDER`` names one, and several such words set drawers beside each
other. A task is a skill. Its groups are the models that drew (``<drawer>``), and those of their pictures that people
or a detector found to show what they should (``<drawer>, correct``): a run's `winobench.data.pictures.verdicts`, or the
filter files of Self-Bench.

The published layout: ``<guidance>/<model>/<prompt>/samples/0000<0 to 3>.png`` with ``metadata.jsonl`` beside
``samples``, and ``filter/SD-<version>-CFG=<guidance>.json`` with rows of ``sample_path`` and ``labels`` (or
``human_label``). `VERSIONS` has the version of each model's folder, which names the drawer. The folder ``filter`` lies
next to that of the guidance scale, or one level higher. An image is correct where all of its labels are
``original_good``; of ``3-m`` at scale 9, one of them. Images without a filter file are also in the group
``<drawer>, no filter``, and a warning names the file.
"""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from winobench import files, options
from winobench.data import images as image_files
from winobench.data.pictures import geneval, reading
from winobench.data.pictures.verdicts import read_verdicts, verdict_on
from winobench.errors import InputError
from winobench.files import user_path
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
VERSIONS = {
    "stable-diffusion-v1-5": "1.5",
    "stable-diffusion-2-base": "2.0",
    "stable-diffusion-3-medium-diffusers": "3-m",
    "FLUX.1-dev": "flux",
}
"""A model's folder in the published layout -> its version, by which filter files and published numbers call it."""

# Of Stable Diffusion 3's images one good label is enough, as Self-Bench counts them.
_ANY_LABEL = ("3-m", "9")


@dataclasses.dataclass(frozen=True)
class Drawn:
    """A picture that was drawn from a prompt of GenEval.

    Attributes:
      id: unique among all pictures.
      path: of the file.
      drawer: label of the model.
      tag: the skill, a key of `winobench.data.pictures.geneval.SKILLS`.
      texts: the candidates.
      target: which of them it was drawn from.
      correct: whether it shows what it should; None where nobody says.
      content: identifies the picture's content.
      has_filter: False for published images whose filter file is missing.
    """

    id: str
    path: pathlib.Path
    drawer: str
    tag: str
    texts: tuple[str, ...]
    target: int
    correct: bool | None
    content: str
    has_filter: bool = True

    @property
    def groups(self) -> tuple[str, ...]:
        """What the example also counts for."""
        if not self.has_filter:
            return (self.drawer, f"{self.drawer}, no filter")
        return (self.drawer, f"{self.drawer}, correct") if self.correct else (self.drawer,)


def make(places: Sequence[str]) -> list[Task]:
    """A task for each skill of which there are pictures.

    Args:
      places: folders: runs of pictures, or Self-Bench's in the published layout.

    Raises:
      InputError: a folder is neither, has no pictures from GenEval's prompts, or two have a drawer of one name.
    """
    drawn: list[Drawn] = []
    for place in places:
        folder = pathlib.Path(user_path(place))
        found = list(_of_run(folder) if (folder / "config.json").is_file() else _as_published(folder))
        both = {one.drawer for one in drawn} & {one.drawer for one in found}
        if both:
            raise InputError(
                f"{folder} has pictures of {min(both)!r}, as a folder before it: name each drawer once",
                code="named-twice",
            )
        drawn += found
    by_tag = {tag: [one for one in drawn if one.tag == tag] for tag in geneval.SKILLS}
    sizes = geneval.SKILLS
    return [
        task(
            f"selfbench_{tag}",
            f"Self-Bench, {tag.replace('_', ' ')}: which of {sizes[tag]} texts was the picture drawn from?",
            sizes[tag],
            found,
            _SKILLS[tag],
        )
        for tag, found in by_tag.items()
        if found
    ]


def task(name: str, description: str, size: int, drawn: Sequence[Drawn], skill: str) -> Task:
    """The task of a skill.

    Args:
      name: of the task.
      description: of the task.
      size: number of candidates of each picture.
      drawn: its pictures.
      skill: a key of `winobench.tasks.base.SKILLS`.
    """

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
    """Of each drawer as many."""
    counts: dict[str, int] = {}
    kept = []
    for one in drawn:
        counts[one.drawer] = counts.get(one.drawer, 0) + 1
        if limit is None or counts[one.drawer] <= limit:
            kept.append(one)
    return kept


def _of_run(folder: pathlib.Path) -> Iterator[Drawn]:
    run, verdicts = reading.read_pictures(folder), read_verdicts(folder)
    for record in run.records:
        content = record.prompt.content
        if _is_geneval(content):
            tag = content["tag"]
            texts, target = _question(tag, content.get("include"), record.prompt.text, str(folder))
            name, correct = f"{record.model}/{record.seed}/{record.number}", verdict_on(record, verdicts)
            yield Drawn(name, run.path(record), record.model, tag, texts, target, correct, record.sha256)
    if not any(_is_geneval(prompt.content) for prompt in run.prompts):
        raise InputError(
            f"{folder} has no pictures from GenEval's prompts: draw with --config.prompts=geneval:FILE",
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
            f"{where}: the prompt {options.shown(prompt)} is none of {tag} as its record says: restore GenEval's file",
            code="unknown-prompt",
        ) from None


def _as_published(folder: pathlib.Path) -> Iterator[Drawn]:
    """The pictures of a folder in Self-Bench's layout; ``folder`` has the folders of guidance scales, or is one."""
    found = sorted(folder.glob("*/*/samples")) or sorted(folder.glob("*/*/*/samples"))
    if not found:
        raise InputError(
            f"{folder} is neither a run of pictures nor Self-Bench's folder: it has no config.json and no"
            " <guidance>/<model>/<prompt>/samples",
            code="not-a-set-of-pictures",
        )
    models: dict[str, pathlib.Path] = {}
    for model, of_model in itertools.groupby(found, lambda samples: samples.absolute().parent.parent):
        drawer = VERSIONS.get(model.name, model.name)
        if drawer in models:
            raise InputError(
                f"{folder} has images by {drawer!r} in {models[drawer]} and in {model}: name one guidance scale's"
                " folder, and keep each model once",
                code="named-twice",
            )
        models[drawer] = model
        yield from _of_model(model, drawer, list(of_model))


def _of_model(model: pathlib.Path, drawer: str, found: Sequence[pathlib.Path]) -> Iterator[Drawn]:
    """The pictures of a model at one guidance scale; ``found`` are its folders ``samples``."""
    verdicts, known = _verdicts(model, drawer), 0
    for samples in found:
        place = samples.parent
        rows = list(read_json_lines(place / "metadata.jsonl").rows())
        if len(rows) != 1:
            raise InputError(
                f"{place / 'metadata.jsonl'} has {len(rows)} lines, not one: restore it as it was published",
                code="wrong-number-of-entries",
            )
        (row,) = rows
        tag, include, prompt = row["tag"].text(), row["include"].value, row["prompt"].text()
        if tag not in geneval.SKILLS:
            raise row["tag"].wrong(f"is {options.shown(tag)}, none of {', '.join(geneval.SKILLS)}", "unknown-name")
        texts, target = _question(tag, include, prompt, row.where)
        for path in sorted(samples.glob("*.png")):
            name = f"{place.name}/samples/{path.name}"
            correct = None if verdicts is None else verdicts.get(name)
            known += correct is not None
            content = image_files.image_hash(path)
            yield Drawn(f"{drawer}/{name}", path, drawer, tag, texts, target, correct, content, verdicts is not None)
    if verdicts is not None and not known:
        raise InputError(
            f"the filter file of {drawer} names no image of {model}: restore both as they were published",
            code="contradicting-rows",
        )


def _verdicts(model: pathlib.Path, drawer: str) -> Mapping[str, bool] | None:
    """<prompt>/samples/<file> -> whether it is correct, of a model's filter file; None with a warning without one."""
    guidance = model.parent
    scale = f"{float(guidance.name):g}" if guidance.name.replace(".", "", 1).isdigit() else guidance.name
    file = f"SD-{drawer}-CFG={scale}.json"
    places = [root / "filter" / file for root in (guidance.parent, guidance.parent.parent)]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        warnings.warn(
            f"{places[0]} is missing, so that the results have '{drawer}, no filter' instead of '{drawer}, correct':"
            " put Self-Bench's filter file there",
            stacklevel=2,
        )
        return None
    enough = any if (drawer, scale) == _ANY_LABEL else all
    found = {}
    for row in read_json(path).rows():
        labels = _labels(row)
        found["/".join(row["sample_path"].text().split("/")[-3:])] = bool(labels) and enough(
            label == _GOOD for label in labels
        )
    return found


def _labels(row: Entry) -> list[str]:
    # They count before a human_label, as in the published code.
    if "human_label" not in row or ("labels" in row and row["labels"].value):
        return [label["label"].text() for label in row["labels"].rows()]
    return [row["human_label"].text()]


SOURCES: Mapping[str, Callable[[Sequence[str]], list[Task]]] = {"selfbench": make}
"""Word before the colon of ``--config.tasks`` -> what makes the tasks."""
