"""BiVLC: SugarCrepe with an image for the wrong caption, too (Miranda et al. 2024)

2,933 pairs. The second image is drawn by a model and chosen by people. Groups are SugarCrepe's sets.
"""

from __future__ import annotations

import functools

from winobench.metrics import WINOGROUND_CHANCE
from winobench.tasks.base import PublishedData
from winobench.tasks.hub_tables import PairTable, read_pairs
from winobench.tasks.published import published_task

_HUB_ID = "imirandam/BiVLC"

TASKS = (
    published_task(
        name="bivlc",
        version=1,
        description="BiVLC: which caption belongs to a photograph and which to a drawn image; SugarCrepe's captions.",
        metric="winoground",
        shape=(2, 2),
        chance=WINOGROUND_CHANCE,
        images_compete=True,
        skills=("compositional",),
        source=PublishedData(
            read=functools.partial(
                read_pairs,
                table=PairTable(
                    "test",
                    ("image", "negative_image"),
                    ("caption", "negative_caption"),
                    groups=("type", "subtype"),
                ),
            ),
            how_to_get=(
                f"the Parquet files of https://huggingface.co/datasets/{_HUB_ID}"
                f" (`hf download {_HUB_ID} --repo-type=dataset --local-dir=DIR`; MIT licence)"
            ),
            num_examples=2933,
        ),
    ),
)
