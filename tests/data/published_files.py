"""A small published source that the tests make: images of several kinds, and items about them."""

import pathlib

import numpy as np
from PIL import Image

from winobench.data import preparing
from winobench.data.example import ImageFile, Item

NUM_IMAGES = 10


def make_images(root: pathlib.Path, count: int = NUM_IMAGES) -> list[pathlib.Path]:
    """JPEG and PNG files of 24 x 16 pixels in turn, each of its own colours."""
    root.mkdir(parents=True, exist_ok=True)
    paths = [root / f"{number}.{'jpg' if number % 2 else 'png'}" for number in range(count)]
    for number, path in enumerate(paths):
        pixels = np.random.default_rng(number).integers(0, 256, (16, 24, 3), np.uint8)
        Image.fromarray(pixels).save(path)
    return paths


def make_items(paths: list[pathlib.Path]) -> list[Item]:
    """An item an image, with the next image cut to a box as the second one."""
    return [
        Item(
            id=f"item-{number}",
            images=(ImageFile(path), ImageFile(paths[(number + 1) % len(paths)], (2, 1, 10, 9))),
            texts=("naïve", f"text {number}"),
            target=number % 2 if number else None,
            groups=("even" if number % 2 == 0 else "odd",),
        )
        for number, path in enumerate(paths)
    ]


def prepare(folder, items, root, **options):
    options = {"task": "toy", "task_version": 1, "workers": 1, **options}
    return preparing.prepare(folder, items, root=root, **options)
