"""ColorSwap: two generated images and two captions in which colours are swapped (Burapacheep et al. 2024)

The 300 pairs of the test split.
"""

from __future__ import annotations

import functools

from winobench.metrics import WINOGROUND_CHANCE
from winobench.tasks.base import PublishedData
from winobench.tasks.hub_tables import PairTable, read_pairs
from winobench.tasks.published import published_task

_HUB_ID = "stanfordnlp/colorswap"

TASKS = (
    published_task(
        name="colorswap",
        version=1,
        description="ColorSwap: which caption belongs to which of two images. Colours are swapped.",
        metric="winoground",
        shape=(2, 2),
        chance=WINOGROUND_CHANCE,
        images_compete=True,
        skills=("compositional", "attribute_binding"),
        source=PublishedData(
            read=functools.partial(
                read_pairs, table=PairTable("test", ("image_1", "image_2"), ("caption_1", "caption_2"))
            ),
            how_to_get=(
                f"the Parquet files of https://huggingface.co/datasets/{_HUB_ID} (accept the terms there first, then"
                f" `hf download {_HUB_ID} --repo-type=dataset --local-dir=DIR`; MIT licence)"
            ),
            num_examples=300,
        ),
    ),
)
