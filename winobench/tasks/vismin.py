"""VisMin: two images that differ in one respect, and their captions (Awal et al. 2024)

2,084 pairs: edited photographs of COCO's val2017, checked by people. Self-Bench's figures are the text score.
"""

from __future__ import annotations

import functools

from winobench.metrics import WINOGROUND_CHANCE
from winobench.tasks.base import PublishedData
from winobench.tasks.hub_tables import PairTable, read_pairs
from winobench.tasks.published import published_task

_HUB_ID = "mair-lab/vismin-bench"

CATEGORIES = {
    "object": (579, "one thing", ("recognition",)),
    "attribute": (294, "an attribute", ("recognition",)),
    "counting": (589, "a number", ("counting",)),
    "relation": (622, "where things are", ("spatial",)),
}
"""Category -> number of pairs, what differs, skills."""

TASKS = tuple(
    published_task(
        name=f"vismin_{category}",
        version=1,
        description=f"VisMin: which caption belongs to which of two images. They differ in {differs}.",
        metric="winoground",
        shape=(2, 2),
        chance=WINOGROUND_CHANCE,
        images_compete=True,
        skills=skills,
        source=PublishedData(
            read=functools.partial(
                read_pairs,
                table=PairTable("test", ("image_0", "image_1"), ("text_0", "text_1"), only=("category", category)),
            ),
            how_to_get=(
                f"the Parquet files of https://huggingface.co/datasets/{_HUB_ID}"
                f" (`hf download {_HUB_ID} --repo-type=dataset --local-dir=DIR`; its page has the licence)"
            ),
            num_examples=count,
            shared_folder="vismin",
        ),
    )
    for category, (count, differs, skills) in CATEGORIES.items()
)
