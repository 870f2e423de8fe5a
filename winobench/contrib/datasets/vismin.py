"""VisMin: two images that differ in one respect, and their captions

2,084 pairs: edited photographs of COCO's val2017, checked by people. Self-Bench's figures are the text score.
"""

from __future__ import annotations

from winobench.tasks.base import DataSet
from winobench.tasks.hub_tables import PairTable, pair_task

CATEGORIES = {
    "object": (579, "one thing", ("recognition",)),
    "attribute": (294, "an attribute", ("recognition",)),
    "counting": (589, "a number", ("counting",)),
    "relation": (622, "where things are", ("spatial",)),
}
"""Category -> number of pairs, what differs, skills."""

TASKS = tuple(
    pair_task(
        f"vismin_{category}",
        f"VisMin: which caption belongs to which of two images. They differ in {differs}.",
        PairTable(("image_0", "image_1"), ("text_0", "text_1"), only=("category", category)),
        count,
        skills=skills,
        paper="Awal et al. 2024",
        url="https://huggingface.co/datasets/mair-lab/vismin-bench",
        shared_folder="vismin",
    )
    for category, (count, differs, skills) in CATEGORIES.items()
)

DATA_SETS = (
    DataSet(
        name="vismin",
        title="VisMin",
        description="pairs with a minimal change",
        tasks=TASKS,
        downloads="",
        supplies="the hub's tables, mair-lab/vismin-bench",
        licence="on its page",
    ),
)
