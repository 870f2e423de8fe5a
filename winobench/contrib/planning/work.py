"""The work of GDBench's tasks by their published sizes, without the data."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from winobench.tasks import DATA_SETS, TASKS, groups


@dataclasses.dataclass(frozen=True)
class Work:
    questions: int
    images: int  # distinct ones
    pairs: int  # distinct (image, text) pairs, with the empty text where images compete. Each is scored on every sample
    source: str  # of the numbers
    is_bias: bool = False  # whether it takes the samples of bias tasks
    repeated_images: int = 0  # those that tasks before it have already
    repeated_pairs: int = 0


_FILES, _ROWS = "counted in the published annotations", "at most: every row counted as if it repeated nothing"

# In the order in which an evaluation has them. Both tasks of Flickr30K have the images of ARO's order task, and the
# second some of the first one's pairs.
GDBENCH = {
    "aro_coco_order": Work(25_010, 5_000, 125_050, "5,000 images. Pairs at most"),
    "aro_flickr_order": Work(5_070, 1_014, 25_350, "1,014 images. Pairs at most"),
    "aro_vg_relation": Work(23_937, 23_937, 47_874, _ROWS),
    "aro_vg_attribution": Work(28_748, 28_748, 57_496, _ROWS),
    "clevr": Work(8_036, 574, 12_628, _FILES),
    "flickr30k_image": Work(1_014, 1_014, 11_154, _FILES, repeated_images=1_014, repeated_pairs=1_014),
    "flickr30k_text": Work(1_014, 1_014, 10_136, _FILES, repeated_images=1_014, repeated_pairs=1_014 + 1_791 - 179),
    "imagecode_static": Work(430, 1_550, 5_850, _FILES),
    "imagecode": Work(
        *(2_302, 10_390, 33_410, f"{_FILES}. Frames may repeat"), repeated_images=1_550, repeated_pairs=5_850
    ),
    "pets_photo_all": Work(7_390, 7_390, 273_430, "7,390 images x 37 breeds"),
    "svo": Work(48_000, 14_102, 62_102, "at most: 14,102 addresses of images, 48,000 image-sentence pairs"),
    "winoground": Work(400, 800, 2_400, _FILES),
    "genderbias": Work(72, 72, 144, "an assumption: six folders of 12. Not published", is_bias=True),
    "mmbias": Work(2_250, 2_250, 270_000, "nine groups of some 250 images x 120 phrases", is_bias=True),
}
"""Task of the paper's tables -> its work. The three tasks of SVO are one."""

OTHERS = {
    "aro_coco_order_published": Work(25_010, 5_000, 125_050, "as aro_coco_order"),
    "aro_flickr_order_published": Work(5_070, 1_014, 25_350, "as aro_flickr_order"),
    "coco_hardneg_text": Work(4_839, 4_839, 9_678, _FILES),
    "coco_hardneg_image": Work(4_839, 4_839, 14_516, _FILES),
    "coco_hardneg_text_328": Work(328, 328, 656, _FILES),
    "coco_hardneg_image_328": Work(328, 603, 1_259, _FILES),
    "imagecode_video": Work(1_872, 8_840, 27_560, f"{_FILES}. Frames may repeat"),
    "pets": Work(3_669, 3_669, 135_753, "3,669 images x 37 breeds"),
    "pets_photo": Work(3_669, 3_669, 135_753, "as pets, whose images are the same"),
    "pets_all": Work(7_390, 7_390, 273_430, "as pets_photo_all, whose images are the same"),
}
"""Tasks that are not in the paper's tables, or other splits of its tasks."""

_PARTS = {"svo_subj": "svo", "svo_verb": "svo", "svo_obj": "svo"}


@dataclasses.dataclass(frozen=True)
class Total:
    """Passes of the denoiser, distinct images, and the tasks whose size is not known."""

    passes: int
    images: int
    unknown: tuple[str, ...] = ()


def _declared(name: str) -> Work | None:
    """At most what a task of published data needs, by its declared number of examples; None for others."""
    task = TASKS.get(name)
    if task is None or task.source is None or task.source.num_examples is None:
        return None
    questions, (num_images, num_texts) = task.source.num_examples, task.shape
    images = questions * num_images
    pairs = images * (num_texts + task.images_compete)
    return Work(questions, images, pairs, _ROWS, is_bias=task.association is not None)


def names(words: str) -> list[str]:
    """The tasks of a config, with a group's members instead of its name. Empty where it means all that are ready."""
    found = [] if words == "ready" else words.split(",")
    return [
        name
        for word in found
        for name in (groups.members(word, TASKS, DATA_SETS) if word.startswith(groups.MARK) else [word])
    ]


def total(tasks: Sequence[str], num_samples: int, num_bias_samples: int, limit: int | None = None) -> Total:
    known = GDBENCH | OTHERS
    names = list(dict.fromkeys(_PARTS.get(name, name) for name in tasks)) or list(GDBENCH)
    of_tasks = {name: known.get(name) or _declared(name) for name in names}
    passes = images = 0.0
    for work in filter(None, of_tasks.values()):
        # What other tasks have already counts once, if there are others.
        repeated = len(names) > 1
        share = 1.0 if limit is None else min(1.0, limit / work.questions)
        samples = min(num_samples, num_bias_samples) if work.is_bias else num_samples
        passes += share * (work.pairs - repeated * work.repeated_pairs) * samples
        images += share * (work.images - repeated * work.repeated_images)
    return Total(round(passes), round(images), tuple(name for name, work in of_tasks.items() if work is None))
