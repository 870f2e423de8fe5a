"""ImageNet: which of 1,000 classes a photograph of ILSVRC2012's validation set shows.

Texts are the prompts of Diffusion Classifier, with the names of CLIP's authors. Two names belong to two classes each
("missile" and "sunglasses"): such a text is one candidate, which is right for both. 998 candidates remain. (The
published code takes the first of the two classes, so that the other one is never right.)
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Mapping

from winobench.base import options
from winobench.base.errors import InputError
from winobench.contrib.datasets import class_prompts, mat_files
from winobench.data.example import ImageFile, Item
from winobench.tasks.annotations import not_as_published, read_json, read_lines, read_table
from winobench.tasks.base import DataSet
from winobench.tasks.published import published_task

_NUM_CLASSES, _NUM_TEXTS, _NUM_IMAGES = 1000, 998, 50_000
_PROMPTS = class_prompts.download(
    "prompts/imagenet_prompts.csv", "cf2d06d5aa246aabc8c3ea2eba287662e49c08f062728a8a76c9b3d0c09947cd"
)
_CLASSES = class_prompts.download(
    "diffusion/imagenet_class_index.json", "a1e7a966a1f601d39e4b43e119b3e7dd4a2ad3ea08cf69847cbaf021013767bc"
)
_PAGE = "https://www.image-net.org"
_KAGGLE = "LOC_val_solution.csv"
_DEVKIT = "ILSVRC2012_devkit_t12/data"
_TRUTH = "ILSVRC2012_validation_ground_truth.txt"


def read(folder: pathlib.Path) -> Iterator[Item]:
    """A photograph and a prompt for each class.

    The photographs have a folder for each WordNet id, or lie side by side with Kaggle's table or the development kit.
    """
    prompts = class_prompts.read(folder / _PROMPTS.to, _NUM_CLASSES)
    texts = tuple(dict.fromkeys(prompts))
    targets = {wordnet: texts.index(prompts[number]) for wordnet, number in _numbers(folder / _CLASSES.to).items()}
    photographs = _photographs(folder)
    seen: set[str] = set()
    for path, wordnet, where in photographs:
        if wordnet not in targets:
            problem = f"is {options.quote(wordnet)}, none of the classes of {folder / _CLASSES.to}"
            raise not_as_published(where, problem, "unknown-name")
        if path.stem in seen:
            raise InputError(
                f"{where} has the photograph {path.name}, which was there already: keep one", code="repeated-id"
            )
        seen.add(path.stem)
        yield Item(path.stem, (ImageFile(path),), texts, targets[wordnet])


def _numbers(path: pathlib.Path) -> Mapping[str, int]:
    """WordNet id -> number of the class."""
    numbers: dict[str, int] = {}
    classes = read_json(path)
    for key, row in classes.items():
        wordnet, _ = row.texts(2)
        if not (key.isascii() and key.isdigit()) or int(key) >= _NUM_CLASSES or wordnet in numbers:
            raise row.wrong(f"is not a class from 0 to {_NUM_CLASSES - 1}, or occurs twice", "bad-annotations")
        numbers[wordnet] = int(key)
    if len(numbers) != _NUM_CLASSES:
        raise classes.wrong(f"has {len(numbers)} classes, not {_NUM_CLASSES}", "wrong-number-of-entries")
    return numbers


def _photographs(folder: pathlib.Path) -> Iterator[tuple[pathlib.Path, str, str]]:
    """(file, WordNet id, where it stands) of each photograph."""
    kaggle = folder / "ILSVRC" / "Data" / "CLS-LOC" / "val"
    root = kaggle if kaggle.is_dir() else folder / "val"
    if not root.is_dir():
        raise InputError(
            f"the task needs the folder {root}, which does not exist: put ILSVRC2012's validation set there",
            code="no-such-folder",
        )
    folders = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    if folders:
        return _by_folder(folders)
    if (folder / _KAGGLE).exists():
        return _of_kaggle(root, folder / _KAGGLE)
    return _of_devkit(root, folder / _DEVKIT)


def _by_folder(folders: list[pathlib.Path]) -> Iterator[tuple[pathlib.Path, str, str]]:
    for folder in folders:
        for path in sorted(folder.glob("*.JPEG")):
            if not path.name.startswith("."):
                yield path, folder.name, f"the folder {folder}"


def _of_kaggle(root: pathlib.Path, table: pathlib.Path) -> Iterator[tuple[pathlib.Path, str, str]]:
    for row in read_table(table, ("ImageId", "PredictionString"), ",").rows():
        answer = row["PredictionString"]
        yield root / f"{row['ImageId'].text()}.JPEG", answer.text().split()[0], answer.where


def _of_devkit(root: pathlib.Path, data: pathlib.Path) -> Iterator[tuple[pathlib.Path, str, str]]:
    truth, meta = data / _TRUTH, data / "meta.mat"
    lines = read_lines(truth)
    synsets = mat_files.read(meta, "synsets")
    if not {"ILSVRC2012_ID", "WNID"} <= set(synsets.dtype.names or ()):
        raise not_as_published(f"'synsets' in {meta}", "has no ids", "missing-field")
    wordnets = {str(synset["ILSVRC2012_ID"]): str(synset["WNID"]) for synset in synsets}
    for number, line in enumerate(lines, start=1):
        where = f"line {number} of {truth}"
        yield root / f"ILSVRC2012_val_{number:08d}.JPEG", wordnets.get(line, line), where


TASKS = (
    published_task(
        name="imagenet",
        description="ImageNet (ILSVRC2012, validation): which of 1,000 classes, of which two pairs have one name.",
        shape=(1, _NUM_TEXTS),
        skills=("classification",),
        paper="Russakovsky et al. 2015",
        licence="research only",
        url=_PAGE,
        read=read,
        how_to_get=(
            f"{_PROMPTS.to} (from prompts of {class_prompts.REPOSITORY}), {_CLASSES.to} (from diffusion there), and"
            " the folder val of ILSVRC2012 with a folder for each class, or flat with"
            f" {_KAGGLE} or {_DEVKIT} ({_PAGE}, under its terms: research only)"
        ),
        num_examples=_NUM_IMAGES,
        downloads=(_PROMPTS, _CLASSES),
    ),
)

DATA_SETS = (
    DataSet(
        name="imagenet",
        title="ImageNet",
        description="one of 1,000 classes",
        tasks=TASKS,
        downloads="prompts",
        supplies="photographs",
    ),
)
