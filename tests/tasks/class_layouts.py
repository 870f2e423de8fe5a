"""Tiny sets in the published layouts of ImageNet, Oxford's flowers and CREPE, for `tests.tasks.newer_layouts`."""

import csv
import pathlib

import numpy as np
import scipy.io

from tests.tasks.published_layouts import write_image, write_json
from winobench.tasks import crepe

TENCH, GOLDFISH, MISSILE, PROJECTILE = "n01440764", "n01443537", "n03773504", "n04008634"

_IMAGENET = {0: "tench", 1: "goldfish", 657: "missile", 744: "missile", 836: "sunglasses", 837: "sunglasses"}


def write_prompts(path: pathlib.Path, names: dict[int, str], count: int) -> None:
    """The table of Diffusion Classifier; classes that are not named are called by their numbers."""
    with open(path, "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["prompt", "classname", "classidx"])
        for number in range(count):
            name = names.get(number, f"class {number}")
            table.writerow([f"a photo of a {name}.", name, number])


def write_imagenet(folder: pathlib.Path) -> pathlib.Path:
    """Three photographs in folders of their classes; two names are those of two classes each."""
    folder.mkdir(parents=True, exist_ok=True)
    write_prompts(folder / "imagenet_prompts.csv", _IMAGENET, 1000)
    known = {0: TENCH, 1: GOLDFISH, 657: MISSILE, 744: PROJECTILE}
    classes = {str(number): [known.get(number, f"n1{number:07d}"), f"class_{number}"] for number in range(1000)}
    write_json(folder / "imagenet_class_index.json", classes)
    for wordnet, number in ((TENCH, 3), (GOLDFISH, 1), (PROJECTILE, 2)):
        write_image(folder / "val" / wordnet / f"ILSVRC2012_val_{number:08d}.JPEG")
    return folder


def flatten(folder: pathlib.Path) -> None:
    """Puts the photographs of `write_imagenet` side by side."""
    for path in sorted((folder / "val").glob("*/*.JPEG")):
        path.rename(folder / "val" / path.name)
    for path in (folder / "val").iterdir():
        if path.is_dir():
            path.rmdir()


def write_kaggle(folder: pathlib.Path) -> None:
    """Flat, with Kaggle's table."""
    flatten(folder)
    rows = [
        f"ILSVRC2012_val_{1:08d},{GOLDFISH} 1 2 3 4 {GOLDFISH} 5 6 7 8",
        f"ILSVRC2012_val_{2:08d},{PROJECTILE} 1 2 3 4",
    ]
    rows.append(f"ILSVRC2012_val_{3:08d},{TENCH} 1 2 3 4")
    (folder / "LOC_val_solution.csv").write_text("\n".join(["ImageId,PredictionString", *rows]) + "\n")


def write_devkit(folder: pathlib.Path) -> None:
    """Flat, with the development kit, whose numbers are its own."""
    flatten(folder)
    data = folder / "ILSVRC2012_devkit_t12" / "data"
    data.mkdir(parents=True)
    fields = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O")]
    synsets = np.array([[(1, PROJECTILE, "a")], [(2, TENCH, "b")], [(3, GOLDFISH, "c")]], dtype=fields)
    scipy.io.savemat(data / "meta.mat", {"synsets": synsets})
    (data / "ILSVRC2012_validation_ground_truth.txt").write_text("3\n1\n2\n")


def write_flowers102(folder: pathlib.Path) -> pathlib.Path:
    """Five photographs, three of them of the test split."""
    folder.mkdir(parents=True, exist_ok=True)
    write_prompts(folder / "flowers_prompts.csv", {0: "pink primrose", 76: "passion flower"}, 102)
    scipy.io.savemat(folder / "imagelabels.mat", {"labels": np.array([[77, 1, 102, 5, 6]], np.uint8)})
    scipy.io.savemat(folder / "setid.mat", {"trnid": np.array([[4]]), "tstid": np.array([[3, 1, 2]], np.uint16)})
    for number in range(1, 6):
        write_image(folder / "jpg" / f"image_{number:05d}.jpg")
    return folder


def write_crepe(folder: pathlib.Path, kind: str) -> pathlib.Path:
    """Three rows a table, of which the last one has no false caption."""
    part, _, negatives = kind.partition("_")
    column = "hard_negs" if part == "productivity" else f"valid_hard_negs_{negatives}"
    if part == "productivity":
        place = folder / crepe.PRODUCTIVITY / negatives
        names = [f"prod_vg_hard_negs_{negatives}_complexity_{level}.csv" for level in crepe.COMPLEXITIES]
    else:
        place = folder / crepe.SYSTEMATICITY
        names = [f"syst_vg_hard_negs_{seen}_compounds_in_laion.csv" for seen in ("seen", "unseen")]
    place.mkdir(parents=True, exist_ok=True)
    for name in names:
        with open(place / name, "w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["", "image_id", "caption", "x", "y", "width", "height", column])
            for number, false in enumerate((5, 4, 0)):
                captions = [f"a {color} cup" for color in ("red", "green", "gray", "pink", "black")][:false]
                captions += captions[:1] * (number == 1)
                table.writerow([number, number + 1, f"a blue cup, {number}", 2, 1, 10, 12, captions])
    for number, images in ((1, "VG_100K"), (2, "VG_100K_2"), (3, "VG_100K")):
        write_image(folder / images / f"{number}.jpg")
    return folder
