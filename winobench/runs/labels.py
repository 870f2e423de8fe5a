"""Labels of tasks, models and runs: short, and the same in tables, figures, reports, exports and the viewer."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

# Letters of a run's name, and of one difference between runs of one name, that fit tables and legends.
MOST_LETTERS, _MOST_LETTERS_MORE = 32, 26
STARTED = "started"
_DIGEST = re.compile(r"-[0-9a-f]{8}$")  # of an identity, at the end of a folder that the user has not named

TASK_LABELS = {
    "aro_flickr_order": "ARO Flickr order",
    "aro_coco_order_published": "ARO COCO order, published shuffles",
    "aro_flickr_order_published": "ARO Flickr order, published shuffles",
    "clevr_hard_image": "CLEVR hard, image",
    "clevr_hard_256": "CLEVR hard, 256 pixels",
    "clevr_hard_image_256": "CLEVR hard, image, 256 pixels",
    "pets_photo": "Pets, photo prompt",
    "pets_all": "Pets, all photographs",
    "pets_photo_all": "Pets, photo prompt, all photographs",
    "genderbias": "Gender bias",
    "coco_counterfactuals": "COCO-Counterfactuals",
    "coco_hardneg_text": "COCO hard negatives, text",
    "coco_hardneg_image": "COCO hard negatives, image",
    "coco_hardneg_text_328": "COCO hard negatives, text, 328 rows",
    "coco_hardneg_image_328": "COCO hard negatives, image, 328 rows",
    "winoviz_single": "WinoViz single-hop",
    "winoviz_multi": "WinoViz multi-hop",
    "winoviz_decoupled": "WinoViz decoupled",
    "winoviz_mini_single": "WinoViz mini, single-hop",
    "winoviz_mini_multi": "WinoViz mini, multi-hop",
    "winoviz_mini_decoupled": "WinoViz mini, decoupled",
    "wscplus": "WSC+",
    "wscplus_test": "WSC+ test set",
}
"""Labels of tasks that `task_label` cannot make of their names."""

# Words that people write in another way than in the names of tasks.
_PROPER = """
    ARO BiVLC BLIP CLEVR CLIP COCO COLA ColorSwap ConMe CountBench CREPE EvalMuse FGVC Flickr30K GenAI GenEval GQA
    ImageCoDe ImageNet ImageReward ITM MMBias MMVP NaturalBench PACO SD SeeTRUE SugarCrepe SVO TIFA160 VALSE VG VisMin
    VQA
    Winoground
"""
_WORDS = {word.lower(): word for word in _PROPER.split()} | {
    "cifar10": "CIFAR-10",
    "eqbench": "EqBen",
    "flowers102": "Flowers 102",
    "hardneg": "hard negatives",
    "hpdv2": "HPD v2",
    "mscoco": "MS COCO",
    "obj": "object",
    "selfbench": "Self-Bench",
    "stl10": "STL-10",
    "subj": "subject",
    "vlchecklist": "VL-CheckList",
    "whatsup": "What'sUp",
}


def task_label(task: str) -> str:
    """A task's label: ``My COCO test`` for ``my_coco_test``."""
    if task in TASK_LABELS:
        return TASK_LABELS[task]
    words = [_WORDS.get(word, word) for word in re.split(r"[_\s]+", task) if word]
    text = " ".join(words) or task
    return text[0].upper() + text[1:] if words and words[0].islower() else text


def model_label(model: str) -> str:
    """A model's short name: a registry name as it is, the last part of a hub id or of a folder's path."""
    last = re.split(r"[/\\]", model.rstrip("/\\"))[-1]
    return last if last.strip(".") else model


def shortened(text: str, most: int) -> str:
    """The text, or its beginning and end around an ellipsis where it has more than ``most`` letters."""
    if len(text) <= most:
        return text
    tail = (most - 1) // 3
    return f"{text[: most - 1 - tail].rstrip()}…{text[len(text) - tail :].lstrip()}"


class Labelled(NamedTuple):
    """The parts of a run's label.

    ``label`` is the run's name, or its model's short one. ``model`` is the model's full name. ``fields`` maps options
    to words, the most telling first, and `STARTED` to a time. ``folder`` is the folder's name.
    """

    label: str
    model: str
    fields: Mapping[str, str]
    folder: str


def unique_labels(runs: Sequence[Labelled]) -> list[str]:
    """A label for each run. Equal ones get the fields in which their runs differ, as few as will do."""
    labels = [run.label for run in runs]
    for label in dict.fromkeys(labels):
        alike = [number for number, run in enumerate(runs) if run.label == label]
        parts: list[tuple[str, ...]] = [() for _ in alike]
        for words in _differences([runs[number] for number in alike]):
            if len(set(parts)) == len(alike):
                break
            more = [shortened(part, _MOST_LETTERS_MORE) for part in words]
            if len(set(more)) > 1:
                parts = [(*before, after) for before, after in zip(parts, more, strict=True)]
        for number, own in zip(alike, parts, strict=True):
            labels[number] = f"{label} ({', '.join(filter(None, own))})" if any(own) else label
    return [f"{label} {number}" if labels.count(label) > 1 else label for number, label in enumerate(labels, 1)]


def _differences(runs: Sequence[Labelled]) -> Iterator[list[str]]:
    """The words of each run on one thing after the other. A folder named by a digest tells less than a time."""
    yield [model_label(run.model) for run in runs]
    yield _different_parts([run.model for run in runs])
    fields = dict.fromkeys(field for run in runs for field in run.fields if field != STARTED)
    values = {field: {run.fields[field] for run in runs if field in run.fields} for field in fields}
    # Fields that all runs of a kind have in common come last: runs of another kind lack them.
    for field in sorted(fields, key=lambda field: len(values[field]) < 2):
        yield [run.fields.get(field, "") for run in runs]
    last = [[run.fields.get(STARTED, "") for run in runs], [run.folder for run in runs]]
    yield from last if any(_DIGEST.search(run.folder) for run in runs) else reversed(last)


def _different_parts(models: Sequence[str]) -> list[str]:
    """The last parts before the names' ends in which the names differ. Empty if none do."""
    parts = [re.split(r"[/\\]", model.rstrip("/\\"))[-2::-1] for model in models]
    for at_one_depth in itertools.zip_longest(*parts, fillvalue=""):
        if len(set(at_one_depth)) > 1:
            return list(at_one_depth)
    return [""] * len(models)
