"""EqBen: neighbouring frames of videos and renderings with a minimal change (Wang et al. 2023)

The small subset that was published for multimodal language models, as Self-Bench asks it: 20 pairs of each of seven
sources, so that an interval is some 0.2 to each side. Frames in NumPy's format have their channels in the order blue,
green, red. They are written as PNG into the folder ``unpacked`` when they are first read.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Iterator

import numpy as np

from winobench.base.errors import InputError
from winobench.data.example import ImageFile, Item
from winobench.tasks.annotations import read_json
from winobench.tasks.hub_tables import write_png
from winobench.tasks.published import published_task

_FILE = "all_select.json"

SOURCES_OF_FRAMES = {
    "kubric_attr": ("rendered things whose attribute changes", ("attribute_binding",)),
    "kubric_cnt": ("rendered things whose number changes", ("counting",)),
    "kubric_loc": ("rendered things that change places", ("spatial",)),
    "ag": ("actions in videos of Action Genome", ("compositional",)),
    "gebc": ("events in videos of GEBC", ("compositional",)),
    "youcook2": ("steps in videos of YouCook2", ("compositional",)),
    "sd": ("images edited by Stable Diffusion", ("recognition",)),
}
"""Source -> what differs, skills."""


def read(folder: pathlib.Path, source: str) -> Iterator[Item]:
    """Two images and two captions. The diagonal is right."""
    for number, row in enumerate(read_json(folder / _FILE).rows()):
        names = [row[f"image{side}"].text() for side in (0, 1)]
        if names[0].split("/", 1)[0] != f"eqben{source}":
            continue
        images = tuple(_image(folder, name) for name in names)
        yield Item(f"row-{number:03d}", images, tuple(row[f"caption{side}"].text() for side in (0, 1)), None)


def _image(folder: pathlib.Path, name: str) -> ImageFile:
    path = folder / "images" / name
    # winobench prepare refuses what leads elsewhere, and names what is missing.
    elsewhere = not path.is_relative_to(folder / "images") or ".." in path.parts
    if path.suffix != ".npy" or elsewhere or not path.is_file():
        return ImageFile(path)
    try:
        frame = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        frame = None
    if not isinstance(frame, np.ndarray) or frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3:
        raise InputError(
            f"{path} is not an array of an image, uint8 [height, width, 3]: get the file again", code="damaged-file"
        )
    return write_png(frame[:, :, ::-1], folder, f"{pathlib.PurePosixPath(name).with_suffix('.png')}")


TASKS = tuple(
    published_task(
        name=f"eqbench_{source}",
        description=f"EqBen: which caption belongs to which of two images; {differs}.",
        metric="winoground",
        shape=(2, 2),
        skills=skills,
        read=functools.partial(read, source=source),
        how_to_get=(
            f"{_FILE} and the folder images, of eqben_vllm in"
            " https://drive.google.com/file/d/11YUTf06uzRHtFV8rYi96z4vTPi8_GNEM (the subset for language models of"
            " https://github.com/Wangt-CN/EqBen, Apache 2.0 licence)"
        ),
        num_examples=20,
        shared_folder="eqbench",
    )
    for source, (differs, skills) in SOURCES_OF_FRAMES.items()
)
