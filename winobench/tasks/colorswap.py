"""ColorSwap: two generated images and two captions in which colours are swapped

The 300 pairs of the test split. `winobench.evaluation.evaluate` asks a scorer about them.
"""

from __future__ import annotations

from winobench.tasks.base import DataSet
from winobench.tasks.hub_tables import PairTable, pair_task

TASKS = (
    pair_task(
        "colorswap",
        "ColorSwap: which caption belongs to which of two images. Colours are swapped.",
        PairTable(("image_1", "image_2"), ("caption_1", "caption_2")),
        300,
        skills=("compositional", "attribute_binding"),
        paper="Burapacheep et al. 2024",
        licence="MIT",
        url="https://huggingface.co/datasets/stanfordnlp/colorswap",
        first="accept the terms there first, then ",
    ),
)

DATA_SETS = (
    DataSet(
        name="colorswap",
        title="ColorSwap",
        description="two images, colours swapped",
        tasks=TASKS,
        downloads="",
        supplies="the hub's tables, stanfordnlp/colorswap",
        licence="MIT, gated",
    ),
)
